"""A request that is sent again, with nothing new in it, goes out in the same bytes."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import ullage
from ullage.core.guard.events import Compacted, Event
from ullage.runtime import Runtime
from ullage.storage import open_store

DIALECTS = ("openai_chat", "anthropic", "gemini", "ollama", "openai_responses")
MODEL = "llama3.1"
"""Its tokens are estimated: what surely fits and what may not are apart."""

WINDOW = 1_000
TOOLS = [
    {"type": "function", "function": {"name": f"look{n}", "description": "Look it up. " * 10}}
    for n in range(3)
]
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60"
    "e6kgAAAABJRU5ErkJggg=="
)


def say(dialect: str, role: str, text: str) -> dict[str, Any]:
    """Return a message of a dialect."""
    if dialect == "gemini":
        name = "model" if role == "assistant" else role
        return {"role": name, "parts": [{"text": text}]}
    if dialect == "openai_responses":
        return {"type": "message", "role": role, "content": text}
    return {"role": role, "content": text}


def keep_log(dialect: str, words: int, rules: int = 0, days: int = 16) -> list[Any]:
    """Return a conversation whose last request has so many words of data, and stays as it is."""
    history = [say(dialect, "user", "We keep the log of a ship.")]
    for day in range(days):
        rule = f"Never open cask {day} before day {day * 3}. " if day < rules else ""
        history += [
            say(dialect, "assistant", f"Noted, entry {day}. " + "The wind was fair. " * 6),
            say(dialect, "user", f"{rule}Day {day} is done, cask {day} holds {day * 37} litres."),
        ]
    data = " ".join(f"w{n}" for n in range(words))
    return [*history, say(dialect, "assistant", "ok"), say(dialect, "user", f"Which? {data}")]


class Sender:
    """Who sends requests, by a guard of its own for each as after a restart."""

    def __init__(self, url: str, dialect: str = "openai_chat", model: str = MODEL) -> None:
        self.url, self.dialect, self.model, self.window = url, dialect, model, WINDOW
        self.store = open_store(url)
        self.made = list[int]()
        """The compactions of each request."""

    def send(self, history: list[Any], report: float = 0.0, **beside: Any) -> str:
        """Return what goes out; the server then reports its size as `report` times our count."""
        if self.url != "memory:":
            self.store.close()
            self.store = open_store(self.url)
        heard: list[Event] = []
        guard = ullage.Guard(
            self.model,
            window=self.window,
            dialect=self.dialect,
            store=self.store,
            on_event=heard.append,
            runtime=Runtime(),
        )
        view = guard.prepare(json.loads(json.dumps(history)), **beside)
        if report:
            tokens = round(view.prepared.measured.raw().best * report)
            view.observe({"usage": {"prompt_tokens": tokens, "completion_tokens": 5}})
        self.made.append(sum(isinstance(event, Compacted) for event in heard))
        return json.dumps(view.messages)


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'kept.db'}"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("rules", [0, 16])
def test_what_is_sent_again_goes_out_in_the_same_bytes_where_the_target_is_out_of_reach(
    dialect: str, rules: int, url: str
) -> None:
    sender = Sender(url, dialect)
    with closing(sender.store):
        sent = [sender.send(keep_log(dialect, 340, rules), max_tokens=100) for _ in range(4)]
    assert sender.made == [1, 0, 0, 0]
    assert len(set(sent)) == 1


def test_an_image_of_unknown_size_does_not_take_the_block_apart(url: str) -> None:
    sender = Sender(url, model="qwen2.5-vl-7b")
    sender.window = 8_192
    history = keep_log("openai_chat", 5, days=60)
    history[-1]["content"] = [
        {"type": "text", "text": "What is on it?"},
        {"type": "image_url", "image_url": {"url": PIXEL}},
    ]
    with closing(sender.store):
        sent = [sender.send(history, max_tokens=200) for _ in range(4)]
    assert sender.made == [1, 0, 0, 0]
    assert len(set(sent)) == 1


@pytest.mark.parametrize("beside", [{}, {"max_tokens": 100}])
@pytest.mark.parametrize("report", [0.9, 1.0, 1.04])
def test_a_report_of_what_fits_changes_no_bytes(report: float, beside: dict[str, Any]) -> None:
    sender = Sender("memory:", model="gpt-4o")
    history = keep_log("openai_chat", 345)
    with closing(sender.store):
        sent = [sender.send(history, report, **beside) for _ in range(4)]
    assert sender.made == [1, 0, 0, 0]
    assert len(set(sent)) == 1


def test_what_comes_since_is_compacted() -> None:
    sender = Sender("memory:")
    history = keep_log("openai_chat", 340)
    with closing(sender.store):
        sender.send(history, max_tokens=100)
        history += [
            say("openai_chat", "assistant", "Cask 15."),
            say("openai_chat", "user", "Why? " + "Tell me of it. " * 20),
        ]
        sent = [sender.send(history, max_tokens=100) for _ in range(3)]
    assert sender.made == [1, 1, 0, 0]
    assert len(set(sent)) == 1


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"max_tokens": 20}, {"max_tokens": 125}),
        ({}, {"max_tokens": 100}),
        ({"max_tokens": 100}, {"max_tokens": 100, "tools": TOOLS}),
    ],
)
def test_a_request_that_needs_more_room_gets_it_once(
    first: dict[str, Any], then: dict[str, Any]
) -> None:
    sender = Sender("memory:")
    history = keep_log("openai_chat", 320)
    with closing(sender.store):
        sender.send(history, **first)
        wider = [sender.send(history, **then) for _ in range(3)]
        again = [sender.send(history, **first), sender.send(history, **then)]
    assert sender.made == [1, 1, 0, 0, 0, 0]
    assert len({*wider, *again}) == 1


def test_a_smaller_window_is_planned_for_once() -> None:
    sender = Sender("memory:")
    history = keep_log("openai_chat", 200)
    with closing(sender.store):
        sender.send(history, max_tokens=100)
        sender.window = 700
        sent = [sender.send(history, max_tokens=80) for _ in range(3)]
    assert sender.made == [1, 1, 0, 0]
    assert len(set(sent)) == 1


def test_what_is_refused_before_the_send_is_made_smaller() -> None:
    sender = Sender("memory:", "anthropic", "claude-sonnet-4-5")
    history = keep_log("anthropic", 460)
    with closing(sender.store):
        with pytest.raises(ullage.ContextTooLargeError):
            sender.send(history, max_tokens=100)
        sent = [sender.send(history, max_tokens=100) for _ in range(3)]
    assert sender.made == [1, 0, 0]
    assert len(set(sent)) == 1
