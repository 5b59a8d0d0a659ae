"""Upstreams for requests without a conversation, and the models that a model list lacks.

The module sends nothing and does not know guards.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

from ullage.proxy.body import encode_json
from ullage.proxy.call import check_model

if TYPE_CHECKING:
    from ullage.config.serving import Serve, Upstream

LISTED: Final = "/v1/models"
NAMED: Final = re.compile(r"/v1(?:beta)?/models/(.+)")
"""Paths of one model, which end with its name."""

OLLAMA: Final = "/api/"
SHOWN: Final = "/api/show"
WHOLE: Final = 4 * 1024 * 1024
"""Largest list, in bytes, that names are added to; a longer one is relayed as it comes."""


def choose_upstream(serve: Serve, path: str, raw: bytes) -> Upstream:
    """Return the upstream of a request that is forwarded without reading its body.

    A request that names a model goes to the upstream that serves the model. Any other request goes
    to the one that serves all models. Without such an upstream, Ollama's own paths go to the first
    Ollama, and all else goes to the first upstream. Raises RequestRefused for a model that no
    upstream serves.
    """
    model = _find_model(path, raw)
    if model is not None:
        return check_model(serve, model)
    found = serve.upstream(None)
    if found is None and path.startswith(OLLAMA):
        found = next((known for known in serve.upstreams if known.server == "ollama"), None)
    return found or serve.upstreams[0]


def _find_model(path: str, raw: bytes) -> str | None:
    match = NAMED.fullmatch(path)
    if match is not None:
        return match[1]
    if path != SHOWN:
        return None
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    named = body.get("model", body.get("name")) if isinstance(body, dict) else None
    return named if isinstance(named, str) else None


def find_unlisted(serve: Serve, path: str, asked: Upstream) -> list[dict[str, str | int]]:
    """Return list entries for the named models of all upstreams but the one asked.

    Globs name no model.
    """
    if path != LISTED:
        return []
    return [
        {"id": name, "object": "model", "created": 0, "owned_by": known.name}
        for known in serve.upstreams
        for name in known.models
        if known is not asked and "*" not in name and "?" not in name
        if serve.upstream(name) is known
    ]


async def extend_listing(
    chunks: AsyncIterator[bytes], entries: Sequence[dict[str, str | int]]
) -> AsyncIterator[bytes]:
    """Yield an answer with these entries added to its list, if it is a list of OpenAI's."""
    data = b""
    async for chunk in chunks:
        data += chunk
        if len(data) > WHOLE:
            yield data
            break
    else:
        yield _add_entries(data, entries)
        return
    async for chunk in chunks:
        yield chunk


def _add_entries(data: bytes, entries: Sequence[dict[str, str | int]]) -> bytes:
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(answer, dict) or answer.get("object") != "list":
        return data
    held = answer.get("data")
    if not isinstance(held, list):
        return data
    known = {entry.get("id") for entry in held if isinstance(entry, dict)}
    new = [entry for entry in entries if entry["id"] not in known]
    return encode_json({**answer, "data": [*held, *new]}) if new else data
