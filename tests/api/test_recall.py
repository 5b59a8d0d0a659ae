"""Originals read back by reference: whole, in pages, and by an agent that may write anything."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import ToolParam
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter

from ullage.api.recall import answer_recall, page, recall, recall_tool
from ullage.core.compaction.edits import reference
from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.session.recall import LARGEST, PAGE, SPEC
from ullage.storage import MemoryStore, Store, open_store

DOCS = Path(__file__).parents[2] / "docs" / "storage.md"
TEXT = "a line of a log\n" * 10_000
NAME = reference(TEXT)


@pytest.fixture
def store() -> Store:
    held = MemoryStore()
    held.originals.keep({NAME: TEXT, "u:short": "short"})
    return held


# ── programs ────────────────────────────────────────────────────────────────────────────────────


def test_a_text_comes_back_whole(store: Store):
    assert recall(NAME, store=store) == TEXT
    assert recall("u:short", store=store) == "short"


@given(st.text(max_size=60), st.integers(1, 20))
def test_pages_put_together_are_the_text(text: str, limit: int):
    store = MemoryStore()
    store.originals.keep({"u:1": text})
    pages = [page("u:1", store=store, limit=limit)]
    while (after := pages[-1].after) is not None:
        pages.append(page("u:1", store=store, offset=after, limit=limit))
    assert "".join(p.text for p in pages) == text
    assert all(len(p.text) <= limit and p.total == len(text) for p in pages)


def test_a_store_is_opened_by_its_url_and_left_closed(tmp_path: Path):
    url = f"sqlite:{tmp_path / 'store.db'}"
    kept = open_store(url)
    kept.originals.keep({NAME: TEXT})
    kept.close()
    assert recall(NAME, store=url, offset=2, limit=4) == "line"
    assert [file.name for file in tmp_path.iterdir()] == ["store.db"]


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path):
    with pytest.raises(StoreError, match=r"no store at .*store\.db"):
        recall(NAME, store=f"sqlite:{tmp_path / 'store.db'}")
    assert not list(tmp_path.iterdir())


def test_an_unknown_reference_is_named_with_its_store(store: Store):
    with pytest.raises(StoreError, match="memory: holds no text for 'u:0000'"):
        recall("u:0000", store=store)


@pytest.mark.parametrize("wrong", [{"offset": -1}, {"offset": True}, {"limit": 0}, {"limit": 1.5}])
def test_a_senseless_page_is_refused(store: Store, wrong: dict[str, Any]):
    with pytest.raises(ConfigurationError, match="is a number of characters"):
        recall(NAME, store=store, **wrong)


def test_an_offset_behind_the_text_is_refused_with_its_size(store: Store):
    assert recall("u:short", store=store, offset=5) == ""
    with pytest.raises(ConfigurationError, match="offset 6 is past the end: the text has 5"):
        recall("u:short", store=store, offset=6)


# ── agents ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("dialect", "shape"),
    [
        ("openai_chat", ChatCompletionFunctionToolParam),
        ("openai_responses", FunctionToolParam),
        ("anthropic", ToolParam),
    ],
)
def test_the_tool_is_what_each_sdk_sends(dialect: str, shape: Any):
    tool = recall_tool(dialect)
    assert TypeAdapter(shape).validate_python(tool) == tool
    assert json.loads(json.dumps(tool)) == tool
    function = tool.get("function", tool)
    assert function["name"] == SPEC.name
    schema = function.get("parameters") or function["input_schema"]
    Draft202012Validator.check_schema(schema)
    asking = Draft202012Validator(schema)
    assert asking.is_valid({"reference": NAME, "offset": 0, "limit": LARGEST})
    assert not asking.is_valid({"offset": 0})


def test_a_tool_may_be_changed_without_changing_the_next():
    recall_tool()["function"]["parameters"]["properties"].clear()
    assert recall_tool()["function"]["parameters"]["properties"]


def test_a_tool_of_an_unknown_dialect_is_refused():
    with pytest.raises(ConfigurationError, match="openai_chat"):
        recall_tool("morse")


def test_an_agent_that_follows_the_answers_reads_everything(store: Store):
    read, offset = "", 0
    while True:
        call = json.dumps({"reference": NAME, "offset": offset})
        text, _, note = answer_recall(call, store).rpartition("\n[")
        read += text
        if "the end" in note:
            break
        offset = int(note.partition("offset=")[2].rstrip("]"))
        assert len(text) == PAGE
    assert read == TEXT


def test_a_text_that_is_given_whole_has_no_note(store: Store):
    assert answer_recall({"reference": "u:short"}, store) == "short"
    assert answer_recall({"reference": "u:short", "offset": 0, "limit": None}, store) == "short"


def test_marks_around_a_reference_are_forgiven(store: Store):
    assert answer_recall({"reference": ' "[u:short]". '}, store) == "short"


def test_no_page_is_larger_than_the_largest(store: Store):
    answer = answer_recall({"reference": NAME, "limit": 10**9}, store)
    assert answer.partition("\n[characters")[0] == TEXT[:LARGEST]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "are an object"),
        (None, "are an object"),
        ({}, "reference is missing"),
        ({"reference": " "}, "reference is missing"),
        ({"reference": 5}, "reference is missing"),
        ({"reference": NAME, "lines": 3}, "no argument 'lines'"),
        ({"reference": NAME, "offset": "3"}, "offset is a number"),
        ({"reference": NAME, "offset": 10**9}, "is past the end"),
        ({"reference": NAME, "limit": "all"}, "limit is a number"),
        ({"reference": "u:unknown"}, "holds no text for 'u:unknown'"),
    ],
)
def test_a_bad_call_is_answered_with_what_is_wrong(store: Store, arguments: Any, said: str):
    answer = answer_recall(arguments, store)
    assert answer.startswith("error: ")
    assert said in answer


def test_a_store_that_fails_is_an_answer_too(tmp_path: Path):
    (tmp_path / "store.db").write_text("no database, " * 100)
    url = f"sqlite:{tmp_path / 'store.db'}"
    assert "is no SQLite file" in answer_recall({"reference": NAME}, url)


NAMES = st.sampled_from(["reference", "offset", "limit"])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["reference", "offset", "limit"]), inner)
        ),
    )
)
def test_nothing_that_a_model_writes_raises(arguments: Any):
    store = MemoryStore()
    assert isinstance(answer_recall(arguments, store), str)
    assert isinstance(answer_recall(json.dumps(arguments), store), str)


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]):
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    room: dict[str, Any] = {}
    exec(compile(blocks[0], "storage.md", "exec"), room)
    whole, rest = capsys.readouterr().out.split("\n", 1)
    assert whole == "the whole log"
    assert rest == "ullage_recall whole\n[characters 4 to 9 of 13; go on with offset=9]\n"
    exec(compile(blocks[1], "storage.md", "exec"), room)
    found = capsys.readouterr().out
    assert found.startswith("u:a9b1e20174a4ddfe 0 the whole log\nfrozenset({'u:a9b1e20174a4ddfe'})")
