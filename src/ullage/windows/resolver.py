"""Gather claims about a window and resolve them: override, learned ceilings, probe, table.

Positive answers are kept for an hour, negative ones for five minutes, learned ceilings until they
expire; concurrent questions about one server share one probe. Resolution never fails: what cannot
be learned is no claim and one warning. It knows no conversation.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ullage.core.errors import ConfigurationError
from ullage.core.window import Claim, Window, resolve
from ullage.transport import loopback, shown
from ullage.windows import llamacpp
from ullage.windows.llamacpp import Found
from ullage.windows.table import Table

if TYPE_CHECKING:
    from ullage.transport import Transport

log = logging.getLogger("ullage.windows")

POSITIVE_S: Final = 3600.0
NEGATIVE_S: Final = 300.0
LEARNED_LOCAL_S: Final = 24 * 3600.0
LEARNED_HOSTED_S: Final = 30 * 24 * 3600.0

HOSTED: Final = frozenset(
    {
        "api.openai.com",
        "api.anthropic.com",
        "generativelanguage.googleapis.com",
        "openrouter.ai",
        "api.deepseek.com",
        "api.groq.com",
        "api.mistral.ai",
        "api.together.xyz",
        "api.x.ai",
    }
)
"""Hosts that get no local probes: they publish a listing, or nothing."""


@dataclass(frozen=True, slots=True)
class Question:
    """Whose window is asked for. `override` is the operator's own number of tokens."""

    model: str | None = None
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    override: int | None = None

    def __post_init__(self) -> None:
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
    def scope(self) -> str:
        """Name endpoint and credential (hashed), so that tenants never share what is learned."""
        key = hashlib.blake2b((self.api_key or "").encode(), digest_size=8).hexdigest()
        return f"{llamacpp.root(self.base_url) if self.base_url else ''}#{key}"

    @property
    def hosted(self) -> bool:
        """Whether a model id means the published model: at a known provider, or nowhere else."""
        return self.base_url is None or urlsplit(self.base_url).hostname in HOSTED

    @property
    def probed(self) -> bool:
        """Whether the server is asked: by host, not by dialect, and not against an override."""
        return self.override is None and not self.hosted


def _web(url: object) -> bool:
    """Tell whether this is an http or https URL with a host and a lawful port."""
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for a port that is none
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


@dataclass(slots=True)
class _Entry:
    """One probe: whoever came first asks, the others wait.

    Threads wait for `lock`, coroutines for `flight`. A thread never waits for a coroutine, which
    may be one of the loop that the thread holds up.
    """

    found: Found = field(default_factory=Found)
    until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)
    flight: Future[bool] | None = None


class Resolver:
    """Resolve windows. Safe to share between threads; `now` returns seconds since the epoch."""

    def __init__(self, transport: Transport, now: Callable[[], float]) -> None:
        self._transport = transport
        self._now = now
        self._table = Table()
        self._entries: dict[tuple[str, str | None], _Entry] = {}
        self._ceilings: dict[tuple[str, str | None], tuple[Claim, float]] = {}
        self._said: dict[tuple[str, str | None], str] = {}
        self._lock = threading.Lock()

    def window(self, question: Question) -> Window:
        """Resolve; never raises for network trouble."""
        found = self._probe(question) if question.probed else self._known(question)
        return self._resolve(question, found)

    async def awindow(self, question: Question) -> Window:
        """Do as `window`, without blocking the event loop."""
        found = await self._aprobe(question) if question.probed else self._known(question)
        return self._resolve(question, found)

    def counts_at(self, question: Question) -> str:
        """Return the URL at which the server counts requests, "" where it is not known to."""
        return self._known(question).counts

    def learn(self, question: Question, tokens: int) -> None:
        """Remember a ceiling that an error proved; it only lowers, and expires."""
        local = question.base_url is not None and loopback(question.base_url)
        until = self._now() + (LEARNED_LOCAL_S if local else LEARNED_HOSTED_S)
        key = (question.scope, question.model)
        where = shown(question.base_url) if question.base_url else "the provider"
        claim = Claim("total", tokens, "learned", where, self._now(), 0.9)
        with self._lock:
            held = self._ceiling(key)
            if held is None or tokens < held.tokens:
                self._ceilings[key] = (claim, until)
            self._entries.pop(key, None)

    def forget(self) -> None:
        """Drop every answer and every learned ceiling."""
        with self._lock:
            self._entries.clear()
            self._ceilings.clear()
            self._said.clear()

    def models(self) -> list[tuple[str, Window]]:
        """Return the bundled table's models, each with its window."""
        return [(m, resolve(self._table.claims(m), model=m)) for m in self._table.ids()]

    def _resolve(self, question: Question, found: Found) -> Window:
        claims = list(found.claims)
        key = (question.scope, question.model)
        ceiling = self._ceiling(key)
        if ceiling is not None:
            claims.append(ceiling)
        if question.model is not None:
            claims += self._table.claims(question.model)
        if question.override is not None:
            claims.insert(0, Claim("total", question.override, "override", "the operator"))
        window = resolve(claims, model=question.model)
        for warning in window.warnings:
            # Once, not with every request of a conversation.
            if self._said.get(key) != warning:
                self._said[key] = warning
                log.warning("%s", warning)
        complaint = (found.complaint,) if found.complaint else ()
        return replace(window, warnings=(*window.warnings, *complaint))

    def _ceiling(self, key: tuple[str, str | None]) -> Claim | None:
        claim, until = self._ceilings.get(key, (None, 0.0))
        return claim if until > self._now() else None

    def _known(self, question: Question) -> Found:
        entry = self._entries.get((question.scope, question.model))
        return entry.found if entry is not None else Found()

    def _entry(self, question: Question) -> _Entry:
        with self._lock:
            return self._entries.setdefault((question.scope, question.model), _Entry())

    def _probe(self, question: Question) -> Found:
        entry = self._entry(question)
        with entry.lock:
            if entry.until <= self._now():
                asking = self._asking(question)
                try:
                    what = next(asking)
                    while True:
                        what = asking.send(self._transport.ask(what))
                except StopIteration as done:
                    self._keep(entry, done.value)
            return entry.found

    async def _aprobe(self, question: Question) -> Found:
        import asyncio

        entry = self._entry(question)
        landed = False
        while not landed and entry.until <= self._now():
            with self._lock:
                ahead = entry.flight
                mine: Future[bool] = Future()
                entry.flight = ahead or mine
            if ahead is None:
                await self._fly(entry, mine, question)
                break
            # Shielded: one who stops waiting must not cancel the flight for the others.
            landed = await asyncio.shield(asyncio.wrap_future(ahead))
        return entry.found

    async def _fly(self, entry: _Entry, flight: Future[bool], question: Question) -> None:
        """Ask on behalf of all that wait for `flight`, which is told whether it landed."""
        asking = self._asking(question)
        landed = False
        try:
            what = next(asking)
            while True:
                what = asking.send(await self._transport.aask(what))
        except StopIteration as done:
            self._keep(entry, done.value)
            landed = True
        finally:
            with self._lock:
                entry.flight = None
            flight.set_result(landed)

    def _asking(self, question: Question) -> llamacpp.Asking:
        base_url = question.base_url or ""
        return llamacpp.probe(base_url, question.model, question.api_key, self._now())

    def _keep(self, entry: _Entry, found: Found) -> None:
        entry.found = found
        if not found.passing:
            entry.until = self._now() + (POSITIVE_S if found.claims else NEGATIVE_S)
        if found.complaint:
            log.warning("%s", found.complaint)
