"""How full a window was by the last report, as short readers of files and status lines have it.

What nobody said is None, with the reason. It loads nothing: a line that is drawn at every prompt
is made of it.
"""

from __future__ import annotations

from typing import NamedTuple


class Fullness(NamedTuple):
    """The last report of a session.

    `tokens` is the size of the prompt, `cached` how many of them came from a cache, `window` the
    bound, all in tokens; `origin` says who told the window: reported, table or assumed. `share` is
    how full it is from 0 to 1 where only that was told. `compacts_at` is where the next compaction
    is to be expected, in tokens. `reason` says why `tokens` is None.
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
        """How full the window is, None where it is unknown; above 1 where it is over."""
        if self.tokens is not None and self.window:
            return self.tokens / self.window
        return self.share


class CallLine(NamedTuple):
    """One line that says how full the window is, or that it was compacted (`tokens` None)."""

    tokens: int | None
    cached: int | None = None
    output: int = 0
    window: int | None = None
    model: str | None = None
    session: str | None = None
    key: str = ""
    """What two lines of one call share."""
    provider: str = ""
    """Who served it, where that is told."""


def read_count(value: object) -> int | None:
    """Return a number of tokens, None for anything that is none."""
    return value if type(value) is int and 0 <= value < 10**12 else None
