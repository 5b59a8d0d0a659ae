"""Reads the windows of models from providers' listings, driven by rows of data.

A provider is one row of `listings.json`. The keys of a row are those of `ListedProvider` and
`ListingSource` below; the page is docs/providers.md. Like a probe, asking is a generator: it yields
requests and gets the responses, so that the sync and the async resolver share it. A number is read
only where a row says that one is; unreadable values make no claim. It knows no HTTP client, no
cache and no table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any, Final, Literal, Self
from urllib.parse import quote, urlsplit, urlunsplit

from ullage.core.tokens.claim import Claim, Kind, acceptable
from ullage.transport import Auth, HttpRequest, HttpResponse, mask_url
from ullage.windows.probes.found import root

Asking = Generator[HttpRequest, HttpResponse, "Listed"]

MOST_PAGES: Final = 20
"""The longest known listing (Hugging Face, one page) has some 2,000 models."""

BOUNDS: Final[tuple[Kind, ...]] = ("total", "input", "trained")
"""The kinds that limit the prompt; `output` alone is no window."""

HTTP_OK: Final = 200
HTTP_NOT_FOUND: Final = 404
HTTP_NO_ENTRY: Final = (401, 403)


@dataclass(frozen=True, slots=True)
class Names:
    """How a provider writes ids: optional prefixes, and suffixes that only affect routing."""

    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()

    def bare(self, model: str) -> str:
        """Return the id without the provider's prefix; listings are stored under it."""
        for prefix in self.prefixes:
            model = model.removeprefix(prefix)
        return model

    def base(self, model: str) -> str:
        """Return the id without the prefix and without a routing suffix."""
        model = self.bare(model)
        for suffix in self.suffixes:
            model = model.removesuffix(suffix)
        return model


@dataclass(frozen=True, slots=True)
class Listed:
    """The result of a listing: claims by model id, kept whole so that one answer serves all models.

    A listed model without a plausible number is present, without claims. `complaint` is about the
    listing as a whole, `troubles` about models that were requested one by one (`asked`). `where` is
    the requested URL.
    """

    provider: str
    claims_by_model: Mapping[str, tuple[Claim, ...]] = field(default_factory=dict)
    complaint: str = ""
    where: str = ""
    names: Names = Names()
    asked: frozenset[str] = frozenset()
    troubles: Mapping[str, str] = field(default_factory=dict)

    def claims(self, model: str) -> tuple[Claim, ...]:
        """Return the claims about a model; empty if it is not listed."""
        return self._find(model) or ()

    def about(self, model: str) -> str:
        """Return the complaint about the answer for this model, or "" if there is no problem."""
        found = self._find(model)
        said = self.complaint or self.troubles.get(self.names.base(model), "")
        if said:
            return said
        if found is None:
            return f"{self.where} does not list {model!r}"
        if not any(claim.kind in BOUNDS for claim in found):
            return f"{self.where} lists {model!r} without a window"
        return ""

    def join(self, more: Listed) -> Listed:
        """Return both as one; the first of two complaints stays."""
        held = dict(self.claims_by_model)
        for model, claims in more.claims_by_model.items():
            known = held.get(model, ())
            held[model] = known + tuple(c for c in claims if not _is_known_claim(c, known))
        return replace(
            self,
            claims_by_model=held,
            complaint=self.complaint or more.complaint,
            where=self.where or more.where,
            asked=self.asked | more.asked,
            troubles={**self.troubles, **more.troubles},
        )

    def _find(self, model: str) -> tuple[Claim, ...] | None:
        held = self.claims_by_model
        exact = held.get(self.names.bare(model))
        return held.get(self.names.base(model)) if exact is None else exact


