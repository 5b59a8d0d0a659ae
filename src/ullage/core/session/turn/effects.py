"""What a turn asks of the outside, and what it may hear in answer: plain values.

Effects are orders; each says what is to be sent back for it. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from ullage.core.dialects.usage import Usage

if TYPE_CHECKING:
    from ullage.core.dialects.reply import Reply
    from ullage.core.errors import ErrorKind
    from ullage.core.messages.transcript import Call
    from ullage.core.session.log.event import Draft
    from ullage.core.session.permissions import Mode, Permission
    from ullage.core.session.skills import Skill
    from ullage.core.session.tools import Pending
    from ullage.core.tokens.budget import TurnBudget

# ── orders ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Record:
    """Append these events in one piece, then take them into the fold; send anything."""

    drafts: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make the next request: rendered, repaired, compacted where due, checked.

    Send `Ready`, or `NotReady` where it cannot be sent.
    """


@dataclass(frozen=True, slots=True)
class Send:
    """Send the request that is ready, telling what comes in; send `Heard` or `Failed`."""


@dataclass(frozen=True, slots=True)
class Recover:
    """Make another request after a failure; send `Ready`, or None where that is no help."""

    failed: Failed


@dataclass(frozen=True, slots=True)
class Look:
    """Send what is known of these calls before they run: an `Intent` each."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Decide:
    """Send the `Decision` on a call under the turn's posture."""

    call: Call


@dataclass(frozen=True, slots=True)
class Rehearse:
    """Find out what a call would do; send it as `Pending`, or the `Outcome` of one that must fail.

    Nothing is changed.
    """

    call: Call


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a person whether a call may run; send a `Consent`, None where nobody is there."""

    call: Pending
    reason: str


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run these calls, side by side where there are several; send an `Outcome` each.

    `keys` are their idempotency keys, `left` is what the turn's budget has for them. The right to
    write is checked right before.
    """

    calls: tuple[Call, ...]
    keys: tuple[str, ...]
    left: TurnBudget | None = None


Effect = Record | Prepare | Send | Recover | Look | Decide | Rehearse | Ask | RunTools

# ── answers ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Ready:
    """A request may be sent: what it costs at most, its answer included; None is unknown."""

    tokens: int = 0
    dollars: float | None = None


@dataclass(frozen=True, slots=True)
class NotReady:
    """No request can be sent."""

    reason: Literal["context_overflow", "malformed_history"]
    text: str


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer of the model, whole, and what it cost.

    `context` is how full the window was and what is to be remembered, recorded with the usage;
    `beside` are events that are recorded in the same append.
    """

    reply: Reply
    dollars: float | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[Draft, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed call of the model.

    `lost` is a connection that broke, `stalled` one that fell silent, `partial` the text that had
    come by then; `called` tells that some of a tool call had.
    """

    text: str
    kind: ErrorKind
    status: int | None = None
    lost: bool = False
    stalled: bool = False
    partial: str = ""
    called: bool = False


# ── a turn ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TurnOrder:
    """A turn that is to be run.

    `text` None goes on with the turn that was cut off, or tries the turn `again` (its id) again.
    `served` is what a later start needs to find the model, recorded with the turn's start.
    `max_iterations` bounds the calls of the model, None does not. `commands` are for people,
    after an end that nobody understands.
    """

    turn: str
    model: str
    dialect: str
    text: str | None = None
    parts: tuple[Mapping[str, Any], ...] = ()
    mode: Mode = "build"
    permission: Permission = "auto"
    dry_run: bool = False
    max_iterations: int | None = None
    skills: tuple[Skill, ...] = ()
    budget: TurnBudget | None = None
    commands: tuple[str, ...] = ()
    again: str = ""
    served: Mapping[str, Any] = field(default_factory=dict)


EndKind = Literal["completed", "failed", "interrupted"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a turn ended: `text` is the answer, whole or as far as it came.

    `reason` names why it is no success: iteration_cap, permission_denied, context_overflow,
    malformed_history, provider_error, stalled, no_answer, budget, crashed, interrupted. `error`
    says it to people. `rounds` are calls of the model that were answered; `usage` is their sum,
    `delegated` that of subagents; `dollars` is the price of both, None where it is unknown.
    `stop` is why the model stopped; `length` is an answer that was cut off. `continued` names the
    session to go on in, where the policy began a new one.
    """

    turn: str
    outcome: EndKind
    text: str = ""
    reason: str = ""
    error: str = ""
    rounds: int = 0
    usage: Usage = field(default=Usage(0))
    stop: str = ""
    continued: str = ""
    delegated: Usage = field(default=Usage(0))
    dollars: float | None = None

    @property
    def ok(self) -> bool:
        """Whether there is an answer."""
        return self.outcome == "completed"


class Interrupted(Exception):  # noqa: N818 - thrown into a turn; it is no error
    """Thrown into a turn to end it; `partial` is the text that had come."""

    def __init__(self, partial: str = "") -> None:
        self.partial = partial
        super().__init__("the turn was interrupted")


class Crashed(Exception):  # noqa: N818 - named for what happened to the driver
    """Thrown into a turn whose driver failed; `text` says how."""

    def __init__(self, text: str, partial: str = "") -> None:
        self.text = text
        self.partial = partial
        super().__init__(text)


Turning = Generator[Effect, Any, Ended]

DIED: Final = "the process ended before it was done"
