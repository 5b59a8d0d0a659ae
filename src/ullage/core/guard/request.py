"""One exchange with a model, as values: what is asked for, what may be sent, what is needed for it.

A guard's machine yields the needs and is sent their answers. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects.families import NO_LIMITS
from ullage.core.guard.learned import NOTHING, calibrate_meter
from ullage.core.values.frozen import replace

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ullage.core.compaction.checkpoint import Checkpoint, Trigger
    from ullage.core.compaction.plan import Outcome
    from ullage.core.compaction.policy import Policy
    from ullage.core.dialects.families import Law, RequestLimits
    from ullage.core.dialects.server_edits import ServerEdits
    from ullage.core.errors import ErrorKind
    from ullage.core.guard.conversation import Conversation
    from ullage.core.guard.events import Event
    from ullage.core.guard.learned import Learned
    from ullage.core.messages.transcript import Codec, DialectName, Raw, Transcript
    from ullage.core.summary.question import SummaryRequest
    from ullage.core.tokens.budget import Cramped
    from ullage.core.tokens.calibration import ReportedSize
    from ullage.core.tokens.claim import Claim
    from ullage.core.tokens.cost import Price
    from ullage.core.tokens.counting import Count, Measure, Meter
    from ullage.core.tokens.gauge import Assessment
    from ullage.core.tokens.window import Window


@dataclass(frozen=True, slots=True)
class NeedWindow:
    """Send the Window of the model.

    `evidence` is what was just learned of it, `reading` the size that a refusal told; or None.
    """

    evidence: Claim | None = None
    reading: ReportedSize | None = None


@dataclass(frozen=True, slots=True)
class NeedTrial:
    """Send whether a request over a learned bound may be tried: not where one just was."""


@dataclass(frozen=True, slots=True)
class NeedServerCount:
    """Send the server's own count of this request in tokens, or None where it offers none."""

    messages: list[Raw]
    tools: Any = None
    system: Any = None
    dialect: DialectName = ""


@dataclass(frozen=True, slots=True)
class NeedSummaries:
    """Send the summariser's answer to each request, None for one that failed.

    They may be asked at the same time. `dialect` is that of the conversation.
    """

    requests: tuple[SummaryRequest, ...]
    dialect: DialectName


@dataclass(frozen=True, slots=True)
class NeedNative:
    """Have the provider compact these messages; send the message that stands for them, or None."""

    messages: list[Raw]
    tools: Any
    system: Any
    dialect: DialectName


@dataclass(frozen=True, slots=True)
class NeedSummariserWindow:
    """Send the tokens that a request to the summariser may take, or None where it is unknown."""


@dataclass(frozen=True, slots=True)
class NeedLoad:
    """Send the stored checkpoint with the first of these prefix hashes that has one, or None."""

    scope: str
    prefixes: tuple[str, ...]


OPENING: Final = 2
"""Messages of a conversation that begins: a system text, and what a person says."""


@dataclass(frozen=True, slots=True)
class NeedRecall:
    """Send what is remembered under the first of these prefix hashes with something, or None.

    `next` is what will most likely be needed then: a driver may look for it meanwhile.
    """

    scope: str
    prefixes: tuple[str, ...]
    next: NeedLoad | None = None


