"""What `ullage serve` is told: upstreams, rules, tokens and limits, as frozen values.

`parse` reads the `[serve]` table of a TOML file. A value that cannot work is refused where it is
made, so that no server ever starts on one. It reads no files and knows no HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar, get_args
from urllib.parse import urlsplit

from ullage.core.compaction.policy import Policy
from ullage.core.errors import ConfigurationError
from ullage.core.errors.nearest import suggest

Usage = Literal["inject", "passive"]
USAGES: Final[tuple[Usage, ...]] = get_args(Usage)

ANY: Final = "*"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
VARIABLE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
SHORTEST: Final = 16
"""Characters of a token below which guessing is no work."""

LONGEST: Final = 256
"""Characters of a model's name that globs are tried on; clients choose the name."""

PORT: Final = 8790
MIB: Final = 1024 * 1024
WEEK_S: Final = 7 * 24 * 3600.0

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server that requests go to, and the models that it answers for.

    The client's own path is appended to `root`, which is `base_url` without a `/v1` at its end.
    `models` are globs of the request's `model`. `api_key` is sent in place of the client's own;
    None passes that one on. `server` is what the operator says it is ("ollama", "llama.cpp"), None
    has it found out. Raises ConfigurationError for what is no such URL, name or glob.
    """

    name: str
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    models: tuple[str, ...] = (ANY,)
    server: str | None = None

    def __post_init__(self) -> None:
        _named("an upstream", self.name)
        if not _web(self.base_url):
            raise ConfigurationError(
                f"base_url of the upstream {self.name!r} is no plain http or https URL: write "
                "http://HOST[:PORT][/PREFIX], without a user, a query or a fragment"
            )
        if self.api_key is not None and not _visible(self.api_key):
            raise ConfigurationError(
                f"api_key of the upstream {self.name!r} cannot stand in a header: it is empty, or "
                "has characters other than visible ASCII"
            )
        if not self.models or not all(self.models):
            raise ConfigurationError(
                f"the upstream {self.name!r} serves no model: leave `models` out for all of them"
            )

    @property
    def root(self) -> str:
        """Where the paths of clients begin: no slash at its end, and no `/v1`."""
        return self.base_url.rstrip("/").removesuffix("/v1").rstrip("/")

    def serves(self, model: str | None) -> bool:
        """Tell whether a request for `model` goes here; one that names none goes by `*` alone."""
        return any(_covers(glob, model) for glob in self.models)


@dataclass(frozen=True, slots=True)
class Rule:
    """What holds for the requests of some models, and of the client with one token.

    `model` is a glob, `key` the name of a token, None any client. `window` is the operator's word
    in tokens. With `observe` nothing is changed, only measured.
    """

    model: str = ANY
    key: str | None = None
    policy: Policy = field(default_factory=Policy.ladder)
    window: int | None = None
    observe: bool = False

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigurationError("model of a rule is empty: write * for all models")
        if self.window is not None:
            _whole("window of a rule", self.window, 1)
        if self.policy.new_session:
            raise ConfigurationError(
                f"the policy {self.policy.name} wants new sessions, and a proxy begins none: leave "
                "new_session out"
            )

    def holds(self, model: str | None, key: str | None) -> bool:
        """Tell whether the rule speaks of this model and this client."""
        return (self.key is None or self.key == key) and _covers(self.model, model)


DEFAULT: Final = Rule()


@dataclass(frozen=True, slots=True)
class Serve:
    """Everything that one proxy is told. Raises ConfigurationError for what cannot work together.

    `usage` inject has streamed Chat requests report their usage, passive changes nothing there.
    `fail_open` forwards a request as it came when the guard itself is at fault. `hosts` are names
    allowed in `Host` besides loopback and the address bound; `origins` those of pages in browsers.
    `tokens` are what clients present, by name: required where `host` is not loopback. `store` is a
    store's URL, None an SQLite file in the user's data folder; `ttl_s` is how long it keeps what
    nobody used. `max_body` is in bytes, the other limits are counts; `connect_s`, `first_byte_s`,
    `idle_s` (between two chunks) and `drain_s` (streams at the end) are seconds. `num_ctx` is put
    into requests to Ollama's own API, in tokens.
    """

    upstreams: tuple[Upstream, ...]
    rules: tuple[Rule, ...] = ()
    usage: Usage = "inject"
    fail_open: bool = True
    host: str = "127.0.0.1"
    port: int = PORT
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    store: str | None = None
    store_transcripts: bool = False
    ttl_s: float = WEEK_S
    max_body: int = 32 * MIB
    max_messages: int = 100_000
    max_n: int = 8
    max_depth: int = 64
    connect_s: float = 5.0
    first_byte_s: float = 600.0
    idle_s: float = 300.0
    drain_s: float = 30.0
    num_ctx: int | None = None

    def __post_init__(self) -> None:
        self._served()
        self._bounded()
        for name, token in self.tokens.items():
            _named("a token", name)
            if len(token) < SHORTEST or not _visible(token):
                raise ConfigurationError(
                    f"the token {name!r} is no secret: give {SHORTEST} or more visible ASCII "
                    "characters, such as those of `openssl rand -hex 24`"
                )
        if len(set(self.tokens.values())) < len(self.tokens):
            raise ConfigurationError("two tokens are the same: clients could not be told apart")
        if not self.tokens and not loopback(self.host):
            raise ConfigurationError(
                f"host {self.host!r} can be reached from other machines, and no token is set: bind "
                "to 127.0.0.1, or give each client a token in [serve.tokens]"
            )
        for rule in self.rules:
            if rule.key is not None and rule.key not in self.tokens:
                raise ConfigurationError(
                    f"a rule names the key {rule.key!r}, and there is no such token: "
                    f"{_known(rule.key, tuple(self.tokens)) or 'there is none at all'}"
                )

    def _served(self) -> None:
        if not self.upstreams:
            raise ConfigurationError(
                "no upstream is named: give --upstream URL, or [[serve.upstreams]] in the file of "
                "--config"
            )
        names = [upstream.name for upstream in self.upstreams]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(f"two upstreams are named {twice[0]!r}: rename one")
        if self.usage not in USAGES:
            raise ConfigurationError(f"usage is {self.usage!r}; valid are {', '.join(USAGES)}")

    def _bounded(self) -> None:
        for name in ("max_body", "max_messages", "max_n", "max_depth"):
            _whole(name, getattr(self, name), 1)
        _whole("port", self.port, 0, 65_535)
        if self.num_ctx is not None:
            _whole("num_ctx", self.num_ctx, 1)
        for name in ("ttl_s", "connect_s", "first_byte_s", "idle_s", "drain_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigurationError(f"{name} is {getattr(self, name)!r}: seconds above 0")

    def upstream(self, model: str | None) -> Upstream | None:
        """Return the first upstream that answers for a model, None where none does."""
        return next((found for found in self.upstreams if found.serves(model)), None)

    def rule(self, model: str | None, token: str | None) -> Rule:
        """Return the first rule for a model and the *name* of a client's token, or the default."""
        return next((found for found in self.rules if found.holds(model, token)), DEFAULT)


