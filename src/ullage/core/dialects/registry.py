"""Which dialect a history is written in, told by its shape alone.

It knows the marks of each dialect and imports no codec: a wrong guess costs a miscount, so only
what one dialect has and the others lack counts as a mark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ullage.core.errors import ConfigurationError
from ullage.core.messages.transcript import Dialect

DIALECTS: Final[Sequence[Dialect]] = (
    "openai_chat",
    "openai_responses",
    "anthropic",
    "ollama_chat",
)
ALIASES: Final[Mapping[str, Dialect]] = {
    "chat": "openai_chat",
    "openai": "openai_chat",
    "responses": "openai_responses",
    "messages": "anthropic",
    "claude": "anthropic",
    "ollama": "ollama_chat",
}

LOOKED_AT: Final = 64
"""Messages looked at from either end, and parts of each: marks stand where tools were used, and
in a tool loop that is every other message."""

PART_MARKS: Final[Mapping[str, Dialect]] = {
    "input_text": "openai_responses",
    "output_text": "openai_responses",
    "input_image": "openai_responses",
    "input_file": "openai_responses",
    "image_url": "openai_chat",
    "file": "openai_chat",
    "tool_use": "anthropic",
    "tool_result": "anthropic",
    "thinking": "anthropic",
    "redacted_thinking": "anthropic",
    "server_tool_use": "anthropic",
    "mcp_tool_use": "anthropic",
    "mcp_tool_result": "anthropic",
    "container_upload": "anthropic",
    "search_result": "anthropic",
}
"""Types of content parts that one dialect has alone. `text`, `refusal` and `input_audio` are in
more than one."""

SERVER_RESULT: Final = "_tool_result"
"""How Anthropic ends the types of what its own tools return (web_search_tool_result, ...)."""

SERVER_TOOL: Final = re.compile(r"_\d{8}$")
"""Anthropic's own tools carry the date of their version (web_search_20250305)."""

OLLAMA_TEXTS: Final = ("tool_name", "thinking")
"""Fields of a message that are text in Ollama's own API and in no other."""

CHAT_KEYS: Final = ("tool_calls", "tool_call_id", "function_call")


def named(text: object) -> Dialect:
    """Return the dialect of this name; raises ConfigurationError that lists the known ones."""
    name = text.strip().lower().replace("-", "_") if isinstance(text, str) else ""
    for dialect in DIALECTS:
        if dialect in (name, ALIASES.get(name)):
            return dialect
    raise ConfigurationError(
        f"dialect {text!r} is unknown: expected one of {', '.join(DIALECTS)} "
        f"(or short: {', '.join(ALIASES)})"
    )


def recognise(messages: Any, *, system: Any = None, tools: Any = None) -> Dialect:
    """Return the dialect that a request's shape shows; Chat Completions where nothing does.

    What the messages show beats `system` and `tools`. Looks at `LOOKED_AT` messages from either
    end and stops at the first mark. Never raises: what is no history is for the codec to refuse.
    """
    found = shown(messages)
    if found is not None:
        return found
    if any(isinstance(block, Mapping) for block in _ends(system)):
        return "anthropic"
    return next((found for tool in _ends(tools) if (found := _tool(tool))), "openai_chat")


def shown(messages: Any) -> Dialect | None:
    """Return the dialect that messages show by themselves, None where they show none."""
    if isinstance(messages, str):
        return "openai_responses"
    return next((found for message in _ends(messages) if (found := _message(message))), None)


def _ends(values: Any) -> Sequence[Any]:
    """Return the first and last values of a list, of anything else none."""
    if not isinstance(values, list | tuple):
        return ()
    if len(values) <= 2 * LOOKED_AT:
        return values
    return [*values[:LOOKED_AT], *values[-LOOKED_AT:]]


def _field(value: Any, name: str) -> Any:
    """Return a field of a mapping or of an SDK object, None without it."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _message(message: Any) -> Dialect | None:
    if _is_ollama(message):
        return "ollama_chat"
    role, kind = _field(message, "role"), _field(message, "type")
    if role in ("tool", "function") or any(_field(message, k) is not None for k in CHAT_KEYS):
        return "openai_chat"
    if isinstance(kind, str) and role is None:
        return "openai_responses"
    pieces = _ends(_field(message, "content"))
    found = next((found for piece in pieces if (found := _part(piece))), None)
    if found is not None or kind != "message":
        return found
    # both call a message so; only Anthropic's has `text` in it, Chat Completions has no type
    spoken = any(_field(piece, "type") == "text" for piece in pieces)
    return "anthropic" if spoken else "openai_responses"


def _is_ollama(message: Any) -> bool:
    """Tell whether a message has what Ollama's alone have.

    These are fields, and calls without an id or a type whose arguments are an object: Chat's have
    both, and text.
    """
    if any(isinstance(_field(message, name), str) for name in OLLAMA_TEXTS):
        return True
    images = _ends(_field(message, "images"))
    if images and isinstance(images[0], str):
        return True
    for call in _ends(_field(message, "tool_calls"))[:1]:
        arguments = _field(_field(call, "function"), "arguments")
        whole = _field(call, "id") and _field(call, "type")
        return isinstance(arguments, Mapping) and not whole
    return False


def _part(piece: Any) -> Dialect | None:
    kind = _field(piece, "type")
    if not isinstance(kind, str):
        return None
    if kind in ("image", "document") and _field(piece, "source") is not None:
        return "anthropic"
    if kind.endswith(SERVER_RESULT):
        return "anthropic"
    return PART_MARKS.get(kind)


def _tool(tool: Any) -> Dialect | None:
    kind = _field(tool, "type")
    if _field(tool, "input_schema") is not None:
        return "anthropic"
    if any(_field(tool, name) is not None for name in ("function", "custom")):
        return "openai_chat"
    if not isinstance(kind, str):
        return None
    return "anthropic" if SERVER_TOOL.search(kind) else "openai_responses"
