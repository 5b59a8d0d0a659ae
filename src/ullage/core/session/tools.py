"""What a tool is to a turn: how it is offered, what may be said of a call, what it came to.

It knows neither how tools work nor who may use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from ullage.core.errors import ConfigurationError
from ullage.core.messages.transcript import Call
from ullage.core.session.reach import Reach

if TYPE_CHECKING:
    from ullage.core.compaction.traits import Trait
    from ullage.core.dialects.usage import Usage
    from ullage.core.session.permissions import CallSubject


@dataclass(frozen=True, slots=True)
class Spec:
    """A tool as it is offered to a model; `parameters` is a JSON schema of an object.

    `reads_only` tools change nothing and may run side by side; `idempotent` ones may run a second
    time after a crash. `again` says whether the result can be had again (`core.compaction`).
    `reach` is what its calls touch: "private" data and "untrusted" text of others in results, and
    whether they may send something "outside"; a tool of yours says so itself.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    reads_only: bool = False
    idempotent: bool = False
    again: Trait = "again"
    reach: frozenset[Reach] = frozenset()

    def __post_init__(self) -> None:
        unknown = set(self.reach) - set(get_args(Reach))
        if unknown:
            raise ConfigurationError(
                f"the reach of the tool {self.name} is {self.reach!r:.80}: give a set of "
                f"{', '.join(get_args(Reach))}"
            )
        object.__setattr__(self, "reach", frozenset(self.reach))


class Intent(NamedTuple):
    """What is recorded of a call before it runs; nothing is assumed of unknown tools."""

    reads_only: bool = False
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call came to: `text` is what the model is shown, bounded.

    `exit_code` is a command's; `marks` are further facts that JSON can carry, such as `dry_run`.
    `plan` are the steps that a plan shows to people. `usage` and `dollars` are what models used
    on the way, where the tool asked some; None dollars are unknown. `reach` is what it brought in
    beyond what its tool's spec says.
    """

    text: str
    is_error: bool = False
    exit_code: int | None = None
    marks: Mapping[str, Any] = field(default_factory=dict)
    plan: tuple[Mapping[str, Any], ...] | None = None
    usage: Usage | None = None
    dollars: float | None = None
    reach: frozenset[Reach] = frozenset()


@dataclass(frozen=True, slots=True)
class Preview:
    """What a call would do, whole, for the person who is asked about it.

    `text` is a command, a unified diff, or the arguments; it is as the model wrote it, so that
    whoever shows it makes control characters visible. `note` is one more sentence, or nothing.
    """

    kind: Literal["command", "diff", "arguments"]
    text: str
    note: str = ""


class Pending(Call):
    """A call that waits for a person's word: what it would do, and what it is about."""

    preview: Preview
    subject: CallSubject

    @classmethod
    def over(cls, call: Call, preview: Preview, subject: CallSubject) -> Pending:
        """Return a call with what a person is shown of it."""
        made = cls(*call)
        made.preview, made.subject = preview, subject
        return made
