"""A running count equals `ullage.count`, whatever the pieces, and counts nothing twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.support.transcripts import histories, texts
from ullage.core.errors import MalformedHistoryError
from ullage.runtime import Runtime

SHARED = Runtime()
MODELS = st.sampled_from(["gpt-4o", "claude-sonnet-4-5", "nobodys-model"])
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "read", "description": "Read.", "parameters": {"type": "object"}},
}
CLAUDE_TOOL = {"name": "read", "description": "Read.", "input_schema": {"type": "object"}}
RESPONSES_TOOL = {"type": "function", "name": "read", "parameters": {"type": "object"}}


def answered(text: str, output: str, number: int) -> list[dict[str, Any]]:
    """Return a turn with a tool in Anthropic's form."""
    use = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {"path": text}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": output}
    return [
        {"role": "user", "content": text},
        {"role": "assistant", "content": [{"type": "text", "text": text}, use]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": output},
    ]


def items(text: str, output: str, number: int) -> list[dict[str, Any]]:
    """Return a turn with a tool in the form of the Responses API."""
    return [
        {"role": "user", "content": text},
        {"type": "reasoning", "id": f"r{number}", "summary": []},
        {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": text},
        {"type": "function_call_output", "call_id": f"c{number}", "output": output},
        {"role": "assistant", "content": [{"type": "output_text", "text": output}]},
    ]


@st.composite
def turns(draw: st.DrawFn, form: Any) -> list[dict[str, Any]]:
    short = texts(max_words=6)
    return [
        message
        for number in range(draw(st.integers(0, 4)))
        for message in form(draw(short), draw(short), number)
    ]


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[Any], dict[str, Any]]:
    """Return messages of one of three dialects, and what stands beside them."""
    kind = draw(st.sampled_from(["chat", "anthropic", "responses"]))
    named = {"chat": "openai_chat", "anthropic": "anthropic", "responses": "openai_responses"}
    forms = {"chat": histories(max_turns=3), "anthropic": turns(answered)}
    messages = draw(forms.get(kind, turns(items)))
    tool = {"chat": CHAT_TOOL, "anthropic": CLAUDE_TOOL}.get(kind, RESPONSES_TOOL)
    beside: dict[str, Any] = {"model": draw(MODELS)}
    if draw(st.booleans()):
        beside["tools"] = [tool]
    if kind != "chat" and draw(st.booleans()):
        blocks = [{"type": "text", "text": "Be brief."}]
        beside["system"] = blocks if kind == "anthropic" else "Be brief."
    if draw(st.booleans()):
        beside["dialect"] = named[kind]
    return messages, beside


@given(requests(), st.data())
def test_any_pieces_add_up_to_the_count_of_the_whole(
    request: tuple[list[Any], dict[str, Any]], data: st.DataObject
) -> None:
    messages, beside = request
    tally = ullage.Tally(**beside, runtime=SHARED)
    left = messages
    while left:
        size = data.draw(st.integers(1, len(left)))
        tally.add(*left[:size])
        left = left[size:]
        done = messages[: len(messages) - len(left)]
        assert len(tally) == len(done)
    found = tally.count()
    wanted = ullage.count(messages, **beside, runtime=SHARED)
    assert found == wanted
    assert found.by_message == wanted.by_message


def test_a_dialect_that_shows_late_is_taken_for_all() -> None:
    messages = [{"role": "user", "content": "look"}, *answered("a.py", "x = 1", 1)[1:]]
    tally = ullage.Tally(model="claude-sonnet-4-5", runtime=SHARED)
    tally.add(messages[0])
    assert tally.count() == ullage.count(messages[:1], model="claude-sonnet-4-5", runtime=SHARED)
    tally.add(*messages[1:])
    assert len(tally) == len(messages)
    assert tally.count() == ullage.count(messages, model="claude-sonnet-4-5", runtime=SHARED)


def test_nothing_is_counted_twice() -> None:
    runtime = Runtime()
    tally = ullage.Tally(model="gpt-4o", tools=[CHAT_TOOL], runtime=runtime)
    seen = Counting(runtime.vocabularies)
    runtime.vocabularies = seen  # type: ignore[assignment]  # the same face, with a record
    for number in range(20):
        tally.add({"role": "user", "content": f"a text of its own {number}"})
    first = seen.record.count("a text of its own 0")
    tally.count()
    tally.add({"role": "user", "content": "one more"})
    tally.count()
    assert first == 1
    assert [seen.record.count(f"a text of its own {n}") for n in range(20)] == [1] * 20
    assert seen.record.count("one more") == 1


class Counting:
    """Vocabularies that keep every text that was counted."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.record: list[str] = []

    def best(self, named: Any) -> Any:
        return self._inner.best(named)

    def counter(self, name: str) -> Any:
        return Recorder(self._inner.counter(name), self.record)


class Recorder:
    def __init__(self, inner: Any, record: list[str]) -> None:
        self._inner, self._record, self.key = inner, record, inner.key

    def count(self, text: str) -> int:
        return self.count_many([text])[0]

    def count_many(self, given: list[str]) -> list[int]:
        self._record += given
        found: list[int] = self._inner.count_many(given)
        return found


def test_an_empty_tally_counts_what_stands_outside() -> None:
    beside: dict[str, Any] = {"model": "gpt-4o", "tools": [CHAT_TOOL], "runtime": SHARED}
    assert ullage.Tally(**beside).add().count() == ullage.count([], **beside)


def test_what_is_no_message_is_refused_and_not_added() -> None:
    tally = ullage.Tally(model="gpt-4o", runtime=SHARED).add({"role": "user", "content": "hi"})
    with pytest.raises(MalformedHistoryError):
        tally.add({"role": "user", "content": "ho"}, 7)
    assert len(tally) == 1
    wanted = ullage.count([{"role": "user", "content": "hi"}], model="gpt-4o", runtime=SHARED)
    assert tally.count() == wanted


def test_an_option_there_is_not_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="no option 'modle': there are api_key"):
        ullage.Tally(modle="gpt-4o")  # type: ignore[call-arg]
