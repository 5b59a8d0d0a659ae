"""Requests that the guard has no part in: they go out as they came, and all are told."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.proxy.serving import CHAT, PATHS, WHOLE, asked, conversation, proxied
from tests.support.faults import FaultServer, of_json
from ullage.proxy import exchange, unguarded

WORD = "TEXTMARKrole"
SECRET = "the cellar door is never locked"
ODD: dict[str, tuple[Any, str]] = {
    "unknown role": (
        {"role": WORD, "content": SECRET},
        "messages[1] has the role a word of 12 characters: expected one of system, developer, user",
    ),
    "a name of nobody's": ({"role": "user", "content": {WORD: 1}}, "content of type dict"),
    "names of nobody's": ({WORD: 1, "id": 2}, "a mapping of a word of 12 characters, 'id'"),
    "a sentence as a role": ({"role": SECRET, "content": "x"}, "has the role a text of 31 char"),
    "no role": ({"content": SECRET}, "messages[1] has the role None"),
    "content a number": ({"role": "user", "content": 5}, "messages[1] has content of type int"),
    "content a mapping": (
        {"role": "user", "content": {"type": "text", "text": SECRET}},
        "messages[1] has content of type dict",
    ),
    "a call without a function": (
        {"role": "assistant", "tool_calls": [{"id": "c", "arguments": SECRET}]},
        "messages[1] has a tool call without 'function': a mapping of 'id', 'arguments'",
    ),
    "names that are sentences": ({SECRET: 1}, "messages[1] is a mapping of a text of 31 char"),
}
HUGE = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}], "seed": 1%s}' % (
    b"0" * 4_300
)
LOST = "ullage_unguarded_requests_total"


def odd(message: Any, model: str = "m") -> bytes:
    """Return a request far over a window of 4,096 tokens with one odd message."""
    body = conversation("openai_chat", 40, stream=False, model=model)
    body["messages"].insert(1, message)
    return json.dumps(body).encode()


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


@pytest.mark.parametrize("kind", ODD)
def test_a_history_that_cannot_be_read_goes_out_as_it_came_and_all_are_told(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    message, fault = ODD[kind]
    raw = odd(message)
    caplog.set_level(logging.INFO)
    with (
        FaultServer({CHAT: of_json(WHOLE["openai_chat"])}) as upstream,
        proxied(upstream.root_url) as proxy,
    ):
        got = [proxy.post(CHAT, raw) for _ in range(2)]
        assert proxy.shown(LOST, model="m", reason="malformed_history") == 2
        assert proxy.shown("ullage_guard_faults_total") == 0
    assert [answer.headers["x-ullage-unguarded"] for answer in got] == ["malformed_history"] * 2
    assert [request.body for request in asked(upstream)] == [raw, raw]
    (warning,) = warned(caplog)
    assert fault in warning
    assert "the model 'm' at main goes out unguarded" in warning
    assert caplog.text.count("unguarded (malformed_history)") == 2
    assert SECRET not in caplog.text
    assert WORD not in caplog.text


def test_a_worker_tells_the_same_of_histories_that_cannot_be_read(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "LARGE", 0)
    caplog.set_level(logging.INFO)
    sent = [odd(message, f"m{n}") for n, (message, _) in enumerate(ODD.values()) for _ in range(2)]
    with (
        FaultServer({CHAT: of_json(WHOLE["openai_chat"])}) as upstream,
        proxied(upstream.root_url, workers=1) as proxy,
    ):
        got = [proxy.post(CHAT, raw) for raw in sent]
        for n in range(len(ODD)):
            assert proxy.shown(LOST, model=f"m{n}", reason="malformed_history") == 2
        assert proxy.shown("ullage_guard_faults_total") == 0
    told = [answer.headers["x-ullage-unguarded"] for answer in got]
    assert told == ["malformed_history"] * len(sent)
    assert [request.body for request in asked(upstream)] == sent
    for n, ((_, fault), warning) in enumerate(zip(ODD.values(), warned(caplog), strict=True)):
        assert fault in warning
        assert f"the model 'm{n}' at main goes out unguarded" in warning
    assert caplog.text.count("unguarded (malformed_history)") == len(sent)
    assert SECRET not in caplog.text
    assert WORD not in caplog.text


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (HUGE, "unreadable_body"),
        (b"no JSON", "unreadable_body"),
        (b'{"model": "m", "messages": {"role": "user"}}', "malformed_history"),
        (b'{"model": "m", "messages": "hello"}', "malformed_history"),
    ],
)
def test_a_body_that_cannot_be_read_goes_out_as_it_came_and_all_are_told(
    raw: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with (
        FaultServer({CHAT: of_json(WHOLE["openai_chat"])}) as upstream,
        proxied(upstream.root_url) as proxy,
    ):
        got = proxy.post(CHAT, raw)
        assert proxy.shown(LOST, reason=reason) == 1
    assert got.headers["x-ullage-unguarded"] == reason
    assert [request.body for request in asked(upstream)] == [raw]
    (warning,) = warned(caplog)
    assert "goes out unguarded" in warning


@pytest.mark.parametrize("dialect", PATHS)
def test_a_request_that_is_guarded_or_has_no_history_is_not_called_unguarded(dialect: str) -> None:
    with (
        FaultServer({PATHS[dialect]: of_json(WHOLE[dialect])}) as upstream,
        proxied(upstream.root_url) as proxy,
    ):
        bodies = [conversation(dialect, 1, stream=False), {"model": "m"}]
        got = [proxy.post(PATHS[dialect], body) for body in bodies]
        assert proxy.shown(LOST) == 0
    assert not any("x-ullage-unguarded" in answer.headers for answer in got)


def test_what_is_remembered_of_warnings_is_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unguarded, "MOST_TOLD", 2)
    with (
        FaultServer({CHAT: of_json(WHOLE["openai_chat"])}) as upstream,
        proxied(upstream.root_url) as proxy,
    ):
        for model in ("a", "b", "a", "c", "b", "b"):
            proxy.post(CHAT, {"model": model, "messages": "hello"})
    named = [text.split("the model ")[1][:3] for text in warned(caplog)]
    assert named == ["'a'", "'b'", "'c'", "'b'"]
