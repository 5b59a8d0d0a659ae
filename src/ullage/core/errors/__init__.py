"""The one error tree, sorted by who must act.

::

    UllageError                     everything this package raises on purpose
    +-- ConfigurationError          the operator or caller asked for something that cannot be
    +-- ContextWindowUnknown        a number of tokens was demanded of an unknown window
    +-- ContextTooLargeError        a request does not fit, and cannot be made to fit
    +-- MalformedHistoryError       the messages break the dialect's protocol
    +-- CompactionError             compaction was asked for and cannot be configured or started
    +-- ProviderError               a model server cannot be reached, started or understood
    +-- QueueFull                   a job more than a queue takes
    +-- StoreError                  durable state cannot be read or written
        +-- BusyWriter              another program kept a store locked for longer than we wait
        +-- Fenced                  a writer that is not its session's writer any more
        +-- CorruptLog              a log that cannot be what was written
        +-- UnknownSession          a session that is not in this log

`ErrorKind` is what a provider's error was read as. This room knows nothing of the rest of the
package. A message is built from facts: what happened, the
value, the limit, who said the limit, the likely fix.
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
        """Pickle the message and the facts beside it, whatever the constructor takes."""
        return _restore, (type(self), self.args), vars(self)


def _restore(kind: type[UllageError], args: tuple[Any, ...]) -> UllageError:
    return kind.__new__(kind, *args)


class ConfigurationError(UllageError):
    """Report a setting, argument or installation that cannot work as it is."""

    code = "configuration"


class ContextWindowUnknown(UllageError):  # noqa: N818 - the public name is fixed by the API page
    """Report that a window in tokens was demanded where nothing is known about it."""

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

    `index` is the position of the offending message, or None when the whole list is at fault.
    """

    code = "malformed_history"

    def __init__(self, message: str, *, index: int | None = None) -> None:
        self.index = index
        super().__init__(message)


class CompactionError(UllageError):
    """Report a compaction that lacks configuration or was given a senseless target."""

    code = "compaction"


class ProviderError(UllageError):
    """Report a model server that cannot be reached, started or understood."""

    code = "provider"


class QueueFull(UllageError):  # noqa: N818 - named for what was found, as BusyWriter is
    """Report a job that a queue did not take, since too many wait there already.

    `waiting` are those that wait, `limit` the most that may.
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
    """Report a store that cannot be used now and may be again soon: full, unreachable, failing."""

    code = "store_away"


class BusyWriter(StoreError):  # noqa: N818 - the public name is fixed by the API page
    """Report a store that another program kept locked for longer than we wait."""

    code = "busy_writer"


class Fenced(StoreError):  # noqa: N818 - named for what happened to the writer, as BusyWriter is
    """Report a writer that is not the writer of its session any more, or is behind its log.

    Nothing was written. Whoever meets it must stop, and read the log anew before another try.
    """

    code = "fenced"


class CorruptLog(StoreError):  # noqa: N818 - named for what was found
    """Report a log that cannot be what was written, naming the place."""

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
    """What an error means: `kind`, the limit and the input it names (tokens), and how sure.

    `input` asks to compact; `total` to lower `max_tokens` first; `output_cap` to lower it and
    leave the window alone. A `likely` reading is acted on only when our own count agrees.
    """

    kind: Kind
    limit: int | None = None
    input_tokens: int | None = None
    certainty: Literal["certain", "likely"] = "certain"
    about: Literal["thinking", "binding", "alternation"] | None = None
    """What of a malformed history is at fault, where it is known: reasoning that was left out, or
    roles that do not take turns."""
    structured: bool = field(default=False, compare=False)
    """Whether a code or a field said it, and not a sentence alone."""
    said: str = field(default="", compare=False, repr=False)
    """The words that said it."""
    output_tokens: int | None = field(default=None, compare=False)
    """The output that was asked for, where the refusal names it."""
