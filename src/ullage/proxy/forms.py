"""Requests and answers of `/ullage/v1`: types that parse them and write the API document.

A field that no type names is refused. The messages have the shape of a dialect, which has no schema
here. The module does not know guards.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from ullage.core.session.recall import LARGEST

LONGEST_MODEL = 1_024
LONGEST_SESSION = 200
SESSION_PATTERN = "^[!-~]([ -~]*[!-~])?$"
MOST_TOKENS = 1_000_000_000
MOST_HITS = 100
LONGEST_TEXT = 10_000

Tokens = Annotated[int, Meta(ge=1, le=MOST_TOKENS)]
Model = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_MODEL,
        pattern=r"^[^\x00-\x1f\x7f]+$",
        description="the model that is called; it says which upstream, and whose window",
    ),
]
Messages = Annotated[
    list[dict[str, Any]],
    Meta(description="the whole history, in the shape of a dialect; the last one is the newest"),
]
Session = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_SESSION,
        pattern=SESSION_PATTERN,
        description="your name for the conversation; also the header x-ullage-session",
    ),
]
Report = Annotated[
    dict[str, Any], Meta(description="the response of the provider, or an object with its `usage`")
]
Position = Annotated[int, Meta(ge=0, le=MOST_TOKENS)]


class Conversed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A conversation as its client would send it to the model."""

    model: Model
    messages: Messages
    tools: Annotated[
        list[dict[str, Any]] | None, Meta(description="definitions of tools, as they are sent")
    ] = None
    system: Annotated[
        str | list[dict[str, Any]] | dict[str, Any] | None,
        Meta(description="the system text, if the dialect keeps it outside the messages"),
    ] = None
    dialect: Annotated[
        str | None,
        Meta(description="the shape of the messages; without it they show it themselves"),
    ] = None
    max_tokens: Annotated[
        Tokens | None, Meta(description="tokens of the answer that are asked for")
    ] = None
    reserve: Annotated[
        Tokens | None,
        Meta(
            description="tokens of output that you will ask for in any case, instead of "
            "max_tokens: they stay free if the model's server insists on them"
        ),
    ] = None
    pins: Annotated[
        list[Position], Meta(description="positions of messages that stay as they are")
    ] = []
    session: Session | None = None
    window: Annotated[
        Tokens | None, Meta(description="the window in tokens, where you know it better")
    ] = None


class ReportedUsage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The usage that the provider reported for the first `messages` of the history, as fitted."""

    messages: Position
    report: Report


class FitRequest(Conversed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make a conversation fit. With `target`, it is always compacted to so many tokens.

    `reported` is learned first: a client that sends it need not call `observe`.
    """

    target: Tokens | None = None
    reported: ReportedUsage | None = None


class ReportedFailure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error answer of the provider, as it came."""

    body: Annotated[Any, Meta(description="the body: the JSON, or its text")]
    status: Annotated[int, Meta(ge=100, le=599)] | None = None


class ObserveRequest(Conversed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Report the outcome of a fitted conversation: the same fields, plus `report` or `error`."""

    report: Report | UnsetType = UNSET
    error: ReportedFailure | UnsetType = UNSET


class CountRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Count messages, or a text: one of the two."""

    model: Model
    messages: Messages | UnsetType = UNSET
    text: str | UnsetType = UNSET
    tools: list[dict[str, Any]] | None = None
    system: str | list[dict[str, Any]] | dict[str, Any] | None = None
    dialect: str | None = None


class WindowRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask for the window of a model."""

    model: Model


class LeftOutRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conversation whose left-out texts are meant: a fitted session, or a history."""

    model: Model
    messages: Messages | None = None
    tools: list[dict[str, Any]] | None = None
    system: str | list[dict[str, Any]] | dict[str, Any] | None = None
    dialect: str | None = None
    session: Session | None = None
    window: Annotated[
        Tokens | None, Meta(description="the window that the history was fitted to, where given")
    ] = None


class RecallRequest(LeftOutRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read a text that was left out, by the reference in its placeholder."""

    reference: Annotated[
        str, Meta(pattern=r"^u:[0-9a-f]{16}$", description="the one in the placeholder")
    ]
    offset: Position = 0
    limit: Annotated[int, Meta(ge=1, le=LARGEST)] = LARGEST


