"""Which model is called, where, and within which limits: values, checked once.

It knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ullage.core.dialects import registry as dialects
from ullage.core.errors import ConfigurationError
from ullage.core.messages.transcript import DialectName
from ullage.transport import HttpRequest, mask_url

if TYPE_CHECKING:
    from ullage.providers.streams import StreamProvider


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds one call; times are in seconds.

    `stall_s` is the longest silence of a server, before its answer and within it: as long as
    a local model may read a full window. `attempts` counts the first one. No wait between two
    of them is longer than `longest_wait_s`. An answer takes `answer_s` and has `answer_bytes` on
    its way at most (a stream spends some 300 on a token), and asks for `most_calls` tools. Raises
    ConfigurationError for what is not positive.
    """

    stall_s: float = 300.0
    connect_s: float = 5.0
    attempts: int = 4
    longest_wait_s: float = 30.0
    answer_s: float = 3_600.0
    answer_bytes: int = 256 * 1024 * 1024
    most_calls: int = 128

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not value > 0:
                raise ConfigurationError(f"{name} is {value}, it must be more than 0")

    def refuse_calls(self, count: int) -> str:
        """Return why an answer with so many calls of tools is not taken, "" where it is."""
        if count <= self.most_calls:
            return ""
        return (
            f"asked for {count:,} calls of tools at once, and {self.most_calls:,} are the most: "
            "none was run; raise most_calls to allow more"
        )

    def refuse_time(self) -> str:
        """Return what is said of an answer that takes too long."""
        return f"took more than {self.answer_s:g} s for one answer, the most: raise answer_s"


@dataclass(frozen=True, slots=True)
class Provider:
    """A model as a server knows it, and how to call it.

    `options` are fields of the request's body, sent untouched; they win over what is sent by
    default, never over the history, the tools and the limit of a call. `headers` go along
    untouched and win too; their values and `api_key` are never shown. `dialect` also takes its
    short names. `origin` says how a later start comes by the model again, as far as that is no
    secret (`key_variable`, `embedded`, `window`); it is recorded with sessions. `window` is how
    many tokens this model takes, where you know better. `source` answers in place of a server:
    `streams.read_provider` makes such a record. Raises ConfigurationError for a model or a base
    URL that cannot be.
    """

    model: str
    base_url: str
    dialect: DialectName = dialects.DEFAULT
    api_key: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()
    origin: Mapping[str, Any] = field(default_factory=dict)
    window: int | None = field(default=None, kw_only=True)
    source: StreamProvider | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        if self.source is not None:
            return f"Provider({self.model!r}, {type(self.source).__name__}, {self.dialect!r})"
        return f"Provider({self.model!r}, {mask_url(self.base_url)!r}, {self.dialect!r})"

    @property
    def server_url(self) -> str | None:
        """The server that is asked for the window, None without one."""
        return self.base_url or None

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets: the key, values of headers, a password in the URL."""
        private = tuple(self.headers.items())
        return HttpRequest(self.base_url, api_key=self.api_key, private=private).secrets()

    def to_record(self) -> dict[str, Any]:
        """Return what a later start needs to call the model again; no credential is in it.

        `needs` names what it lacks: key, headers, the user and password of the URL; `program` is
        the one whose object answers.
        """
        parts = urlsplit(self.base_url)
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
        lacks = (
            ("key", self.api_key and "key_variable" not in self.origin),
            ("headers", self.headers),
            ("url", bare != parts),
            ("program", self.source is not None),
        )
        made: dict[str, Any] = {"model": self.model, "dialect": self.dialect}
        made["base_url"] = "" if "embedded" in self.origin else bare.geturl()
        if needs := [name for name, held in lacks if held]:
            made["needs"] = needs
        return {**made, **self.origin}

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigurationError("a provider needs a model: the id its server knows it by")
        if (self.base_url or self.source is None) and not _usable(self.base_url):
            raise ConfigurationError(
                f"the provider of {self.model} needs a base_url that begins with http:// or "
                "https://, such as http://127.0.0.1:8080/v1"
            )
        if self.window is not None and (type(self.window) is not int or self.window < 1):
            raise ConfigurationError(
                f"the window of {self.model} is {self.window!r:.60}: give a number of tokens, 1 or "
                "more, or leave it out to have it found"
            )
        dialect = dialects.parse_name(self.dialect)
        object.__setattr__(self, "dialect", dialect)


def _usable(base_url: str) -> bool:
    try:
        parts = urlsplit(base_url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False
