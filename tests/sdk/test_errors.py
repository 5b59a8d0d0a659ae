"""Exceptions of real clients, raised by a real server or a scripted one, read as what they mean."""

from __future__ import annotations

from typing import ClassVar

import anthropic
import httpx2
import openai
import pytest

from tests.support.faults import (
    Answer,
    FaultServer,
    closed_port,
    cut_short,
    dropped,
    hanging,
    html,
    of_json,
)
from ullage import classify_error, classify_exception
from ullage.core.errors import ErrorKind
from ullage.embedded import Server
from ullage.sdk.errors import Trouble, lost_connection, read_trouble

CHAT = "POST /v1/chat/completions"
QUESTION = [{"role": "user", "content": "hello"}]
TOO_LONG = [{"role": "user", "content": "hello world " * 1500}]
CONTEXT = {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}
LENGTH = {
    "message": "This model's maximum context length is 8192 tokens. However, your messages "
    "resulted in 9000 tokens. Please reduce the length of the messages.",
    "type": "invalid_request_error",
    "param": "messages",
    "code": "context_length_exceeded",
}


def raised(base_url: str, messages=QUESTION, **options) -> openai.OpenAIError:
    """Return what the SDK raises for one chat request."""
    timeout = options.pop("timeout", 30.0)
    with (
        openai.OpenAI(base_url=base_url, api_key="k", max_retries=0, timeout=timeout) as client,
        pytest.raises(openai.OpenAIError) as caught,
    ):
        for _ in client.chat.completions.create(model="tiny", messages=messages, **options):
            pass
    return caught.value


@pytest.mark.parametrize("stream", [False, True])
def test_a_real_overflow_names_its_limit_and_its_input(tiny_server: Server, stream) -> None:
    error = raised(tiny_server.base_url, TOO_LONG, stream=stream)
    assert isinstance(error, openai.BadRequestError)
    kind = classify_exception(error)
    assert (kind.kind, kind.limit, kind.certainty) == ("input", 2048, "certain")
    assert kind.input_tokens is not None
    assert kind.input_tokens > 2048


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (of_json({"error": LENGTH}, 400), ErrorKind("input", 8192, 9000)),
        (of_json({"error": CONTEXT}, 500), ErrorKind("input")),
        (of_json({"error": {"message": "Rate limit reached", "code": None}}, 429),
         ErrorKind("rate_limit")),
        (of_json({"error": {"message": "quota", "code": "insufficient_quota"}}, 429),
         ErrorKind("quota")),
        (of_json({"error": {"message": "The server had an error"}}, 500), ErrorKind("other")),
        (of_json({"error": {"message": "Invalid API Key"}}, 401), ErrorKind("other")),
        (of_json({"error": {"message": "Loading model"}}, 503), ErrorKind("other")),
        (Answer(429), ErrorKind("rate_limit")),
        (Answer(500), ErrorKind("other")),
        (html(502), ErrorKind("other")),
    ],
)  # fmt: skip
def test_an_error_answer_is_read_through_the_sdks_exception(answer, kind) -> None:
    with FaultServer({CHAT: answer}) as server:
        assert classify_exception(raised(server.base_url)) == kind


def test_an_overflow_inside_a_stream_is_read() -> None:
    event = of_json({"error": CONTEXT}).blocks[0]
    answer = Answer(200, (b"data: " + event + b"\n\n",), "text/event-stream")
    with FaultServer({CHAT: answer}) as server:
        error = raised(server.base_url, stream=True)
    assert type(error) is openai.APIError
    assert classify_exception(error).kind == "input"


def test_a_server_that_is_not_there_means_nothing_for_the_window() -> None:
    with closed_port() as port:
        error = raised(f"http://127.0.0.1:{port}/v1")
    assert isinstance(error, openai.APIConnectionError)
    assert classify_exception(error) == ErrorKind("other")


def test_a_time_out_means_nothing_for_the_window() -> None:
    with FaultServer({CHAT: hanging()}) as server:
        error = raised(server.base_url, timeout=0.2)
    assert isinstance(error, openai.APITimeoutError)
    assert classify_exception(error) == ErrorKind("other")


