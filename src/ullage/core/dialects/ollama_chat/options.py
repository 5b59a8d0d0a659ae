"""The options of a request to Ollama, and requests of `/api/generate` read as messages.

Pure functions over fields. Source of the shapes: ollama docs/api.md and api/types.go of 2026-08.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

MOST_TOKENS: Final = 2**40
"""Numbers from here on are no numbers of tokens."""

Fields = Mapping[str, Any]


def write_options(
    fields: Fields, num_ctx: int | None = None, num_predict: int | None = None
) -> dict[str, Any] | None:
    """Return the new `options` of a request, or None if they stay as they are.

    `num_ctx` is the operator's window in tokens. It is the same for every request to a model,
    whatever a request asks for, because the server reloads the model when it changes. `num_predict`
    is a lowered limit of the answer, in tokens.
    """
    given = fields.get("options")
    asked = dict(given) if isinstance(given, Mapping) else {}
    wanted = {"num_ctx": num_ctx, "num_predict": num_predict}
    new = {name: value for name, value in wanted.items() if value is not None}
    return None if new.items() <= asked.items() else {**asked, **new}


def find_window(fields: Fields, num_ctx: int | None = None) -> int | None:
    """Return the window that a request will get, in tokens, or None if only the server knows.

    It is the operator's `num_ctx`, or else the one in the request. The server caps both at the
    trained length.
    """
    return num_ctx if num_ctx is not None else _tokens(_option(fields, "num_ctx"))


def find_limit(fields: Fields) -> int | None:
    """Return the limit of the answer, in tokens, or None if there is no limit.

    The server's default, -1, is no limit, and neither is -2, "until the window is full".
    """
    return _tokens(_option(fields, "num_predict"))


def _option(fields: Fields, name: str) -> Any:
    given = fields.get("options")
    return given.get(name) if isinstance(given, Mapping) else None


def _tokens(value: object) -> int | None:
    """Return a number of tokens; the server uses the integer part of any number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return int(value) if 1 <= value < MOST_TOKENS else None


def read_single(fields: Fields) -> tuple[Sequence[Mapping[str, Any]], int]:
    """Return the prompt of a request of `/api/generate` as messages, and the tokens of its context.

    The messages are in Ollama's dialect. The tokens are those of an earlier answer (`context`),
    already counted. A request without messages and context loads or unloads the model. The request
    is one prompt: it can be checked against the window, but not compacted. Fields with a wrong type
    are left to the server to refuse, and count nothing here.
    """
    said = {name: _text(fields.get(name)) for name in ("system", "template", "prompt", "suffix")}
    messages: list[Mapping[str, Any]] = []
    operator = "\n".join(text for text in (said["system"], said["template"]) if text)
    if operator:
        messages.append({"role": "system", "content": operator})
    images = fields.get("images")
    seen = {"images": list(images)} if isinstance(images, Sequence) and _shows(images) else {}
    prompt = "\n".join(text for text in (said["prompt"], said["suffix"]) if text)
    if prompt or seen:
        messages.append({"role": "user", "content": prompt, **seen})
    context = fields.get("context")
    asks = bool(prompt or seen)
    held = len(context) if asks and isinstance(context, list | tuple) else 0
    return tuple(messages) if asks else (), held


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _shows(images: Sequence[Any]) -> bool:
    return not isinstance(images, str) and any(isinstance(image, str) for image in images)
