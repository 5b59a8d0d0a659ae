"""The state of a session, derived from its events one by one: history, checkpoints, open calls.

The history is neutral: a person's messages, and rounds. A round is one answer of the model with its
calls and their results. Usage, failures, decisions and partial answers are not part of it. This
module knows no store and no dialect. The renderer decides which reasoning a model may see.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.dialects.usage import Usage
from ullage.core.errors import StoreError
from ullage.core.session.log.event import UPCASTS, VERSION, Draft, Event, Upcasts, upcast_data
from ullage.core.session.reach import Holdings, Reach, list_reach, name_call

Data = Mapping[str, Any]

ORPHAN: Final = "orphan_tool_call"
"""The first word of the result that is written for a call without one."""


class User(NamedTuple):
    """A person's message; `parts` is its content in addition to the text."""

    seq: int
    text: str
    parts: Sequence[Data] = ()


class FailedUser(NamedTuple):
    """A person's message in a turn that failed without any result; it is sent to no model.

    If a later turn tries that turn again, it becomes a `User` again.
    """

    seq: int
    text: str
    parts: Sequence[Data] = ()


class Thought(NamedTuple):
    """Reasoning of a round: `data` as recorded, sent back only to the same model."""

    seq: int
    model: str
    data: Data


class Result(NamedTuple):
    """The result of a call."""

    seq: int
    text: str
    is_error: bool
    data: Data


class LoggedCall(NamedTuple):
    """A tool call of the model; `result` is None before the result arrives."""

    seq: int
    call_id: str
    name: str
    arguments: str
    data: Data
    result: Result | None = None

    @property
    def idempotent(self) -> bool:
        """True if it may run a second time."""
        return self.data.get("idempotent") is True


class Round(NamedTuple):
    """One answer of a model: reasoning, text and calls with their results, in that order.

    `texts` has more than one entry if the model wrote text several times in it.
    """

    seq: int
    model: str
    texts: tuple[str, ...] = ()
    reasoning: tuple[Thought, ...] = ()
    calls: tuple[LoggedCall, ...] = ()

    @property
    def sent(self) -> bool:
        """True if it is sent to models: reasoning without text or calls is not."""
        return bool(self.texts or self.calls)

    def thoughts(self, model: str) -> tuple[Thought, ...]:
        """Return the reasoning that this model may see: its own."""
        return tuple(thought for thought in self.reasoning if thought.model == model)


class Branch(NamedTuple):
    """A summary of an abandoned branch, or of the session that this one continues.

    `link` has the other data of its event; a `block` is rendered unchanged.
    """

    seq: int
    text: str
    link: Data = MappingProxyType({})


class ActivatedSkill(NamedTuple):
    """A skill that was activated, by name and hash."""

    seq: int
    name: str
    hash: str


class Restored(NamedTuple):
    """Files of a turn that a person restored: `data` names them."""

    seq: int
    data: Data


Item = User | FailedUser | Round | Branch | ActivatedSkill | Restored

STATES: Final = 64
"""Number of recent requests whose guard state is kept, for going back to them."""

DIED: Final = "process_died"
"""The reason of a turn whose process ended: its text was not the cause, and is sent again."""


class Turn(NamedTuple):
    """A turn that began, with the data of its start."""

    seq: int
    turn: str
    data: Data


