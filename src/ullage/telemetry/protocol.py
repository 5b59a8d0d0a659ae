"""Who may be told of events, whatever they make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ullage.core.events import Event


class Listener(Protocol):
    """Counts or records events; it must not raise for any of them."""

    def told(self, event: Event, model: str | None) -> None:
        """Take note of one event of a guard of `model`."""
        ...
