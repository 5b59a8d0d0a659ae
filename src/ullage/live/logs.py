"""Sessions of a log as it grows: rows, details, compactions to review, and actions on them.

Each event is read once. `report` builds the request of a session and describes it; actions are the
library's own calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ullage.agent import Session
from ullage.api.recall import recall
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.dialects import registry
from ullage.core.errors import StoreError, UllageError, UnknownSession
from ullage.core.session.log.event import upcast_data
from ullage.core.session.log.fold import Fold, fold
from ullage.core.session.log.render import Renderer
from ullage.live.claims import describe_window
from ullage.live.review import list_messages, review_script
from ullage.live.source import NotPossible, UnknownConversation
from ullage.live.tally import SOURCE, SessionTally
from ullage.live.values import (
    CompactionReview,
    LiveMessage,
    LiveSession,
    SessionDetail,
    Waste,
)
from ullage.live.waste import list_waste
from ullage.runtime import Runtime, default
from ullage.windows import Question

if TYPE_CHECKING:
    from ullage.core.messages.transcript import DialectName
    from ullage.storage.log import EventLog, Head

PIECE: Final = 500
"""Events that are read at once."""

Report = Callable[[str], Mapping[str, Any]]
"""Returns the parts of a session's window by its name, in the form of `ullage context --json`."""

