"""Sessions of other programs, read from their files as they grow, never changed.

A file is read when it has changed, but then not again for twenty times as long as reading it took.
So a session that is written all the time costs a twentieth of a core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ullage.api.compact import compact
from ullage.api.context import Contents, of_session, strip_window_mark
from ullage.core.errors import ConfigurationError, UllageError
from ullage.core.messages.labels import shorten
from ullage.core.summary.flaws import name_strategies
from ullage.importers import ImportedSession, load
from ullage.importers.listing import list_sessions
from ullage.live.claims import describe_window
from ullage.live.review import list_messages
from ullage.live.source import NotPossible, UnknownConversation
from ullage.live.tally import TITLE
from ullage.live.values import (
    GONE,
    CompactionReview,
    LiveCompaction,
    LiveEvent,
    LiveMessage,
    LiveRequest,
    LiveSession,
    SessionDetail,
    measure_pace,
)
from ullage.live.waste import list_waste
from ullage.runtime import Measurable, Runtime, default
from ullage.windows import Question

MOST: Final = 60
"""Most sessions of a program that are shown, the most recently written ones."""

READ: Final = 2
"""Files that one look reads whole; the rest follows with the next looks."""

PATIENCE: Final = 20.0
"""Pause before a file is read again, as a multiple of the time that reading took."""

LARGEST: Final = 64 * 1024 * 1024
"""Largest file that is read whole, in bytes."""

ACTIVE_S: Final = 90.0
"""Seconds without a write after which a session is no longer active."""

READ_ONLY: Final = "sessions of {} are read here, and never changed: do it in the program itself"


@dataclass(slots=True)
class _File:
    """One file: its state when it was read, the time that took, and the result."""

    seen: tuple[float, int] = (0.0, 0)
    took: float = 0.0
    at: float = 0.0
    told: LiveSession | None = None


@dataclass(slots=True)
class ProgramSource:
    """Sessions of one program: claude, codex or opencode; `environ` says where its folders are.

    `most_read` is the number of files that one look reads whole; a caller that looks only once sets
    it high.
    """

    name: str
    environ: Mapping[str, str]
    runtime: Runtime | None = None
    now: Callable[[], float] = time.time
    most_read: int = READ
    is_behind: bool = False
    _files: dict[str, _File] = field(default_factory=dict)
    _paths: dict[str, Path] = field(default_factory=dict)

    def list_rows(self) -> Sequence[LiveSession]:
        """Return the sessions that changed since the last call; the first call returns all."""
        listed, _ = list_sessions(self.name, self.environ, MOST)
        rows, left = [], self.most_read
        for one in listed:
            self._paths[one.id] = Path(one.path)
            held = self._files.setdefault(one.id, _File())
            at, size = one.at, one.size
            bare = LiveSession(
                source=self.name,
                id=one.id,
                at=at,
                project=one.project or "",
                title=shorten(one.title or "", TITLE),
                state=self._judge(at),
            )
            due = held.seen != (at, size) and self.now() >= held.at + PATIENCE * held.took
            if size > LARGEST:
                held.at = self.now()
            if due and left and size <= LARGEST:
                left -= 1
                row = self._read_row(one.id, held, bare)
                held.seen = (at, size)
            else:
                row = held.told or bare
                row = _amend(row, at=at, state=bare.state, title=bare.title or row.title)
                if size > LARGEST:
                    row = _amend(row, last=f"over {LARGEST >> 20} MB: its numbers are not read")
            if row != held.told:
                held.told = row
                rows.append(row)
        self.is_behind = any(not self._files[one.id].at for one in listed)
        for name in self._paths.keys() - {one.id for one in listed}:
            del self._paths[name], self._files[name]
            rows.append(LiveSession(source=self.name, id=name, state=GONE))
        return rows

    def _judge(self, at: float) -> str:
        return "active" if self.now() - at < ACTIVE_S else "idle"

    def _read_row(self, name: str, held: _File, bare: LiveSession) -> LiveSession:
        began = time.perf_counter()
        try:
            row = _make_row(*self._read(name), bare)
        except UllageError as error:
            row = _amend(bare, state="damaged", last=str(error))
        held.took, held.at = time.perf_counter() - began, self.now()
        return row

    def _read(self, name: str) -> tuple[ImportedSession, Contents]:
        path = self._paths.get(name)
        if path is None:
            raise UnknownConversation(
                f"{self.name} has no session {name:.60} among its last {MOST}"
            )
        session = load(path, source=self.name)
        return session, of_session(session, runtime=self._find_runtime())

    def _find_runtime(self) -> Runtime:
        return self.runtime or default()

    # --- one session ----------------------------------------------------------------------------

    def read_detail(self, name: str, *, reads: bool) -> SessionDetail:
        """Return all data about a session; raises UnknownConversation."""
        session, contents = self._read(name)
        held = self._files.get(name) or _File()
        bare = held.told or LiveSession(source=self.name, id=name)
        report = contents.to_dict()
        question = Question(strip_window_mark(session.model))
        shared = self._find_runtime()
        read = shared.read(Measurable(session.current, dialect=session.dialect))
        meter = shared.meter(question, read.rules.dialect)
        row = _make_row(session, contents, bare)
        requests = _list_requests(report, session)
        prices = shared.windows.prices(question)
        return SessionDetail(
            row,
            requests,
            tuple(_list_events(requests)),
            tuple(_list_compactions(requests)),
            report if reads else None,
            _describe_known(contents) or describe_window(shared, question),
            list_waste(report, read.messages, session.tools, meter, prices) if reads else (),
            frozenset({"again"}),
            tuple(contents.warnings),
        )

    def review(self, name: str, number: int, *, reads: bool) -> CompactionReview:
        """Raise NotPossible: the program's own compaction cannot be reviewed."""
        del number, reads
        self._read(name)
        raise NotPossible(
            f"{self.name} compacts by itself and does not say what of a message it left out: the "
            "conversation's page shows the sizes"
        )

    def list_messages(self, name: str) -> Sequence[LiveMessage]:
        """Return the messages that are in the window now."""
        session, _ = self._read(name)
        shared = self._find_runtime()
        read = shared.read(Measurable(session.current, dialect=session.dialect))
        question = Question(strip_window_mark(session.model))
        return list_messages(read, shared.meter(question, read.rules.dialect))

    def act(self, name: str, action: str, options: dict[str, Any]) -> dict[str, Any]:
        """Plan a compaction under a policy; other actions are not possible on a foreign session."""
        if action != "again":
            raise NotPossible(READ_ONLY.format(self.name))
        session, contents = self._read(name)
        policy = str(options.get("policy") or "ladder")
        try:
            made = compact(
                session.current,
                policy=policy,
                dialect=session.dialect,
                model=strip_window_mark(session.model),
                window=contents.report.bound,
                system=session.system,
                tools=session.tools,
                runtime=self._find_runtime(),
                target_ratio=0.5,
            )
        except ConfigurationError as error:
            raise NotPossible(str(error)) from error
        strategy = name_strategies(made.strategy, made.fallback_reason)
        return {
            "policy": policy,
            "before": made.before.tokens,
            "after": made.after.tokens,
            "strategy": strategy,
            "reached": made.reached,
            "messages": len(made.messages),
            "reason": made.reason or "",
        }

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _amend(row: LiveSession, **changes: Any) -> LiveSession:
    from dataclasses import replace

    return replace(row, **changes)