@dataclass(frozen=True, slots=True)
class Paging:
    """How to request the next page: `parameter` takes a cursor, or a page number from 1 on.

    Numbers continue until `total` models were seen, `count` pages were read, or `more` is empty.
    """

    parameter: str
    cursor: str = ""
    more: str = ""
    total: str = ""
    count: str = ""

    @property
    def first(self) -> str:
        """The value that requests the first page: "1" for page numbers, "" for a cursor."""
        return "" if self.cursor else "1"

    def after(self, body: Any, page: int, seen: int) -> str | None:
        """Return the value that requests the page after number `page`, or None at the end."""
        if self.more and not _at(body, self.more):
            return None
        if self.cursor:
            value = _at(body, self.cursor)
            return value if isinstance(value, str) and value else None
        if self.total and seen >= (_whole(_at(body, self.total)) or 0):
            return None
        if self.count and page >= (_whole(_at(body, self.count)) or 0):
            return None
        return str(page + 1)


@dataclass(frozen=True, slots=True)
class ListingSource:
    """One request: a path, and the places of the models and of their numbers in the response.

    `when` is `always`; `named` (for each model by itself); or `absent` (if the listing lacks the
    model). `cards` are paths to the list of models (the first that leads to one counts), or to the
    one model if the path has `{model}`. `name` and `aliases` lead to its ids. `routes` leads to a
    model's routes; those that match `where` are eligible, and `route` names one of them.
    """

    path: str
    when: Literal["always", "named", "absent"] = "always"
    cards: tuple[str, ...] = ("",)
    name: str = "id"
    aliases: str = ""
    routes: str = ""
    route: str = ""
    where: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    fields: Mapping[Kind, tuple[str, ...]] = field(default_factory=dict)
    paging: Paging | None = None

    @classmethod
    def parse(cls, row: Mapping[str, Any]) -> Self:
        """Read a row. Raises TypeError for an unknown key."""
        given = {key: _freeze(value) for key, value in row.items()}
        kinds: tuple[Kind, ...] = ("total", "input", "output", "trained")
        fields = {kind: given.pop(kind) for kind in kinds if kind in given}
        paging = given.pop("next", None)
        return cls(**given, fields=fields, paging=Paging(**paging) if paging else None)

    @property
    def single(self) -> bool:
        """Tell whether a response is about one model."""
        return "{model}" in self.path

    def due(self, listed: Listed, model: str | None) -> bool:
        """Tell whether this request is still needed, given the known answers."""
        if self.when == "always":
            return True
        if model is None or listed.names.base(model) in listed.asked:
            return False
        return self.when == "named" or not listed.claims(model)

    def find_cards(self, body: Any) -> list[Mapping[str, Any]] | None:
        """Return the models of a response, or None if it has another shape."""
        for path in self.cards:
            value = _at(body, path)
            if self.single and isinstance(value, Mapping):
                return [value]
            if not self.single and isinstance(value, list):
                return [card for card in value if isinstance(card, Mapping)]
        return None

    def ids(self, card: Mapping[str, Any]) -> Iterator[str]:
        """Yield the ids of a listed model."""
        aliases = _at(card, self.aliases) if self.aliases else None
        for value in (_at(card, self.name), *(aliases if isinstance(aliases, list) else ())):
            if isinstance(value, str) and value:
                yield value

    def bearers(self, card: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the holders of the numbers, with names: the model, or each eligible route."""
        if not self.routes:
            yield "", card
            return
        routes = _at(card, self.routes)
        for one in routes if isinstance(routes, list) else ():
            if all(_at(one, path) in allowed for path, allowed in self.where.items()):
                name = _at(one, self.route) if self.route else None
                yield name if isinstance(name, str) else "", one


@dataclass(frozen=True, slots=True)
class ListedProvider:
    """One row: the provider, its access to the key, and the requests.

    `hosts` are the chat hosts, exact or with one `*`. The listing is at the base URL's own host, or
    at the one address `at`. A row without hosts is for users' own servers. `silent` says why a
    provider is never asked. `parts` is a pattern for the base URL that fills the names in a path.
    `refuse` are numbers that mean "unknown". With `digits` a string of digits counts as a number.
    """

    title: str
    hosts: tuple[str, ...] = ()
    at: str = ""
    auth: Auth = "bearer"
    headers: Mapping[str, str] = field(default_factory=dict)
    key_env: tuple[str, ...] = ()
    parts: str = ""
    names: Names = Names()
    refuse: tuple[int, ...] = ()
    digits: bool = False
    confidence: float = 0.9
    note: str = ""
    silent: str = ""
    sources: tuple[ListingSource, ...] = ()

    @classmethod
    def parse(cls, row: Mapping[str, Any]) -> Self:
        """Read a row. Raises TypeError for an unknown key."""
        given = {key: _freeze(value) for key, value in row.items()}
        names = Names(given.pop("prefixes", ()), given.pop("suffixes", ()))
        sources = tuple(ListingSource.parse(source) for source in given.pop("ask", ()))
        return cls(**given, names=names, sources=sources)

    def serves(self, host: str) -> bool:
        """Tell whether a host belongs to the provider."""
        return any(_fits(host, pattern) for pattern in self.hosts)

    def origin(self, base_url: str | None) -> str:
        """Return the address before the listing paths, or "" if there is none."""
        if base_url is None:
            return self.at or (f"https://{self.hosts[0]}" if self.hosts else "")
        if not self.hosts:
            return root(base_url)
        if self.at and self.serves(_host(base_url)):
            return self.at
        parts = urlsplit(base_url)
        return urlunsplit((parts.scheme, parts.netloc, "", "", ""))

    def url(self, source: ListingSource, base_url: str | None, model: str | None) -> str:
        """Return the URL of a request; "" if the base URL lacks a part that the path needs."""
        origin = self.origin(base_url)
        parts = re.search(self.parts, base_url or "") if self.parts else None
        named = parts.groupdict() if parts else {}
        if model is not None:
            named["model"] = quote(self.names.base(model), safe="/:@")
        missing = [name for name in _NAMED.findall(source.path) if name not in named]
        if not origin or missing or ".." in named.get("model", "").split("/"):
            return ""
        return origin + _NAMED.sub(lambda name: named[name[1]], source.path)

    def claims(
        self, source: ListingSource, bearers: list[Mapping[str, Any]], where: str, now: float
    ) -> tuple[Claim, ...]:
        """Return a model's claims: for each field the smallest number among its holders."""
        claims: list[Claim] = []
        for kind, paths in source.fields.items():
            for path in paths:
                read = (self._claim(kind, _at(b, path), where, now) for b in bearers)
                found = [claim for claim in read if claim is not None]
                if not found:
                    continue
                least = min(found, key=lambda claim: claim.tokens)
                note = f"least of {len(bearers)} routes" if len(bearers) > 1 else ""
                least = replace(least, note="; ".join(n for n in (path, note, self.note) if n))
                if not _is_known_claim(least, claims):
                    claims.append(least)
        return tuple(claims)

    def _claim(self, kind: Kind, value: Any, where: str, now: float) -> Claim | None:
        if self.digits and isinstance(value, str) and _DIGITS.fullmatch(value):
            value = int(value)
        tokens = _whole(value)
        if tokens is None or tokens in self.refuse:
            return None
        claim = Claim(kind, tokens, "listing", where, now, self.confidence)
        return claim if acceptable(claim) else None


@dataclass(frozen=True, slots=True)
class _Call:
    """One call: the server, the model, and the key."""

    base_url: str | None
    model: str | None
    api_key: str | None = field(repr=False)
    now: float


class Listings:
    """The rows, read on first use."""

    @cached_property
    def _rows(self) -> dict[str, ListedProvider]:
        text = resources.files("ullage.windows").joinpath("listings.json").read_text("utf-8")
        return {name: ListedProvider.parse(row) for name, row in json.loads(text).items()}

    @cached_property
    def _exact(self) -> dict[str, str]:
        return {host: name for name, row in self._rows.items() for host in row.hosts}

    @cached_property
    def _patterns(self) -> list[tuple[str, str]]:
        return [(name, host) for host, name in self._exact.items() if "*" in host]

    def names(self) -> list[str]:
        """Return all providers, including those without a listing, sorted."""
        return sorted(self._rows)

    def row(self, provider: str) -> ListedProvider | None:
        """Return a provider's row."""
        return self._rows.get(provider)

    def provider_for(self, base_url: str) -> str | None:
        """Return the provider of a host, or None for an unknown host."""
        return self._whose(base_url)

    @cached_property
    def _whose(self) -> Callable[[str], str | None]:
        """Return a cached function that finds a base URL's provider, as requests call it often."""

        @lru_cache(maxsize=1_000)
        def whose(base_url: str) -> str | None:
            host = _host(base_url)
            exact = self._exact.get(host)
            if exact is not None:
                return exact
            return next((name for name, pattern in self._patterns if _fits(host, pattern)), None)

        return whose

    def is_hosted(self, base_url: str) -> bool:
        """Tell whether a base URL is a known provider's, and so gets no local probe."""
        return self.provider_for(base_url) is not None

    def publishes(self, provider: str) -> bool:
        """Tell whether a provider has a listing."""
        row = self._rows.get(provider)
        return row is not None and bool(row.sources)

    def key_env(self, provider: str) -> tuple[str, ...]:
        """Return the environment variables that hold the provider's key by custom (names only)."""
        row = self._rows.get(provider)
        return row.key_env if row is not None else ()

    def ask(
        self,
        provider: str,
        base_url: str | None,
        model: str | None,
        api_key: str | None,
        now: float,
    ) -> Asking:
        """Ask a provider's listing, and for `model` by itself if a row says so; never raises.

        The result serves every listed model: keep it, and call `wants` for the next model.
        """
        call = _Call(base_url, model, api_key, now)
        return (yield from self._walk(provider, call, ("always", "named", "absent")))

    def ask_alone(
        self, provider: str, base_url: str | None, model: str, api_key: str | None, now: float
    ) -> Asking:
        """Ask for one model that a known listing lacks or describes too little."""
        call = _Call(base_url, model, api_key, now)
        return (yield from self._walk(provider, call, ("named", "absent")))

    def wants(self, provider: str, listed: Listed, model: str) -> bool:
        """Tell whether `ask_alone` could add to a listing that was read without this model."""
        row = self._rows.get(provider)
        sources = row.sources if row is not None else ()
        return any(s.when != "always" and s.due(listed, model) for s in sources)

    def _walk(self, provider: str, call: _Call, when: tuple[str, ...]) -> Asking:
        row = self._rows.get(provider)
        if row is None or not row.sources:
            why = f": {row.silent}" if row is not None else ""
            return Listed(provider, complaint=f"{provider} publishes no windows{why}")
        if call.base_url is not None and not _host(call.base_url):
            return Listed(provider, complaint=f"{call.base_url!r} is no base URL to ask")
        listed = Listed(provider, names=row.names, where=mask_url(row.origin(call.base_url)))
        alone = False
        for source in row.sources:
            if source.when not in when or not source.due(listed, call.model):
                continue
            alone = alone or source.when != "always"
            listed = listed.join((yield from _read(row, source, provider, call)))
            if listed.complaint:
                break
        if call.model is not None and alone:
            listed = replace(listed, asked=listed.asked | {row.names.base(call.model)})
        if call.model is None and not any(s.when == "always" for s in row.sources):
            return replace(listed, complaint=f"{row.title} lists one model at a time: name it")
        return listed


def _read(row: ListedProvider, source: ListingSource, provider: str, call: _Call) -> Asking:
    """Read one source to its last page; pages read before a failure are kept."""
    url = row.url(source, call.base_url, call.model)
    where = mask_url(url).partition("?")[0]
    if not url:
        need = f"the base URL of a chat{f' (…{row.parts})' if row.parts else ''}"
        return Listed(provider, complaint=f"{row.title} cannot be asked without {need}")
    cards: list[Mapping[str, Any]] = []
    complaint, page, cursor = "", 0, source.paging.first if source.paging else ""
    while page < MOST_PAGES:
        page += 1
        answer = yield HttpRequest(
            _make_page_url(url, source, cursor),
            api_key=call.api_key if row.auth != "none" else None,
            auth=row.auth,
            extra=tuple(row.headers.items()),
        )
        body = answer.json()
        found = source.find_cards(body) if answer.status == HTTP_OK else None
        if found is None:
            complaint = _complaint(row, source, where, answer)
            break
        cards += found
        following = source.paging.after(body, page, len(cards)) if source.paging and found else None
        if following is None:
            break
        cursor = following
    else:
        complaint = f"{where} has more than {MOST_PAGES} pages; the rest was not read"
    claims = _file_claims(row, source, cards, where, call)
    if source.when != "always" and complaint:
        return Listed(provider, claims, where=where, troubles=_trouble(row, call, complaint))
    return Listed(provider, claims, complaint, where)


def _make_page_url(url: str, source: ListingSource, cursor: str) -> str:
    if not cursor or source.paging is None:
        return url
    mark = "&" if "?" in url else "?"
    return f"{url}{mark}{source.paging.parameter}={quote(cursor, safe='')}"


def _file_claims(
    row: ListedProvider,
    source: ListingSource,
    cards: Iterable[Mapping[str, Any]],
    where: str,
    call: _Call,
) -> dict[str, tuple[Claim, ...]]:
    """Return the claims by id. Several entries with one id are routes to one model."""
    held: dict[str, list[Mapping[str, Any]]] = {}
    for card in cards:
        bearers = list(source.bearers(card))
        ids = [call.model] if source.single and call.model is not None else source.ids(card)
        for name in dict.fromkeys(ids):
            model = row.names.base(name) if source.single else row.names.bare(name)
            held.setdefault(model, []).extend(bearer for _, bearer in bearers)
            for route, bearer in bearers:
                if route:
                    held.setdefault(f"{model}:{route}", []).append(bearer)
    return {m: row.claims(source, bearers, where, call.now) for m, bearers in held.items()}


def _trouble(row: ListedProvider, call: _Call, complaint: str) -> dict[str, str]:
    return {row.names.base(call.model): complaint} if call.model is not None else {}


def _complaint(row: ListedProvider, source: ListingSource, where: str, answer: HttpResponse) -> str:
    """Return the fault of a response; `Listed.about` reports a single missing model."""
    if answer.fault:
        return f"{where} gave no answer ({answer.fault})"
    if answer.status == HTTP_NOT_FOUND and source.single:
        return ""
    if answer.status in HTTP_NO_ENTRY:
        key = f" ({' or '.join(row.key_env)})" if row.key_env and row.auth != "none" else ""
        return f"{where} wants a key that it accepts{key}: HTTP {answer.status}"
    if answer.status != HTTP_OK:
        return f"{where} answered HTTP {answer.status}"
    return f"{where} did not answer with a listing of models"


def _at(value: Any, path: str) -> Any:
    """Follow a path of names, `a.b[k=v].c`; return None if it leads nowhere."""
    for name, key, wanted in _STEP.findall(path):
        value = value.get(name) if isinstance(value, Mapping) else None
        if key:
            entries = value if isinstance(value, list) else []
            picked = (e for e in entries if isinstance(e, Mapping) and e.get(key) == wanted)
            value = next(picked, None)
    return value


_STEP: Final = re.compile(r"([^.\[\]]+)(?:\[([^=\]]+)=([^\]]*)\])?")
_NAMED: Final = re.compile(r"\{(\w+)\}")
_DIGITS: Final = re.compile(r"[0-9]{1,12}")


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_known_claim(claim: Claim, known: Iterable[Claim]) -> bool:
    return any((claim.kind, claim.tokens) == (c.kind, c.tokens) for c in known)


def _freeze(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_freeze(v) for v in value)
    return {k: _freeze(v) for k, v in value.items()} if isinstance(value, dict) else value


def _fits(host: str, pattern: str) -> bool:
    head, star, tail = pattern.partition("*")
    if not star:
        return host == pattern
    return len(host) > len(head) + len(tail) and host.startswith(head) and host.endswith(tail)


def _host(base_url: str) -> str:
    try:
        return (urlsplit(base_url).hostname or "").rstrip(".")
    except ValueError:
        return ""
