"""Lessons about models at their endpoints, apart from windows: how they count, and their laws.

All conversations in the process share them. A counting ratio is also kept on disk once two reports
agree. A law from a refusal is not kept on disk; it is saved only with its conversation. This module
asks no server and decides nothing: `core.tokens.calibration` does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ullage.core.guard.learned import NOTHING, Learned, read_calibration
from ullage.core.tokens.calibration import Calibration, learn
from ullage.core.tokens.images import AGREED
from ullage.core.values.frozen import replace
from ullage.json_file import JsonFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.core.dialects.families import Law
    from ullage.core.tokens.calibration import ReportedSize, Taught

FILE: Final = "counting.json"
VERSION: Final = 1

MOST: Final = 1_000
"""Most models at endpoints with lessons; the longest unused are dropped."""

REPEATED: Final = 2
"""Number of reports that must agree before a ratio is kept on disk."""

MOVED: Final = 0.05
"""Change of a ratio, as a share, after which it is written again: half of the narrowest band."""

EVERY: Final = "*"
"""The key that records when everything was forgotten."""

KEPT_S: Final = 30 * 24 * 3600.0
"""Seconds for which a ratio is kept on disk without a new report."""


class Lessons:
    """Lessons by key, which names endpoint, credential and model. For any thread.

    `now` returns seconds since the epoch. If `folder` is None, nothing is kept on disk. `tell` is
    called for each lesson that other processes should get: a new law, or a ratio that goes to disk
    too.
    """

    def __init__(self, folder: Path | None, now: Callable[[], float]) -> None:
        self._file = JsonFile(folder, FILE)
        self._now = now
        self.tell: Callable[[str, Learned], None] | None = None
        self._known: dict[str, Learned] = {}
        self._stored: dict[str, Learned] | None = None
        self._forgotten: dict[str, float] = {}
        self._lock = threading.Lock()

    def find(self, key: str) -> Learned:
        """Return the lessons about a model."""
        known = self._known.get(key)
        if known is None:
            with self._lock:
                known = self._known.get(key) or self._entries().get(key, NOTHING)
                self._keep(key, known)
        return known

    def learn(self, key: str, reading: ReportedSize, worked_out: Taught | None = None) -> None:
        """Calibrate with one report; an impossible report changes nothing.

        `worked_out` is the calibration computed earlier; it is used unless another report came
        meanwhile.
        """
        before = self.find(key)
        with self._lock:
            held = self._known.get(key, before)
            before_it, taught = worked_out or (None, None)
            if worked_out is None or before_it is not held.calibration:
                taught = learn(held.calibration, reading)
            self._keep(key, replace(held, calibration=taught, at=self._now()))
            is_news = taught is not None and self._is_news(key, taught)
            if is_news:
                self._save(key)
        if is_news:
            self._pass_on(key)

    def note_law(self, key: str, law: Law) -> None:
        """Remember that a model refused a history by this law."""
        before = self.find(key)
        with self._lock:
            held = self._known.get(key, before)
            self._keep(key, replace(held, laws=held.laws | {law}, at=self._now()))
        if law not in held.laws:
            self._pass_on(key)

    def take_in(self, key: str, learned: Learned) -> bool:
        """Merge the lessons that a conversation carries about its model; return whether they hold.

        They do not hold if the model was forgotten later.
        """
        held = self.find(key)
        forgotten = self._forgotten
        if learned.at <= max(forgotten.get(key, -1.0), forgotten.get(EVERY, -1.0)):
            return False
        if held.merge(learned) is not held:
            with self._lock:
                self._keep(key, self._known.get(key, held).merge(learned))
        return True

    def forget(self, key: str | None = None, at: float | None = None) -> None:
        """Forget the lessons about a model, or all lessons, up to a time (by default now)."""
        until = self._now() if at is None else at
        with self._lock:
            stored = self._entries()
            for gone in (key,) if key is not None else (*self._known, *stored):
                for held in (self._known, stored):
                    if gone in held and held[gone].at <= until:
                        del held[gone]
            self._forgotten[EVERY if key is None else key] = until
            self._write()

    def _pass_on(self, key: str) -> None:
        if self.tell is not None:
            self.tell(key, replace(self.find(key), claims=()))

    # --- callers of these hold the lock -----------------------------------------------------------

    def _keep(self, key: str, learned: Learned) -> None:
        self._known.pop(key, None)
        self._known[key] = learned
        if len(self._known) > MOST:
            self._known.pop(next(iter(self._known)))

    def _is_news(self, key: str, taught: Calibration) -> bool:
        """Tell whether a calibration is worth saving: it was repeated, and says something new."""
        before = self._entries().get(key, NOTHING).calibration
        image = taught.image
        if image is not None and image.seen >= AGREED and (before is None or before.image != image):
            return True
        if taught.seen < REPEATED:
            return False
        if before is None or taught.seen >= 2 * before.seen:
            return True
        return abs(taught.ratio - before.ratio) > MOVED * before.ratio

    def _entries(self) -> dict[str, Learned]:
        if self._stored is None:
            self._stored, self._forgotten = self._load()
        return self._stored

    def _load(self) -> tuple[dict[str, Learned], dict[str, float]]:
        entries, forgotten = self._file.load(_read) or ({}, {})
        oldest = self._now() - KEPT_S
        return (
            {k: e for k, e in entries.items() if e.at > oldest},
            {k: at for k, at in forgotten.items() if at > oldest},
        )

    def _save(self, key: str) -> None:
        entries, forgotten = self._load()  # read again: another process may have written since
        self._forgotten = {**forgotten, **self._forgotten}
        self._stored = {**entries, key: replace(self._known[key], laws=frozenset(), claims=())}
        self._write()

    def _write(self) -> None:
        entries = dict(sorted(self._entries().items(), key=_at)[-MOST:])
        made = {k: {"calibration": _write_down(e), "at": e.at} for k, e in entries.items()}
        self._file.save({"version": VERSION, "entries": made, "forgotten": self._forgotten})


def _at(entry: tuple[str, Learned]) -> float:
    return entry[1].at


def _write_down(learned: Learned) -> dict[str, Any] | None:
    return None if learned.calibration is None else learned.calibration.to_dict()


def _read(data: Mapping[str, Any]) -> tuple[dict[str, Learned], dict[str, float]]:
    if data["version"] != VERSION:
        raise ValueError(f"its version is {data['version']!r}, this is {VERSION}")
    entries = {
        key: Learned(read_calibration(entry["calibration"]), at=float(entry["at"]))
        for key, entry in data["entries"].items()
    }
    return entries, {key: float(at) for key, at in data["forgotten"].items()}
