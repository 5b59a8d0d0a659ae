"""Who may be told of events, whatever they make of them, and how several are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from ullage.core.guard.events import Event

Kind = TypeVar("Kind")


class Listener(Protocol):
    """Counts or records events; it must not raise for any of them."""

    def record_event(self, event: Event, model: str | None) -> None:
        """Take note of one event of a guard of `model`."""
        ...


class Host(Protocol):
    """What can be listened to, as a runtime: it tells `metrics` of its guards' events."""

    metrics: Listener | None


@dataclass(frozen=True, slots=True)
class Several:
    """Tells each of its listeners, in order."""

    listeners: tuple[Listener, ...]

    def record_event(self, event: Event, model: str | None) -> None:
        """Pass one event on."""
        for listener in self.listeners:
            listener.record_event(event, model)


def find_listener(host: Host, kind: type[Kind]) -> Kind | None:
    """Return the listener of this kind that a host has, None where it has none."""
    held = host.metrics
    listeners = held.listeners if isinstance(held, Several) else (held,)
    return next((one for one in listeners if isinstance(one, kind)), None)


def add_listener(host: Host, listener: Listener) -> None:
    """Have a host tell one more listener; nobody who listens already is pushed aside."""
    held = host.metrics
    if held is None:
        host.metrics = listener
        return
    before = held.listeners if isinstance(held, Several) else (held,)
    host.metrics = Several((*before, listener))
