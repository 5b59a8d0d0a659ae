"""The plain functions on good input and on bad: results as promised, errors of the spec."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessage

import ullage
from tests.support.faults import FaultServer, closed_port, html, of_json
from tests.voyage import Message, log_of
from ullage.embedded import Server
from ullage.runtime import Runtime
from ullage.transport import Timeouts, Transport

MODEL = "gpt-4o"


@pytest.fixture
def runtime() -> Runtime:
    return Runtime(transport=Transport(Timeouts(connect_s=0.5, read_s=5.0)))


def sized(tokens: int) -> list[Message]:
    """Return one user message that takes exactly so many tokens of gpt-4o with its framing."""
    return [{"role": "user", "content": "a" + " a" * (tokens - 8)}]


def tool(name: str) -> Message:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


# --- bad input, everywhere alike ------------------------------------------------------------------


def compact_small(messages: Any) -> object:
    return ullage.compact(messages, target_tokens=5)


def acompact_small(messages: Any) -> object:
    return asyncio.run(ullage.acompact(messages, target_tokens=5))


TAKERS = [ullage.count, ullage.validate, ullage.repair, compact_small, acompact_small]


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize("messages", [b"bytes", None, 7, {"role": "user"}, iter([])])
def test_what_is_no_list_is_malformed_and_said_so(take, messages) -> None:
    with pytest.raises(ullage.MalformedHistoryError, match="must be a list of messages") as caught:
        take(messages)
    assert caught.value.index is None


@pytest.mark.parametrize("take", TAKERS[2:])
def test_a_bare_text_is_no_history_to_edit(take) -> None:
    with pytest.raises(ullage.MalformedHistoryError, match="must be a list of messages"):
        take("text")


def test_a_bare_text_is_the_input_of_a_responses_request() -> None:
    asked = [{"role": "user", "content": "a b c"}]
    said: dict[str, Any] = {"model": MODEL, "dialect": "openai_responses"}
    assert ullage.count("a b c", **said) == ullage.count(asked, **said)
    ullage.validate("a b c", window=1000, **said)
    with pytest.raises(ullage.ContextTooLargeError):
        ullage.validate("a b c", window=5, **said)


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (7, "is an int, not a message"),
        (None, "is None, not a message"),
        ({"content": "x"}, "has the role None"),
        ({"role": "alien", "content": "x"}, "has the role 'alien'"),
        ({"role": "user", "content": 7}, "has content of type int"),
        ({"role": "assistant", "tool_calls": ["f"]}, "a tool call without 'function'"),
    ],
)
def test_what_is_no_message_is_malformed_and_named(take, bad, said) -> None:
    messages = [{"role": "user", "content": "hello"}, bad]
    with pytest.raises(ullage.MalformedHistoryError, match=rf"messages\[1\].*{said}") as caught:
        take(messages)
    assert caught.value.index == 1


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize(
    "messages",
    [
        [],
        ({"role": "user", "content": "a tuple will do"},),
        [{"role": "user", "content": None}],
        [{"role": "user"}],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": [{"type": "x_unheard_of", "deep": [None]}, 7, "text"]}],
        [{"role": "user", "content": "\ud800"}],
        [ChatCompletionMessage(role="assistant", content="hello")],
    ],
)
def test_what_is_merely_odd_is_taken(take, messages) -> None:
    before = copy.deepcopy(messages)
    take(messages)
    assert messages == before


# --- window ---------------------------------------------------------------------------------------


def window_sync(*args: Any, **options: Any) -> ullage.Window:
    return ullage.window(*args, **options)


def window_async(*args: Any, **options: Any) -> ullage.Window:
    return asyncio.run(ullage.awindow(*args, **options))


@pytest.fixture(params=[window_sync, window_async])
def window(request: pytest.FixtureRequest) -> Callable[..., ullage.Window]:
    asking: Callable[..., ullage.Window] = request.param
    return asking


def test_the_window_of_a_real_server_is_found(window, runtime, tiny_server: Server) -> None:
    found = window("tiny", base_url=tiny_server.base_url, runtime=runtime)
    assert (found.input_tokens, found.source) == (2048, "probe")
    tokens = ullage.window_tokens("tiny", base_url=tiny_server.base_url, runtime=runtime)
    assert tokens == 2048


def test_an_unknown_window_is_a_value_and_demanded_tokens_raise(window, runtime) -> None:
    assert not window("unheard-of", runtime=runtime).known
    assert not window(runtime=runtime).known
    with pytest.raises(ullage.ContextWindowUnknown, match="unheard-of"):
        ullage.window_tokens("unheard-of", runtime=runtime)


def test_network_trouble_is_unknown_and_never_raises(window, runtime) -> None:
    with closed_port() as port:
        assert not window("m", base_url=f"http://127.0.0.1:{port}/v1", runtime=runtime).known
    with FaultServer({"/*": html()}) as server:
        assert not window("m", base_url=server.base_url, runtime=runtime).known


@pytest.mark.parametrize("options", [{"override": 0}, {"override": "8k"}, {"base_url": "h:1"}])
def test_a_senseless_option_raises(window, options) -> None:
    with pytest.raises(ullage.ConfigurationError):
        window("m", **options)


def test_an_override_is_taken(window, runtime) -> None:
    assert window("gpt-4", override=5000, runtime=runtime).input_tokens == 5000


def test_refresh_asks_again(window, runtime) -> None:
    first = {"default_generation_settings": {"n_ctx": 2048}}
    then = {"default_generation_settings": {"n_ctx": 4096}}
    with FaultServer({"/props": (of_json(first), of_json(then))}) as server:
        options = {"base_url": server.base_url, "runtime": runtime}
        assert window("m", **options).input_tokens == 2048
        assert window("m", **options).input_tokens == 2048
        assert window("m", **options, refresh=True).input_tokens == 4096


def test_the_bundled_models_are_listed(runtime) -> None:
    listed = ullage.models(runtime=runtime)
    assert [model for model, _ in listed] == sorted(model for model, _ in listed)
    assert dict(listed)["gpt-5"].input_tokens == 272_000
    assert listed == ullage.models()


# --- count ----------------------------------------------------------------------------------------


def test_a_known_vocabulary_counts_exactly() -> None:
    found = ullage.count(sized(500), model=MODEL)
    assert (found.tokens, found.low, found.high, found.basis) == (500, 500, 500, "exact")
    assert int(found) == 500
    assert found.by_message == (497,)


def test_an_unknown_vocabulary_is_an_estimate_with_a_band() -> None:
    found = ullage.count(sized(500), model="unheard-of")
    assert found.basis == "estimate"
    assert found.low < found.tokens < found.high


def test_system_text_and_tools_cost_tokens() -> None:
    plain = ullage.count(sized(500), model=MODEL)
    system = ullage.count(sized(500), model=MODEL, system="Be brief.")
    tools = ullage.count(sized(500), model=MODEL, tools=[tool("look")])
    assert (plain.basis, system.basis, tools.basis) == ("exact", "exact", "estimate")
    assert plain.tokens < system.tokens
    assert plain.tokens < tools.low <= tools.tokens <= tools.high


@pytest.mark.parametrize("tools", [None, [tool("look"), tool("find")]])
@pytest.mark.parametrize("system", [None, "Be brief and kind."])
def test_a_real_servers_count_is_what_it_then_reports(
    runtime, tiny_server: Server, tools, system
) -> None:
    messages = log_of(3)[1:]
    url = tiny_server.base_url
    found = ullage.count(
        messages, model="tiny", system=system, tools=tools, base_url=url, runtime=runtime
    )
    head = [{"role": "system", "content": system}] if system else []
    with openai.OpenAI(base_url=url, api_key="k", max_retries=0) as client:
        options: Any = {"tools": tools} if tools else {}
        whole: Any = head + messages
        answer = client.chat.completions.create(
            model="tiny", messages=whole, max_tokens=1, **options
        )
    assert answer.usage is not None
    assert found.basis == "server"
    assert found.tokens == found.low == found.high == answer.usage.prompt_tokens
    assert len(found.by_message) == len(messages)


def test_the_async_twin_counts_the_same(runtime, tiny_server: Server) -> None:
    options: Any = {"model": "tiny", "base_url": tiny_server.base_url, "tools": [tool("look")]}
    found = ullage.count(log_of(2), runtime=runtime, **options)
    assert found.basis == "server"
    assert asyncio.run(ullage.acount(log_of(2), runtime=Runtime(), **options)) == found
    assert asyncio.run(ullage.acount(sized(99), model=MODEL)) == ullage.count(
        sized(99), model=MODEL
    )


@pytest.mark.parametrize(
    "count", [ullage.count, lambda *a, **o: asyncio.run(ullage.acount(*a, **o))]
)
def test_a_server_that_does_not_count_leaves_the_estimate(runtime, count) -> None:
    with FaultServer({"/*": html()}) as server:
        found = count(sized(500), model=MODEL, base_url=server.base_url, runtime=runtime)
    assert found.basis == "estimate"


@pytest.mark.parametrize("take", [ullage.count, ullage.validate])
def test_an_option_that_there_is_not_is_named(take) -> None:
    with pytest.raises(TypeError, match="no option 'modell'"):
        take(sized(10), modell=MODEL)


@pytest.mark.parametrize(
    ("reported", "signs"),
    [
        (2000, {"short"}),
        (ullage.Usage(2000), {"short"}),
        ({"prompt_tokens": 2000}, {"short"}),
        (2050, {"short", "at_half"}),
        (4096, {"short", "at_window"}),
        (1000, set()),  # too little for a cut
        (5000, set()),
        ({"prompt_tokens": "many"}, set()),
    ],
)
def test_a_silent_cut_shows_in_what_was_reported(reported, signs) -> None:
    counted = ullage.count(sized(5000), model=MODEL)
    found = ullage.detect_truncation(reported, counted, 4096)
    assert (set(found.signs) if found else set()) == signs


def test_without_a_window_a_cut_shows_all_the_same() -> None:
    found = ullage.detect_truncation(2100, ullage.count(sized(5000), model=MODEL))
    assert found is not None
    assert (found.signs, found.limit) == (("short",), 4999)
    assert ullage.detect_truncation(5000, ullage.count(sized(5000), model=MODEL)) is None


def test_text_is_an_int_where_it_is_exact_and_a_count_elsewhere() -> None:
    assert ullage.count_text("a" + " a" * 99, model=MODEL) == 100
    assert type(ullage.count_text("", model=MODEL)) is int
    found = ullage.count_text("a" + " a" * 99)
    assert isinstance(found, ullage.Count)
    assert (found.tokens, found.basis) == (110, "estimate")
    assert found.low < int(found) < found.high


# --- assess ---------------------------------------------------------------------------------------


def test_a_window_may_be_a_value_a_number_or_a_model() -> None:
    for window in (ullage.Window(8192, 8192), 8192, "gpt-4"):
        found = ullage.assess(7168, window)
        assert (found.available, found.tier, found.ratio) == (True, "warning", 0.875)
        assert found.notice() == "Context window at 87 % (7,168/8,192 tokens)"


@pytest.mark.parametrize(
    ("used", "window", "reason"),
    [
        (None, 1000, "usage_missing"),
        ({"odd": 1}, 1000, "usage_malformed"),
        (True, 1000, "usage_malformed"),
        (-1, 1000, "usage_malformed"),
        (100, None, "context_window_unknown"),
        (100, "unheard-of", "context_window_unknown"),
        (100, ullage.Window(), "context_window_unknown"),
        (100, 0, "context_window_unknown"),
        (100, -5, "context_window_unknown"),
    ],
)
def test_what_cannot_be_assessed_says_why_and_never_raises(used, window, reason) -> None:
    found = ullage.assess(used, window)
    assert (found.available, found.tier, found.ratio) == (False, "unavailable", None)
    assert found.reason == reason
    assert "ratio" not in found.to_dict()


def test_usage_is_known_and_a_count_is_estimated() -> None:
    report = {"prompt_tokens": 950, "completion_tokens": 10}
    for used in (report, ullage.Usage.from_report(report)):
        found = ullage.assess(used, 1000)
        assert (found.tier, found.state, found.input_tokens) == ("critical", "known", 950)
    count = ullage.count(sized(950), model=MODEL)
    assert ullage.assess(count, 1000).state == "estimated"


def test_thresholds_can_be_given() -> None:
    strict = ullage.Thresholds(advisory=0.1, warning=0.2, critical=0.3)
    assert ullage.assess(350, 1000, thresholds=strict).tier == "critical"


# --- validate -------------------------------------------------------------------------------------


def test_what_fits_is_valid_and_equality_of_the_total_fits() -> None:
    ullage.validate(sized(7000), window=8192, model=MODEL, max_tokens=500)
    ullage.validate(sized(7692), window=8192, model=MODEL, max_tokens=500)
    ullage.validate(sized(8191), window=8192, model=MODEL)


def test_a_prompt_and_output_over_the_total_are_refused_with_the_room_there_is() -> None:
    with pytest.raises(ullage.ContextTooLargeError, match="292 are available") as caught:
        ullage.validate(sized(7900), window=8192, model=MODEL, max_tokens=500)
    assert (caught.value.tokens, caught.value.bound) == (8400, 8192)
    for fact in (
        "7,900",
        "96 %",
        "8,192",
        "set by --window or window=",
        "500",
        "compact before sending",
    ):
        assert fact in str(caught.value)


@pytest.mark.parametrize("tokens", [8192, 9000])
def test_a_prompt_at_or_over_the_bound_is_refused(tokens) -> None:
    with pytest.raises(ullage.ContextTooLargeError, match="compact before sending") as caught:
        ullage.validate(sized(tokens), model="gpt-4", window=ullage.window("gpt-4", override=8192))
    assert (caught.value.tokens, caught.value.bound) == (tokens, 8192)
    assert "100 %" in str(caught.value) or "109 %" in str(caught.value)


def test_the_upper_edge_decides() -> None:
    count = ullage.count(sized(1000), model="unheard-of")
    ullage.validate(sized(1000), window=count.high + 1, model="unheard-of")
    with pytest.raises(ullage.ContextTooLargeError):
        ullage.validate(sized(1000), window=count.high, model="unheard-of")


def test_the_bundled_window_of_a_model_is_used_and_named() -> None:
    ullage.validate(sized(8000), model="gpt-4")
    with pytest.raises(ullage.ContextTooLargeError, match="bundled table"):
        ullage.validate(sized(9000), model="gpt-4")


def test_input_and_total_are_different_bounds() -> None:
    wide = ullage.Window(1000, 4000, kind="input", source="table")
    ullage.validate(sized(999), window=wide, model=MODEL, max_tokens=3001)
    with pytest.raises(ullage.ContextTooLargeError, match="3,001 are available"):
        ullage.validate(sized(999), window=wide, model=MODEL, max_tokens=3002)


@pytest.mark.parametrize("window", [None, ullage.Window()])
def test_with_an_unknown_window_the_protocol_alone_is_checked(window) -> None:
    ullage.validate(sized(50_000), window=window)
    with pytest.raises(ullage.MalformedHistoryError):
        ullage.validate([{"role": "tool", "tool_call_id": "x", "content": "?"}], window=window)


def test_a_broken_protocol_is_named_with_the_way_to_mend_it() -> None:
    messages = log_of(2)
    del messages[3]
    with pytest.raises(
        ullage.MalformedHistoryError, match=r"messages\[2\].*'c0'.*repair"
    ) as caught:
        ullage.validate(messages, window=100_000)
    assert caught.value.index == 2
    ullage.validate(ullage.repair(messages).messages, window=100_000)


@pytest.mark.parametrize("window", [0, -1, True, 0.5, "8k"])
def test_a_senseless_window_is_refused(window) -> None:
    with pytest.raises(ullage.ConfigurationError, match="positive number of tokens"):
        ullage.validate(sized(100), window=window)
    for target in ({"target_ratio": 0.5}, {"target_tokens": 50}):
        with pytest.raises(ullage.ConfigurationError, match="positive number of tokens"):
            ullage.compact(sized(100), window=window, **target)


@pytest.mark.parametrize("max_tokens", [0, -1, True, 1.5, "9"])
def test_a_senseless_output_is_refused(max_tokens) -> None:
    with pytest.raises(ullage.ConfigurationError, match="max_tokens"):
        ullage.validate(sized(100), window=1000, max_tokens=max_tokens)


# --- repair ---------------------------------------------------------------------------------------


def test_a_lawful_history_comes_back_as_the_same_objects() -> None:
    messages = log_of(3)
    mended = ullage.repair(messages)
    assert mended.repairs == ()
    assert all(a is b for a, b in zip(mended.messages, messages, strict=True))


def test_orphans_go_and_missing_results_are_written_and_each_is_recorded() -> None:
    messages = log_of(2)
    lost = messages.pop(3)
    messages.append({"role": "tool", "tool_call_id": "nobody", "content": "stray"})
    before = copy.deepcopy(messages)
    mended = ullage.repair(messages)
    assert {(r.fault, r.message) for r in mended.repairs} == {
        ("missing_result", 2),
        ("orphan_result", len(messages) - 1),
    }
    assert mended.messages[3]["tool_call_id"] == lost["tool_call_id"]
    assert messages == before
    assert ullage.repair(mended.messages).repairs == ()


@pytest.mark.parametrize("given", [b"cellar", None, ["cellar"], {"role": "user"}, 5])
def test_what_is_no_text_is_not_counted_as_one(given: Any) -> None:
    with pytest.raises(ullage.ConfigurationError, match=r"count_text takes a text, not (a|None)"):
        ullage.count_text(given, model="gpt-4o")


@pytest.mark.parametrize(
    "ask",
    [
        lambda: ullage.window(5),  # type: ignore[arg-type]
        lambda: ullage.Guard(["gpt-4o"]),  # type: ignore[arg-type]
        lambda: ullage.count([{"role": "user", "content": "x"}], model=5),  # type: ignore[arg-type]
    ],
)
def test_a_model_that_is_no_name_is_refused(ask: Callable[[], object]) -> None:
    with pytest.raises(ullage.ConfigurationError, match=r"model is .*: give the model's name"):
        ask()


def test_a_summarizer_that_cannot_be_called_is_refused_at_once() -> None:
    with pytest.raises(ullage.ConfigurationError, match=r"summarizer is 'gpt-4o': give ullage\."):
        ullage.Guard("gpt-4o", summarizer="gpt-4o")
