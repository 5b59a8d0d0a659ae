"""The first stage: read the caller's messages, and repair a broken history.

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
    """A history that was read and repaired, with the request's marks on its messages.

    `prefixes` are its chain hashes. `pins` and `sections` are the request's, by positions in the
    repaired history. `wanted` has the caller's own position of each pin. `origin` has that of each
    message, or None for one that a repair wrote; it is empty if nothing was repaired.
    """

    history: Transcript
    prefixes: tuple[str, ...]
    repairs: tuple[Repair, ...] = ()
    wanted: Mapping[int, int] = field(default_factory=dict)
    sections: Mapping[int, str] = field(default_factory=dict)
    origin: tuple[int | None, ...] = ()

    def find_origin(self, edited: Sequence[int | None]) -> tuple[int | None, ...]:
        """Return the original positions of messages at positions of the repaired history."""
        if not self.origin:
            return tuple(edited)
        return tuple(None if place is None else self.origin[place] for place in edited)

    @property
    def whole(self) -> str:
        """The chain hash of the whole history, or "" for an empty one."""
        return self.prefixes[-1] if self.prefixes else ""

    @property
    def task_link(self) -> str:
        """The chain hash up to the task, or of the first message; "" for an empty history."""
        return self.prefixes[self.history.task() or 0] if self.prefixes else ""

    @property
    def pins(self) -> frozenset[int]:
        """The positions of the pinned messages."""
        return frozenset(self.wanted)


@dataclass(frozen=True, slots=True)
class Apart:
    """Values derived from a history under a setup's rules: a memo inside the codec's own memo."""

    memo: dict[str, Any]

    def keep_before(self, place: int) -> Apart:
        """Return the values that stay valid if messages from `place` on are changed."""
        return Apart(limit_memo(self.memo, place))


def check_request(request: Request) -> None:
    """Raise ConfigurationError for impossible pins, sections and max_tokens."""
    size = len(request.messages) if hasattr(request.messages, "__len__") else 0
    pinned.read_pins(request.pins, size)
    if request.sections:
        from ullage.core.tokens import sections

        sections.check_marks(request.sections, size)
    asked = request.max_tokens
    if asked is not None and (type(asked) is not int or asked < 1):
        raise ConfigurationError(f"max_tokens must be a positive number of tokens, not {asked!r}")


def read_request(setup: Setup, request: Request) -> Read:
    """Read and repair a request's history; map its pins and sections to the repaired history.

    Raises MalformedHistoryError for an unreadable history, and ConfigurationError for a pin on a
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
"""Largest share of results that an unrequested repair may leave out, or one result. If more have no
call, the calls are somewhere we do not see: on the server, or in texts. Our choice.
"""


def lend_repairs(setup: Setup, request: Request) -> Setup:
    """Return the setup with repairs switched on if the history is broken and repairable.

    The repair must lose almost nothing: few results, none that the model has not answered yet, and
    no pin. Raises MalformedHistoryError for an unreadable history.
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
    """Return the messages as read after repair, and the record of the repair."""
    arrived = _read(setup, messages)
    mended = mending.repair(arrived, setup.codec) if setup.repairs else mending.skip_repair(arrived)
    return (_read(setup, mended.messages) if mended.repairs else arrived), mended


def _map_marked(marked: Mapping[int, object], mended: Mended) -> dict[int, int]:
    """Return the positions of marked messages after repair, mapped to their original ones."""
    if not marked:
        return {}
    return {new: old for new, old in enumerate(mended.origin) if old is not None and old in marked}


def _read(setup: Setup, messages: Sequence[Raw]) -> Transcript:
    """Read messages under the rules of the setup, with a separate memo for these rules."""
    found = setup.codec.read(messages)
    bound = setup.bound and found.rules.signed
    if not (setup.loops or bound):
        return found
    key = f"rules {setup.loops} {bound}"
    memo = dict(found.memo.get(key, (0, Apart({})))[1].memo)
    found.memo[key] = (len(found), Apart(memo))
    return replace(found, rules=replace(found.rules, loops=setup.loops, bound=bound), memo=memo)
