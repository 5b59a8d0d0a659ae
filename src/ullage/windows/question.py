"""Whose window is asked for: model, endpoint, credential, and the operator's own word.

A value that names a question, and the key its answers are kept under. It asks nobody.
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
"""Stands between a key and the party that something was learned from."""

CREDENTIAL: Final = "#"
"""Stands between an endpoint and the hash of a credential."""

MARK: Final = "[1m]"
WIDE: Final = 1_000_000
"""The window of a model's name that ends in the mark: Claude Code names models so."""

MARKED: Final = f"{MARK} in the model's name"


@dataclass(frozen=True)
class Question:
    """Whose window is asked for. `override` is the operator's own number of tokens.

    `provider` names whose listing and rows are meant where the base URL does not tell. `party` is
    who of several asks with the same credential: what is learned from one holds for that one until
    another says the same. `said_by` tells people who gave the override. Raises ConfigurationError
    for an impossible override or base URL.
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
        """Whether a model is named alone: no server, no provider, no credential."""
        return self.base_url is None and self.provider is None and self.api_key is None

    @cached_property
    def scope(self) -> str:
        """Name endpoint and credential (hashed), so that tenants never share what is learned."""
        return f"{self._endpoint}{mark_credential(self.api_key)}"

    @cached_property
    def claim(self) -> Claim | None:
        """The operator's own word as a claim, None where it is not given."""
        if self.override is None:
            return None
        return Claim("total", self.override, "override", self.said_by)

    @property
    def tenant(self) -> str:
        """Name the scope and who asks: what is stored of conversations is kept under it."""
        return f"{self.scope}{BY}{self.party}" if self.party else self.scope

    @property
    def place(self) -> str:
        """Name endpoint and model, whoever asks."""
        return f"{self._endpoint}|{self.model or ''}"

    @property
    def _endpoint(self) -> str:
        return root(self.base_url) if self.base_url else self.provider or ""

    @cached_property
    def key(self) -> str:
        """Name scope and model: what answers about one model are kept under."""
        return f"{self.scope}|{self.model or ''}"

    @cached_property
    def own_key(self) -> str:
        """Name the key and who asks: what is learned from one party is kept under it."""
        return f"{self.key}{BY}{self.party}" if self.party else self.key


def mark_credential(api_key: str | None) -> str:
    """Return what stands in every scope of a credential: a hash of it."""
    return f"{CREDENTIAL}{_hash_secret(api_key or '')}"


def mark_client(name: str) -> str:
    """Return what stands in every tenant's scope of a client that has a token of this name."""
    return f"{BY}{make_party(name)}"


def strip_mark(model: str | None) -> str | None:
    """Return the name under which a model is served: without the mark of a wide window."""
    return model.removesuffix(MARK) if isinstance(model, str) else model


def ask_marked(question: Question) -> Question:
    """Return a question whose model's name may say how wide its window is.

    An override says more than the name.
    """
    bare = strip_mark(question.model)
    if bare == question.model:
        return question
    if question.override is not None:
        return replace(question, model=bare)
    return replace(question, model=bare, override=WIDE, said_by=MARKED)


def make_party(client: str | None, other: str | None = None) -> str:
    """Return whom something is learned from: the client's token, and a second credential."""
    found = _hash_secret(client or "")
    return f"{found}.{_hash_secret(other)}" if other is not None else found


def _hash_secret(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def read_window(window: Window | int | None) -> Window | None:
    """Return a window as a caller gave it; raises ConfigurationError for a senseless number."""
    if window is None or isinstance(window, Window):
        return window
    tokens = Question(override=window).override
    return Window(tokens, tokens, source="override")


def _web(url: object) -> bool:
    """Tell whether this is an http or https URL with a host and a lawful port."""
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