def test_an_http_clients_exception_is_read_by_its_response() -> None:
    with FaultServer({"/x": of_json({"error": LENGTH}, 400)}) as server, httpx2.Client() as client:
        with pytest.raises(httpx2.HTTPStatusError) as caught:
            client.get(server.root_url + "/x").raise_for_status()
        assert classify_exception(caught.value).limit == 8192
        with client.stream("GET", server.root_url + "/x") as unread:
            with pytest.raises(httpx2.HTTPStatusError) as caught:
                unread.raise_for_status()
            assert classify_exception(caught.value) == ErrorKind("other")


class _Response:
    """A response as aiohttp has it: `text` is a method."""

    status = 429

    async def text(self) -> str:
        return "never read"


class _RefusedError(Exception):
    """An exception as aiohttp raises it: `status` and `message`."""

    def __init__(self, status: object, message: str, response: object = None) -> None:
        self.status = status
        self.response = response
        super().__init__(message)


class _QuotingError(Exception):
    """An exception whose body says less than its message."""

    status_code = 400
    body: ClassVar[dict[str, str]] = {"detail": "bad request"}

    def __str__(self) -> str:
        return "Your input exceeds the context window of this model."


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_RefusedError(429, "Too Many"), "rate_limit"),
        (_RefusedError(None, "", _Response()), "rate_limit"),
        (_RefusedError(True, "", _Response()), "rate_limit"),
        (_QuotingError(), "input"),
        (_RefusedError(400, "Your input exceeds the context window of this model."), "input"),
        (ValueError(), "other"),
        (KeyError("context"), "other"),
    ],
)
def test_any_exception_is_read_by_what_it_carries(error, kind) -> None:
    assert classify_exception(error).kind == kind


def test_a_wording_without_a_status_is_read_too() -> None:
    kind = classify_exception(RuntimeError("the prompt is too long"))
    assert (kind.kind, kind.certainty) == ("input", "likely")


def anthropic_error(status: int, body: dict, **headers: str) -> anthropic.APIStatusError:
    """Return the error that the SDK makes of a response, as it makes it."""
    request = httpx2.Request("POST", "http://localhost/v1/messages")
    response = httpx2.Response(status, json=body, request=request, headers=headers)
    return anthropic.Anthropic(api_key="k")._make_status_error_from_response(response)


def openai_error(status: int, text: str, **headers: str) -> openai.APIStatusError:
    request = httpx2.Request("POST", "http://localhost/v1/chat/completions")
    response = httpx2.Response(status, text=text, request=request, headers=headers)
    return openai.OpenAI(api_key="k")._make_status_error_from_response(response)


def anthropic_body(message: str, kind: str = "invalid_request_error") -> dict:
    return {"type": "error", "error": {"type": kind, "message": message}}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (anthropic_error(400, anthropic_body("prompt is too long: 213462 tokens > 200000 maximum")),
         ErrorKind("input", 200_000, 213_462)),
        (anthropic_error(400, anthropic_body(
            "input length and `max_tokens` exceed context limit: 189136 + 20000 > 204648")),
         ErrorKind("total", 204_648, 189_136)),
        (anthropic_error(413, anthropic_body("Request exceeds the maximum size",
                                             "request_too_large")), ErrorKind("bytes")),
        (anthropic_error(429, anthropic_body("would exceed 40,000 input tokens per minute",
                                             "rate_limit_error")), ErrorKind("rate_limit")),
        (anthropic_error(529, anthropic_body("Overloaded", "overloaded_error")),
         ErrorKind("other")),
        (openai_error(400, "Your input exceeds the context window of this model."),
         ErrorKind("input")),
        (openai_error(400, "prompt is too long", **{"x-ratelimit-remaining-tokens": "0"}),
         ErrorKind("rate_limit")),
        (openai_error(400, ""), ErrorKind("input", certainty="likely")),
        (openai_error(500, ""), ErrorKind("other")),
    ],
)  # fmt: skip
def test_a_status_error_of_an_sdk_is_read(error, kind) -> None:
    assert classify_exception(error) == kind


