"""Gather claims about a window and resolve them: override, learned, probe or listing, table.

Answers are kept for an hour, absence for five minutes; concurrent questions about one server or
provider share one request. Resolution never fails: what cannot be learned is no claim and one
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
"""Seconds after which a server is asked again that told a window before and then gave no answer."""

ASKING_S: Final = 10.0
"""Seconds that all questions to one server may take. Half of what the proxy's guard waits for: so a
server that swallows them is remembered as such before somebody stops waiting."""

Key = TypeVar("Key")
Value = TypeVar("Value")

Row = tuple[tuple["Claim", ...], tuple["Price", ...]]
"""What the table says of a model: its window, and its prices."""


@dataclass(frozen=True, slots=True)
class ResolverOptions:
    """What the operator set; see `config.settings`. `folder` is where lessons are kept, if any."""

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
"""Kinds of servers that people run themselves: a hint, and no provider with a listing or rows."""


class Resolver:
    """Resolve windows. Safe to share between threads; `now` returns seconds since the epoch."""

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
        """The bundled table, or the newer one that the user fetched; loaded on first use."""
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
        """Tell whether a model id means the published model: at a known provider, or no server."""
        url = question.base_url
        known = self._hosted.get(url)
        if known is None:
            known = url is None or self.listings.is_hosted(url)
            _note_said(self._hosted, url, known)
        return known

    def is_probed(self, question: Question) -> bool:
        """Tell whether the server is asked: by host, not by dialect, and not for an override."""
        return (
            not self._options.offline
            and self._override(question) is None
            and not self.is_hosted(question)
            and question.provider is None
        )

    def server(self, question: Question) -> str | None:
        """Return who serves, as its last answer showed, or None where nobody was recognised."""
        found = self._found.peek(question.key)
        return found.server or None if found is not None else None

    def wants_turns(self, question: Question) -> bool:
        """Tell whether the server's chat template refuses two messages of one role in a row.

        By the template, where the server shows it; else by the family of the model's name, where
        somebody serves open weights. A known provider puts messages in order itself.
        """
        if question.base_url is None or self.is_hosted(question):
            return False
        found = self._found.peek(question.key)
        if found is not None and found.alternates is not None:
            return found.alternates
        return find_family(question.model).alternates

    def counts_at(self, question: Question) -> tuple[str, str] | None:
        """Return which server counts requests, and its root URL; None where none is known to.

        Offline none is asked. A hosted provider is known by its host, a server once it was
        recognised.
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
        """Enter what an event said of a window; after a refusal or a cut ask the server again.

        An error that names no limit, from a server whose slots may share one pool, says only
        that the pool was full: then each slot gets its share of it for a while.
        """
        if claim.source == "answer":
            self.ledger.record(question, claim)
            return
        found = self._found.peek(question.key) or Found()
        pools = [c.tokens for c in found.claims if c.kind == "allocated"]
        if claim.note == UNNAMED and found.slots > 1 and pools:
            # What was found stays: those who fail beside this one must know of the slots too.
            self.ledger.share(question, min(pools), found.slots)
            return
        self.ledger.record(question, claim)
        self._found.drop(question.key)

    def take_in(self, question: Question, claims: Sequence[Claim]) -> None:
        """Take in events that a conversation remembers, each as of its own time."""
        if claims and self.ledger.take_in(question, claims):
            self._found.drop(question.key)

    def doubt(self, base_url: str = "") -> None:
        """Ask a server again, since it may come back with another window; without one, all.

        One that gave no answer when it was asked last is asked again in its time.
        """
        begins = f"{root(base_url)}{CREDENTIAL}" if base_url else ""
        self._found.expire(begins, lambda found: not (base_url and found.is_silent))

    def hear(self, key: str, claims: Sequence[Claim]) -> None:
        """Take in events that another process told of a model, by the key of whom it learned from.

        What news there is of a window has its server asked again.
        """
        if self.ledger.hear(key, claims):
            self._found.drop(key.partition(BY)[0])

    def forget_key(self, key: str, until: float) -> None:
        """Drop what was learned of a model at its endpoint up to a time, by its key."""
        self.ledger.forget_key(key, until)
        self._found.drop(key)

    def start_trial(self, question: Question) -> bool:
        """Tell whether a request over a learned bound may be tried, and remember that one is."""
        return self.ledger.start_trial(question)

    def forget(self, question: Question | None = None) -> None:
        """Drop what is kept and learned about one question, or about everything."""
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
        """Return what a provider's listing has, each with its window; else the table's models.

        A server that is no known provider's is asked for its list, which may name no windows.
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
        """Tell whether a base URL is given that is no known provider's, and no provider."""
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
            # Once, not with every request of a conversation.
            if self._capped.get(question.key) != warning:
                _note_said(self._capped, question.key, warning)
                log.warning("%s", warning)
        neighbour = "" if window.known else self._neighbour(question)
        more = tuple(said for said in (complaint, neighbour) if said)
        return replace(window, warnings=(*window.warnings, *more)) if more else window

    def _settle(self, question: Question, claims: list[Claim]) -> Window:
        """Return what claims come to: what they came to last, where they are the same.

        What was learned from refusals and cuts passes with time: it is weighed each time.
        """
        known = self._settled.get(question.key)
        if known is not None and known[0] == claims:
            return known[1]
        window = resolve(claims, model=question.model, now=self._now())
        if all(claim.source not in CAPS for claim in claims):
            _note_said(self._settled, question.key, (claims, window))
        return window

    def _collect_claims(self, question: Question) -> tuple[list[Claim], str]:
        """Return every claim about a question, and what is to be complained of."""
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
        """Say that the table has a row for a model of this name at another host, "" for none."""
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
        """Return the operator's word: that of the question, else that of the settings."""
        if question.override is not None:
            return question.claim
        model = question.model or ""
        tokens = self._options.context_windows.get(model)
        where = self._options.window_places.get(model) or "context_windows in the settings"
        return None if tokens is None else Claim("total", tokens, "override", where)

    def _rows(self, question: Question) -> tuple[Claim, ...]:
        return self._look_up(question)[0]

    def _look_up(self, question: Question) -> Row:
        """Return what the table says of a model, which is looked up once."""
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
        """Return the prices of a model in the table, dearer tiers for long prompts among them.

        Empty where none are known. A server that is no known provider's has no price.
        """
        return self._look_up(question)[1]

    def recall(self, question: Question) -> Window:
        """Return the window by what was heard so far and the table; asks nobody."""
        return self._resolve(question)

    def resolve_from_table(self, question: Question) -> Window:
        """Return the window by the operator's settings and the table alone; asks nobody."""
        override = self._override(question)
        said = [] if override is None else [override]
        return resolve([*said, *self._rows(question)], model=question.model)

    def _find_row_key(self, question: Question) -> tuple[str, str | None, str | None] | None:
        """Return model, provider and base model to look up in the table, None for no row of it.

        A row belongs to who serves the model. At a base URL that is no known provider's the table
        holds nothing, whatever the name: only the operator's word on the provider leads to a row.
        """
        model = question.model
        if model is None:
            return None
        provider = self._provider(question)
        base_model = self._options.base_models.get(model)
        if self._is_strange(question):
            return self._find_named_row(model, base_model)
        if provider is not None and self.table.provider(provider) is None:
            return None  # another provider's row would be a neighbour's number
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
        """Yield key and reader of each listing that is to be asked: the whole, then one model."""
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
        """Return what the provider's listing said, where an earlier process asked it."""
        whole, _ = self._listing_keys(question)
        if self._listed.peek(whole) is not None:
            return None
        return self.ledger.recall(f"listing|{question.key}")

    def _listed_claims(self, question: Question) -> tuple[tuple[Claim, ...], str]:
        """Return what listings say of the model, and what is to be complained of."""
        if self._provider(question) is None:
            return (), ""  # nobody's listing was asked
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
        # What passes is asked again each time, but said once.
        if found.complaint and not (found.passing and self._said.get(question.key)):
            log.warning("%s", found.complaint)
        _note_said(self._said, question.key, found.complaint)
        lasts = 0.0 if found.passing else POSITIVE_S if found.claims else NEGATIVE_S
        before = self._found.peek(question.key)
        if found.is_silent and before is not None and before.claims:
            # It told a window before: that one holds until it answers again.
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
    """Return what stands for an answer that did not come in time."""
    from ullage.transport import HttpResponse

    return HttpResponse(0, fault=f"no answer in {ASKING_S:g} s")


def _make_catalogue_key(question: Question) -> str:
    """Return the key of a server's own list, which says nothing of windows to `window`."""
    return f"catalogue|{question.scope}"


def _note_said(told: dict[Key, Value], key: Key, value: Value) -> None:
    """Remember something of a question, so that it is said or found once; beyond a number, anew."""
    if len(told) >= MOST:
        told.clear()
    told[key] = value
