"""The fullness of a window by the last report, for quick readers of files and status lines.

Unknown numbers are None, with the reason. This module loads nothing: every prompt of a shell draws
a line from it.
"""

from __future__ import annotations

from typing import NamedTuple


class Fullness(NamedTuple):
    """The last report of a session.

    `tokens` is the size of the prompt, `cached` the part of it from a cache, `window` the bound,
    all in tokens. `origin` says where the window comes from: reported, table or assumed. `share` is
    the fullness from 0 to 1 if only that was reported. `compacts_at` is the expected size of the
    next compaction, in tokens. `reason` says why `tokens` is None.
    """

    source: str = ""
    session: str | None = None
    model: str | None = None
    tokens: int | None = None
    window: int | None = None
    origin: str = ""
    cached: int | None = None
    share: float | None = None
    compacts_at: int | None = None
    dollars: float | None = None
    reason: str = ""

    @property
    def ratio(self) -> float | None:
        """The used share of the window, None if unknown; above 1 if it is over."""
        if self.tokens is not None and self.window:
            return self.tokens / self.window
        return self.share


class CallLine(NamedTuple):
    """One line that reports the fullness of the window, or a compaction (`tokens` None)."""

    tokens: int | None
    cached: int | None = None
    output: int = 0
    window: int | None = None
    model: str | None = None
    session: str | None = None
    key: str = ""
    """The key that two lines of one call share."""
    provider: str = ""
    """The provider of the call, if reported."""


def read_count(value: object) -> int | None:
    """Return a number of tokens, None for any other value."""
    return value if type(value) is int and 0 <= value < 10**12 else None
