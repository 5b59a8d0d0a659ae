"""The question for a window: model, endpoint, credential, and the operator's override.

It is a value with the keys under which its answers are kept. It asks nobody.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final
from urllib.parse import urlsplit

from ullage.core.errors import ConfigurationError
from ullage.core.tokens.claim import Claim
from ullage.core.tokens.window import Window
from ullage.windows.probes import root

BY: Final = " by "
"""Separates a key from the party that the lesson came from."""

CREDENTIAL: Final = "#"
"""Separates an endpoint from the hash of a credential."""

MARK: Final = "[1m]"
WIDE: Final = 1_000_000
"""The window of a model whose name ends in the mark, as Claude Code writes it."""

MARKED: Final = f"{MARK} in the model's name"


@dataclass(frozen=True)
class Question:
    """The model and server to find the window of. `override` is the operator's number of tokens.

    `provider` names the listing and rows to use if the base URL does not tell. `party`
    distinguishes clients with the same credential: lessons from one party apply to it alone until
    another confirms them. `said_by` names the source of the override for people. Raises
    ConfigurationError for an impossible override or base URL.
    """

    model: str | None = None
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    override: int | None = None
    provider: str | None = None
    party: str = ""
    said_by: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.model is not None and not isinstance(self.model, str):
            raise ConfigurationError(
                f"model is {self.model!r:.80}: give the model's name as a text, such as "
                '"gpt-4o", or leave it out'
            )
        given = self.override
        if given is not None and (type(given) is not int or given < 1):
            raise ConfigurationError(
                f"a window must be a positive number of tokens, not {given!r}: leave it out to "
                "have it found"
            )
        if self.base_url is not None and not _web(self.base_url):
            raise ConfigurationError(
                f"base_url {self.base_url!r} is no http or https URL, such as "
                "http://127.0.0.1:8080/v1"
            )

    @property
    def asks_nobody(self) -> bool:
        """Tell whether it names only a model: no server, no provider, no credential."""
        return self.base_url is None and self.provider is None and self.api_key is None

    @cached_property
    def scope(self) -> str:
        """Name endpoint and credential (hashed), so that tenants never share lessons."""
        return f"{self._endpoint}{mark_credential(self.api_key)}"

    @cached_property
    def claim(self) -> Claim | None:
        """The operator's override as a claim, or None."""
        if self.override is None:
            return None
        return Claim("total", self.override, "override", self.said_by)

    @property
    def tenant(self) -> str:
        """Name the scope and the party: the key for stored conversations."""
        return f"{self.scope}{BY}{self.party}" if self.party else self.scope

    @property
    def place(self) -> str:
        """Name endpoint and model, for all parties."""
        return f"{self._endpoint}|{self.model or ''}"

    @property
    def _endpoint(self) -> str:
        return root(self.base_url) if self.base_url else self.provider or ""

    @cached_property
    def key(self) -> str:
        """Name scope and model: the key for answers about one model."""
        return f"{self.scope}|{self.model or ''}"

    @cached_property
    def own_key(self) -> str:
        """Name the key and the party: the key for lessons from one party."""
        return f"{self.key}{BY}{self.party}" if self.party else self.key


def mark_credential(api_key: str | None) -> str:
    """Return the part of every scope that identifies a credential: its hash."""
    return f"{CREDENTIAL}{_hash_secret(api_key or '')}"


def mark_client(name: str) -> str:
    """Return the part of a tenant's scope that identifies a client with this token name."""
    return f"{BY}{make_party(name)}"


def strip_mark(model: str | None) -> str | None:
    """Return a model's name on its server: without the mark of a wide window."""
    return model.removesuffix(MARK) if isinstance(model, str) else model


def ask_marked(question: Question) -> Question:
    """Return a question whose override comes from the mark in the model's name, if any.

    A given override takes precedence over the name.
    """
    bare = strip_mark(question.model)
    if bare == question.model:
        return question
    if question.override is not None:
        return replace(question, model=bare)
    return replace(question, model=bare, override=WIDE, said_by=MARKED)


def make_party(client: str | None, other: str | None = None) -> str:
    """Return the party of a client's token and an optional second credential."""
    found = _hash_secret(client or "")
    return f"{found}.{_hash_secret(other)}" if other is not None else found


def _hash_secret(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def read_window(window: Window | int | None) -> Window | None:
    """Return a caller's window as `Window`; raises ConfigurationError for an invalid number."""
    if window is None or isinstance(window, Window):
        return window
    tokens = Question(override=window).override
    return Window(tokens, tokens, source="override")


def _web(url: object) -> bool:
    """Tell whether this is an http or https URL with a host and a valid port."""
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
