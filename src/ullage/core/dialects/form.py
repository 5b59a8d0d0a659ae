"""How a dialect writes the parts of a history: content, rounds of a model, tools.

The folders next to this file have one `Form` each; the renderer of a session passes plain values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from ullage.core.messages.transcript import Raw

Data = Mapping[str, Any]

NAME_CHARACTERS: Final = re.compile(r"[^a-zA-Z0-9_-]")
"""Characters that the Messages API refuses in a call id ("String should match pattern
'^[a-zA-Z0-9_-]+$'"); OpenAI's APIs have the same rule for names of functions.
"""

LONGEST_NAME: Final = 64
"""Most characters of a function's name (OpenAI API reference, "Create chat completion", tools)."""

Placed = tuple[int, Raw]
"""The seq of the first event of a message, and the message."""


class RenderedCall(NamedTuple):
    """A call with its id in this dialect, and its result.

    `called` and `seq` are the seqs of the events of the call and of its result.
    """

    id: str
    name: str
    arguments: str
    called: int
    seq: int
    text: str
    is_error: bool


class RoundParts(NamedTuple):
    """The parts of a round for a model: its own reasoning, non-empty texts, calls."""

    seq: int
    blocks: tuple[tuple[int, Data], ...]
    texts: tuple[str, ...]
    calls: tuple[RenderedCall, ...]


class OfferedTool(Protocol):
    """A tool as it is offered to a model; `parameters` is a JSON schema of an object."""

    @property
    def name(self) -> str:
        """The name that the model uses to call it."""
        ...

    @property
    def description(self) -> str:
        """A description of its effect."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Its parameters."""
        ...


class Form(Protocol):
    """How a dialect writes the parts of a history."""

    once: bool
    """True if a call id may occur only once in the whole history, and only in plain characters."""

    def part(self, part: Data) -> Data | None:
        """Return a piece of content, or None if the dialect cannot represent it."""
        ...

    def answer(self, answer: RoundParts) -> list[Placed]:
        """Return the messages of a round."""
        ...

    def user(self, content: Any) -> Raw:
        """Return a message of the user: a text, or pieces of content."""
        ...

    def add_text(self, message: Raw, text: str) -> Raw:
        """Return a copy of a user message with a text added at its end."""
        ...

    def tool(self, tool: OfferedTool) -> dict[str, Any]:
        """Return the definition of a tool."""
        ...


def write_user(content: Any) -> Raw:
    """Return a message of the user in the form of most dialects."""
    return {"role": "user", "content": content}


def add_part(message: Mapping[str, Any], text: str, kind: str = "text") -> dict[str, Any]:
    """Return a message with a text after its content, as a part of this type among parts."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": f"{content}\n\n{text}"}
    return {**message, "content": [*(content or ()), {"type": kind, "text": text}]}


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Return the arguments as an object that every server can read, otherwise None.

    Numbers that are not finite, and lone surrogates, are valid JSON only in Python.
    """
    try:
        value = json.loads(text if text.strip() else "{}")
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def write_object(text: str) -> dict[str, Any]:
    """Return the arguments as an object; other text is put into one."""
    given = parse_arguments(text)
    return {"_raw": text} if given is None else given


def write_json(text: str) -> str:
    """Return the arguments as JSON text of an object: unchanged if they are one."""
    if parse_arguments(text) is None:
        return json.dumps({"_raw": text})
    return text if text.strip() else "{}"


def find_medium(part: Data) -> tuple[str, str, str] | None:
    """Return the kind, the media type and the base64 data of an image or a file."""
    kind, media, data = part.get("type"), part.get("media_type"), part.get("data")
    if kind in ("image", "file") and isinstance(media, str) and isinstance(data, str):
        return str(kind), media, data
    return None


def file_name(part: Data) -> str:
    """Return the name of a file, or `file` if it has none."""
    name = part.get("name")
    return name if isinstance(name, str) and name else "file"


def find_text(part: Data) -> str | None:
    """Return the text of a piece of content, or None if it has none."""
    text = part.get("text") if part.get("type") == "text" else None
    return text if isinstance(text, str) and text.strip() else None