def loopback(host: str) -> bool:
    """Tell whether only programs on this machine reach a host."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table stands: the file, its path in it, and the lines of dotted keys if known."""

    origin: str
    path: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)

    def under(self, key: str | int) -> Place:
        """Return the place of an entry."""
        return replace(self, path=f"{self.path}.{key}" if self.path else str(key))

    def refused(self, why: str) -> ConfigurationError:
        """Return the error that names the place."""
        line = self.lines.get(self.path)
        return ConfigurationError(f"{self.origin}{f', line {line}' if line else ''}: {why}")


Environment = Mapping[str, str]
Reader = Callable[[Any, Place, Environment], Any]


def parse(
    data: Mapping[str, Any],
    where: str,
    environment: Environment,
    lines: Mapping[str, int] = MappingProxyType({}),
) -> Serve:
    """Return what a `[serve]` table says; `where` names its file, `lines` those of dotted keys.

    A secret written as `$NAME` is the value of that environment variable. Raises
    ConfigurationError for an unknown key, naming the nearest valid one, and for a value that
    cannot be; no message holds a secret.
    """
    place = Place(where, lines=lines)
    return _made(Serve, {"upstreams": (), **_table(data, place, environment, SERVE)}, place)


def _table(
    data: Any, place: Place, environment: Environment, readers: Mapping[str, Reader]
) -> dict[str, Any]:
    """Return the values of a table, each read by its own reader."""
    if not isinstance(data, Mapping):
        raise place.refused(f"{place.path or 'serve'} must be a table, not {_kind(data)}")
    values = {}
    for key, value in data.items():
        at = place.under(key)
        if key not in readers:
            raise at.refused(f"unknown key {at.path!r}: {_known(str(key), tuple(readers))}")
        values[key] = readers[key](value, at, environment)
    return values


def _made(make: Callable[..., Made], values: Mapping[str, Any], place: Place) -> Made:
    """Return the value, naming the place in what it refuses."""
    try:
        return make(**values)
    except ConfigurationError as error:
        raise place.refused(str(error)) from error
    except TypeError as error:  # a field without a default is not there
        needed = [f.name for f in fields(make) if f.name not in values][:2]  # type: ignore[arg-type]
        raise place.refused(
            f"{place.path or 'serve'} needs {' and '.join(needed)}: write them into the table"
        ) from error


def _text(value: Any, place: Place, environment: Environment) -> str:
    del environment
    if isinstance(value, str) and value:
        return value
    raise place.refused(f"{place.path} must be text, not {_kind(value)}")