def _make_row(session: ImportedSession, contents: Contents, bare: LiveSession) -> LiveSession:
    report = contents.report
    sizes = [turn.tokens for turn in session.turns]
    bound = contents.compaction_at or report.bound
    pace = measure_pace([*sizes, report.used.tokens], bound)
    spent = session.spent
    compactions = sum(turn.compacted for turn in session.turns)
    prompts = 0 if spent is None else spent.prompt_tokens
    last = f"request {len(session.turns):,}" if session.turns else ""
    return _amend(
        bare,
        project=bare.project or session.project or "",
        title=bare.title or shorten(session.title or "", TITLE),
        model=session.model or "",
        upstream=", ".join(session.providers or ()),
        used=report.used.tokens + (report.since[0] if report.since else 0),
        window=report.bound,
        window_source="assumed" if contents.assumed else contents.window.source or "",
        compaction_at=contents.compaction_at,
        basis=report.basis,
        tier=report.assessment.tier,
        growth=pace.growth,
        left=pace.left,
        messages=len(session.current),
        requests=len(session.turns),
        dollars=contents.dollars,
        cached=None if spent is None or not prompts else round(spent.cache_read / prompts, 4),
        compactions=compactions,
        last=last,
    )


def _list_requests(report: Mapping[str, Any], session: ImportedSession) -> tuple[LiveRequest, ...]:
    from datetime import datetime

    made = []
    for turn, drawn in zip(session.turns, report["turns"], strict=False):
        try:
            at = datetime.fromisoformat(turn.at or "").timestamp()
        except ValueError:
            at = 0.0
        made.append(
            LiveRequest(
                at,
                drawn["tokens"],
                drawn["window"],
                basis=drawn["basis"],
                usage=turn.usage,
                compacted=drawn["compacted"],
            )
        )
    return tuple(made)


def _list_compactions(requests: Sequence[LiveRequest]) -> list[LiveCompaction]:
    found: list[LiveCompaction] = []
    for before, after in pairwise(requests):
        if after.compacted and before.tokens is not None and after.tokens is not None:
            number = len(found) + 1
            found.append(LiveCompaction(number, after.at, before.tokens, after.tokens))
    return found


def _list_events(requests: Sequence[LiveRequest]) -> list[LiveEvent]:
    events = []
    for number, one in enumerate(requests, 1):
        if one.compacted:
            events.append(LiveEvent(one.at, "compaction", f"compacted before request {number}"))
    return events


def _describe_known(contents: Contents) -> dict[str, Any] | None:
    window = contents.window
    if not window.known:
        return None
    return {
        "model": contents.model,
        "place": "",
        "known": True,
        "tokens": window.input_tokens,
        "total": window.total_tokens,
        "said_by": window.name_source(),
        "is_learned": False,
        "working": None,
        "answered": window.answered,
        "claims": [
            {
                "tokens": claim.tokens,
                "kind": claim.kind,
                "source": claim.source,
                "sentence": claim.describe_with_date(),
                "wins": claim.tokens == window.input_tokens,
                "learned": False,
            }
            for claim in window.claims
        ],
        "warnings": [contents.assumed] if contents.assumed else [],
    }
