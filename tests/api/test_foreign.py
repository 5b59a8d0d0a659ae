"""What is a message in no dialect is refused everywhere, by position, type and what converts it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

import anthropic.types
import httpx2
import openai
import openai.types.chat
import openai.types.responses
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import ullage
from ullage.runtime import Runtime

DIALECTS = (None, "openai_chat", "openai_responses", "anthropic", "ollama_chat")
ASK: dict[str, Any] = {"role": "user", "content": "What is in the cellar?"}


def of(module: str, kind: Any) -> Any:
    """Return a class as another package's."""
    kind.__module__ = module
    return kind


class Human(BaseModel):
    """As LangChain writes its own: a type, no role, and fields of every provider."""

    content: str
    additional_kwargs: dict[str, Any] = {}
    response_metadata: dict[str, Any] = {}
    type: str = "human"
    id: str | None = "run-1"


class Ai(Human):
    type: str = "ai"
    tool_calls: list[Any] = []


class ToolResult(Human):
    type: str = "tool"
    tool_call_id: str = "c1"


class Mine(Human):
    """A class of a user's, derived from LangChain's."""


class Role(StrEnum):
    USER = "user"


class Blocks(BaseModel):
    """As LlamaIndex has it: a role, and blocks in the place of content."""

    role: Role = Role.USER
    additional_kwargs: dict[str, Any] = {}
    blocks: list[Any] = [{"block_type": "text", "text": "hi"}]


class Parts(BaseModel):
    """As Gemini's SDK has it."""

    role: str = "model"
    parts: list[Any] = [{"text": "hi"}]


class Event(BaseModel):
    """As AutoGen has it: a type of its own, a source, no role."""

    content: str = "hi"
    source: str = "user"
    type: str = "UserMessage"


class Alien(BaseModel):
    """A role that no dialect has."""

    role: str = "human"
    content: str = "hi"


@dataclass
class Request:
    """As Pydantic AI has it."""

    parts: Any
    kind: str = "request"


for kind in (Human, Ai, ToolResult):
    of("langchain_core.messages.base", kind)

FOREIGN: Mapping[str, tuple[Any, str]] = {
    "human": (Human(content="hi"), "convert_to_openai_messages"),
    "ai": (Ai(content="hi"), "convert_to_openai_messages"),
    "tool": (ToolResult(content="hi"), "convert_to_openai_messages"),
    "derived": (of("mine", Mine)(content="hi"), "convert_to_openai_messages"),
    "dumped": (Human(content="hi").model_dump(), "convert_to_openai_messages"),
    "stored": ({"type": "human", "data": {"content": "hi"}}, "messages_from_dict"),
    "blocks": (of("llama_index.core.llms", Blocks)(), "to_openai_message_dicts"),
    "parts": (of("google.genai.types", Parts)(), "c.parts"),
    "gemini": ({"role": "user", "parts": [{"text": "hi"}]}, "Gemini"),
    "request": (of("pydantic_ai.messages", Request)([]), "ullage.wrap"),
    "event": (of("autogen_core.models", Event)(), "role"),
    "alien": (of("alien.talk", Alien)(), "role"),
    "sharegpt": ({"from": "human", "value": "hi"}, "ShareGPT"),
    "answer": ({"id": "c", "choices": [{"message": ASK}]}, r"choices\[0\].message"),
    "output": ({"id": "r", "object": "response", "output": []}, "answer.output"),
    "namespace": (SimpleNamespace(role="user", content="hi"), "SimpleNamespace"),
    "pair": (("user", "hi"), "a tuple"),
    "text": ("hi", "a str"),
    "nothing": (None, "is None"),
    "number": (7, "an? int"),
    "empty": ({}, "a mapping of nothing"),
}


def guard(dialect: str | None) -> ullage.Guard:
    return ullage.Guard("gpt-4o", window=9_000, dialect=dialect, runtime=Runtime())


def wrapped(messages: Any, dialect: str | None) -> None:
    """Send through a wrapped client that nobody answers."""
    transport = httpx2.MockTransport(lambda request: httpx2.Response(500))
    with openai.OpenAI(api_key="k", http_client=httpx2.Client(transport=transport)) as bare:
        client = ullage.wrap(bare, window=9_000, runtime=Runtime())
        client.chat.completions.create(model="gpt-4o", messages=messages)


FACES: Mapping[str, Callable[[Any, str | None], Any]] = {
    "count": lambda m, d: ullage.count(m, dialect=d),
    "compact": lambda m, d: ullage.compact(m, target_tokens=100, dialect=d),
    "validate": lambda m, d: ullage.validate(m, dialect=d),
    "repair": lambda m, d: ullage.repair(m, dialect=d),
    "context": lambda m, d: ullage.context(m, dialect=d),
    "tally": lambda m, d: ullage.Tally(dialect=d).add(*m),
    "prepare": lambda m, d: guard(d).prepare(m),
    "assess": lambda m, d: guard(d).assess(m),
    "call": lambda m, d: guard(d).call(dict, m),
    "wrap": wrapped,
}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_message_is_refused_by_position_and_with_what_converts_it(
    face: str, name: str
) -> None:
    message, advice = FOREIGN[name]
    # without a name for the dialect, contents of Gemini are read as what they are
    for dialect in DIALECTS[name in ("parts", "gemini") :]:
        with pytest.raises(ullage.MalformedHistoryError, match=advice) as refused:
            FACES[face]([ASK, message], dialect)
        assert refused.value.index == 1
        assert "messages[1] is " in str(refused.value)


