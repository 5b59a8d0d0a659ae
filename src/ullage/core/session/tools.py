"""A tool in a turn: its definition, the facts about a call, and the outcome.

This module knows neither how tools work nor who may use them.
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

    `reads_only` tools change nothing and may run in parallel; `idempotent` ones may run again after
    a crash. `again` says whether the result can be obtained again (`core.compaction`). `reach` is
    what its calls touch: "private" data and "untrusted" text of others in results, and "outside" if
    they may send something out. Set it for your own tools.
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
    """The facts recorded about a call before it runs; the defaults are for unknown tools."""

    reads_only: bool = False
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The outcome of a call: `text` is what the model gets, bounded.

    `exit_code` is a command's; `marks` are further JSON facts, such as `dry_run`. `plan` holds the
    steps that a plan shows to people. If the tool asked models, `usage` and `dollars` are what they
    used; None dollars are unknown. `reach` is the data it brought in beyond its tool's spec.
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
    """The full effect of a call, for the person who is asked about it.

    `text` is a command, a unified diff, or the arguments. It is as the model wrote it, so the
    program that shows it must make control characters visible. `note` is one more sentence, or
    empty.
    """

    kind: Literal["command", "diff", "arguments"]
    text: str
    note: str = ""


class Pending(Call):
    """A call that waits for a person's decision: its effect and its subject."""

    preview: Preview
    subject: CallSubject

    @classmethod
    def over(cls, call: Call, preview: Preview, subject: CallSubject) -> Pending:
        """Return a call with its preview and subject."""
        made = cls(*call)
        made.preview, made.subject = preview, subject
        return made
