"""Clients that use both of OpenAI's APIs: its own, and LiteLLM's (openai 3.54, litellm 1.110)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ullage.core.dialects.client import (
    ClientForm,
    ClientMethod,
    Path,
    Recipient,
    find_text,
    find_url,
)
from ullage.core.messages.fields import field_of

METHODS: Final[Mapping[str, ClientMethod]] = {
    "create": ClientMethod(),
    "parse": ClientMethod(),
    "stream": ClientMethod("entered"),
}


def make_openai(*paths: Path) -> ClientForm:
    """Return the form of OpenAI's own client, for the endpoints at these paths."""
    return ClientForm(
        title="OpenAI and AsyncOpenAI",
        package="openai",
        classes={"SyncAPIClient": False, "AsyncAPIClient": True},
        paths=paths,
        methods=METHODS,
        locate=find_openai,
        headers="extra_headers",
        copies=frozenset({"with_options", "copy"}),
    )


def find_openai(client: Any, given: Mapping[str, Any]) -> Recipient:
    """Return the target of a call of OpenAI's client."""
    url, key = find_url(client, "base_url"), find_text(client, "api_key")
    return Recipient(find_text(given, "model"), url, key)


def find_litellm(client: Any, given: Mapping[str, Any]) -> Recipient:
    """Return the target of a call of LiteLLM's.

    `api_base` names a server; then the part of the model before the `/` is LiteLLM's protocol for
    it. A Router's group is the model of its deployments if they are all the same.
    """
    listed = field_of(client, "get_model_list")
    model = find_text(given, "model")
    if callable(listed):
        found = {_read_deployment(one) for one in listed(model_name=model) or ()}
        return found.pop() if len(found) == 1 else Recipient()
    return _read_deployment({"litellm_params": given})


def _read_deployment(deployment: Any) -> Recipient:
    """Return the server of a deployment, or of a call's own keywords."""
    held = field_of(deployment, "litellm_params")
    url = find_text(held, "api_base") or find_text(held, "base_url")
    model = find_text(held, "model")
    if url is not None and model is not None:
        model = model.partition("/")[2] or model
    return Recipient(model, url, find_text(held, "api_key"))
