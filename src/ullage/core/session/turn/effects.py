"""The effects of a turn, and the possible answers to them: plain values.

Effects are orders; each docstring says what to send back. Nothing here decides anything.
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
    """Append these events in one piece, then apply them to the fold; send anything."""

    drafts: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make the next request: rendered, repaired, compacted if due, checked.

    Send `Ready`, or `NotReady` if it cannot be sent.
    """


@dataclass(frozen=True, slots=True)
class Send:
    """Send the prepared request and report what arrives; send back `Heard` or `Failed`."""


@dataclass(frozen=True, slots=True)
class Recover:
    """Make another request after a failure; send `Ready`, or None if that does not help."""

    failed: Failed


@dataclass(frozen=True, slots=True)
class Look:
    """Send the known facts about these calls before they run: one `Intent` each."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Decide:
    """Send the `Decision` on a call under the turn's posture."""

    call: Call


@dataclass(frozen=True, slots=True)
class Rehearse:
    """Find out the effect of a call; send a `Pending`, or the `ToolOutcome` if it must fail.

    Nothing is changed.
    """

    call: Call


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a person whether a call may run; send a `Consent`, or None if nobody can answer."""

    call: Pending
    reason: str


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run these calls, in parallel if there are several; send a `ToolOutcome` for each.

    `keys` are their idempotency keys, `left` is the rest of the turn's budget for them. The right
    to write is checked just before.
    """

    calls: tuple[Call, ...]
    keys: tuple[str, ...]
    left: TurnBudget | None = None


Effect = Record | Prepare | Send | Recover | Look | Decide | Rehearse | Ask | RunTools

# ── answers ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Ready:
    """A request may be sent: its highest cost including the answer; None dollars are unknown."""

    tokens: int = 0
    dollars: float | None = None


@dataclass(frozen=True, slots=True)
class NotReady:
    """No request can be sent."""

    reason: Literal["context_overflow", "malformed_history"]
    text: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A whole answer of the model, and its cost.

    `context` holds the fullness of the window and the state to keep, recorded with the usage;
    `beside` are events that are recorded in the same append.
    """

    reply: Reply
    dollars: float | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[Draft, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed call of the model.

    `lost` is a broken connection, `stalled` one that sent nothing for too long. `partial` is the
    text that had arrived; `called` says that part of a tool call had.
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
    """A turn to be run.

    If `text` is None, it continues the turn that was cut off, or tries the turn `again` (its id)
    again. `served` is the data for finding the model at a later start, recorded with the turn's
    start. `max_iterations` limits the calls of the model; None means no limit. `commands` are
    suggestions for people after an unclear failure.
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
    """The end of a turn: `text` is the answer, whole or as far as it came.

    If the turn failed, `reason` names the cause: iteration_cap, permission_denied,
    context_overflow, malformed_history, provider_error, stalled, no_answer, budget, crashed,
    interrupted. `error` explains it to people. `rounds` is the number of answered calls of the
    model; `usage` is their sum, `delegated` that of subagents; `dollars` is the price of both, or
    None if unknown. `stop` says why the model stopped; `length` means that the answer was cut off.
    `continued` names the session to continue in, if the policy began a new one.
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
        """True if there is an answer."""
        return self.outcome == "completed"


class Interrupted(Exception):  # noqa: N818 - thrown into a turn; it is no error
    """Thrown into a turn to end it; `partial` is the text that had arrived."""

    def __init__(self, partial: str = "") -> None:
        self.partial = partial
        super().__init__("the turn was interrupted")


class Crashed(Exception):  # noqa: N818 - named for what happened to the driver
    """Thrown into a turn whose driver failed; `text` explains the failure."""

    def __init__(self, text: str, partial: str = "") -> None:
        self.text = text
        self.partial = partial
        super().__init__(text)


Turning = Generator[Effect, Any, Ended]

DIED: Final = "the process ended before it was done"
