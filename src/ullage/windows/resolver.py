"""Collects claims about a window and resolves them: override, learned, probe or listing, table.

Answers are kept for an hour, failures for five minutes. Concurrent questions about one server or
provider share one request. Resolution never fails: a missing answer makes no claim, and one
warning. It knows no conversation.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from ullage.core.dialects.families import find_family
from ullage.core.errors import ConfigurationError
from ullage.core.errors.nearest import suggest
from ullage.core.tokens.claim import CAPS, UNNAMED, Claim
from ullage.core.tokens.window import Window, resolve
from ullage.windows import probes
from ullage.windows.disk import Disk
from ullage.windows.flights import MOST, Flights, Landed
from ullage.windows.ledger import EvidenceLedger
from ullage.windows.probes import Found
from ullage.windows.probes.found import root
from ullage.windows.question import BY, CREDENTIAL

if TYPE_CHECKING:
    from pathlib import Path

    from ullage.core.tokens.cost import Price
    from ullage.transport import HttpRequest, HttpResponse, Transport
    from ullage.windows.listings import Listed, Listings
    from ullage.windows.question import Question
    from ullage.windows.table import WindowTable

log = logging.getLogger("ullage.windows")

POSITIVE_S: Final = 3600.0
NEGATIVE_S: Final = 300.0

AWAY_S: Final = 30.0
"""Seconds after which a server is asked again that reported a window before and then did not
answer."""

ASKING_S: Final = 10.0
"""Seconds that all requests to one server may take: half of the time that the proxy's guard waits.
So an unresponsive server is recorded before the caller stops waiting."""

Key = TypeVar("Key")
Value = TypeVar("Value")

Row = tuple[tuple["Claim", ...], tuple["Price", ...]]
"""The table's data on a model: its window, and its prices."""


@dataclass(frozen=True, slots=True)
class ResolverOptions:
    """The operator's settings; see `config.settings`. `folder` is the place for lessons, if any."""

    context_windows: Mapping[str, int] = field(default_factory=dict)
    base_models: Mapping[str, str] = field(default_factory=dict)
    offline: bool = False
    folder: Path | None = None
    window_places: Mapping[str, str] = field(default_factory=dict)


LOCAL: Final = frozenset(
    {
        *("llama.cpp", "llamacpp", "llama-server", "llama-swap", "llamafile", "local", "ollama"),
        *("lmstudio", "lm-studio", "koboldcpp", "vllm", "sglang", "tgi", "tabbyapi", "mlx"),
    }
)
"""Names of self-hosted servers: a hint, not a provider with a listing or rows."""


