"""Ollama's own client (ollama 0.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ullage.core.dialects.client import ClientForm, ClientMethod, Recipient, find_text, find_url

BEARER: Final = "Bearer "


def _find_server(client: Any, given: Mapping[str, Any]) -> Recipient:
    """Return the target of a call; the key is in the headers of the client's connections."""
    said = find_text(client, "_client", "headers", "authorization") or ""
    url = find_url(client, "_client", "base_url")
    return Recipient(find_text(given, "model"), url, said.removeprefix(BEARER) or None)


CLIENTS: Final = (
    ClientForm(
        title="ollama's Client and AsyncClient",
        package="ollama",
        classes={"Client": False, "AsyncClient": True},
        paths=((),),
        methods={"chat": ClientMethod()},
        locate=_find_server,
    ),
)
