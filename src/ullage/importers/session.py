"""What is read out of a session file, whoever wrote it.

Values only. Nothing here knows a file format, a window that the file does not state, or how
tokens are counted: what a file does not say is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError

NOT_IN_FILE: Final = "not in the file: the first report less what was counted"
"""What to say of the tokens that stood in every request and in no message of the file."""


class NoMessages(ConfigurationError):  # noqa: N818 - named for what was not found
    """Report a file without messages."""

    code = "no_messages"


class BrokenJson(NoMessages):
    """Report a file that began as JSON and breaks off, naming line and column."""

    code = "broken_json"


@dataclass(frozen=True, slots=True)
class CallReport:
    """What the provider reported for one call; None where it is missing or malformed, never 0."""

    usage: Usage | None = None
    tokens: int | None = None
    """The size of the prompt."""

    @classmethod
    def of(cls, usage: Usage | None) -> CallReport:
        """Return the report of a call; a prompt of no tokens is a report of nothing."""
        return cls(usage, usage.prompt_tokens or None) if usage is not None else cls()

    @property
    def size(self) -> int:
        """Everything that was reported, in tokens: of two reports of one call the larger holds."""
        usage = self.usage
        return usage.prompt_tokens + usage.output + usage.reasoning if usage is not None else -1


@dataclass(frozen=True, slots=True)
class PaidCall:
    """A call that the session paid for, of abandoned branches too.

    `answer` holds the raw messages that it came back with, without what is sealed; `final` tells
    whether its report was made when the answer was whole.
    """

    usage: Usage | None
    model: str | None = None
    answer: tuple[Any, ...] = ()
    final: bool = True


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One model call; `session.messages[start:stop]` stood in its window, the answer not yet.

    `number` counts from 1, `tokens` is the reported size of that prompt (None: unknown), `at` the
    time as it is written in the file, `compacted` tells of a compaction since the turn before.
    `call` is its place among the session's own calls, None for what another session paid.
    """

    number: int
    start: int
    stop: int
    tokens: int | None = None
    usage: Usage | None = None
    model: str | None = None
    at: str | None = None
    compacted: bool = False
    call: int | None = None


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """A conversation as its file tells it.

    `source` is who wrote the file: claude, codex, opencode, chat, responses or anthropic.
    `messages` are raw messages of `dialect`, every one that stood in the window of this branch, in
    order; the current window is `messages[start:]`. What a compaction kept stands there once more.

    `tokens` is what the provider last reported of the current window and `messages[start:covered]`
    is what that report is about; later messages came since. `window_tokens` is there only where
    the file states it. `summaries` are positions of compaction summaries. `spent` is what the
    session's own calls used altogether, as reported: a ledger, never the size of a window. `calls`
    are those calls, each once. `dollars` is there only where the program says what
    they cost.

    `providers` are who may have served it, by the table's names: its program's own, or None where
    the model's name alone tells. `apart` says which tokens stand in every request and not in the
    file, `dropped` the rows of a report that the model's template leaves out. `project` is the
    folder it worked in, `title` what it is called, `at` its last time.
    """

    source: str
    dialect: str
    messages: tuple[Any, ...]
    turns: tuple[ModelTurn, ...] = ()
    start: int = 0
    system: Any = None
    tools: tuple[Any, ...] = ()
    max_tokens: int | None = None
    model: str | None = None
    window_tokens: int | None = None
    tokens: int | None = None
    covered: int | None = None
    id: str | None = None
    path: str = ""
    summaries: tuple[int, ...] = ()
    spent: Usage | None = None
    dollars: float | None = None
    calls: tuple[PaidCall, ...] = ()
    providers: tuple[str, ...] | None = None
    apart: str = ""
    dropped: frozenset[str] = frozenset()
    project: str | None = None
    title: str | None = None
    at: str | None = None
    unread: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Kinds of lines and items that were not understood, counted."""
    warnings: tuple[str, ...] = ()
    envelope: Mapping[str, Any] | None = None
    """The one request that the file is, as it is parsed; None where it is a list, lines or logs."""
    inside: tuple[str, ...] = ()
    """The keys that lead to the messages in the envelope."""

    def rebuild(self, messages: Sequence[Any]) -> Any:
        """Return the file's value with other messages: the request as it was, else a list.

        A request's text that stands for one message stays text while the message is the same.
        """
        listed = list(messages)
        if self.envelope is None or listed == self.current:
            return listed if self.envelope is None else self.envelope
        return _replace_at(self.envelope, self.inside, listed)

    @property
    def current(self) -> list[Any]:
        """The messages that stand in the window now."""
        return list(self.messages[self.start :])


def _replace_at(fields: Mapping[str, Any], keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return a copy of an object with another value behind a path of keys."""
    first, *rest = keys
    return {**fields, first: _replace_at(fields[first], tuple(rest), value) if rest else value}


def total(usages: Sequence[Usage]) -> Usage | None:
    """Return the sum of reports, or None where there is none."""
    if not usages:
        return None
    return Usage(
        sum(u.input for u in usages),
        sum(u.cache_read for u in usages),
        sum(u.cache_write for u in usages),
        sum(u.output for u in usages),
        sum(u.reasoning for u in usages),
    )


def words(value: Any) -> str | None:
    """Return text that says something, and None for anything else."""
    return value if isinstance(value, str) and value else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return an object, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, as in `1 line` and `2 lines`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
