"""Which dialect a request is written in: marks that are certain, and their order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import responses

from ullage.core.dialects import registry
from ullage.core.dialects.registry import DIALECTS, LOOKED_AT, aliases, parse_name, recognise
from ullage.core.errors import ConfigurationError

SAID = {"role": "user", "content": "hi"}
CHAT_TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
RESPONSES_TOOL = {"type": "function", "name": "f", "parameters": {}}
ANTHROPIC_TOOL = {"name": "f", "input_schema": {}}

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(
                st.sampled_from(["role", "type", "content", "source", "tool_calls", "function"]),
                st.text(max_size=4),
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=10,
)


def block(kind: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": kind, **fields}]}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
        {"role": "function", "name": "f", "content": "ok"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": None, "function_call": {"name": "f"}},
        {"tool_call_id": "c", "content": "ok"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        {"tool_calls": [{"id": "c", "type": "function", "function": {"arguments": {}}}]},
        {"role": "assistant", "tool_calls": [], "images": [], "thinking": None},
        block("image_url", image_url={"url": "https://example.org/a.png"}),
        block("file", file={"file_id": "f"}),
    ],
    ids=repr,
)
def test_marks_of_chat_completions(message: Any):
    assert recognise([SAID, message, SAID], tools=[ANTHROPIC_TOOL]) == "openai_chat"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "tool_name": "f", "content": "ok"},
        {"role": "assistant", "content": "a", "thinking": "hm"},
        {"role": "user", "content": "see", "images": ["aGk="]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"arguments": {}}}]},
        {"role": "assistant", "tool_calls": [{"type": "function", "function": {"arguments": {}}}]},
        SimpleNamespace(role="tool", tool_name="f", content="ok"),
    ],
    ids=repr,
)
def test_marks_of_ollama(message: Any):
    assert recognise([SAID, message, SAID], tools=[ANTHROPIC_TOOL]) == "ollama_chat"


@pytest.mark.parametrize(
    "message",
    [
        block("tool_use", id="t", name="f", input={}),
        block("tool_result", tool_use_id="t"),
        block("thinking", thinking="hm"),
        block("redacted_thinking", data="x"),
        block("image", source={"type": "base64"}),
        block("document", source={"type": "text"}),
        block("server_tool_use"),
        block("web_search_tool_result"),
        block("mcp_tool_use"),
        {"type": "message", **block("tool_use")},
        {"type": "message", **block("text", text="a")},
    ],
    ids=repr,
)
def test_marks_of_anthropic(message: Any):
    assert recognise([SAID, message, SAID], tools=[CHAT_TOOL]) == "anthropic"


@pytest.mark.parametrize(
    "message",
    [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "ok"},
        {"type": "reasoning", "summary": []},
        {"type": "item_reference", "id": "i"},
        {"type": "of next year"},
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        block("input_text", text="a"),
        block("output_text", text="a"),
        block("input_image", image_url="https://example.org/a.png"),
        block("input_file", file_id="f"),
    ],
    ids=repr,
)
def test_marks_of_the_responses_api(message: Any):
    assert recognise([SAID, message, SAID], tools=[CHAT_TOOL]) == "openai_responses"


def test_a_string_is_an_input_of_the_responses_api():
    assert recognise("hi", tools=[CHAT_TOOL]) == "openai_responses"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        None,
        7,
        b"hi",
        {"role": "tool"},
        [SAID, {"role": "assistant", "content": "ho"}],
        [{"role": "system", "content": "s"}, block("text", text="a"), block("input_audio")],
        [block("refusal"), block("image"), {"role": "user", "content": ["a", 5]}],
        [{"role": "user", "type": 5}, 5, "x", None],
    ],
    ids=repr,
)
def test_what_shows_no_mark_is_chat_completions(messages: Any):
    assert recognise(messages) == "openai_chat"


@pytest.mark.parametrize(
    ("tool", "dialect"),
    [
        (CHAT_TOOL, "openai_chat"),
        ({"type": "custom", "custom": {"name": "f"}}, "openai_chat"),
        (RESPONSES_TOOL, "openai_responses"),
        ({"type": "custom", "name": "f"}, "openai_responses"),
        ({"type": "web_search"}, "openai_responses"),
        (ANTHROPIC_TOOL, "anthropic"),
        ({"type": "custom", **ANTHROPIC_TOOL}, "anthropic"),
        ({"type": "web_search_20250305", "name": "web_search"}, "anthropic"),
        ({"name": "f"}, "openai_chat"),
        (5, "openai_chat"),
    ],
    ids=repr,
)
def test_tools_tell_where_the_messages_do_not(tool: Any, dialect: str):
    assert recognise([SAID], tools=[tool]) == dialect
    assert recognise([SAID], tools=[{}, tool, CHAT_TOOL]) == dialect


def test_operator_text_in_blocks_is_anthropics():
    blocks = [{"type": "text", "text": "be brief"}]
    assert recognise([SAID], system=blocks, tools=[CHAT_TOOL]) == "anthropic"
    assert recognise([SAID], system="be brief") == "openai_chat"
    assert recognise([block("input_text")], system=blocks) == "openai_responses"


def test_the_first_mark_decides():
    assert recognise([block("tool_use"), {"role": "tool"}]) == "anthropic"
    assert recognise([{"role": "tool"}, block("tool_use")]) == "openai_chat"


def test_marks_are_looked_for_at_both_ends_and_not_between():
    mark = block("tool_use")
    filler = [SAID] * LOOKED_AT
    assert recognise([*filler[1:], mark, *filler, SAID]) == "anthropic"
    assert recognise([*filler, SAID, mark, *filler[1:]]) == "anthropic"
    assert recognise([*filler, mark, *filler]) == "openai_chat"


def test_objects_of_an_sdk_are_looked_at_by_their_attributes():
    call = responses.ResponseFunctionToolCall(
        type="function_call", call_id="c", name="f", arguments="{}"
    )
    assert recognise([SAID, call]) == "openai_responses"
    use = SimpleNamespace(type="tool_use", id="t", name="f", input={})
    assert recognise([SAID, {"role": "assistant", "content": [use]}]) == "anthropic"
    assert recognise([SAID, SimpleNamespace(role="assistant", tool_calls=[use])]) == "openai_chat"


@given(JSON, JSON, JSON)
def test_whatever_arrives_has_a_dialect(messages: Any, system: Any, tools: Any):
    assert recognise(messages, system=system, tools=tools) in DIALECTS


@pytest.mark.parametrize(
    ("text", "dialect"),
    [*((d, d) for d in DIALECTS), *aliases().items(), (" OpenAI-Chat ", "openai_chat")],
)
def test_a_dialect_goes_by_its_name_or_a_short_one(text: str, dialect: str):
    assert parse_name(text) == dialect


@pytest.mark.parametrize("text", ["", "cohere", "openai chat", None, 5])
def test_an_unknown_dialect_is_refused_with_the_known_ones(text: Any):
    with pytest.raises(ConfigurationError) as caught:
        parse_name(text)
    assert repr(text) in str(caught.value)
    assert all(name in str(caught.value) for name in (*DIALECTS, *aliases()))


def test_every_folder_is_a_dialect_that_is_named_and_every_name_has_its_folder() -> None:
    folder = Path(registry.__file__).parent
    found = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert found == {*DIALECTS}, "add the folder's name to core/dialects/names.py, or remove it"
    assert [registry.find(name).name for name in DIALECTS] == [*DIALECTS]