class Resolver:
    """Resolves windows. Safe to share between threads; `now` returns seconds since the epoch."""

    def __init__(
        self, transport: Transport, now: Callable[[], float], options: ResolverOptions | None = None
    ) -> None:
        self._transport = transport
        self._now = now
        self._options = options or ResolverOptions()
        self.ledger = EvidenceLedger(Disk(self._options.folder), now)
        self._found: Flights[Found] = Flights(now)
        self._listed: Flights[Listed] = Flights(now)
        self._said: dict[str, str] = {}
        self._hosted: dict[str | None, bool] = {}
        self._capped: dict[str, str] = {}
        self._tabled: dict[tuple[str | None, ...], Row] = {}
        self._settled: dict[str, tuple[list[Claim], Window]] = {}

    @cached_property
    def table(self) -> WindowTable:
        """The bundled table, or a newer one that the user fetched; loaded on first use."""
        from ullage.windows.table import WindowTable

        return WindowTable(self._options.folder)

    @cached_property
    def listings(self) -> Listings:
        """The rows of providers' listings; loaded on first use."""
        from ullage.windows.listings import Listings

        return Listings()

    # --- asking -----------------------------------------------------------------------------------

    def window(self, question: Question) -> Window:
        """Resolve; never raises for network trouble."""
        if self.is_probed(question):
            self._found.get(
                question.key, lambda: self._land_found(question, self._run(self._probe(question)))
            )
        for key, asking in self._listing(question):
            self._listed.get(key, self._read(asking))
        return self._resolve(question)

    async def awindow(self, question: Question) -> Window:
        """Do as `window`, without blocking the event loop."""
        if self.is_probed(question):

            async def probe() -> Landed[Found]:
                return self._land_found(question, await self._arun(self._probe(question)))

            await self._found.aget(question.key, probe)
        for key, asking in self._listing(question):
            await self._listed.aget(key, self._reader(asking))
        return self._resolve(question)

    def _read(
        self, asking: Callable[[], Generator[HttpRequest, HttpResponse, Listed]]
    ) -> Callable[[], Landed[Listed]]:
        return lambda: self._land_listing(self._run(asking()))

    def _reader(
        self, asking: Callable[[], Generator[HttpRequest, HttpResponse, Listed]]
    ) -> Callable[[], Awaitable[Landed[Listed]]]:
        async def read() -> Landed[Listed]:
            return self._land_listing(await self._arun(asking()))

        return read

    def is_hosted(self, question: Question) -> bool:
        """Tell whether a model id names the published model: known provider, or no server."""
        url = question.base_url
        known = self._hosted.get(url)
        if known is None:
            known = url is None or self.listings.is_hosted(url)
            _note_said(self._hosted, url, known)
        return known

    def is_probed(self, question: Question) -> bool:
        """Tell whether to probe the server: decided by host, not dialect; not with an override."""
        return (
            not self._options.offline
            and self._override(question) is None
            and not self.is_hosted(question)
            and question.provider is None
        )

    def server(self, question: Question) -> str | None:
        """Return the recognised server, as of its last answer, or None."""
        found = self._found.peek(question.key)
        return found.server or None if found is not None else None

    def wants_turns(self, question: Question) -> bool:
        """Tell whether the server's chat template refuses two messages of one role in a row.

        The template decides if the server shows it. Else the family of the model's name decides, if
        the server is not a known provider's. A known provider reorders messages itself.
        """
        if question.base_url is None or self.is_hosted(question):
            return False
        found = self._found.peek(question.key)
        if found is not None and found.alternates is not None:
            return found.alternates
        return find_family(question.model).alternates

    def counts_at(self, question: Question) -> tuple[str, str] | None:
        """Return the server that counts requests, and its root URL, or None if unknown.

        Returns None if offline. A hosted provider is known by its host, any other server once it
        was recognised.
        """
        if question.base_url is None or self._options.offline:
            return None
        provider = self.listings.provider_for(question.base_url)
        if provider is not None:
            return provider, root(question.base_url)
        found = self._found.peek(question.key)
        return (found.server, found.counts) if found is not None and found.counts else None

    # --- learning ---------------------------------------------------------------------------------

    def record(self, question: Question, claim: Claim) -> None:
        """Add an event about a window; after a refusal or a cut, ask the server again next time.

        If a server's slots may share one pool, an error without a limit only shows that the pool
        was full: then each slot gets its share of the pool for a while.
        """
        if claim.source == "answer":
            self.ledger.record(question, claim)
            return
        found = self._found.peek(question.key) or Found()
        pools = [c.tokens for c in found.claims if c.kind == "allocated"]
        if claim.note == UNNAMED and found.slots > 1 and pools:
            # The result stays: other requests that fail at the same time need the number of slots,
            # too.
            self.ledger.share(question, min(pools), found.slots)
            return
        self.ledger.record(question, claim)
        self._found.drop(question.key)

    def take_in(self, question: Question, claims: Sequence[Claim]) -> None:
        """Add the events that a conversation remembers, each at its own time."""
        if claims and self.ledger.take_in(question, claims):
            self._found.drop(question.key)

    def doubt(self, base_url: str = "") -> None:
        """Ask a server again, since its window may have changed; without a URL, ask all.

        A server that gave no answer the last time is asked again after its usual pause.
        """
        begins = f"{root(base_url)}{CREDENTIAL}" if base_url else ""
        self._found.expire(begins, lambda found: not (base_url and found.is_silent))

    def hear(self, key: str, claims: Sequence[Claim]) -> None:
        """Add events about a model from another process, under the key of their source.

        If they are new, the server is asked again.
        """
        if self.ledger.hear(key, claims):
            self._found.drop(key.partition(BY)[0])

    def forget_key(self, key: str, until: float) -> None:
        """Forget the lessons about a model at its endpoint up to a time, by its key."""
        self.ledger.forget_key(key, until)
        self._found.drop(key)

    def start_trial(self, question: Question) -> bool:
        """Tell whether a request over a learned bound may be tried now, and note the trial."""
        return self.ledger.start_trial(question)

    def forget(self, question: Question | None = None) -> None:
        """Forget answers and lessons about one question, or all."""
        self.ledger.forget(question)
        if question is None:
            self._found.clear()
            self._listed.clear()
            self._said.clear()
            self._capped.clear()
            self._settled.clear()
            return
        self._found.drop(question.key)
        for key in (*self._listing_keys(question), _make_catalogue_key(question)):
            self._listed.drop(key)

    def models(self, question: Question) -> list[tuple[str, Window]]:
        """Return the models of a provider's listing with their windows, or else the table's.

        An unknown server is asked for its list, which may have no windows.
        """
        for key, asking in self._lists(question):
            self._listed.get(key, self._read(asking))
        return self._all(question)

    async def amodels(self, question: Question) -> list[tuple[str, Window]]:
        """Do as `models`, without blocking the event loop."""
        for key, asking in self._lists(question):
            await self._listed.aget(key, self._reader(asking))
        return self._all(question)

    def _lists(
        self, question: Question
    ) -> Generator[
        tuple[str, Callable[[], Generator[HttpRequest, HttpResponse, Listed]]], None, None
    ]:
        if not self._is_strange(question):
            yield from self._listing(question)
        elif not self._options.offline:
            yield _make_catalogue_key(question), lambda: self._catalogue(question)

    def _catalogue(self, question: Question) -> Generator[HttpRequest, HttpResponse, Listed]:
        from ullage.windows.listings import Listed

        base_url = question.base_url or ""
        claims, complaint = yield from probes.catalogue(base_url, question.api_key, self._now())
        return Listed("", claims, complaint, base_url)

    def _is_strange(self, question: Question) -> bool:
        """Tell whether there is a base URL of no known provider, and no provider is named."""
        return question.base_url is not None and self._provider(question) is None

    def _all(self, question: Question) -> list[tuple[str, Window]]:
        strange = self._is_strange(question)
        key = _make_catalogue_key(question) if strange else self._listing_keys(question)[0]
        listed = self._listed.peek(key)
        if listed is not None and listed.claims_by_model:
            heard = listed.claims_by_model.items()
            return sorted((m, resolve(claims, model=m)) for m, claims in heard)
        if strange:
            return []
        provider = self._provider(question)
        ids = self.table.ids(provider)
        return [(m, resolve(self.table.claims(m, provider), model=m)) for m in ids]

    # --- resolving --------------------------------------------------------------------------------

    def _resolve(self, question: Question) -> Window:
        claims, complaint = self._collect_claims(question)
        window = self._settle(question, claims)
        for warning in window.warnings:
            # Once, not for every request of a conversation.
            if self._capped.get(question.key) != warning:
                _note_said(self._capped, question.key, warning)
                log.warning("%s", warning)
        neighbour = "" if window.known else self._neighbour(question)
        more = tuple(said for said in (complaint, neighbour) if said)
        return replace(window, warnings=(*window.warnings, *more)) if more else window

    def _settle(self, question: Question, claims: list[Claim]) -> Window:
        """Return the window for claims; reuse the last result if the claims are the same.

        Lessons from refusals and cuts lose weight with time, so they are weighed each time.
        """
        known = self._settled.get(question.key)
        if known is not None and known[0] == claims:
            return known[1]
        window = resolve(claims, model=question.model, now=self._now())
        if all(claim.source not in CAPS for claim in claims):
            _note_said(self._settled, question.key, (claims, window))
        return window

    def _collect_claims(self, question: Question) -> tuple[list[Claim], str]:
        """Return every claim about a question, and the complaint about missing answers."""
        override = self._override(question)
        claims = [] if override is None else [override]
        claims += self.ledger.claims(question)
        found = self._found.peek(question.key)
        complaint = ""
        if found is not None:
            claims += found.claims
            complaint = found.complaint
        listed, said = self._listed_claims(question)
        rows = self._rows(question)
        claims += (*listed, *rows)
        return claims, complaint or (said if not rows else "")

    def _neighbour(self, question: Question) -> str:
        """Say that the table has a row for a model of this name at another host, or return ""."""
        if (
            question.model is None
            or question.base_url is None
            or self._find_row_key(question) is not None
        ):
            return ""
        row = self.table.row(question.model)
        if row is None or row.bound is None:
            return ""
        return (
            f"the table's {row.bound:,} tokens for {question.model!r} are {row.provider}'s, whose "
            f"host this is not; provider={row.provider!r} uses them anyway"
        )

    def _override(self, question: Question) -> Claim | None:
        """Return the operator's override: the question's, or else the settings'."""
        if question.override is not None:
            return question.claim
        model = question.model or ""
        tokens = self._options.context_windows.get(model)
        where = self._options.window_places.get(model) or "context_windows in the settings"
        return None if tokens is None else Claim("total", tokens, "override", where)

    def _rows(self, question: Question) -> tuple[Claim, ...]:
        return self._look_up(question)[0]

    def _look_up(self, question: Question) -> Row:
        """Return the table's data on a model; each model is looked up once."""
        about = question.model, question.base_url, question.provider
        known = self._tabled.get(about)
        if known is None:
            known = (), ()
            named = self._find_row_key(question)
            if named is not None:
                model, provider, behind = named
                row = self.table.row(model, provider, base_model=behind)
                prices = () if row is None else row.prices
                known = self.table.claims(model, provider, base_model=behind), prices
            _note_said(self._tabled, about, known)
        return known

    def prices(self, question: Question) -> tuple[Price, ...]:
        """Return a model's prices in the table, including higher tiers for long prompts.

        Empty if unknown. A server of no known provider has no prices.
        """
        return self._look_up(question)[1]

    def recall(self, question: Question) -> Window:
        """Return the window from known answers and the table, without asking."""
        return self._resolve(question)

    def resolve_from_table(self, question: Question) -> Window:
        """Return the window from the operator's settings and the table, without asking."""
        override = self._override(question)
        said = [] if override is None else [override]
        return resolve([*said, *self._rows(question)], model=question.model)

    def _find_row_key(self, question: Question) -> tuple[str, str | None, str | None] | None:
        """Return model, provider and base model for the table, or None if it has no row.

        A row belongs to the provider that serves the model. For an unknown server, no name leads to
        a row, unless the operator's settings name the provider.
        """
        model = question.model
        if model is None:
            return None
        provider = self._provider(question)
        base_model = self._options.base_models.get(model)
        if self._is_strange(question):
            return self._find_named_row(model, base_model)
        if provider is not None and self.table.provider(provider) is None:
            return None  # another provider's row would have a different number
        return model, provider, base_model

    def _find_named_row(self, model: str, base_model: str | None) -> tuple[str, str, str] | None:
        """Return the place in the table that the operator names as PROVIDER/MODEL."""
        head, _, tail = (base_model or "").partition("/")
        return (model, head, tail) if tail and self.table.provider(head) is not None else None

    def _provider(self, question: Question) -> str | None:
        given = question.provider
        if given is None:
            return self.listings.provider_for(question.base_url) if question.base_url else None
        if given in LOCAL:
            return None
        if self.listings.row(given) is None and self.table.provider(given) is None:
            known = sorted({*self.listings.names(), *self.table.providers()})
            hint = suggest(given, known, f"known are {', '.join(known)}")
            raise ConfigurationError(f"no provider is known as {given!r}: {hint}")
        return given

    # --- listings ---------------------------------------------------------------------------------

    def _listing(
        self, question: Question
    ) -> Generator[
        tuple[str, Callable[[], Generator[HttpRequest, HttpResponse, Listed]]], None, None
    ]:
        """Yield key and reader of each listing to ask: the whole listing, then one model."""
        provider, model = self._provider(question), question.model
        if provider is None or self._options.offline or self._override(question) is not None:
            return
        if not self.listings.publishes(provider) or self._recall_listing(question) is not None:
            return
        whole, alone = self._listing_keys(question)
        base_url, api_key = question.base_url, question.api_key
        yield whole, lambda: self.listings.ask(provider, base_url, model, api_key, self._now())
        listed = self._listed.peek(whole)
        if model is not None and listed and self.listings.wants(provider, listed, model):
            ask = self.listings.ask_alone
            yield alone, lambda: ask(provider, base_url, model, api_key, self._now())
        claims, _ = self._listed_claims(question)
        kept = f"listing|{question.key}"
        if claims and self.ledger.recall(kept) is None:
            self.ledger.keep(kept, claims, self._now() + POSITIVE_S)

    def _listing_keys(self, question: Question) -> tuple[str, str]:
        whole = f"{self._provider(question)}|{question.scope}"
        return whole, f"{whole}|{question.model}"

    def _recall_listing(self, question: Question) -> tuple[Claim, ...] | None:
        """Return the claims of the provider's listing that an earlier process stored."""
        whole, _ = self._listing_keys(question)
        if self._listed.peek(whole) is not None:
            return None
        return self.ledger.recall(f"listing|{question.key}")

    def _listed_claims(self, question: Question) -> tuple[tuple[Claim, ...], str]:
        """Return the listings' claims about the model, and the complaint."""
        if self._provider(question) is None:
            return (), ""  # no listing was asked
        recalled = self._recall_listing(question)
        if recalled is not None:
            return recalled, ""
        answers = [self._listed.peek(key) for key in self._listing_keys(question)]
        heard = [a for a in answers if a is not None]
        if not heard or question.model is None:
            return (), next((a.complaint for a in heard), "")
        joined = heard[0] if len(heard) == 1 else heard[0].join(heard[1])
        return joined.claims(question.model), joined.about(question.model)

    # --- driving ----------------------------------------------------------------------------------

    def _probe(self, question: Question) -> probes.Asking:
        found = self._found.peek(question.key)
        known = found.server if found is not None else ""
        base_url = question.base_url or ""
        return probes.probe(base_url, question.model, question.api_key, self._now(), known)

    def _land_found(self, question: Question, found: Found) -> Landed[Found]:
        # A passing complaint is checked again each time, but logged once.
        if found.complaint and not (found.passing and self._said.get(question.key)):
            log.warning("%s", found.complaint)
        _note_said(self._said, question.key, found.complaint)
        lasts = 0.0 if found.passing else POSITIVE_S if found.claims else NEGATIVE_S
        before = self._found.peek(question.key)
        if found.is_silent and before is not None and before.claims:
            # It reported a window before: that window holds until it answers again.
            found = replace(before, complaint=found.complaint, is_silent=True)
            lasts = AWAY_S
        return Landed(found, self._now() + lasts)

    def _land_listing(self, listed: Listed) -> Landed[Listed]:
        if listed.complaint:
            log.warning("%s", listed.complaint)
        lasts = POSITIVE_S if listed.claims_by_model and not listed.complaint else NEGATIVE_S
        return Landed(listed, self._now() + lasts)

    def _run(self, asking: Generator[HttpRequest, HttpResponse, Value]) -> Value:
        until = monotonic() + ASKING_S
        try:
            what = next(asking)
            while True:
                late = monotonic() >= until
                what = asking.send(_make_silence() if late else self._transport.ask(what))
        except StopIteration as done:
            value: Value = done.value
            return value

    async def _arun(self, asking: Generator[HttpRequest, HttpResponse, Value]) -> Value:
        import asyncio

        until = monotonic() + ASKING_S
        try:
            what = next(asking)
            while True:
                try:
                    async with asyncio.timeout(until - monotonic()):
                        answer = await self._transport.aask(what)
                except TimeoutError:
                    answer = _make_silence()
                what = asking.send(answer)
        except StopIteration as done:
            value: Value = done.value
            return value


def _make_silence() -> HttpResponse:
    """Return the response that represents a missing answer."""
    from ullage.transport import HttpResponse

    return HttpResponse(0, fault=f"no answer in {ASKING_S:g} s")


def _make_catalogue_key(question: Question) -> str:
    """Return the key of a server's own list, which `window` does not use."""
    return f"catalogue|{question.scope}"


def _note_said(told: dict[Key, Value], key: Key, value: Value) -> None:
    """Note a value, so that it is logged or found only once; clears the notes when full."""
    if len(told) >= MOST:
        told.clear()
    told[key] = value
