"""The configuration of `ullage serve`: upstreams, rules, tokens and limits, as frozen values.

`read` makes them from the table `[serve]` in the settings. Types and bounds come from the schema.
Values that cannot work together are refused here, so that no server starts with them. The module
reads no files and knows no HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_address
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

from ullage.core.compaction.policy import Policy
from ullage.core.errors import ConfigurationError
from ullage.core.errors.nearest import suggest

if TYPE_CHECKING:
    from ullage.config.schema import PolicyTable, RuleTable, Table, UpstreamTable
    from ullage.config.settings import Configured, SummarizerSettings

Usage = Literal["inject", "passive"]

Key = TypeVar("Key")
Found = TypeVar("Found")

MOST_LOOKED_UP: Final = 1_000
"""Names of models whose upstream and rule are remembered."""

ANY: Final = "*"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SHORTEST: Final = 16
"""Fewest characters of a token; shorter ones are easy to guess."""

LONGEST: Final = 256
"""Most characters of a model's name that globs are tried on; clients choose the name."""

PORT: Final = 8790
MIB: Final = 1024 * 1024
DAY_S: Final = 24 * 3600.0
WEEK_S: Final = 7 * DAY_S


class Misfit(ConfigurationError):  # noqa: N818 - named for what was found
    """Report proxy settings that cannot work; `about` is the path of the faulty one."""

    def __init__(self, message: str, about: str = "") -> None:
        super().__init__(message)
        self.about = about


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server that requests go to, and the models that it serves.

    The client's own path is appended to `root`, which is `base_url` without a `/v1` at its end.
    `models` are globs of the request's `model`. `api_key` replaces the client's key; without one,
    the client's key is passed on. `server` is the kind of server by the operator's word ("ollama",
    "llama.cpp"); without it, the proxy detects the kind. `policy` applies if no rule names another;
    without it, the proxy's applies. Raises ConfigurationError for an invalid URL, name or glob.
    """

    name: str
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    models: tuple[str, ...] = (ANY,)
    server: str | None = None
    policy: Policy | None = None

    def __post_init__(self) -> None:
        _check_name("an upstream", self.name, "name")
        _check_policy(self.policy)
        if not _web(self.base_url):
            raise Misfit(
                f"base_url of the upstream {self.name!r} is no plain http or https URL: write "
                "http://HOST[:PORT][/PREFIX], without a user, a query or a fragment",
                "base_url",
            )
        if self.api_key is not None and not _visible(self.api_key):
            raise Misfit(
                f"api_key of the upstream {self.name!r} cannot be sent in a header: it is empty, "
                "or has characters other than visible ASCII",
                "api_key",
            )
        if not self.models or not all(self.models):
            raise ConfigurationError(
                f"the upstream {self.name!r} serves no model: leave `models` out for all of them"
            )

    @property
    def root(self) -> str:
        """The start of the paths of clients: without a slash at its end, and without a version."""
        return _cut_version(self.base_url)

    def serves(self, model: str | None) -> bool:
        """Tell whether a request for `model` goes here; for None only the glob `*` fits."""
        return any(_covers(glob, model) for glob in self.models)


@dataclass(frozen=True, slots=True)
class ModelRule:
    """Settings for the requests of some models and, with `key`, only of one token's client.

    `model` is a glob, `key` the name of a token; without one, the rule is for any client. If
    `policy` is None, the upstream's or the proxy's applies; `min_output` replaces that of the
    policy. `window` is the operator's number of tokens. With `observe`, requests are measured but
    not changed. If `recall_tools` is None, the proxy's value applies.
    """

    model: str = ANY
    key: str | None = None
    policy: Policy | None = None
    window: int | None = None
    observe: bool = False
    min_output: int | None = None
    recall_tools: bool | None = None

    def __post_init__(self) -> None:
        _check_policy(self.policy)

    def holds(self, model: str | None, key: str | None) -> bool:
        """Tell whether the rule applies to this model and this client."""
        return (self.key is None or self.key == key) and _covers(self.model, model)


@dataclass(frozen=True, slots=True)
class Serve:
    """The whole configuration of a proxy. Raises ConfigurationError for values in conflict.

    With `usage` "inject", streamed Chat requests are asked for a usage report; "passive" leaves
    them as they are. `fail_open` forwards a request as it came if the guard itself fails. `hosts`
    are names allowed in `Host` besides loopback and the bound address; `origins` those of pages in
    browsers. `pages` lets the proxy show itself in a browser: there `operators`, names of tokens,
    see and steer all conversations, and `show_text` lets an operator read them if there is no
    second token. `tokens` are the secrets of clients, by name: required unless `host` is loopback.
    `store` is a store's URL; without it, the proxy uses an SQLite file in the user's data folder.
    `ttl_s` is how long it keeps unused entries. `max_body` is in bytes, the other limits are
    counts; `connect_s`, `first_byte_s`, `idle_s` (between two chunks), `leave_s` (new requests
    after SIGTERM) and `drain_s` (streams at the end) are seconds. `most_connections` to `reader_s`
    are limits of connections, `cache_conversations` to `page_bytes` limits of memory. `num_ctx` is
    put into requests to Ollama's own API, in tokens. `recall_tools` keeps left-out text, and adds
    tools to read and search it; the proxy answers their calls. `policy` applies if no rule and no
    upstream names another; `summarizer` writes summaries for all.
    """

    upstreams: tuple[Upstream, ...]
    rules: tuple[ModelRule, ...] = ()
    usage: Usage = "inject"
    fail_open: bool = True
    host: str = "127.0.0.1"
    port: int = PORT
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    pages: bool = True
    operators: tuple[str, ...] = ()
    show_text: bool = True
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    store: str | None = None
    store_transcripts: bool = False
    recall_tools: bool = False
    ttl_s: float = WEEK_S
    max_body: int = 32 * MIB
    max_messages: int = 100_000
    max_n: int = 8
    max_depth: int = 64
    connect_s: float = 5.0
    first_byte_s: float = 600.0
    idle_s: float = 300.0
    leave_s: float = 1.0
    drain_s: float = 30.0
    answer_bytes: int = 256 * MIB
    answer_s: float = 3_600.0
    workers: int = 2
    most_requests: int = 1_000
    most_bytes: int = 512 * MIB
    most_connections: int = 2_000
    head_bytes: int = 65_536
    head_s: float = 30.0
    body_s: float = 120.0
    reader_s: float = 120.0
    cache_conversations: int = 1_000
    cache_bytes: int = 8 * MIB
    page_bytes: int = 4 * MIB
    client_requests: int = 500
    client_bytes: int = 256 * MIB
    client_rate: float | None = None
    num_ctx: int | None = None
    policy: Policy = field(default_factory=Policy.ladder)
    summarizer: SummarizerSettings | Literal["same"] | None = None
    _routed: dict[str | None, Upstream | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _ruled: dict[tuple[str | None, str | None], ModelRule] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self._check_upstreams()
        self._check_tokens()
        _check_policy(self.policy)
        if not self.tokens and not loopback(self.host):
            raise Misfit(
                f"host {self.host!r} can be reached from other machines, and no token is set: bind "
                "to 127.0.0.1, or give each client a token in [serve.tokens]",
                "host",
            )
        for rule in self.rules:
            if rule.key is not None and rule.key not in self.tokens:
                names = tuple(self.tokens)
                there = f"there are {', '.join(names)}" if names else "no tokens are set"
                raise Misfit(
                    f"a rule names the unknown key {rule.key!r}: {suggest(rule.key, names, there)}",
                    "rules",
                )

    def _check_upstreams(self) -> None:
        if not self.upstreams:
            raise ConfigurationError(
                "no upstream is named: give --upstream URL, or [[serve.upstreams]] in the file of "
                "--config"
            )
        names = [upstream.name for upstream in self.upstreams]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise Misfit(f"two upstreams are named {twice[0]!r}: rename one", "upstreams")

    def _check_tokens(self) -> None:
        for name, token in self.tokens.items():
            _check_name("a token", name, f"tokens.{name}")
            if len(token) < SHORTEST or not _visible(token):
                raise Misfit(
                    f"the token {name!r} is no secret: give {SHORTEST} or more visible ASCII "
                    "characters, such as those of `openssl rand -hex 24`",
                    f"tokens.{name}",
                )
        if len(set(self.tokens.values())) < len(self.tokens):
            raise Misfit("two tokens are the same: clients could not be told apart", "tokens")

        for name in self.operators:
            if name not in self.tokens:
                there = f"there are {', '.join(self.tokens)}" if self.tokens else "none is set"
                raise Misfit(f"an operator is no token: {name!r}; of tokens {there}", "operators")

    @property
    def reads_text(self) -> bool:
        """True if pages may show text: with several clients, nobody reads another's text."""
        return self.pages and self.show_text and len(self.tokens) <= 1

    def is_operator(self, token: str | None) -> bool:
        """Tell whether the holder of a token, by its name, may see and steer all conversations."""
        if self.operators:
            return token in self.operators
        return len(self.tokens) <= 1

    def upstream(self, model: str | None) -> Upstream | None:
        """Return the first upstream that serves a model, or None."""
        try:
            return self._routed[model]
        except KeyError:
            found = next((one for one in self.upstreams if one.serves(model)), None)
            return self._remember(self._routed, model, found)

    def rule(self, model: str | None, token: str | None) -> ModelRule:
        """Return the rule for a model and the *name* of a client's token, with its policy.

        It is the first rule that fits. Its policy is its own, else that of the upstream, else the
        proxy's. Its other open values are the proxy's, too. The same object is returned each time.
        """
        known = self._ruled.get((model, token))
        if known is None:
            known = self._remember(self._ruled, (model, token), self._make_rule(model, token))
        return known

    def _make_rule(self, model: str | None, token: str | None) -> ModelRule:
        found = next((rule for rule in self.rules if rule.holds(model, token)), ModelRule())
        upstream = self.upstream(model)
        policy = found.policy or (upstream.policy if upstream else None) or self.policy
        if found.min_output is not None:
            policy = replace(policy, min_output=found.min_output)
        tools = (self.recall_tools or None) if found.recall_tools is None else found.recall_tools
        return replace(found, policy=policy, recall_tools=tools)

    @staticmethod
    def _remember(held: dict[Key, Found], key: Key, found: Found) -> Found:
        """Keep a result for a model; since clients choose names, a full table is emptied."""
        if len(held) >= MOST_LOOKED_UP:
            held.clear()
        held[key] = found
        return found


