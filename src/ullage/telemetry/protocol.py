"""The protocol of event listeners, and how several of them receive the events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from ullage.core.guard.events import Event

Kind = TypeVar("Kind")


class Listener(Protocol):
    """Counts or records events; it must not raise for any of them."""

    def record_event(self, event: Event, model: str | None) -> None:
        """Note one event of a guard of `model`."""
        ...


class Host(Protocol):
    """An object with a listener, such as a runtime: it passes its guards' events to `metrics`."""

    metrics: Listener | None


@dataclass(frozen=True, slots=True)
class Several:
    """Passes each event to several listeners, in order."""

    listeners: tuple[Listener, ...]

    def record_event(self, event: Event, model: str | None) -> None:
        """Pass one event to all listeners."""
        for listener in self.listeners:
            listener.record_event(event, model)


def find_listener(host: Host, kind: type[Kind]) -> Kind | None:
    """Return a host's listener of this kind, or None if it has none."""
    held = host.metrics
    listeners = held.listeners if isinstance(held, Several) else (held,)
    return next((one for one in listeners if isinstance(one, kind)), None)


def add_listener(host: Host, listener: Listener) -> None:
    """Add a listener to a host; existing listeners stay."""
    held = host.metrics
    if held is None:
        host.metrics = listener
        return
    before = held.listeners if isinstance(held, Several) else (held,)
    host.metrics = Several((*before, listener))
