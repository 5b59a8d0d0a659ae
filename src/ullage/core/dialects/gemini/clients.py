"""Google's own client (google-genai 3.4), with its forms of contents and of the system text.

It accepts a text, a part, a file or an image as a content, and joins consecutive loose parts into
one content (`_transformers.t_contents`). For the codec they are converted to contents; the call is
sent with the caller's originals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ullage.core.dialects.client import (
    ClientForm,
    ClientMethod,
    GivenMessages,
    Path,
    Recipient,
    find_text,
    find_url,
)
from ullage.core.messages.fields import field_of

PLACES: Final[Mapping[str, tuple[Path, ...]]] = {
    "system": (("config", "system_instruction"), ("config", "systemInstruction")),
    "tools": (("config", "tools"),),
    "max_tokens": (("config", "max_output_tokens"), ("config", "maxOutputTokens")),
}

UNREAD: Final[Mapping[str, Any]] = {"file_data": {"file_uri": "", "mime_type": "image/png"}}
"""A placeholder part for an image in memory, which the client encodes when it sends."""


def read_contents(given: Any) -> GivenMessages:
    """Return the `contents` of a call as a list of contents."""
    if isinstance(given, list) and all(map(_is_content, given)):
        return GivenMessages(given)
    made: list[Any] = []
    origins: dict[int, list[Any]] = {}
    loose: list[Any] = []

    def gather(own: list[Any], parts: list[Any]) -> None:
        if parts:
            asks = any(_pick_part(p, "function_call", "functionCall") for p in parts)
            made.append({"role": "model" if asks else "user", "parts": parts})
            origins[id(made[-1])] = list(own)

    for one in [*(given if isinstance(given, list) else [given]), _END]:
        grouped = isinstance(one, list | tuple)
        if one is not _END and not grouped and not _is_content(one):
            loose.append(one)
            continue
        gather(loose, [_make_part(part) for part in loose])
        loose.clear()
        if grouped:
            gather([one], [_make_part(part) for part in one])
        elif one is not _END:
            made.append(one)
    return GivenMessages(made, origins)


_END: Final = object()


def read_system(given: Any) -> Any:
    """Return the operator's text as text or as parts: a text, a part, a content, a list of them."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, list | tuple):
        read = [read_system(one) for one in given]
        return [part for one in read for part in (one if isinstance(one, list) else [one])]
    held = field_of(given, "parts")
    return read_system(held) if held is not None else [{"text": find_text(given, "text") or ""}]


def _is_content(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "parts" in value or not value.keys() - {"role"}
    return hasattr(value, "parts") and hasattr(value, "role")


def _pick_part(part: Any, *names: str) -> Any:
    return next((held for name in names if (held := field_of(part, name)) is not None), None)


def _make_part(given: Any) -> Any:
    """Return a loose part in the form of a content's part."""
    if isinstance(given, str):
        return {"text": given}
    uri = _pick_part(given, "uri", "file_uri", "fileUri")
    if uri is not None:
        kind = _pick_part(given, "mime_type", "mimeType") or "application/octet-stream"
        return {"file_data": {"file_uri": uri, "mime_type": kind}}
    plain = isinstance(given, Mapping) or hasattr(given, "model_dump")
    return given if plain else UNREAD


def _find_server(client: Any, given: Mapping[str, Any]) -> Recipient:
    """Return the target of a call; a model may be named by its resource."""
    inner = field_of(client, "_api_client")
    named = find_text(given, "model")
    model = None if named is None else named.rpartition("/")[2]
    url = find_url(inner, "_http_options", "base_url")
    return Recipient(model, url, find_text(inner, "api_key"))


CLIENTS: Final = (
    ClientForm(
        title="google-genai's Client",
        package="google.genai",
        classes={"Client": False},
        paths=(("models",),),
        methods={
            "generate_content": ClientMethod("whole"),
            "generate_content_stream": ClientMethod("stream"),
        },
        locate=_find_server,
        places=PLACES,
        rebuilt={("chats",): ("modules", ("models",))},
        read_messages=read_contents,
        read_system=read_system,
    ),
    ClientForm(
        title="google-genai's Client",
        package="google.genai",
        classes={"Client": False},
        paths=(("aio", "models"),),
        methods={
            "generate_content": ClientMethod("whole", awaits=True),
            "generate_content_stream": ClientMethod("stream", awaits=True),
        },
        locate=_find_server,
        places=PLACES,
        rebuilt={("aio", "chats"): ("modules", ("aio", "models"))},
        read_messages=read_contents,
        read_system=read_system,
    ),
)
