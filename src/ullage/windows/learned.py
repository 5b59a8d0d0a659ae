"""What refusals and answers taught: ceilings that only lower, floors that a success proved.

Ceilings expire after a day for a local server and after thirty for a hosted one, and outlive the
process where there is a folder. A full pool of slots teaches a share of it for ten minutes, which
does not. It asks nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ullage.core.tokens.window import Claim
from ullage.transport import loopback, mask_url
from ullage.windows.disk import Disk, StoredClaims
from ullage.windows.question import Question

LOCAL_S: Final = 24 * 3600.0
HOSTED_S: Final = 30 * 24 * 3600.0
CONTENTION_S: Final = 600.0
"""How long a share of a pool of slots bounds requests after the pool ran full."""

Entry = tuple[tuple[Claim, ...], float]


class Learned:
    """Claims by key with their expiry; `now` returns seconds since the epoch."""

    def __init__(self, disk: Disk, now: Callable[[], float]) -> None:
        self._disk = disk
        self._now = now
        self._kept: dict[str, Entry] | None = None
        self._passing: dict[str, Entry] = {}
        self._floors: dict[str, int] = {}
        self._lock = threading.Lock()

    def ceiling(self, question: Question) -> tuple[Claim, ...]:
        """Return the ceilings that hold for a model at its endpoint."""
        with self._lock:
            entries = (self._entries().get(question.key), self._passing.get(question.key))
        return tuple(c for e in entries if e and e[1] > self._now() for c in e[0])

    def lower(self, question: Question, tokens: int, note: str = "") -> None:
        """Remember a limit that was named or proven; a higher one than is known is ignored."""
        local = question.base_url is not None and loopback(question.base_url)
        until = self._now() + (LOCAL_S if local else HOSTED_S)
        if any(c.tokens <= tokens for c in self.ceiling(question)):
            return
        claim = Claim("total", tokens, "learned", _where(question), self._now(), 0.9, note)
        self.keep(question.key, (claim,), until)

    def share(self, question: Question, tokens: int, slots: int) -> None:
        """Remember that a pool shared by `slots` ran full: each may take its share for a while."""
        note = f"contention: {slots} slots over one pool"
        claim = Claim(
            "total", max(tokens // slots, 1), "learned", _where(question), self._now(), 0.5, note
        )
        with self._lock:
            self._passing[question.key] = ((claim,), self._now() + CONTENTION_S)

    def record_success(self, question: Question, tokens: int) -> None:
        """Remember that a prompt of so many tokens was answered: smaller listed bounds are not."""
        with self._lock:
            self._floors[question.key] = max(tokens, self._floors.get(question.key, 0))

    def floor(self, question: Question) -> int:
        """Return the largest prompt that is known to have been answered, 0 if none."""
        return self._floors.get(question.key, 0)

    def recall(self, key: str) -> tuple[Claim, ...] | None:
        """Return what was kept under a key and still holds, or None."""
        with self._lock:
            entry = self._entries().get(key)
        return entry[0] if entry is not None and entry[1] > self._now() else None

    def keep(self, key: str, claims: tuple[Claim, ...], until: float) -> None:
        """Keep claims under a key, on disk too."""
        with self._lock:
            # Read again: another process may have written since.
            stored = self._disk.load(self._now())
            entries = {**self._entries(), **_pair_entries(stored), key: (claims, until)}
            self._kept = {k: e for k, e in entries.items() if e[1] > self._now()}
            self._save()

    def forget(self, question: Question | None = None) -> None:
        """Forget what was learned about a question's endpoint and model, or everything."""
        with self._lock:
            if question is None:
                self._kept, self._passing, self._floors = {}, {}, {}
                self._disk.clear()
                return
            self._entries().pop(question.key, None)
            self._passing.pop(question.key, None)
            self._floors.pop(question.key, None)
            self._save()

    def _entries(self) -> dict[str, Entry]:
        if self._kept is None:
            self._kept = _pair_entries(self._disk.load(self._now()))
        return self._kept

    def _save(self) -> None:
        entries = self._entries()
        claims = {k: e[0] for k, e in entries.items()}
        self._disk.save(StoredClaims(claims, {k: e[1] for k, e in entries.items()}))


def _pair_entries(kept: StoredClaims) -> dict[str, Entry]:
    return {key: (claims, kept.until[key]) for key, claims in kept.claims.items()}


def _where(question: Question) -> str:
    return mask_url(question.base_url) if question.base_url else "the provider"