def test_an_error_that_anthropics_stream_reports_is_read() -> None:
    event = anthropic_body("prompt is too long: 213462 tokens > 200000 maximum")
    block = b"event: error\ndata: " + of_json(event).blocks[0] + b"\n\n"
    answer = Answer(200, (block,), "text/event-stream")
    with (
        FaultServer({"POST /v1/messages": answer}) as server,
        anthropic.Anthropic(base_url=server.root_url, api_key="k", max_retries=0) as client,
    ):
        stream = client.messages.create(
            model="m", max_tokens=8, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        with pytest.raises(anthropic.APIStatusError) as caught:
            list(stream)
    assert classify_exception(caught.value) == ErrorKind("input", 200_000, 213_462)


def caused(outer: BaseException, cause: BaseException) -> BaseException:
    outer.__cause__ = cause
    return outer


LIMIT = "prompt is too long: 213462 tokens > 200000 maximum"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (caused(RuntimeError("the agent failed"), ValueError(LIMIT)),
         ErrorKind("input", 200_000, 213_462)),
        (caused(RuntimeError("the prompt is too long"), ValueError(LIMIT)),
         ErrorKind("input", 200_000, 213_462)),
        (ExceptionGroup("two", [OSError("reset"), ValueError(LIMIT)]),
         ErrorKind("input", 200_000, 213_462)),
        (caused(RuntimeError("Too Many Requests"), ValueError(LIMIT)), ErrorKind("rate_limit")),
        (RuntimeError(f"Error code: 429 - {{'error': {{'message': '{LIMIT}'}}}}"),
         ErrorKind("rate_limit")),
        (RuntimeError(f"status 400: {LIMIT}"), ErrorKind("input", 200_000, 213_462)),
    ],
)  # fmt: skip
def test_an_exception_is_read_by_its_text_and_by_what_it_was_raised_from(error, kind) -> None:
    assert classify_exception(error) == kind


def test_the_code_of_a_cause_goes_before_the_words_that_quote_it() -> None:
    with FaultServer({CHAT: of_json({"error": LENGTH}, 400)}) as server:
        cause = raised(server.base_url)
    error = RuntimeError(f"failed to complete the prompt: Error code: 400 - {cause}")
    error.__cause__ = cause
    kind = classify_exception(error)
    assert (kind.structured, kind.limit, kind.input_tokens) == (True, 8192, 9000)


def test_what_was_only_being_handled_is_no_reason() -> None:
    error = KeyError("x")
    error.__context__ = ValueError(LIMIT)
    assert classify_exception(error) == ErrorKind("other")


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert classify_exception(first) == ErrorKind("other")


# --- connections that broke -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "lost"),
    [(dropped(), True), (Answer(reset=True), True), (cut_short(b"{"), True), (hanging(), False),
     (of_json({"error": {"message": "The server had an error"}}, 500), False)],
)  # fmt: skip
def test_a_broken_connection_is_told_from_a_stall_and_from_an_error(answer, lost) -> None:
    with FaultServer({"POST *": answer}) as server:
        error = raised(server.base_url, timeout=0.3 if answer.hang else 10.0)
        assert read_trouble(error) == Trouble(ErrorKind("other"), lost, str(error))
        root = server.root_url
        with (
            anthropic.Anthropic(base_url=root, api_key="k", max_retries=0, timeout=0.3) as client,
            pytest.raises(anthropic.AnthropicError) as caught,
        ):
            client.messages.create(
                model="m", max_tokens=5, messages=[{"role": "user", "content": "x"}]
            )
        assert lost_connection(caught.value) == lost
        with httpx2.Client(timeout=0.3) as plain, pytest.raises(httpx2.HTTPError) as raw:
            plain.post(root + "/x").raise_for_status()
        assert lost_connection(raw.value) == lost


