"""The contents of a session file, for every program.

Values only. Nothing here knows a file format, a window that the file does not state, or how tokens
are counted. Facts that are not in the file are None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError

NOT_IN_FILE: Final = "not in the file: the first report less what was counted"
"""Description of the tokens that were in every request but in no message of the file."""


class NoMessages(ConfigurationError):  # noqa: N818 - named for the condition
    """Report a file without messages."""

    code = "no_messages"


class BrokenJson(NoMessages):
    """Report a file that began as JSON and breaks off; the message names line and column."""

    code = "broken_json"


@dataclass(frozen=True, slots=True)
class CallReport:
    """The provider's report on one call, or None if it is missing or malformed, never 0."""

    usage: Usage | None = None
    tokens: int | None = None
    """The size of the prompt."""

    @classmethod
    def of(cls, usage: Usage | None) -> CallReport:
        """Return the report of a call; a prompt of 0 tokens counts as unknown."""
        return cls(usage, usage.prompt_tokens or None) if usage is not None else cls()

    @property
    def size(self) -> int:
        """All reported tokens; the larger of two reports on one call holds."""
        usage = self.usage
        return usage.prompt_tokens + usage.output + usage.reasoning if usage is not None else -1


@dataclass(frozen=True, slots=True)
class PaidCall:
    """A call that the session paid for, including abandoned branches.

    `answer` holds the raw messages of its answer, without encrypted parts. `final` means that the
    report came with the whole answer.
    """

    usage: Usage | None
    model: str | None = None
    answer: tuple[Any, ...] = ()
    final: bool = True


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One model call; its window held `session.messages[start:stop]`, without the answer.

    `number` counts from 1. `tokens` is the reported size of that prompt (None: unknown). `at` is
    the time as written in the file. `compacted` means that a compaction happened since the last
    turn. `call` is its position among the session's own calls, or None if another session paid
    for it.
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
    """A conversation as its file records it.

    `source` is the program that wrote the file: claude, codex, opencode, chat, responses or
    anthropic. `messages` are raw messages of `dialect`: all that were in the window of this branch,
    in order. The current window is `messages[start:]`. Messages that a compaction kept appear
    again.

    `tokens` is the provider's last report on the current window, for `messages[start:covered]`;
    later messages followed it. `window_tokens` is only set if the file states it. `summaries` are
    positions of compaction summaries. `spent` is the total usage of the session's own calls, as
    reported: a ledger, not the size of a window. `calls` are those calls, each once. `dollars` is
    only set if the program records the cost.

    `providers` are those that may have served it, by the table's names: its program's own, or None
    if only the model's name is known. `apart` describes the tokens that are in every request but
    not in the file, `dropped` the rows of a report that the model's template leaves out. `project`
    is the folder it worked in, `title` its title, `at` its last time.
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
    """Counts of the kinds of lines and items that were not understood."""
    warnings: tuple[str, ...] = ()
    envelope: Mapping[str, Any] | None = None
    """The request that is the whole file, as parsed, or None if the file is a list, lines or
    logs."""
    inside: tuple[str, ...] = ()
    """The keys that lead to the messages in the envelope."""

    def rebuild(self, messages: Sequence[Any]) -> Any:
        """Return the file's value with other messages: the request, or else a list.

        The text of a request with one message stays text if the message is unchanged.
        """
        listed = list(messages)
        if self.envelope is None or listed == self.current:
            return listed if self.envelope is None else self.envelope
        return _replace_at(self.envelope, self.inside, listed)

    @property
    def current(self) -> list[Any]:
        """The messages in the current window."""
        return list(self.messages[self.start :])


def _replace_at(fields: Mapping[str, Any], keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return a copy of an object with another value at a path of keys."""
    first, *rest = keys
    return {**fields, first: _replace_at(fields[first], tuple(rest), value) if rest else value}


def total(usages: Sequence[Usage]) -> Usage | None:
    """Return the sum of reports, or None without reports."""
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
    """Return non-empty text, or None for anything else."""
    return value if isinstance(value, str) and value else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return an object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, as in `1 line` and `2 lines`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
