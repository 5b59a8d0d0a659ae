"""A summary of a proxy's work for a client: requests, compactions, tokens, failures.

The figures come from the proxy's ledger, meters, watch, and request lines. They hold no text of a
conversation.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ullage.core.tokens.gauge import short

if TYPE_CHECKING:
    from ullage.proxy.app import App
    from ullage.proxy.journal import RequestLine

MOST: Final = 3
"""Most failures, and warnings, that are listed; the others are counted."""

LONGEST: Final = 300
"""Most characters of one of them."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The proxy's figures.

    `left_out` are tokens that compactions removed. `fitted` are requests that were too large for
    their window and were sent smaller, `recovered` those that a server first refused and then
    accepted. `used` of `window` is the last size of the largest conversation, `dollars` the price
    of the reported usage, or None if no price is known.
    """

    requests: int
    conversations: int
    compactions: int
    left_out: int
    fitted: int
    recovered: int
    used: int | None
    window: int | None
    fullest: float | None
    dollars: float | None


class EndListener(logging.Handler):
    """Keeps messages for the end, so that nothing is drawn over a client's screen."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: Counter[tuple[int, str, str]] = Counter()
        self.warnings: Counter[str] = Counter()
        self.fitted = 0
        self.fullest: float | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record in."""
        line: RequestLine | None = getattr(record, "request", None)
        if line is None:
            if record.levelno >= logging.WARNING:
                self.warnings[record.getMessage()[:LONGEST]] += 1
            return
        if line.status >= 400 and not line.left:
            why = line.why or line.code
            self.failures[line.status, f"{line.method} {line.path}", why[:LONGEST]] += 1
        if line.before is not None and line.window and line.before > line.window:
            self.fitted += 1
        if line.share is not None:
            self.fullest = max(self.fullest or 0.0, line.share)

    def is_missing(self, path: str) -> bool:
        """Tell whether a server answered that it has no such path."""
        return any(status in (404, 405) and path in asked for status, asked, _ in self.failures)


def add_up(app: App, heard: EndListener) -> RunFigures:
    """Return the figures of a proxy so far."""
    entries, rows = app.ledger.all(), app.watch.feed.list_rows()
    paid = [row.dollars for row in rows if row.dollars is not None]
    # Rows have the reported sizes of prompts; without pages there are no rows.
    sizes = [(one.used or 0, one.window) for one in rows or entries]
    used, window = max(sizes, key=lambda size: size[0], default=(0, None))
    shares = [heard.fullest or 0.0, used / window if window else 0.0]
    return RunFigures(
        requests=sum(one.requests for one in entries),
        conversations=len(entries),
        compactions=sum(one.compactions for one in entries),
        left_out=sum(one.saved for one in entries),
        fitted=heard.fitted,
        recovered=int(app.meters.recoveries.value(outcome="recovered") or 0),
        used=used or None,
        window=window,
        fullest=max(shares) or None,
        dollars=sum(paid) if paid else None,
    )


def write_receipt(found: RunFigures, *, observed: bool = False) -> Iterator[str]:
    """Yield the receipt, line by line."""
    if not found.requests:
        return
    parts = [
        _count(found.requests, "request"),
        f"in {_count(found.conversations, 'conversation')}",
    ]
    yield f"ullage: {' '.join(parts)}, {_count(found.compactions, 'compaction')}" + (
        " (observed only: nothing was changed)" if observed else ""
    )
    if found.compactions:
        yield f"  {found.left_out:,} tokens left out by compactions"
    if found.fitted:
        yield f"  {_count(found.fitted, 'request')} too large for the window, and sent smaller"
    if found.recovered:
        yield f"  {_count(found.recovered, 'request')} refused as too large, and then taken"
    if found.used is not None:
        window = short(found.window) if found.window else "unknown"
        full = f", {found.used / found.window:.0%}" if found.window else ""
        most = f"; at most {found.fullest:.0%}" if found.fullest is not None else ""
        yield f"  window {window}: {short(found.used)} tokens used at last{full}{most}"
    if found.dollars is not None:
        yield f"  ${found.dollars:,.4f} by the reports, at list prices"


def write_failures(heard: EndListener) -> Iterator[str]:
    """Yield the requests that failed, the most frequent first."""
    for (status, asked, why), times in heard.failures.most_common(MOST):
        yield f"  {_times(times)}{asked}: {status}{f', {why}' if why else ''}"
    if len(heard.failures) > MOST:
        yield f"  and {_count(len(heard.failures) - MOST, 'other failure')}"


def write_warnings(heard: EndListener) -> Iterator[str]:
    """Yield the warnings of the proxy."""
    for text, times in heard.warnings.most_common(MOST):
        yield f"  {_times(times)}{text}"
    if len(heard.warnings) > MOST:
        yield f"  and {_count(len(heard.warnings) - MOST, 'other warning')}"


def _times(number: int) -> str:
    return f"{number} times " if number > 1 else ""


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
