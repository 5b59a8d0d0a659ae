"""Left-out texts found by words: by programs, and by an agent that may write anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import ToolParam
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter

import ullage
from ullage.core.compaction.edits import reference
from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.session.log.event import Draft
from ullage.runtime import Runtime

PORT = "The staging database listens on port 6543."
OTHER = "Another tenant's database password is swordfish."


@pytest.fixture
def store() -> Any:
    kept = ullage.open_store("memory:")
    kept.originals.keep({reference(text): text for text in (PORT, OTHER)})
    return kept


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a database with an original and a session."""
    url = f"sqlite:{tmp_path / 'store.db'}"
    kept = ullage.open_store(url)
    kept.originals.keep({reference(PORT): PORT})
    kept.close()
    log = ullage.open_log(url)
    with ullage.Session.create(log, "s") as session:
        session.record([Draft("user_message", {"text": "the valve of the database sticks"})])
    log.close()
    return url


def test_a_store_is_searched(store: Any):
    (hit,) = ullage.search("staging port", store=store)
    assert (hit.reference, hit.text) == (reference(PORT), PORT)
    assert ullage.recall(hit.reference, store=store, offset=hit.offset) == PORT
    named = ullage.search("database", store=store, references=[reference(PORT)])
    assert [hit.text for hit in named] == [PORT]


def test_a_url_names_originals_and_sessions(url: str):
    found = ullage.search("database", store=url)
    assert {hit.session for hit in found} == {"", "s"}
    assert [hit.session for hit in ullage.search("database", store=url, session="s")] == ["s"]
    assert len(ullage.search("database", store=url, hits=1)) == 1
    log = ullage.open_log(url)
    assert [hit.session for hit in ullage.search("valve", store=log, session="s")] == ["s"]
    assert ullage.search("valve", store=ullage.Session(log, "s")) == []  # nothing was left out
    log.close()


def test_what_cannot_be_searched_is_said(url: str, tmp_path: Path):
    with pytest.raises(StoreError, match="no session"):
        ullage.search("database", store=url, session="nobody")
    with pytest.raises(ConfigurationError, match="memory: has no sessions"):
        ullage.search("database", store="memory:", session="s")
    with pytest.raises(StoreError, match="no store at"):
        ullage.search("database", store=f"sqlite:{tmp_path / 'none.db'}")

    class Bare:
        originals = object()

    bare: Any = Bare()
    with pytest.raises(ConfigurationError, match="Bare cannot be searched"):
        ullage.search("database", store=bare)


def test_an_agent_finds_only_what_its_own_messages_stand_for(store: Any):
    words = json.dumps({"query": "database"})
    messages = [{"role": "user", "content": f"[ullage: gone; recall {reference(PORT)}]"}]
    answer = ullage.answer_search(words, store, messages=messages)
    assert PORT in answer
    assert reference(PORT) in answer
    assert "swordfish" not in answer
    assert "swordfish" in ullage.answer_search({"query": "database"}, store)
    none = ullage.answer_search(words, store, messages=[{"role": "user", "content": "hello"}])
    assert none.startswith("Nothing that was left out")


@pytest.mark.parametrize("kind", ["memory:", "sqlite:"])
def test_a_guard_s_history_is_searched_through_its_view(kind: str, tmp_path: Path):
    store = ullage.open_store(kind + (str(tmp_path / "s.db") if kind == "sqlite:" else ""))
    guard = ullage.Guard("nobody's-model", window=2_000, runtime=Runtime(), store=store)
    history: list[dict[str, str]] = []
    for n in range(60):
        history.append({"role": "user", "content": f"Record {n}: cask {n} holds {n * 7} litres."})
        history.append({"role": "assistant", "content": f"Noted, cask {n}. " + "Fine. " * 20})
    for chain in range(3):  # what was left out names what was left out before it
        view = guard.prepare(history)
        history = [*view.messages, *history[:40]]
        assert ullage.list_left_out(view.messages) or chain == 0
    sent = guard.prepare(history).messages
    answer = ullage.answer_search({"query": "cask 3 litres"}, store, messages=sent)
    assert "cask 3 holds 21 litres" in answer
    store.close()


@pytest.mark.parametrize(
    ("dialect", "shape"),
    [
        ("openai_chat", ChatCompletionFunctionToolParam),
        ("openai_responses", FunctionToolParam),
        ("anthropic", ToolParam),
    ],
)
def test_the_tool_is_what_each_sdk_sends(dialect: str, shape: Any):
    tool = ullage.search_tool(dialect)
    assert TypeAdapter(shape).validate_python(tool) == tool
    assert json.loads(json.dumps(tool)) == tool


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "no JSON"),
        ([], "are an object, such as"),
        ({}, "query is missing"),
        ({"query": 5}, "query is missing"),
        ({"query": "x", "lines": 1}, "no argument 'lines': there are query"),
        ({"query": "?!"}, "no words to look for"),
    ],
)
def test_a_bad_call_is_answered_with_what_is_wrong(store: Any, arguments: Any, said: str):
    answer = ullage.answer_search(arguments, store)
    assert answer.startswith("error: ")
    assert said in answer


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["query", "hits", "x"]), inner),
)


@given(VALUES)
def test_nothing_that_a_model_writes_raises(arguments: Any):
    store = ullage.open_store("memory:")
    store.originals.keep({"u:1": "some text"})
    assert isinstance(ullage.answer_search(arguments, store), str)
    assert isinstance(ullage.answer_search(json.dumps(arguments), store, messages=[]), str)