@dataclass(frozen=True, slots=True)
class NeedKeep:
    """Keep these texts, by the names under which placeholders refer to them; send anything."""

    originals: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NeedSave:
    """Store the checkpoint unless there is one; send the one that is stored."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class NeedUndo:
    """Take this checkpoint away; send whether it was there."""

    checkpoint: Checkpoint


Need = (
    NeedWindow
    | NeedTrial
    | NeedServerCount
    | NeedSummaries
    | NeedNative
    | NeedSummariserWindow
    | NeedLoad
    | NeedRecall
    | NeedKeep
    | NeedSave
    | NeedUndo
)
Preparing = Generator[Need, Any, "Prepared"]


@dataclass(frozen=True, slots=True)
class Setup:
    """What stays the same from request to request.

    `scope` keeps upstreams and credentials apart; `model` besides what was reported: another
    model's report is no size of this one's prompt. `learned` is what the process knows of it.
    `shares` are those of the window's sections (`core.tokens.budget.allocate`), None without a
    budget. `summariser` says that there is one, `background` that summaries may be made beside
    the conversation, `keeps` that a store keeps originals. `loops` makes whole tool loops units,
    `bound` leaves out signed reasoning that stands behind an edit. `prices` are the model's, `now`
    is the time in seconds. Without `repairs` a broken history stays as it is; without `refuses`
    what cannot fit is handed out all the same, as small as it lawfully gets. With `tries` a request
    over a learned bound is sent now and then, as a trial. `alternates` says that the server's chat
    template wants user and assistant to take turns. `limits` are what the provider takes beside
    tokens.
    """

    codec: Codec
    meter: Meter
    policy: Policy
    scope: str = ""
    model: str = ""
    strict: bool = False
    summariser: bool = False
    shares: Mapping[str, float] | None = None
    background: bool = False
    keeps: bool = False
    loops: bool = False
    bound: bool = False
    prices: tuple[Price, ...] = ()
    now: float = 0.0
    repairs: bool = True
    refuses: bool = True
    tries: bool = True
    alternates: bool = False
    limits: RequestLimits = NO_LIMITS
    learned: Learned = NOTHING

    @property
    def checkpoint_scope(self) -> str:
        """The scope of checkpoints: models with other laws do not take each other's.

        Those of a model without whole loops cut through them, those of one whose reasoning is not
        bound leave it in.
        """
        return f"{self.scope}{'|loops' * self.loops}{'|bound' * self.bound}"

    @property
    def conversation_scope(self) -> str:
        """The scope of what is remembered from call to call, whatever laws were learned since."""
        return f"{self.scope}|{self.model}"

    def with_laws(self, laws: Collection[Law]) -> Setup:
        """Return the setup for a model with these laws."""
        if not laws:
            return self
        return replace(
            self,
            loops=self.loops or "whole_loops" in laws,
            bound=self.bound or "bound_thinking" in laws,
            alternates=self.alternates or "alternation" in laws,
        )

    def with_learned(self, other: Learned) -> Setup:
        """Return the setup with what a conversation remembers of the model besides."""
        learned = self.learned.merge(other)
        if learned is self.learned:
            return self
        meter = calibrate_meter(self.meter, learned.calibration)
        return replace(self.with_laws(learned.laws), meter=meter, learned=learned)


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the caller would send it.

    `system` is the text that stands beside the messages, `apart` the same as the caller has it.
    `pins` are positions in `messages`; `sections` names the section of the budget that messages
    belong to, by position: those not named are conversation, operator text is system prompt.
    `trigger` is why the caller wants it prepared, where the pressure is not the reason;
    `server_edits` what the provider is asked to leave out by itself. `beside` are its other fields,
    where they are known: a refusal may quote them. `reserve` are tokens of output that whoever
    sends asks for where `max_tokens` is not said: they cannot be lowered here. `reserves_all` tells
    that the server refuses a prompt that leaves no room for them; others answer as far as they get.
    """

    messages: Sequence[Raw]
    tools: Any = None
    system: str | None = None
    max_tokens: int | None = None
    pins: frozenset[int] = frozenset()
    sections: Mapping[int, str] = field(default_factory=dict)
    apart: Any = None
    trigger: Trigger | None = None
    server_edits: ServerEdits | None = None
    beside: Any = None
    reserve: int = 0
    reserves_all: bool = False

    def doubt(self, kind: ErrorKind) -> ErrorKind:
        """Return what a refusal of this request means, whose words it may itself have brought."""
        from ullage.core.dialects.overflow import doubt_quoted

        beside = (self.tools, self.apart, self.system, self.beside)
        return doubt_quoted(kind, [*self.messages, *beside])


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that may be sent, and everything that was found out on the way.

    `sent` is the transcript of `messages`, `measured` and `count` are its size. `outcome` and
    `checkpoint` are those of a compaction made for this request; a replayed checkpoint is in
    `replayed`. `conversation` is what to remember until the next call. `ahead` tells that a
    summary is wanted in the background, `cramped` that the window is too small for what must stay.
    Where the server `alternates`, messages of `sent` may share one of `messages`. `origin` has the
    position at which each message of `sent` arrived, None for one that was written. `task_link` is
    the chain hash of what arrived up to the task, by which a conversation is known again.
    """

    messages: list[Raw]
    max_tokens: int | None
    window: Window
    sent: Transcript
    measured: Measure
    count: Count
    assessment: Assessment
    conversation: Conversation
    outcome: Outcome | None = None
    checkpoint: Checkpoint | None = None
    replayed: Checkpoint | None = None
    ahead: bool = False
    cramped: Cramped | None = None
    has_tools: bool = False
    alternates: bool = False
    events: tuple[Event, ...] = ()
    origin: tuple[int | None, ...] = ()
    task_link: str = ""