def test_a_server_that_is_not_there_is_no_broken_connection() -> None:
    with closed_port() as port:
        error = raised(f"http://127.0.0.1:{port}/v1")
        assert not lost_connection(error)
        assert read_trouble(error) == Trouble(ErrorKind("other"), text=str(error), away=True)
        with pytest.raises(httpx2.ConnectError) as caught:
            httpx2.get(f"http://127.0.0.1:{port}/")
        assert not lost_connection(caught.value)


def _named(name: str, *bases: type[BaseException]) -> BaseException:
    """Return an exception of a class with this name, as libraries that are not here raise it."""
    made: type[BaseException] = type(name, bases or (Exception,), {})
    return made("broken")


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (_named("ServerDisconnectedError"), True),
        (_named("ClientPayloadError"), True),
        (_named("ClientOSError", OSError), True),
        (_named("ClientConnectorError", type("ClientOSError", (OSError,), {})), False),
        (_named("ConnectionClosedError", type("ConnectionClosed", (Exception,), {})), True),
        (_named("ChunkedEncodingError", OSError), True),
        (_named("ServerTimeoutError", type("ClientOSError", (OSError,), {})), False),
        (_named("ConnectTimeout", ConnectionError), False),
        (_named("APIConnectionError"), True),
        (_named("APITimeoutError", type("APIConnectionError", (Exception,), {})), False),
        (ConnectionRefusedError("no"), False),
        (ConnectionAbortedError("gone"), True),
        (BrokenPipeError("gone"), True),
        (OSError("disk"), False),
        (ValueError("connection reset by peer"), False),
    ],
)
def test_a_broken_connection_is_known_by_the_class_of_its_exception(error, lost) -> None:
    assert lost_connection(error) == lost
    wrapped = _named("APIConnectionError")
    wrapped.__cause__ = error
    assert lost_connection(wrapped) == (lost and not isinstance(error, ValueError))


class _ClientError(Exception):
    """An exception as botocore raises it: the response is a mapping."""

    def __init__(self, response: object) -> None:
        self.response = response
        super().__init__("An error occurred")


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        ({"Error": {"Code": "ValidationException", "Message": "Input is too long for requested "
                    "model."}, "ResponseMetadata": {"HTTPStatusCode": 400}}, "input"),
        ({"Error": {"Code": "ThrottlingException", "Message": "Too many tokens, please wait"},
          "ResponseMetadata": {"HTTPStatusCode": 429}}, "rate_limit"),
        ({"Error": {"Code": "ThrottlingException", "Message": "Slow down"}}, "rate_limit"),
        ({"ResponseMetadata": {"HTTPStatusCode": "400"}, "Error": None}, "other"),
    ],
)  # fmt: skip
def test_a_response_that_is_a_mapping_is_read(response, kind) -> None:
    assert classify_exception(_ClientError(response)).kind == kind


class _DetailedError(Exception):
    """An exception as google-genai raises it: `code` is the status, `details` the body."""

    code = 400
    status = "INVALID_ARGUMENT"

    def __init__(self, details: object) -> None:
        self.details = details
        super().__init__("400 INVALID_ARGUMENT.")


def test_the_details_of_an_exception_are_read() -> None:
    body = {"error": {"message": "The input token count (90) exceeds the maximum number of tokens "
                      "allowed (80)."}}  # fmt: skip
    assert classify_exception(_DetailedError(body)) == ErrorKind("input", 80, 90)
    assert classify_exception(_DetailedError(lambda: body)) == ErrorKind("other")


@pytest.mark.parametrize(
    "body", [None, b"", b"\xff", "", "{", [], {}, {"error": None}, 7, {"error": {"error": {}}}]
)
@pytest.mark.parametrize("status", [None, 0, 200, 400, 999])
def test_an_error_body_of_any_shape_is_read_without_complaint(status, body) -> None:
    kind = classify_error(status, body, headers={"retry-after": "1"})
    empty = status == 400 and body in (b"", "")  # Cerebras refuses so; only likely
    assert kind == (ErrorKind("input", certainty="likely") if empty else ErrorKind("other"))