class SearchRequest(LeftOutRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Find words in left-out text."""

    query: Annotated[str, Meta(min_length=1, max_length=LONGEST_TEXT)]
    hits: Annotated[int, Meta(ge=1, le=MOST_HITS)] = 6


# --- answers --------------------------------------------------------------------------------------


class EditStep(Struct, frozen=True, kw_only=True, rename={"stands_for": "for"}):
    """One message to send: your own one at `keep`, or `new`.

    A new one is your message at `edit` with some text replaced, or replaces those at `for`.
    """

    keep: int | UnsetType = UNSET
    new: dict[str, Any] | UnsetType = UNSET
    edit: int | UnsetType = UNSET
    stands_for: list[int] | UnsetType = UNSET


class FittedSizes(Struct, frozen=True, kw_only=True):
    """Tokens: of the given history, of the one to send, and the band around that.

    `outside` is the part of system text and tools; `basis` is the source of the numbers.
    """

    before: int
    after: int
    low: int
    high: int
    outside: int
    basis: Literal["exact", "server", "calibrated", "estimate"]


class GaugeAnswer(Struct, frozen=True, kw_only=True):
    """How full the window is with the messages to send."""

    tier: Literal["none", "advisory", "warning", "critical", "overflow", "unavailable"]
    ratio: float | None
    used: int | None
    window: int | None
    notice: str
    reason: str | None = None


class WindowAnswer(Struct, frozen=True, kw_only=True):
    """Tokens that one request to a model may hold, and the source of the numbers."""

    known: bool
    input_tokens: int | None
    total_tokens: int | None
    output_tokens: int | None
    source: str | None
    proven: bool


class MadeCompaction(Struct, frozen=True, kw_only=True):
    """A compaction: made by this request (`new`), or by an earlier one."""

    strategy: str
    before: int
    after: int
    new: bool
    references: list[str]


class MadeRepair(Struct, frozen=True, kw_only=True):
    """A fault of the history as it came, and its repair."""

    fault: str
    message: int
    detail: str


class CrampedWindow(Struct, frozen=True, kw_only=True):
    """The window is too small for the text that must stay: tokens that stay, and tokens needed."""

    fixed: int
    window: int
    needed: int


class FitAnswer(Struct, frozen=True, kw_only=True):
    """A conversation that fits, as a list and as steps to build it from the client's own objects.

    `fits` is null if the window is unknown. `conversation` is its name on the proxy's pages.
    """

    changed: bool
    messages: list[dict[str, Any]]
    edits: list[EditStep]
    max_tokens: int | None
    fits: bool | None
    dialect: str
    sizes: FittedSizes
    gauge: GaugeAnswer
    window: WindowAnswer
    compaction: MadeCompaction | None
    repairs: list[MadeRepair]
    cramped: CrampedWindow | None
    conversation: str


class ObserveAnswer(Struct, frozen=True, kw_only=True):
    """The lessons of an answer. After an error, `retry` is what to send, or null if nothing helps.

    `kind` is that of the error: `input` and `total` mean that the request was too large.
    """

    kind: str | None
    gauge: GaugeAnswer
    window: WindowAnswer
    retry: FitAnswer | None


class CountAnswer(Struct, frozen=True, kw_only=True):
    """Tokens: the best value, the band around it, and the source of the numbers."""

    tokens: int
    low: int
    high: int
    basis: Literal["exact", "server", "calibrated", "estimate"]


class RecallAnswer(Struct, frozen=True, kw_only=True):
    """A page of a text, in characters; `after` is the offset of the next one."""

    reference: str
    text: str
    offset: int
    total: int
    after: int | None


class FoundPassage(Struct, frozen=True, kw_only=True):
    """A passage: it begins at character `offset` of the text of `reference`."""

    reference: str
    offset: int
    text: str
    score: float


class SearchAnswer(Struct, frozen=True, kw_only=True):
    """The passages that fit best, the best one first."""

    hits: list[FoundPassage]


class ToldError(Struct, frozen=True, kw_only=True):
    """An error: a code for programs, a sentence for people."""

    code: str
    message: str


class ErrorAnswer(Struct, frozen=True, kw_only=True):
    """Any answer that is not a success."""

    error: ToldError