@lru_cache(maxsize=256)
def _cut_version(base_url: str) -> str:
    base = base_url.rstrip("/")
    return base.removesuffix("/v1").removesuffix("/v1beta").rstrip("/")


def loopback(host: str) -> bool:
    """Tell whether only programs on this machine reach a host."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


# --- reading --------------------------------------------------------------------------------------


def make_upstream(table: UpstreamTable) -> Upstream:
    """Return the upstream of a table. Raises ConfigurationError for invalid values."""
    values = _list_given(table)
    if table.models is not None:
        values["models"] = tuple(table.models)
    return Upstream(**values | _policy(table.policy))


def make_rule(table: RuleTable) -> ModelRule:
    """Return the rule of a table. Raises ConfigurationError for invalid values."""
    return ModelRule(**_list_given(table) | _policy(table.policy))


def read(configured: Configured, *, store: str, behind: Sequence[Upstream] = ()) -> Serve:
    """Return the proxy's configuration. Raises ConfigurationError with the place of the fault.

    `store` applies if the settings name none; `behind` are upstreams after all others.
    """
    import msgspec

    from ullage.config.parse import find_place
    from ullage.config.schema import ServeTable
    from ullage.config.values import naming

    table = msgspec.convert(configured.tree.get("serve", {}), ServeTable)
    empty = dict.fromkeys(("hosts", "origins", "operators"), ())
    values = {"store": store, "tokens": {}, **empty, **_list_given(table)}
    values["upstreams"] = (*map(make_upstream, table.upstreams or ()), *behind)
    values["rules"] = tuple(map(make_rule, table.rules or ()))
    values |= {name: tuple(values[name]) for name in ("hosts", "origins", "operators")}
    values["tokens"] = MappingProxyType(values["tokens"])

    def place(about: str) -> str:
        paths = [f"serve.{about}"] if about else []
        return find_place(configured.places, *paths, "serve") or "ullage serve"

    with naming(place):
        settings = configured.settings
        policy = Policy.read(settings.policy)
        made = Serve(**values, policy=policy, summarizer=settings.summarizer)
        days = settings.retention_days
        return made if days is None else replace(made, ttl_s=min(made.ttl_s, days * DAY_S))


def _list_given(table: Table) -> dict[str, Any]:
    from msgspec.structs import asdict

    return {name: value for name, value in asdict(table).items() if value is not None}


def _policy(table: PolicyTable | None) -> dict[str, Policy]:
    from ullage.config.values import make_policy

    return {} if table is None else {"policy": make_policy(table)}


# --- checks of single values ----------------------------------------------------------------------


def _check_name(what: str, name: str, about: str) -> None:
    if not NAME.fullmatch(name):
        raise Misfit(
            f"{name!r:.80} cannot name {what}: give 1 to 64 letters, digits, dots, dashes and "
            "underscores, a letter or digit first",
            about,
        )


def _check_policy(policy: Policy | None) -> None:
    if policy is not None and policy.new_session:
        raise Misfit(
            f"the policy {policy.name} wants new sessions, and a proxy begins none: leave "
            "new_session out",
            "policy",
        )


def _web(url: str) -> bool:
    """Tell whether this is a plain http or https URL."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return False
    plain = not (parts.query or parts.fragment or "@" in parts.netloc) and _visible(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain


def _visible(text: str) -> bool:
    return bool(text) and all("!" <= char <= "~" for char in text)


def _covers(glob: str, model: str | None) -> bool:
    """Tell whether a glob of `*` and `?` covers a model; for None only the glob `*` fits."""
    if model is None or len(model) > LONGEST or glob == ANY:
        return glob == ANY
    pattern = "".join({"*": ".*", "?": "."}.get(char) or re.escape(char) for char in glob)
    return re.fullmatch(pattern, model, re.DOTALL) is not None
