"""Pinned messages of the caller: they stay as they are, or the call fails with a reason.

This module reads positions and words errors; strategies apply the pins to a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ullage.core.errors import ConfigurationError, MalformedHistoryError

if TYPE_CHECKING:
    from ullage.core.compaction.mending import Mended


def read_pins(pins: Any, size: int) -> frozenset[int]:
    """Return pins as positions in a list of `size` messages, without duplicates.

    Raises ConfigurationError for anything except positions from 0 on: -1 would name another message
    in every turn.
    """
    if type(pins) is frozenset and not pins:
        return pins
    if isinstance(pins, str | bytes | Mapping) or not isinstance(pins, Iterable):
        raise ConfigurationError(
            f"pins is a list of positions in messages, such as [0, 3], not {pins!r:.80}"
        )
    found = list(pins)
    for pin in found:
        if type(pin) is not int or not 0 <= pin < size:
            there = f"the {size} messages are at 0 to {size - 1}" if size else "there are none"
            raise ConfigurationError(f"pins names message {pin!r:.80}, but {there}")
    return frozenset(found)


def check_mended(pins: Collection[int], mended: Mended, messages: Sequence[Any]) -> None:
    """Raise MalformedHistoryError for a pinned message that had to be repaired."""
    if not pins or not mended.repairs:
        return
    now = dict(zip(mended.origin, mended.messages, strict=True))
    for pin in sorted(pins):
        if pin not in now or now[pin] is not messages[pin]:
            detail = next((r.detail for r in mended.repairs if r.message == pin), "")
            raise MalformedHistoryError(
                f"messages[{pin}] is pinned and breaks the protocol"
                f"{f': {detail}' if detail else ''}. Mend it with ullage.repair(messages), or "
                "leave it out of pins",
                index=pin,
            )


def list_sizes(sizes: Mapping[int, int]) -> str:
    """Return the sizes of pinned messages in words: `0 (5,000 tokens), 3 (12 tokens)`."""
    return ", ".join(f"{pin} ({tokens:,} tokens)" for pin, tokens in sorted(sizes.items()))
