"""Messages of no dialect: objects and forms of other frameworks, refused with their name.

A message must have a shape of some dialect; being serialisable as JSON is not enough. This module
knows the shapes of all dialects together, and reads no message.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from ullage.core.errors import MalformedHistoryError

ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
"""The roles of all dialects together."""

SAID: Final = frozenset(
    {
        "content", "tool_calls", "function_call", "refusal", "audio", "images", "thinking",
        "reasoning", "reasoning_content", "reasoning_details",
    }
)  # fmt: skip
"""Fields with the content of a message, in one dialect or another."""

BARE: Final = frozenset(
    {"role", "name", "type", "id", "status", "tool_call_id", "tool_name", "annotations"}
)
"""Fields of a message without content."""

ITEM: Final = re.compile(
    r"message|reasoning|item_reference|additional_tools|configuration_update|program"
    r"|compaction\w*|mcp_\w+|\w+_(?:call|output)"
)
"""Types of input items of the Responses API (OpenAI's Python SDK 3.54, ResponseInputItemParam), and
later types with similar names.
"""

LANGCHAIN: Final = (
    "convert the messages first, with langchain_core.messages.convert_to_openai_messages(messages)"
)
ADAPTERS: Final[Mapping[str, str]] = {
    "langchain_core": LANGCHAIN,
    "langchain": LANGCHAIN,
    "llama_index": (
        "convert the messages first, with "
        "llama_index.llms.openai.utils.to_openai_message_dicts(messages)"
    ),
    "haystack": "convert the messages first, with [m.to_openai_dict_format() for m in messages]",
    "semantic_kernel": "convert the messages first, with [m.to_dict() for m in messages]",
    "pydantic_ai": (
        "have Pydantic AI send through a guarded client, with "
        "OpenAIProvider(openai_client=ullage.wrap(AsyncOpenAI()))"
    ),
    "google": (
        'convert the messages first, with [{"role": "assistant" if c.role == "model" else c.role, '
        '"content": "".join(p.text or "" for p in c.parts)} for c in messages]'
    ),
}
"""Advice for objects of another framework, by its package."""

DUMPED: Final = frozenset({"human", "ai", "system", "tool", "function", "chat"})
"""Types of LangChain's serialised messages; no dialect has one without a role."""

FORMS: Final[tuple[tuple[frozenset[str], str, str], ...]] = (
    (frozenset({"role", "parts"}), "Gemini's form", "content in the place of parts, as a text"),
    (
        frozenset({"parts", "kind"}),
        "Pydantic AI's stored form",
        "role and content, or send through a client of ullage.wrap",
    ),
    (
        frozenset({"role", "blocks"}),
        "LlamaIndex's stored form",
        "content in the place of blocks, as a text",
    ),
    (
        frozenset({"type", "data"}),
        "LangChain's stored form",
        "convert_to_openai_messages(messages_from_dict(messages)), of langchain_core.messages",
    ),
    (frozenset({"from", "value"}), "ShareGPT's form", "role for from, content for value"),
    (frozenset({"message", "finish_reason"}), "a choice of an answer", "choice.message"),
    (frozenset({"choices"}), "a whole answer", "answer.choices[0].message as the message"),
    (frozenset({"output", "object"}), "a whole answer", "the items of answer.output as messages"),
)
"""Fields of mappings that are no messages, the name of the form, and what to pass instead."""

APART: Final = ("tool-call", "tool-result")
"""Types of content parts of the AI SDK, which no dialect has."""

SHOWN: Final = 6

NAME: Final = re.compile(r"[\w.:-]{0,40}")
"""A value that error texts may show: a name, too short to be part of a conversation."""


def check_shape(raw: object, fields: Mapping[str, Any], index: int) -> None:
    """Raise MalformedHistoryError for a message of no dialect; `fields` are the fields of `raw`."""
    role, kind = fields.get("role"), fields.get("type")
    _check_parts(fields.get("content"), index)
    if isinstance(kind, str) and kind != "message" and ITEM.fullmatch(kind):
        return
    if role is None:
        if isinstance(fields.get("id"), str) and fields.keys() <= {"id", "type"}:
            return
        if kind is None and "content" in fields and raw is fields:
            return  # a message without a role: each dialect decides about it
    elif not SAID.isdisjoint(_names(raw, fields)) or fields.keys() <= BARE:
        known = isinstance(role, str) and role.lower() in ROLES
        if known or raw is fields:  # for a mapping, the dialect checks the role
            return
    raise build_error(raw, fields, index)


def _check_parts(content: object, index: int) -> None:
    """Raise MalformedHistoryError for a content part of another framework.

    In every dialect a part has a type. Bedrock's Converse and Haystack have none, so all their
    parts, even calls and results, would be read as text.
    """
    if not isinstance(content, list | tuple):
        return
    for place, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else ""
        if kind is not None and kind not in APART:
            continue
        what = f"is of the type {kind!r}, as in the AI SDK"
        if kind is None:
            what = f"has no type: it is {show_value(part)}, as in Bedrock's Converse or Haystack"
        raise MalformedHistoryError(
            f"messages[{index}].content[{place}] {what}: pass parts of one dialect, such as "
            '{"type": "text", "text": "..."}, and calls and results as the client of your '
            "provider has them",
            index=index,
        )


def _names(raw: object, fields: Mapping[str, Any]) -> Collection[str]:
    """Return the fields of a message; for an SDK object, also its empty fields."""
    declared = getattr(type(raw), "model_fields", None)
    return declared.keys() | fields.keys() if isinstance(declared, dict) else fields.keys()


def build_error(raw: object, fields: Mapping[str, Any] | None, index: int) -> MalformedHistoryError:
    """Return the error that names the object and says how to convert it."""
    fields = fields or {}
    return MalformedHistoryError(
        f"messages[{index}] is {_label(raw)}, not a message of any dialect: {_advice(raw, fields)}",
        index=index,
    )


def _label(raw: object) -> str:
    kind = type(raw)
    if isinstance(raw, Mapping):
        return show_value(raw)
    return name_kind(raw) if kind.__module__ == "builtins" else _path(kind)


def show_value(value: object) -> str:
    """Return a value for an error text: a short name itself, or the names in a mapping.

    For any other value it returns only the kind and the length: it may be text of a conversation.
    """
    if isinstance(value, Mapping):
        return f"a mapping of {', '.join(map(show_value, list(value)[:SHOWN])) or 'nothing'}"
    if not isinstance(value, str):
        return name_kind(value)
    return repr(value) if NAME.fullmatch(value) else f"a text of {len(value):,} characters"


def name_kind(value: object) -> str:
    """Return the type of a value with its article: "None", "an int", "a HumanMessage"."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def find_adapter(raw: object) -> str | None:
    """Return the advice for another framework's object, or None for any other object."""
    packages = (base.__module__.partition(".")[0] for base in type(raw).__mro__)
    return next((ADAPTERS[package] for package in packages if package in ADAPTERS), None)


def _advice(raw: object, fields: Mapping[str, Any]) -> str:
    adapter = find_adapter(raw)
    if adapter is not None:
        return adapter
    kind = fields.get("type")
    if isinstance(kind, str) and kind in DUMPED and "content" in fields:
        return LANGCHAIN
    for names, form, instead in FORMS:
        if names <= fields.keys():
            return f"this is {form}; pass {instead}"
    return (
        'pass mappings such as {"role": "user", "content": "..."}, or objects of the OpenAI, '
        "Anthropic or Ollama client"
    )