def test_a_class_is_named_with_its_package() -> None:
    with pytest.raises(
        ullage.MalformedHistoryError, match=r"is langchain_core\.messages\.base\.Hu"
    ):
        ullage.count([FOREIGN["human"][0]])


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
KNOWN: Mapping[str, Any] = {
    "mapping": ASK,
    "calls": {"role": "assistant", "tool_calls": [CALL]},
    "silent": {"role": "assistant"},
    "chat object": openai.types.chat.ChatCompletionMessage(role="assistant", content="wine"),
    "silent chat object": openai.types.chat.ChatCompletionMessage(
        role="assistant", content=None, annotations=[]
    ),
    "chat object that calls": openai.types.chat.ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": None, "tool_calls": [CALL]}
    ),
    "item": {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
    "later item": {"type": "teleport_call", "id": "t"},
    "item object": openai.types.responses.ResponseFunctionToolCall(
        type="function_call", call_id="c", name="look", arguments="{}"
    ),
    "answer object": openai.types.responses.ResponseOutputMessage.model_validate(
        {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": []}
    ),
    "claude": anthropic.types.Message.model_validate(
        {
            "id": "m", "type": "message", "role": "assistant", "model": "c", "stop_reason": None,
            "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
            "content": [{"type": "text", "text": "wine"}],
        }
    ),
    "ollama": {"role": "assistant", "content": "", "thinking": "hm"},
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_every_shape_of_a_dialect_is_read(name: str) -> None:
    assert ullage.count([ASK, KNOWN[name]]).tokens > ullage.count([ASK]).tokens


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["type", "text", "data", "parts", "value", "body"]), JSON))
def test_what_has_neither_role_nor_a_known_type_is_never_counted(message: dict[str, Any]) -> None:
    with pytest.raises(ullage.MalformedHistoryError):
        ullage.count([message])


# --- what is no list ------------------------------------------------------------------------------

NO_LISTS: Mapping[str, tuple[Any, str]] = {
    "text": ("text", r"ullage\.count_text\(text\)"),
    "no text": ("", r"ullage\.count_text"),
    "bytes": (b"text", r"ullage\.count_text"),
    "message": (ASK, r"\[message\]"),
    "request": ({"model": "m", "messages": [ASK]}, 'its "messages"'),
    "generator": ((m for m in [ASK]), r"list\(messages\)"),
    "set": ({1, 2}, r"list\(messages\)"),
    "number": (7, "whole history"),
}


@pytest.mark.parametrize("face", [face for face in FACES if face not in ("tally", "wrap")])
@pytest.mark.parametrize("name", [*NO_LISTS, "nothing"])
def test_what_is_no_list_is_refused_with_what_to_pass_instead(face: str, name: str) -> None:
    value, advice = {**NO_LISTS, "nothing": (None, "whole history")}[name]
    with pytest.raises(ullage.MalformedHistoryError, match=f"must be a list.*{advice}"):
        FACES[face](value, None)


@pytest.mark.parametrize("face", [face for face in FACES if face not in ("tally", "wrap")])
def test_lists_of_other_kinds_are_lists(face: str) -> None:
    FACES[face](deque([ASK]), None)
    FACES[face]((ASK,), None)


def test_a_reference_to_an_item_is_read_where_the_dialect_is_said() -> None:
    assert ullage.count([ASK, {"id": "msg_1"}], dialect="responses").tokens


def test_a_text_is_the_input_of_responses_where_somebody_says_so() -> None:
    assert ullage.count("text", dialect="responses") == ullage.count(
        [{"role": "user", "content": "text"}], dialect="responses"
    )
    assert json.dumps(guard("responses").prepare("text").kwargs["input"])


CONVERSE: list[dict[str, Any]] = [
    {"role": "user", "content": [{"text": "What is in the cellar?"}]},
    {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}]},
]
AI_SDK: list[dict[str, Any]] = [
    ASK,
    {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "a", "toolName": "f"}]},
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("history", "place", "named"),
    [
        (CONVERSE, "messages[0].content[0]", "'text', as in Bedrock's Converse or Haystack"),
        (AI_SDK, "messages[1].content[0]", "'tool-call', as in the AI SDK"),
        ([ASK, {"role": "user", "content": ({},)}], "messages[1].content[0]", "of nothing"),
    ],
)
def test_content_parts_of_another_framework_are_refused_by_name(
    dialect: str | None, history: list[Any], place: str, named: str
) -> None:
    if dialect is None and history is CONVERSE:
        assert ullage.count(history, model="gpt-4o").tokens > 0  # read as what it is
        return
    with pytest.raises(ullage.MalformedHistoryError) as refused:
        ullage.count(history, model="gpt-4o", dialect=dialect)
    if dialect == "ollama_chat":
        return  # it has texts alone, and says so itself
    assert str(refused.value).startswith(place)
    assert named in str(refused.value)


class Prompt(BaseModel):
    """As LangChain's prompts are: one object that has messages."""

    messages: list[str] = []

    def to_messages(self) -> list[str]:
        return self.messages


class Single(BaseModel):
    role: str = "user"
    content: str = "What is in the cellar?"


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (Prompt(), "convert_to_openai_messages(prompt.to_messages())"),
        (of("langchain_core.messages", Ai)(content="x"), "pass a list, and convert the messages"),
        (Single(), "pass a list that holds it, such as [message]"),
        ({"choices": [{"message": {}}]}, "this is a whole answer"),
    ],
)
def test_one_object_in_the_place_of_a_list_is_refused_with_what_to_pass(
    given: Any, advice: str
) -> None:
    with pytest.raises(
        ullage.MalformedHistoryError, match=r"must be a list of messages"
    ) as refused:
        ullage.Guard("gpt-4o", window=8_000).prepare(given)
    assert advice in str(refused.value)
    assert "list(messages)" not in str(refused.value)
