"""One exchange with a model, as values: the request, its prepared form, and the needs in between.

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

    `evidence` is a new claim about it, `reading` the size that a refusal named; each may be None.
    """

    evidence: Claim | None = None
    reading: ReportedSize | None = None


@dataclass(frozen=True, slots=True)
class NeedTrial:
    """Send whether a request over a learned bound may be tried; not soon after another trial."""


@dataclass(frozen=True, slots=True)
class NeedServerCount:
    """Send the server's own count of this request in tokens, or None if it cannot count."""

    messages: list[Raw]
    tools: Any = None
    system: Any = None
    dialect: DialectName = ""


@dataclass(frozen=True, slots=True)
class NeedSummaries:
    """Send the summariser's answer to each request, or None for one that failed.

    They may be asked at the same time. `dialect` is that of the conversation.
    """

    requests: tuple[SummaryRequest, ...]
    dialect: DialectName


@dataclass(frozen=True, slots=True)
class NeedNative:
    """Have the provider compact these messages; send the message that replaces them, or None."""

    messages: list[Raw]
    tools: Any
    system: Any
    dialect: DialectName


@dataclass(frozen=True, slots=True)
class NeedSummariserWindow:
    """Send the tokens that a request to the summariser may take, or None if unknown."""


@dataclass(frozen=True, slots=True)
class NeedLoad:
    """Send the stored checkpoint of the first of these prefix hashes that has one, or None."""

    scope: str
    prefixes: tuple[str, ...]


OPENING: Final = 2
"""Messages of a new conversation: a system text and a user message."""


@dataclass(frozen=True, slots=True)
class NeedRecall:
    """Send the conversation stored under the first of these prefix hashes that has one, or None.

    `next` is the most likely next need; a driver may start on it early.
    """

    scope: str
    prefixes: tuple[str, ...]
    next: NeedLoad | None = None


@dataclass(frozen=True, slots=True)
class NeedKeep:
    """Store these texts under the names by which placeholders refer to them; send anything."""

    originals: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NeedSave:
    """Store the checkpoint unless one is stored already; send the stored one."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class NeedUndo:
    """Remove this checkpoint; send whether it existed."""

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
    """The values that stay the same from request to request.

    `scope` separates upstreams and credentials. `model` also separates reported sizes, which apply
    only to one model. `learned` holds the process's lessons about it. `shares` are those of the
    window's sections (`core.tokens.budget.allocate`), or None without a budget. `summariser` says
    that there is one, `background` that summaries may be made in the background, `keeps` that a
    store keeps originals. `loops` makes whole tool loops units. `bound` leaves out signed reasoning
    after an edit. `prices` are the model's. `now` is the time in seconds. Without `repairs` a
    broken history stays as it is. Without `refuses` a request that cannot fit is returned all the
    same, as small as the laws allow. With `tries` a request over a learned bound is sent now and
    then, as a trial. `alternates` says that the server's chat template wants user and assistant to
    take turns. `limits` are the provider's limits apart from tokens.
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
        """The scope of checkpoints: models with different laws do not share them.

        Checkpoints made without whole loops may cut a loop; those made without bound reasoning
        leave the reasoning in.
        """
        return f"{self.scope}{'|loops' * self.loops}{'|bound' * self.bound}"

    @property
    def conversation_scope(self) -> str:
        """The scope of the conversation state, independent of the laws that were learned."""
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
        """Return the setup with the additional lessons that a conversation carries."""
        learned = self.learned.merge(other)
        if learned is self.learned:
            return self
        meter = calibrate_meter(self.meter, learned.calibration)
        return replace(self.with_laws(learned.laws), meter=meter, learned=learned)


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the caller would send it.

    `system` is the text of the separate system prompt, `apart` the same in the caller's form.
    `pins` are positions in `messages`. `sections` names the budget section of messages, by
    position; other messages are conversation, and operator text is system prompt. `trigger` is the
    reason for the request if it is not pressure. `server_edits` is what the provider is asked to
    leave out itself. `beside` holds the other fields, if known: a refusal may quote them. `reserve`
    is the output in tokens that the sender asks for if `max_tokens` is not given; it cannot be
    lowered here. `reserves_all` says that the server refuses a prompt without room for it; other
    servers answer as far as they get.
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
        """Return the meaning of a refusal of this request, whose own words it may quote."""
        from ullage.core.dialects.overflow import doubt_quoted

        beside = (self.tools, self.apart, self.system, self.beside)
        return doubt_quoted(kind, [*self.messages, *beside])


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that may be sent, and everything learned while preparing it.

    `sent` is the transcript of `messages`; `measured` and `count` are its size. `outcome` and
    `checkpoint` belong to a compaction made for this request; `replayed` is a checkpoint that was
    applied again. `conversation` is the state to keep until the next call. `ahead` says that a
    summary is wanted in the background, `cramped` that the window is too small for what must stay.
    If the server `alternates`, several messages of `sent` may be joined in one of `messages`.
    `origin` has the original position of each message of `sent`, or None for a new one. `task_link`
    is the chain hash of the original messages up to the task, which identifies the conversation.
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