class Fold:
    """The state after the applied events; each further event costs the same.

    `items` is the history. `checkpoints` are the valid ones; `compactions` are the data of all
    their events, including those that undid one. `head` is the seq of the last event, `session` its
    session, `text_bytes` the UTF-8 size of the JSON text of all events. `skills` are hashes by
    name, in the order of activation. `created` and `forked` are the data of these events. `served`
    names the model of the last turn and its server. `strays` are results without an open call,
    `unknown` are events that this program does not know; both stay in the log. `holdings` names the
    private data and strangers' text that came in, with their sources. `pins` are the seqs of events
    whose messages a person pinned; no compaction touches them. `turns` are the ids of all turns.
    `links` are the recorded data about sessions that this one started. `files` are seq, type and
    data of file changes. `states` has the latest guard states.
    """

    def __init__(self, upcasts: Upcasts = UPCASTS, current: int = VERSION) -> None:
        self.session = ""
        self.head = 0
        self.text_bytes = 0
        self.items: list[Item] = []
        self.checkpoints: list[tuple[int, Data]] = []
        self.compactions: list[Data] = []
        self.skills: dict[str, str] = {}
        self.pins: set[int] = set()
        self.created: Data = {}
        self.forked: Data = {}
        self.served: Data = {}
        self.turns: list[str] = []
        self.links: list[Data] = []
        self.files: list[tuple[int, str, Data]] = []
        self._holdings = Holdings()
        self.strays: list[int] = []
        self.unknown: list[int] = []
        self._upcasts = upcasts
        self._current = current
        self._states: deque[Event] = deque(maxlen=STATES)
        self._report: Event | None = None  # parsed on demand, as most are never needed
        self._begun: Event | None = None
        self._lost: Event | None = None  # the start of the last turn, if that has no answer
        self._asked: list[int] = []  # the items that the turn answers
        self._left: list[int] = []  # those of the last turn
        self._round: int | None = None  # the item that calls and text still belong to
        self._number: object = None  # the round number that its events name, if any
        self._open: dict[int, tuple[int, int]] = {}  # seq of a call: item, place in it
        self._waiting: dict[str, list[int]] = {}  # call id: seqs of open calls, oldest first
        # Types without a step change nothing for a model or a turn.
        self._steps: Mapping[str, Callable[[Event], None]] = {
            "user_message": self._user,
            "assistant_message": self._apply_answer,
            "reasoning": self._apply_reasoning,
            "tool_call": self._apply_call,
            "tool_result": self._apply_result,
            "provider_usage": self._apply_usage,
            "context_state": self._states.append,
            "history_compaction": self._apply_compaction,
            "turn_started": self._apply_start,
            "turn_completed": self._apply_end,
            "turn_failed": self._apply_failure,
            "turn_interrupted": self._break_off,
            "branch_summary": self._apply_branch,
            "skill_activation": self._apply_skill,
            "message_pinned": self._apply_pin,
            "snapshot_taken": self._apply_files,
            "file_changes": self._apply_files,
            "files_restored": self._apply_restore,
            "session_created": self._apply_creation,
            "session_fork": self._apply_fork,
            "subagent_event": self._apply_link,
        }

    def apply(self, event: Event) -> None:
        """Apply the next event; raises StoreError, changing nothing, if it is not the next one."""
        if event.seq != self.head + 1 or (self.session and event.session_id != self.session):
            raise StoreError(
                f"event {event.seq} of session {event.session_id} does not follow event "
                f"{self.head} of session {self.session or event.session_id}"
            )
        step = self._steps.get(event.type)
        if step is not None and event.v <= self._current:
            step(event)  # may refuse corrupt data, before it changes anything
        elif not event.known:
            self.unknown.append(event.seq)
        self.head, self.session = event.seq, event.session_id
        self.text_bytes += event.text_bytes

    def extend(self, events: Iterable[Event]) -> Fold:
        """Apply events, one after the other; return this fold."""
        for event in events:
            self.apply(event)
        return self

    @property
    def usage(self) -> tuple[Usage, str] | None:
        """The last report of usage and its model, or None if it has no prompt tokens."""
        if self._report is None:
            return None
        data = self._data(self._report)
        buckets = [data.get(name, 0) for name in Usage.__slots__]
        if "input" not in data or any(type(tokens) is not int for tokens in buckets):
            return None
        return Usage(*buckets), data["model"]

    @property
    def states(self) -> Iterator[Data]:
        """The states of the guard for the last `STATES` requests, the newest first."""
        for event in reversed(self._states):
            state = self._data(event).get("state")
            if isinstance(state, Mapping):
                yield state

    @property
    def turn(self) -> Turn | None:
        """The current turn, or None; after a crash it is still set."""
        return self._turn(self._begun)

    @property
    def unanswered(self) -> Turn | None:
        """The last turn if it failed or was interrupted and may be tried again; else None."""
        return self._turn(self._lost)

    @property
    def holdings(self) -> Mapping[Reach, str]:
        """The kinds of data in the session with their first sources: see `core.session.reach`."""
        return self._holdings.sources

    @property
    def is_spared(self) -> bool:
        """True if the last compaction was undone: then only an oversized history is compacted."""
        return bool(self.compactions) and self.compactions[-1].get("undone") is True

    @property
    def open_calls(self) -> list[LoggedCall]:
        """Calls without a result, oldest first."""
        return [self._call(*place) for place in self._open.values()]

    def is_sent(self, seq: int) -> bool:
        """Tell whether the item of an event is sent to models."""
        at = bisect_right(self.items, seq, key=lambda item: item.seq) - 1
        item = self.items[at] if at >= 0 else None
        return not (item is None or isinstance(item, FailedUser)) and getattr(item, "sent", True)

    def checkpoint(self) -> Checkpoint | None:
        """Return the latest checkpoint; raises StoreError if it cannot be read."""
        return Checkpoint.from_dict(self.checkpoints[-1][1]) if self.checkpoints else None

    def repairs(self, reason: str) -> list[Draft]:
        """Return error results for the calls without a result; needed before the next turn."""
        return [make_orphan_result(call, reason) for call in self.open_calls]

    def _turn(self, begun: Event | None) -> Turn | None:
        if begun is None:
            return None
        data = self._data(begun)
        return Turn(begun.seq, data["turn"], data)

    def _data(self, event: Event) -> Data:
        data = upcast_data(event, self._upcasts, self._current)
        assert data is not None  # noqa: S101 - only known events have steps
        return data

    def _call(self, item: int, place: int) -> LoggedCall:
        return self._at(item).calls[place]

    def _at(self, item: int) -> Round:
        found = self.items[item]
        assert isinstance(found, Round)  # noqa: S101 - only rounds are noted
        return found

    def _append(self, item: Item) -> None:
        self._round = None
        self.items.append(item)

    def _answering(self, seq: int, data: Data, *, speaks: bool = True) -> int:
        """Return the item of the round that an event belongs to; start a new one if needed.

        A round ends with the next report of usage, a user message or the turn. If no usage is
        reported, it ends when events name another round number, or when the model writes text after
        its calls.
        """
        number = data.get("round")
        held = self._round
        if held is not None and number == self._number and not (speaks and self._at(held).calls):
            return held
        self._number, self._lost = number, None
        self.items.append(Round(seq, data.get("model", "")))
        self._round = begun = len(self.items) - 1
        return begun

    # --- one method per type --------------------------------------------------------------------

    def _user(self, event: Event) -> None:
        seq, data = event.seq, self._data(event)
        parts = data.get("parts") or ()
        self._append(User(seq, data["text"], parts))
        self._holdings.add_message(data["text"], parts)
        self._asked.append(len(self.items) - 1)

    def _apply_answer(self, event: Event) -> None:
        seq, data = event.seq, self._data(event)
        if data.get("partial") is True:
            return
        item = self._answering(seq, data)
        held = self._at(item)
        texts = (*held.texts, data["text"])
        self.items[item] = Round(held.seq, data["model"], texts, held.reasoning, held.calls)

    def _apply_reasoning(self, event: Event) -> None:
        seq, data = event.seq, self._data(event)
        item = self._answering(seq, data)
        held = self._at(item)
        thought = Thought(seq, data["model"], data)
        reasoning = (*held.reasoning, thought)
        self.items[item] = Round(held.seq, held.model, held.texts, reasoning, held.calls)

    def _apply_call(self, event: Event) -> None:
        seq, data = event.seq, self._data(event)
        item = self._answering(seq, data, speaks=False)
        held = self._at(item)
        call = LoggedCall(seq, data["call_id"], data["name"], data["arguments"], data)
        calls = (*held.calls, call)
        self.items[item] = Round(held.seq, held.model, held.texts, held.reasoning, calls)
        self._open[seq] = (item, len(held.calls))
        self._waiting.setdefault(call.call_id, []).append(seq)

    def _apply_result(self, event: Event) -> None:
        """Give the oldest open call of this id its result, in its own round, however late."""
        seq, data = event.seq, self._data(event)
        waiting = self._waiting.get(data["call_id"])
        if not waiting:
            self.strays.append(seq)
            return
        item, place = self._open.pop(waiting.pop(0))
        if not waiting:
            del self._waiting[data["call_id"]]
        held = self._at(item)
        asked = held.calls[place]
        self._holdings.add(list_reach(data), name_call(asked.name, asked.arguments))
        result = Result(seq, data["text"], data.get("is_error") is True, data)
        calls = list(held.calls)
        calls[place] = LoggedCall(*asked[:-1], result)
        self.items[item] = Round(held.seq, held.model, held.texts, held.reasoning, tuple(calls))

    def _apply_usage(self, event: Event) -> None:
        self._round = None
        self._report = event
        self._states.append(event)

    def _apply_compaction(self, event: Event) -> None:
        seq, data = event.seq, self._data(event)
        self.compactions.append(data)
        key, measured = _read_checkpoint_key(data["checkpoint"]), data.get("measured") is True
        held = [_read_checkpoint_key(found) for _, found in self.checkpoints]
        same = [i for i, found in enumerate(held) if found == key]
        if measured and same:
            self.checkpoints[same[-1]] = (self.checkpoints[same[-1]][0], data["checkpoint"])
        elif data.get("undone") is True:
            self.checkpoints = [h for i, h in enumerate(self.checkpoints) if i not in same]
        elif not measured:  # a checkpoint that was undone meanwhile stays undone
            self.checkpoints.append((seq, data["checkpoint"]))

    def _apply_start(self, event: Event) -> None:
        """Begin a turn; a retry of the last turn also answers that turn's messages."""
        data = self._data(event)
        again, served = data.get("again"), data.get("served")
        if isinstance(served, Mapping):
            self.served = served
        lost = self.unanswered
        if lost is not None and again == lost.turn:
            self._asked = self._left + self._asked
            for index in self._left:
                self.items[index] = User(*self.items[index][:3])
        self._round = self._lost = None
        self._begun = event
        self.turns.append(data["turn"])

    def _apply_end(self, _event: Event) -> None:
        self._round = self._begun = self._lost = None
        self._asked, self._left = [], self._asked

    def _break_off(self, event: Event) -> None:
        begun = self._begun
        self._apply_end(event)
        self._lost = begun

    def _apply_failure(self, event: Event) -> None:
        """End a turn; if it had no result, its messages are not sent to models."""
        kept = self._data(event)["reason"] == DIED or self._begun is None
        behind = self.items[self._asked[0] :] if self._asked else ()
        self._break_off(event)
        if not kept and not any(isinstance(item, Round) and item.sent for item in behind):
            for index in self._left:
                self.items[index] = FailedUser(*self.items[index][:3])

    def _apply_branch(self, event: Event) -> None:
        seq, data = event.seq, self._data(event)
        self._append(Branch(seq, data["text"], {k: v for k, v in data.items() if k != "text"}))

    def _apply_skill(self, event: Event) -> None:
        seq, data = event.seq, self._data(event)
        self._append(ActivatedSkill(seq, data["name"], data["hash"]))
        self.skills[data["name"]] = data["hash"]

    def _apply_pin(self, event: Event) -> None:
        data = self._data(event)
        if data.get("pinned") is False:
            self.pins.discard(data["seq"])
        else:
            self.pins.add(data["seq"])

    def _apply_creation(self, event: Event) -> None:
        self.created = self._data(event)
        served = self.created.get("served")
        if isinstance(served, Mapping):
            self.served = served
        self._holdings.add(list_reach(self.created), "the session that this one goes on from")

    def _apply_files(self, event: Event) -> None:
        self.files.append((event.seq, event.type, self._data(event)))

    def _apply_restore(self, event: Event) -> None:
        self._apply_files(event)
        self._append(Restored(event.seq, self._data(event)))

    def _apply_fork(self, event: Event) -> None:
        self.forked = self._data(event)

    def _apply_link(self, event: Event) -> None:
        self.links.append(self._data(event))


def _read_checkpoint_key(checkpoint: Data) -> tuple[Any, ...]:
    return tuple(checkpoint.get(name) for name in ("prefix", "generation"))


def fold(events: Iterable[Event], upto: int | None = None) -> Fold:
    """Return the state of a session at seq `upto`; later events are ignored."""
    if upto is None:
        return Fold().extend(events)
    return Fold().extend(event for event in events if event.seq <= upto)


def make_orphan_result(call: LoggedCall, reason: str) -> Draft:
    """Return the error result for a call without a result, with the reason."""
    text = f"{ORPHAN}: {call.name} has no result ({reason}); whether it ran is unknown"
    return Draft(
        "tool_result",
        {"call_id": call.call_id, "text": text, "is_error": True, "marks": {ORPHAN: reason}},
    )