def _secret(value: Any, place: Place, environment: Environment) -> str:
    """Return a secret, from the environment where `$NAME` stands; it is in no message."""
    text = _text(value, place, environment)
    named = VARIABLE.fullmatch(text)
    if named is None:
        return text
    held = environment.get(named[1])
    if not held:
        raise place.refused(f"{place.path} is ${named[1]}, and that variable is not set")
    return held


def _number(value: Any, place: Place, environment: Environment) -> int:
    del environment
    if type(value) is int:
        return value
    raise place.refused(f"{place.path} must be a whole number, not {value!r:.40}")


def _seconds(value: Any, place: Place, environment: Environment) -> float:
    del environment
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise place.refused(f"{place.path} must be a number of seconds, not {value!r:.40}")


def _switch(value: Any, place: Place, environment: Environment) -> bool:
    del environment
    if isinstance(value, bool):
        return value
    raise place.refused(f"{place.path} must be true or false, not {value!r:.40}")


def _texts(value: Any, place: Place, environment: Environment) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise place.refused(f"{place.path} must be a list of texts, not {_kind(value)}")
    return tuple(_text(item, place, environment) for item in value)


def _tokens(value: Any, place: Place, environment: Environment) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise place.refused(f"{place.path} must be a table of names and tokens")
    read = {str(k): _secret(v, place.under(k), environment) for k, v in value.items()}
    return MappingProxyType(read)


def _rule(value: Any, place: Place, environment: Environment) -> Rule:
    """Return a rule; `policy` and `min_output` make one policy."""
    read = _table(value, place, environment, RULE)
    name, least = read.pop("policy", "ladder"), read.pop("min_output", None)
    policy = _made(Policy.named, {"name": name}, place.under("policy"))
    if least is not None:
        policy = _made(partial(replace, policy), {"min_output": least}, place.under("min_output"))
    return _made(Rule, {**read, "policy": policy}, place)


def _upstream(value: Any, place: Place, environment: Environment) -> Upstream:
    return _made(Upstream, _table(value, place, environment, UPSTREAM), place)


def _each(
    read: Callable[[Any, Place, Environment], Made],
    value: Any,
    place: Place,
    environment: Environment,
) -> tuple[Made, ...]:
    """Return the entries of a list of tables, `[[serve.NAME]]`."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise place.refused(f"{place.path} must be a list of tables: write [[serve.{place.path}]]")
    return tuple(read(item, place.under(i), environment) for i, item in enumerate(value))


UPSTREAM: Final[Mapping[str, Reader]] = MappingProxyType(
    {"name": _text, "base_url": _text, "api_key": _secret, "models": _texts, "server": _text}
)
RULE: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        "model": _text,
        "key": _text,
        "policy": _text,
        "window": _number,
        "observe": _switch,
        "min_output": _number,
    }
)
SERVE: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        "upstreams": partial(_each, _upstream),
        "rules": partial(_each, _rule),
        "tokens": _tokens,
        **dict.fromkeys(("usage", "host", "store"), _text),
        **dict.fromkeys(("hosts", "origins"), _texts),
        **dict.fromkeys(("fail_open", "store_transcripts"), _switch),
        **dict.fromkeys(("port", "max_body", "max_messages", "max_n", "max_depth"), _number),
        **dict.fromkeys(("ttl_s", "connect_s", "first_byte_s", "idle_s", "drain_s"), _seconds),
        "num_ctx": _number,
    }
)
"""The keys of each table, and how their values are read."""


# --- what holds of single values ------------------------------------------------------------------


def _named(what: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r:.80} is no name of {what}: 1 to 64 letters, digits, dots, dashes and "
            "underscores, a letter or digit first"
        )


def _whole(name: str, value: int, least: int, most: int | None = None) -> None:
    if type(value) is not int or value < least or (most is not None and value > most):
        upper = "" if most is None else f" and at most {most:,}"
        raise ConfigurationError(f"{name} is {value!r}: a whole number of {least} or more{upper}")


def _web(url: str) -> bool:
    """Tell whether this is a plain http or https URL."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for a port that is none
    except ValueError:
        return False
    plain = not (parts.query or parts.fragment or "@" in parts.netloc) and _visible(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain


def _visible(text: str) -> bool:
    return bool(text) and all("!" <= char <= "~" for char in text)


def _covers(glob: str, model: str | None) -> bool:
    """Tell whether a glob of `*` and `?` covers a model; `*` alone covers one not named."""
    if model is None or len(model) > LONGEST or glob == ANY:
        return glob == ANY
    pattern = "".join({"*": ".*", "?": "."}.get(char) or re.escape(char) for char in glob)
    return re.fullmatch(pattern, model, re.DOTALL) is not None


def _known(key: str, names: tuple[str, ...]) -> str:
    """Return the hint for a name that there is not, empty where there is none at all."""
    return suggest(key, names, f"there are {', '.join(names)}" if names else "")


def _kind(value: Any) -> str:
    """Name what a value is without showing it: it may be a secret in the wrong place."""
    return f"{'an empty ' if value == '' else 'a '}{type(value).__name__}"
