"""The ledger of evidence: what refusals, answers and cut prompts showed about each window.

One entry is one event. Evidence from only one request stays in this process. Evidence that a second
request confirmed is kept on disk: one day for a local server, thirty days for a hosted one.
`core.tokens.evidence` weighs it. It asks nobody.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Final

from ullage.core.tokens import evidence
from ullage.core.tokens.claim import Claim
from ullage.core.values.frozen import replace
from ullage.transport import loopback, mask_url
from ullage.windows.disk import Disk, StoredClaims
from ullage.windows.question import BY, Question

LOCAL_S: Final = 24 * 3600.0
HOSTED_S: Final = 30 * 24 * 3600.0
CONTENTION_S: Final = evidence.PASSING_S
"""Seconds for which a share of a pool of slots limits requests after the pool was full."""

TRIAL_S: Final = 60.0
"""Seconds between two requests that are sent despite a learned bound."""

SKEW_S: Final = 600.0
"""Seconds by which the clocks of two processes may differ."""

MOST: Final = 4_096
"""Most models at endpoints with events; the least recently used are dropped."""

MOST_PARTIES: Final = 64
"""Most parties with events for one model at its endpoint."""

Entry = tuple[tuple[Claim, ...], float]


class EvidenceLedger:
    """Claims by key with their expiry; `now` returns seconds since the epoch. For any thread.

    `tell` is called with claims under a key that other processes should know.
    """

    def __init__(self, disk: Disk, now: Callable[[], float]) -> None:
        self._disk = disk
        self._now = now
        self.tell: Callable[[str, tuple[Claim, ...]], None] | None = None
        self._told: dict[str, tuple[Claim, ...]] = {}
        self._stored: dict[str, Entry] | None = None
        self._heard: dict[str, tuple[Claim, ...]] = {}
        self._tried: dict[str, float] = {}
        self._parties: dict[str, dict[str, None]] = {}
        self._lock = threading.Lock()

    # --- events -----------------------------------------------------------------------------------

    def claims(self, question: Question) -> tuple[Claim, ...]:
        """Return the recent events about a model at its endpoint, as claims."""
        with self._lock:
            own, others = self._claims(question), self._list_others(question)
        return (*own, *evidence.corroborate(own, others)) if others else own

    def record(self, question: Question, claim: Claim) -> None:
        """Add one event; save it to disk if it confirms another request's event."""
        with self._lock:
            known = self._claims(question)
            # A clock may go back a little: the newest claim stays the newest.
            at = max([self._now(), *(c.at for c in known)])
            held = evidence.add(known, replace(claim, where=_where(question), at=at))
            self._hear(question.own_key, held)
            confirmed = evidence.confirm(held)
            stored = self._entries().get(question.own_key, ((), 0.0))[0]
            if evidence.says_more(confirmed, stored):
                self._keep(question.own_key, confirmed, self._now() + _lasts(question))
        self._pass_on(question.own_key, held)

    def take_in(self, question: Question, claims: Sequence[Claim]) -> bool:
        """Add events from a conversation's record; tell whether one of them was new."""
        recent = self._list_recent(question, claims)
        with self._lock:
            return self._merge(question.own_key, self._claims(question), recent)

    def hear(self, key: str, claims: Sequence[Claim]) -> bool:
        """Add events that another process sent under a key; tell whether one was new."""
        with self._lock:
            entry = self._entries().get(key, ((), 0.0))
            self._told[key] = tuple(claims)
            return self._merge(key, self._heard.get(key, entry[0]), claims)

    def _merge(self, key: str, held: tuple[Claim, ...], claims: Sequence[Claim]) -> bool:
        known, floor = {(c.source, c.exchange) for c in held}, evidence.find_floor(held)
        newest = max((c.at for c in held if c.source == "answer"), default=0.0)
        news = [
            claim
            for claim in claims
            if (claim.source == "answer" and claim.at > newest)
            or ((claim.source, claim.exchange) not in known and _is_news(claim, floor))
        ]
        for claim in news:
            held = evidence.add(held, claim)
        if news:
            self._hear(key, held)
        return bool(news)

    def _pass_on(self, key: str, held: tuple[Claim, ...]) -> None:
        """Send claims to other processes if they say more than those sent before under the key."""
        if self.tell is None or not evidence.says_more(held, self._told.get(key, ())):
            return
        if len(self._told) >= MOST:
            self._told.clear()
        self._told[key] = held
        self.tell(key, held)

    def share(self, question: Question, tokens: int, slots: int) -> None:
        """Note that a pool shared by `slots` was full: each gets only its share for a while."""
        note = f"contention: {slots} slots over one pool"
        claim = Claim("total", max(tokens // slots, 1), "contention", confidence=0.5, note=note)
        self.record(question, claim)

    def start_trial(self, question: Question) -> bool:
        """Tell whether a request over a learned bound may be tried now, and note the trial."""
        with self._lock:
            if abs(self._now() - self._tried.get(question.own_key, -TRIAL_S)) < TRIAL_S:
                return False
            if len(self._tried) >= MOST:
                self._tried.clear()
            self._tried[question.own_key] = self._now()
            return True

    def forget(self, question: Question | None = None) -> None:
        """Forget the lessons about a question's endpoint and model, or all."""
        if question is None:
            with self._lock:
                self._stored, self._heard, self._tried = {}, {}, {}
                self._parties.clear()
                self._told.clear()
                self._disk.clear()
            return
        self.forget_key(question.key)

    def forget_key(self, key: str, until: float = math.inf) -> None:
        """Forget the lessons under a key from all parties, up to a time (since the epoch)."""
        with self._lock:
            stored = self._entries()
            keys = {key, *self._parties.get(key, ())}
            for known in keys:
                later = tuple(c for c in self._heard.pop(known, ()) if c.at > until)
                if later:
                    self._heard[known] = later
                self._tried.pop(known, None)
                self._told.pop(known, None)
            old = [k for k in keys if k in stored and all(c.at <= until for c in stored[k][0])]
            for known in old:
                del stored[known]
            if old:
                self._save()

    def _hear(self, key: str, held: tuple[Claim, ...]) -> None:
        self._note_party(key)
        self._heard.pop(key, None)
        self._heard[key] = held
        if len(self._heard) > MOST:
            self._heard.pop(next(iter(self._heard)))

    def _note_party(self, key: str) -> None:
        """Note that the key of a party has events."""
        place = key.partition(BY)[0]
        known = self._parties.setdefault(place, {})
        known.pop(key, None)
        known[key] = None
        if len(known) > MOST_PARTIES:
            del known[next(iter(known))]
        if len(self._parties) > MOST:
            del self._parties[next(iter(self._parties))]

    def _list_others(self, question: Question) -> list[tuple[Claim, ...]]:
        self._entries()
        keys = self._parties.get(question.key, ())
        others = (self._claims(question, key) for key in keys if key != question.own_key)
        return [claims for claims in others if claims]

    def _claims(self, question: Question, key: str = "") -> tuple[Claim, ...]:
        key = key or question.own_key
        heard = self._heard.get(key)
        if heard is None:
            entry = self._entries().get(key)
            heard = entry[0] if entry is not None and entry[1] > self._now() else ()
        return self._list_recent(question, heard)

    def _list_recent(self, question: Question, claims: Sequence[Claim]) -> tuple[Claim, ...]:
        """Return the claims that are not too old, and not from the future: a clock was wrong."""
        now, lasts = self._now(), _lasts(question)
        return tuple(c for c in claims if now - lasts < c.at <= now + SKEW_S)

    # --- listings, and the disk -------------------------------------------------------------------

    def recall(self, key: str) -> tuple[Claim, ...] | None:
        """Return the claims kept under a key that still hold, or None."""
        with self._lock:
            entry = self._entries().get(key)
        return entry[0] if entry is not None and entry[1] > self._now() else None

    def keep(self, key: str, claims: tuple[Claim, ...], until: float) -> None:
        """Keep claims under a key, also on disk."""
        with self._lock:
            self._keep(key, claims, until)

    def _keep(self, key: str, claims: tuple[Claim, ...], until: float) -> None:
        # Read again: another process may have written since.
        stored = self._disk.load(self._now())
        entries = {**self._entries(), **_pair_entries(stored), key: (claims, until)}
        self._stored = {k: e for k, e in entries.items() if e[1] > self._now()}
        self._save()

    def _entries(self) -> dict[str, Entry]:
        if self._stored is None:
            self._stored = _pair_entries(self._disk.load(self._now()))
            for key in self._stored:
                self._note_party(key)
        return self._stored

    def _save(self) -> None:
        entries = self._entries()
        claims = {k: e[0] for k, e in entries.items()}
        self._disk.save(StoredClaims(claims, {k: e[1] for k, e in entries.items()}))


def _is_news(claim: Claim, floor: int) -> bool:
    return claim.source != "answer" or claim.tokens > floor


def _pair_entries(kept: StoredClaims) -> dict[str, Entry]:
    return {key: (claims, kept.until[key]) for key, claims in kept.claims.items()}


def _lasts(question: Question) -> float:
    local = question.base_url is not None and loopback(question.base_url)
    return LOCAL_S if local else HOSTED_S


def _where(question: Question) -> str:
    return mask_url(question.base_url) if question.base_url else "the provider"
