"""The model to call, its server, and the limits: values, checked once.

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
    """Limits of one call; times are in seconds.

    `stall_s` is the longest silence of a server, before its answer and within it: the time that a
    local model may need to read a full window. `attempts` includes the first one. No pause between
    two attempts is longer than `longest_wait_s`. An answer may take up to `answer_s` and
    `answer_bytes` (a stream needs some 300 bytes per token), and may call up to `most_calls` tools.
    Raises ConfigurationError for values that are not positive.
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
        """Return why an answer with this many tool calls is refused, or "" if it is not."""
        if count <= self.most_calls:
            return ""
        return (
            f"asked for {count:,} calls of tools at once, and {self.most_calls:,} are the most: "
            "none was run; raise most_calls to allow more"
        )

    def refuse_time(self) -> str:
        """Return the error text for an answer that takes too long."""
        return f"took more than {self.answer_s:g} s for one answer, the most: raise answer_s"


@dataclass(frozen=True, slots=True)
class Provider:
    """A model by its server's name, and how to call it.

    `options` are fields of the request's body, sent unchanged. They take precedence over defaults,
    but never over the history, the tools and the limit of a call. `headers` are also sent unchanged
    and take precedence; their values and `api_key` are never shown. `dialect` also accepts its
    short names. `origin` tells how a later start finds the model again, without secrets
    (`key_variable`, `embedded`, `window`); it is recorded with sessions. `window` is the number of
    tokens that this model takes, if you know it better. `source` answers instead of a server;
    `streams.read_provider` makes such a record. Raises ConfigurationError for an invalid model or
    base URL.
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
        """The server to ask for the window, or None without one."""
        return self.base_url or None

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets: the key, values of headers, a password in the URL."""
        private = tuple(self.headers.items())
        return HttpRequest(self.base_url, api_key=self.api_key, private=private).secrets()

    def to_record(self) -> dict[str, Any]:
        """Return the data that a later start needs to call the model; it holds no credential.

        `needs` names the missing parts: key, headers, the user and password of the URL; `program`
        means the program whose object answers.
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
