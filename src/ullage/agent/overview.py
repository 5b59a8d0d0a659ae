"""The overview of a session, built event by event, and continued from a stored one.

It holds numbers and ids, no text of a conversation: in place of a text it has the event's number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Self

from ullage.agent.continuing import read_link
from ullage.agent.totals import Sums
from ullage.core.errors import StoreError
from ullage.core.session.log.erasing import PURGED
from ullage.core.session.log.event import Event, upcast_data

ENDS: Final = frozenset({"turn_completed", "turn_failed", "turn_interrupted"})

Data = Mapping[str, Any]


@dataclass(slots=True)
class Overview:
    """One session up to event `seq`, whose id is `id`; `last` is its time in Unix seconds.

    `turn` is the unfinished turn. `said` is the event of the first text of a person, `served` the
    last event with the model and its workspace, or 0; `erased` is when the text was erased.
    `forked_from`, `parent`, `continues` and `continued_in` name sessions. So does `children`: those
    of subagents, each once.
    """

    seq: int = 0
    id: str = ""
    last: float = 0.0
    turns: int = 0
    turn: str | None = None
    said: int = 0
    served: int = 0
    erased: float | None = None
    forked_from: tuple[str, int] | None = None
    parent: str | None = None
    continues: str | None = None
    continued_in: str | None = None
    children: list[str] = field(default_factory=list)
    sums: Sums = field(default_factory=Sums)

    def take(self, events: Sequence[Event]) -> None:
        """Take in the next events; raises StoreError if they do not follow, or are corrupt.

        After an error the object is useless.
        """
        for event in events[:1]:
            if event.seq != self.seq + 1 or not event.follows(self.id):
                raise StoreError(f"{event} does not follow the events that were read before")
        for event in events:
            step = _STEPS.get(event.type)
            if step is not None:
                step(self, event)
        if events:
            self.seq, self.id, self.last = events[-1].seq, events[-1].id, events[-1].ts

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can carry."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Data) -> Self:
        """Read the data of `to_dict`; raises TypeError or ValueError for anything else."""
        made = cls(**_read_fields(data, cls))
        if made.forked_from is not None:
            made.forked_from = _read_place(made.forked_from)
        made.sums = Sums(**_read_fields(data["sums"], Sums))
        if not all(isinstance(child, str) for child in made.children):
            raise ValueError("its children are no names")
        if not all(isinstance(ratio, int | float) for ratio in made.sums.pressures):
            raise ValueError("its pressures are no numbers")
        return made

    # --- the steps for each type ----------------------------------------------------------------

    def _begin_turn(self, event: Event) -> None:
        data = _read(event)
        self.turns, self.turn = self.turns + 1, data.get("turn")
        self._note_served(event, data)

    def _end_turn(self, _event: Event) -> None:
        self.turn = None

    def _fork(self, event: Event) -> None:
        data = _read(event)
        self.forked_from = (data["parent"], data["seq"])

    def _create(self, event: Event) -> None:
        data = _read(event)
        parent = data.get("parent")
        self.parent = parent if isinstance(parent, str) else None
        self._note_served(event, data)

    def _note_served(self, event: Event, data: Data) -> None:
        if isinstance(data.get("served"), Mapping):
            self.served = event.seq

    def _link(self, event: Event) -> None:
        data, onward = _read(event), read_link(event)
        if onward is not None:
            self.continued_in = onward
        for child in list_children([data]):
            if child not in self.children:
                self.children.append(child)

    def _go_on(self, event: Event) -> None:
        parent = _read(event).get("parent")
        if self.continues is None and isinstance(parent, str):
            self.continues = parent

    def _erase(self, event: Event) -> None:
        self.erased = event.ts

    def _say(self, event: Event) -> None:
        if not self.said and str(_read(event).get("text", "")).strip():
            self.said = event.seq

    def _add(self, event: Event) -> None:
        self.sums.take(event)


_STEPS: Final[Mapping[str, Callable[[Overview, Event], None]]] = {
    "turn_started": Overview._begin_turn,  # noqa: SLF001 - its own
    **dict.fromkeys(ENDS, Overview._end_turn),  # noqa: SLF001
    "session_fork": Overview._fork,  # noqa: SLF001
    "session_created": Overview._create,  # noqa: SLF001
    "subagent_event": Overview._link,  # noqa: SLF001
    "branch_summary": Overview._go_on,  # noqa: SLF001
    PURGED: Overview._erase,  # noqa: SLF001
    "user_message": Overview._say,  # noqa: SLF001
    "provider_usage": Overview._add,  # noqa: SLF001
    "history_compaction": Overview._add,  # noqa: SLF001
}


def list_children(links: Sequence[Data]) -> list[str]:
    """Return the sessions of the subagents that a session began, each once."""
    return list(dict.fromkeys(str(link["child"]) for link in links if link.get("child")))


def _read(event: Event) -> Data:
    return upcast_data(event) or {}


_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "int": (int,),
    "str": (str,),
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "str | None": (str, type(None)),
    "tuple[str, int] | None": (list, tuple, type(None)),
    "list[str]": (list,),
    "list[float]": (list,),
    "Sums": (dict,),
}


def _read_fields(data: Data, kind: type) -> dict[str, Any]:
    """Return the fields of a dataclass; raises TypeError if one is missing or has a wrong type."""
    made: dict[str, Any] = {}
    for entry in fields(kind):
        value = data.get(entry.name, ...)
        if not isinstance(value, _KINDS[str(entry.type)]) or isinstance(value, bool):
            raise TypeError(f"its {entry.name} is {value!r:.60}, not {entry.type}")
        made[entry.name] = value
    return made


def _read_place(value: Sequence[Any]) -> tuple[str, int]:
    name, seq = value
    if not isinstance(name, str) or type(seq) is not int:
        raise ValueError(f"it was forked from {value!r:.60}")
    return name, seq
