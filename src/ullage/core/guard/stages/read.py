"""The first stage: read the caller's messages, and repair what arrived broken.

It yields no needs, and knows neither sizes nor windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ullage.core.compaction import mending
from ullage.core.compaction import pins as pinned
from ullage.core.compaction.checkpoint import chain
from ullage.core.errors import ConfigurationError, MalformedHistoryError
from ullage.core.messages.readings import limit_memo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.core.compaction.mending import Mended, Repair
    from ullage.core.guard.request import Request, Setup
    from ullage.core.messages.transcript import Raw, Transcript


@dataclass(frozen=True, slots=True)
class Read:
    """A history that was read and repaired, with what the request says of its messages.

    `prefixes` are its chain hashes. `pins` and `sections` are the request's, by positions in the
    repaired history; `wanted` has the caller's own position of each pin, `origin` that of each
    message, None for one that a repair wrote, and is empty where nothing was repaired.
    """

    history: Transcript
    prefixes: tuple[str, ...]
    repairs: tuple[Repair, ...] = ()
    wanted: Mapping[int, int] = field(default_factory=dict)
    sections: Mapping[int, str] = field(default_factory=dict)
    origin: tuple[int | None, ...] = ()

    def find_origin(self, edited: Sequence[int | None]) -> tuple[int | None, ...]:
        """Return where messages arrived that stand at these positions of the repaired history."""
        if not self.origin:
            return tuple(edited)
        return tuple(None if place is None else self.origin[place] for place in edited)

    @property
    def whole(self) -> str:
        """The chain hash of the whole history, "" for an empty one."""
        return self.prefixes[-1] if self.prefixes else ""

    @property
    def task_link(self) -> str:
        """The chain hash up to the task, or of the first message, "" for an empty history."""
        return self.prefixes[self.history.task() or 0] if self.prefixes else ""

    @property
    def pins(self) -> frozenset[int]:
        """The positions of the pinned messages."""
        return frozenset(self.wanted)


@dataclass(frozen=True, slots=True)
class Apart:
    """What was derived of a history under rules of a setup: a memo in that of the codec's own."""

    memo: dict[str, Any]

    def keep_before(self, place: int) -> Apart:
        """Return what still holds where messages from `place` on are written otherwise."""
        return Apart(limit_memo(self.memo, place))


def check_request(request: Request) -> None:
    """Raise ConfigurationError for pins, sections and max_tokens that cannot be."""
    size = len(request.messages) if hasattr(request.messages, "__len__") else 0
    pinned.read_pins(request.pins, size)
    if request.sections:
        from ullage.core.tokens import sections

        sections.check_marks(request.sections, size)
    asked = request.max_tokens
    if asked is not None and (type(asked) is not int or asked < 1):
        raise ConfigurationError(f"max_tokens must be a positive number of tokens, not {asked!r}")


def read_request(setup: Setup, request: Request) -> Read:
    """Read and repair a request's history; find its pins and sections in what was repaired.

    Raises MalformedHistoryError for what cannot be read, and ConfigurationError for a pin on a
    message that a repair had to change.
    """
    history, mended = read_history(setup, request.messages)
    pinned.check_mended(request.pins, mended, request.messages)
    return Read(
        history,
        chain(history),
        mended.repairs,
        _map_marked(dict.fromkeys(request.pins), mended),
        {new: request.sections[old] for new, old in _map_marked(request.sections, mended).items()},
        mended.origin if mended.repairs else (),
    )


LOST_MOST: Final = 0.1
"""The share of results that a repair which nobody asked for may leave out, or one. Where more have
no call, the calls stand where we do not see them: on the server, or in texts. Our choice."""


def lend_repairs(setup: Setup, request: Request) -> Setup:
    """Return the setup with repairs where a history is broken that it leaves so, and repairable.

    It is where a repair loses next to nothing: few results, none that the model has not answered
    yet, and no pin. Raises MalformedHistoryError for what cannot be read.
    """
    if setup.repairs:
        return setup
    arrived = _read(setup, request.messages)
    mended = mending.repair(arrived, setup.codec)
    if not mended.repairs:
        return setup
    messages = arrived.messages
    answered = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=0)
    lost = [r.message for r in mended.repairs if r.fault in ("orphan_result", "duplicate_result")]
    if lost and max(lost) > answered:
        return setup
    if len(lost) > max(1, LOST_MOST * sum(len(m.results) for m in messages)):
        return setup
    try:
        pinned.check_mended(request.pins, mended, request.messages)
    except MalformedHistoryError:
        return setup
    return replace(setup, repairs=True)


def read_history(setup: Setup, messages: Sequence[Raw]) -> tuple[Transcript, Mended]:
    """Return messages as they are read after repair, and the record of the repair."""
    arrived = _read(setup, messages)
    mended = mending.repair(arrived, setup.codec) if setup.repairs else mending.skip_repair(arrived)
    return (_read(setup, mended.messages) if mended.repairs else arrived), mended


def _map_marked(marked: Mapping[int, object], mended: Mended) -> dict[int, int]:
    """Return where marked messages stand after repair, and where they arrived."""
    if not marked:
        return {}
    return {new: old for new, old in enumerate(mended.origin) if old is not None and old in marked}


def _read(setup: Setup, messages: Sequence[Raw]) -> Transcript:
    """Read messages under the rules of the setup; what these made of them is kept apart."""
    found = setup.codec.read(messages)
    bound = setup.bound and found.rules.signed
    if not (setup.loops or bound):
        return found
    key = f"rules {setup.loops} {bound}"
    memo = dict(found.memo.get(key, (0, Apart({})))[1].memo)
    found.memo[key] = (len(found), Apart(memo))
    return replace(found, rules=replace(found.rules, loops=setup.loops, bound=bound), memo=memo)
