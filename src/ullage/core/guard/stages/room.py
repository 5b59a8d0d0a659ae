"""The room that an answer needs next to the request, under a policy and a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ullage.core.compaction.policy import Policy
    from ullage.core.guard.request import Request, Setup
    from ullage.core.guard.stages.measure import Measured


def min_output(policy: Policy, total: int) -> int:
    """Return the lowest value for clamping `max_tokens` in a window of `total` tokens."""
    return policy.min_output if policy.min_output is not None else min(1024, total // 8)


def room_needed(policy: Policy, request: Request, total: int) -> int:
    """Return the least tokens that an answer needs in a window of `total` tokens.

    Output that cannot be lowered is needed in full, except for an eighth of the window, if the
    server refuses a prompt without room for it. Otherwise it gets the space above the critical
    pressure.
    """
    least = min_output(policy, total)
    if request.max_tokens is None:
        most = total - total // 8 if request.reserves_all else _find_spare(policy, total)
        return max(least, min(request.reserve, most))
    return min(request.max_tokens, least)


def find_room(policy: Policy, request: Request, total: int | None) -> int:
    """Return the tokens that the requested answer needs, or 0 if no size is requested."""
    if total is None or (request.max_tokens is None and not request.reserve):
        return 0
    return room_needed(policy, request, total)


def _find_spare(policy: Policy, total: int) -> int:
    """Return the tokens above the critical pressure."""
    return int((1 - policy.thresholds.critical) * total)


def has_room(setup: Setup, request: Request, measured: Measured) -> bool:
    """Tell whether the request fits as it is, with room for the answer that it asks for.

    An answer of any length, or a very long one, gets the space above the critical pressure.
    """
    high, window = measured.count.high, measured.window
    total, bound = window.total_tokens, window.likely_tokens
    room = max(min_output(setup.policy, total or 0), _find_spare(setup.policy, total or 0))
    if total is not None:
        room = max(min(request.max_tokens or room, room), room_needed(setup.policy, request, total))
        if high + room > total:
            return False
    return bound is None or high < bound


def must_refuse(setup: Setup, measured: Measured) -> bool:
    """Tell whether a request surely does not fit into a proven bound.

    Surely means that even the lower edge of the count does not fit. If only the upper edge does not
    fit, the server's answer will show it. A strict guard uses the upper edge, and any bound.
    """
    window, count = measured.window, measured.count
    if window.input_tokens is None or not setup.refuses:
        return False
    if not (window.proven or setup.strict):
        return False
    return (count.high if setup.strict else count.low) >= window.input_tokens
