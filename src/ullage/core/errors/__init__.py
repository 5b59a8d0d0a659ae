"""The one error tree, sorted by who must act.

::

    UllageError                     everything this package raises on purpose
    +-- ConfigurationError          a setting or argument of the operator or caller cannot work
    +-- ContextWindowUnknown        a number of tokens was required of an unknown window
    +-- ContextTooLargeError        a request does not fit, and cannot be made to fit
    +-- MalformedHistoryError       the messages break the dialect's protocol
    +-- CompactionError             a compaction cannot be configured or started
    +-- ProviderError               a model server cannot be reached, started or understood
    +-- QueueFull                   the queue takes no more jobs
    +-- StoreError                  durable state cannot be read or written
        +-- BusyWriter              another program kept a store locked for too long
        +-- Fenced                  the writer no longer owns its session
        +-- CorruptLog              a log was damaged after it was written
        +-- UnknownSession          the session is not in this log

`ErrorKind` is the meaning of a provider's error. This room knows nothing of the rest of the
package. A message is built from facts: what happened, the value, the limit, the source of the
limit, the likely fix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal


class UllageError(Exception):
    """Root of the errors that this package raises on purpose.

    `code` is a stable identifier for programs; the message is for people.
    """

    code = "ullage_error"

    def __reduce__(self) -> tuple[Callable[..., UllageError], tuple[Any, ...], dict[str, Any]]:
        """Pickle the message and the attributes, whatever the constructor takes."""
        return _restore, (type(self), self.args), vars(self)


def _restore(kind: type[UllageError], args: tuple[Any, ...]) -> UllageError:
    return kind.__new__(kind, *args)


class ConfigurationError(UllageError):
    """Report a setting, argument or installation that cannot work as it is."""

    code = "configuration"


class ContextWindowUnknown(UllageError):  # noqa: N818 - the public name is fixed by the API page
    """Report that a window in tokens was required and is unknown."""

    code = "context_window_unknown"

    def __init__(self, model: str | None, hint: str) -> None:
        self.model = model
        super().__init__(
            f"the context window of {model or 'this model'!s} is unknown: no override, no answer "
            f"from a server, no table row. {hint}"
        )


class ContextTooLargeError(UllageError):
    """Report a request that is over its bound, before it is sent.

    `tokens` is the upper edge of the count, `bound` the most the window admits, both in tokens.
    """

    code = "context_too_large"

    def __init__(self, message: str, *, tokens: int, bound: int) -> None:
        self.tokens = tokens
        self.bound = bound
        super().__init__(message)


class MalformedHistoryError(UllageError):
    """Report messages that break the dialect's protocol.

    `index` is the position of the faulty message, or None if the whole list is at fault.
    """

    code = "malformed_history"

    def __init__(self, message: str, *, index: int | None = None) -> None:
        self.index = index
        super().__init__(message)


class CompactionError(UllageError):
    """Report a compaction that lacks configuration or has an invalid target."""

    code = "compaction"


class ProviderError(UllageError):
    """Report a model server that cannot be reached, started or understood."""

    code = "provider"


class QueueFull(UllageError):  # noqa: N818 - named for what was found, as BusyWriter is
    """Report a job that a queue refused because too many jobs wait there already.

    `waiting` is the number of jobs that wait, `limit` the most that may.
    """

    code = "queue_full"

    def __init__(self, message: str, *, waiting: int, limit: int) -> None:
        self.waiting = waiting
        self.limit = limit
        super().__init__(message)


class StoreError(UllageError):
    """Report durable state that cannot be read or written."""

    code = "store"


class StoreAway(StoreError):  # noqa: N818 - named for what happened
    """Report a store that is temporarily unusable: full, unreachable or failing."""

    code = "store_away"


class BusyWriter(StoreError):  # noqa: N818 - the public name is fixed by the API page
    """Report a store that another program kept locked for longer than we wait."""

    code = "busy_writer"


class Fenced(StoreError):  # noqa: N818 - named for what happened to the writer, as BusyWriter is
    """Report a writer that no longer owns its session, or that is behind its log.

    Nothing was written. The caller must stop, and read the log again before another try.
    """

    code = "fenced"


class CorruptLog(StoreError):  # noqa: N818 - named for what was found
    """Report a log that was damaged or changed after writing; the message names the place."""

    code = "corrupt_log"


class UnknownSession(StoreError):  # noqa: N818 - named for what was asked for
    """Report a session that is not in this log."""

    code = "unknown_session"


Kind = Literal[
    "input",
    "total",
    "output_cap",
    "bytes",
    "media",
    "malformed_history",
    "rate_limit",
    "quota",
    "server_state",
    "other",
]


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """The meaning of an error: `kind`, the limit and the input it names (tokens), and certainty.

    `input` calls for compaction; `total` for a lower `max_tokens` first; `output_cap` for a lower
    `max_tokens` only. A `likely` reading is used only if our own count agrees.
    """

    kind: Kind
    limit: int | None = None
    input_tokens: int | None = None
    certainty: Literal["certain", "likely"] = "certain"
    about: Literal["thinking", "binding", "alternation"] | None = None
    """The fault in a malformed history, if known: reasoning that was left out, reasoning that is
    bound to other text, or roles that do not take turns.
    """
    structured: bool = field(default=False, compare=False)
    """True if a code or a field gave the meaning, not only a sentence."""
    said: str = field(default="", compare=False, repr=False)
    """The words of the error."""
    output_tokens: int | None = field(default=None, compare=False)
    """The requested output, if the refusal names it."""