Undo = Callable[[str], Checkpoint | None]
Preview = Callable[[str, str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class LogHands:
    """Functions that need the session's own model and tools.

    `report` describes what fills the window, `uncompact` undoes the last compaction, and `preview`
    plans one under a named policy without changing anything. Each is None if it is not available.
    """

    report: Report | None = None
    uncompact: Undo | None = None
    preview: Preview | None = None


class LogSource:
    """Sessions of one log. Closing the source closes the log."""

    name = SOURCE
    is_behind = False

    def __init__(
        self, log: EventLog, hands: LogHands | None = None, runtime: Runtime | None = None
    ) -> None:
        self._log = log
        self._hands = hands or LogHands()
        self._runtime = runtime
        self._tallies: dict[str, SessionTally] = {}
        self._heads: dict[str, str] = {}
        self._broken: dict[str, str] = {}

    @property
    def url(self) -> str:
        """The URL of the log."""
        return self._log.url

    def list_rows(self) -> Sequence[LiveSession]:
        """Return the sessions that changed since the last call; the first call returns all."""
        rows = []
        for head in self._log.sessions():
            if self._heads.get(head.session) != head.id or not head.seq:
                self._heads[head.session] = head.id
                rows.append(self._take(head))
        return rows

    def _take(self, head: Head) -> LiveSession:
        name = head.session
        tally = self._tallies.setdefault(name, SessionTally(name))
        self._broken.pop(name, None)
        try:
            if not self._goes_on(tally):  # it was rewritten, for example by a purge
                tally = self._tallies[name] = SessionTally(name)
            self._read_on(tally, head)
        except StoreError as error:
            self._tallies[name] = SessionTally(name)
            self._broken[name] = str(error)
            return LiveSession(
                source=SOURCE, id=name, at=head.created, state="damaged", last=str(error)
            )
        row = tally.make_row()
        return replace(row, at=row.at or head.created)

    def _goes_on(self, tally: SessionTally) -> bool:
        """Tell whether the last event that was read is still the recorded one."""
        if not tally.head:
            return True
        found = self._log.read(tally.name, tally.head - 1, tally.head)
        return bool(found) and found[0].id == tally.last

    def _read_on(self, tally: SessionTally, head: Head) -> None:
        while tally.head < head.seq:
            upto = min(tally.head + PIECE, head.seq)
            tally.extend(self._log.read(tally.name, tally.head, upto))

    def _find(self, name: str) -> SessionTally:
        try:
            head = self._log.head(name)
        except UnknownSession as error:
            raise UnknownConversation(str(error)) from error
        self._heads[name] = head.id
        row = self._take(head)
        if name in self._broken:
            raise NotPossible(row.last)
        return self._tallies[name]

    # --- one session ----------------------------------------------------------------------------

    def read_detail(self, name: str, *, reads: bool) -> SessionDetail:
        """Return all data about a session; raises UnknownConversation."""
        tally = self._find(name)
        notes: list[str] = []
        report: Mapping[str, Any] | None = None
        if self._hands.report is not None and reads:
            try:
                report = self._hands.report(name)
            except UllageError as error:
                notes.append(f"the contents of the window are unknown: {error}")
        question = self._question(tally)
        window = describe_window(self._find_runtime(), question)
        row = tally.make_row()
        if report is not None and report.get("window") is not None:
            bound, at = report["window"]["tokens"], report.get("compaction_at")
            row = replace(row, window=row.window or bound, compaction_at=at)
        can = {"forget", "pin", "recall"} | ({"undo"} if self._hands.uncompact else set())
        can |= {"again"} if self._hands.preview else set()
        waste = () if report is None else self._find_waste(name, report, question)
        return SessionDetail(
            row,
            tuple(tally.requests),
            tuple(tally.events) if reads else (),
            tuple(tally.compactions),
            report,
            window,
            waste,
            frozenset(can),
            tuple(notes),
        )

    def review(self, name: str, number: int, *, reads: bool) -> CompactionReview:
        """Return a compaction as a change; raises UnknownConversation, NotPossible."""
        tally = self._find(name)
        seq = tally.find_compaction(number)
        if seq is None:
            raise UnknownConversation(
                f"session {name} has {len(tally.compactions)} compactions, no number {number}"
            )
        events = self._log.read(name, 0, seq)
        recorded = upcast_data(events[-1]) or {}
        checkpoint = Checkpoint.from_dict(recorded["checkpoint"])
        dialect = str(recorded.get("dialect") or tally.serving.get("dialect") or registry.DEFAULT)
        history, codec = self._read_history(fold(events, seq - 1), dialect, tally)
        meter = self._find_runtime().meter(self._question(tally), dialect)
        made = tally.compactions[number - 1]
        if checkpoint.script.reach() > len(history):
            raise NotPossible(
                f"compaction {number} of session {name} reaches over {checkpoint.script.reach()} "
                f"messages, and {len(history)} can be read back: it was made by another program"
            )
        return review_script(history, checkpoint.script, (codec, meter), made, shows_text=reads)

    def list_messages(self, name: str) -> Sequence[LiveMessage]:
        """Return the messages of the whole history, as they would be sent to its model."""
        tally = self._find(name)
        dialect = str(tally.serving.get("dialect") or registry.DEFAULT)
        history, _ = self._read_history(Session(self._log, name).fold, dialect, tally)
        return list_messages(history, self._find_runtime().meter(self._question(tally), dialect))

    def act(self, name: str, action: str, options: dict[str, Any]) -> dict[str, Any]:
        """Undo the last compaction, read a text back, or plan a compaction under another policy."""
        self._find(name)
        if action == "recall":
            reference = str(options.get("reference", ""))
            return {"reference": reference, "text": recall(reference, store=self._log)}
        if action == "undo" and self._hands.uncompact is not None:
            done = self._hands.uncompact(name)
            if done is None:
                raise NotPossible(f"session {name} has no compaction that can be undone")
            return {"undone": True, "before": done.tokens_after, "after": done.tokens_before}
        if action == "again" and self._hands.preview is not None:
            return dict(self._hands.preview(name, str(options.get("policy", ""))))
        if action == "pin":
            return self._pin(name, str(options.get("message", "")))
        if action == "forget":
            question = self._question(self._tallies[name])
            self._find_runtime().forget(question)
            return {"forgotten": question.model or "the model", "at": question.base_url or ""}
        raise NotPossible(f"sessions of this log cannot {action:.40} here")

    def _pin(self, name: str, told: str) -> dict[str, Any]:
        """Pin a message by its place in the whole history, or unpin it."""
        tally = self._tallies[name]
        dialect = str(tally.serving.get("dialect") or registry.DEFAULT)
        with Session(self._log, name) as session:
            seqs = self._list_seqs(session.fold, dialect, tally)
            place = int(told) if told.isdecimal() and len(told) < 10 else -1
            if not 0 <= place < len(seqs) or seqs[place] is None:
                raise NotPossible(f"session {name} has no message {told!r:.20} that can be pinned")
            is_new = seqs[place] not in session.fold.pins
            session.pin(seqs[place] or 0, pinned=is_new)
        return {"message": place, "pinned": is_new}

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    # --- reading a session ----------------------------------------------------------------------

    def _find_runtime(self) -> Runtime:
        return self._runtime or default()

    def _question(self, tally: SessionTally) -> Question:
        served = tally.serving
        model, base = served.get("model"), served.get("base_url")
        return Question(model if isinstance(model, str) else None, base or None)

    def _read_history(self, held: Fold, dialect: str, tally: SessionTally) -> tuple[Any, Any]:
        """Return the messages of a request as they were, and the codec that reads them."""
        spoken = registry.find(registry.parse_name(dialect))
        raws = _make_renderer(spoken.name, tally).render(held)
        if spoken.fields.system is None:  # the system text is a message of its own
            raws = [{"role": "system", "content": ""}, *raws]
        codec = self._find_runtime().codec_for(spoken.name)
        return codec.read(raws), codec

    def _list_seqs(self, held: Fold, dialect: str, tally: SessionTally) -> list[int | None]:
        """Return the event where each message begins, None for the operator's message."""
        spoken = registry.find(registry.parse_name(dialect))
        renderer = _make_renderer(spoken.name, tally)
        renderer.render(held)
        return [*([None] if spoken.fields.system is None else []), *renderer.seqs]

    def _find_waste(
        self, name: str, report: Mapping[str, Any], question: Question
    ) -> tuple[Waste, ...]:
        tally = self._tallies[name]
        dialect = str(tally.serving.get("dialect") or registry.DEFAULT)
        held = Session(self._log, name).fold
        history, _ = self._read_history(held, dialect, tally)
        shared = self._find_runtime()
        meter = shared.meter(question, history.rules.dialect)
        prices = shared.windows.prices(question)
        return list_waste(report, history.messages, (), meter, prices)


def _make_renderer(dialect: DialectName, tally: SessionTally) -> Renderer:
    return Renderer(dialect, str(tally.serving.get("model") or ""))
