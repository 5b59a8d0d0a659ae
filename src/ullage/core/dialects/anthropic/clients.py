"""Anthropic's own client (anthropic 2.12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ullage.core.dialects.client import ClientForm, ClientMethod, Recipient, find_text, find_url


def _find_server(client: Any, given: Mapping[str, Any]) -> Recipient:
    """Return the target of a call; `auth_token` is a credential too."""
    key = find_text(client, "api_key") or find_text(client, "auth_token")
    return Recipient(find_text(given, "model"), find_url(client, "base_url"), key)


CLIENTS: Final = (
    ClientForm(
        title="Anthropic and AsyncAnthropic",
        package="anthropic",
        classes={"SyncAPIClient": False, "AsyncAPIClient": True},
        paths=(("messages",), ("beta", "messages")),
        methods={
            "create": ClientMethod(),
            "parse": ClientMethod(),
            "stream": ClientMethod("entered"),
        },
        locate=_find_server,
        headers="extra_headers",
        copies=frozenset({"with_options", "copy"}),
    ),
)
