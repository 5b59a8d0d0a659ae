"""The rest of a session whose text was erased: the times and types of events, and their cost.

The events keep their numbers, times and types, in a new chain. No hash of their content is left,
because short texts could be guessed from it. This module knows no store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ullage.core.errors import StoreError
from ullage.core.session.log.event import FIELDS, Draft, Event, make_event

ERASED: Final = "event_erased"
"""The type of an emptied event; its data name the original type."""

PURGED: Final = "session_purged"
"""The type of the last event of a session whose text was erased."""

USAGE: Final = "provider_usage"
"""The type whose numbers are kept: tokens and dollars are no text."""


def erase_events(events: Sequence[Event], now: float) -> list[Event]:
    """Return a whole session without its text, ending with `session_purged` at `now` (seconds).

    Reports of usage keep the model and all numbers. Any other event keeps its type and the number
    of characters of its data. Missing or damaged events do not matter.
    """
    made = list(chain_anew((event, _empty(event)) for event in events))
    last, drafted = made[-1], Draft(PURGED, {"events": len(made)})
    ended = make_event(last.session_id, last.seq + 1, max(now, last.ts), drafted, last.id)
    return [*made, ended]


def chain_anew(changed: Iterable[tuple[Event, Draft]]) -> Iterator[Event]:
    """Yield events with other data and their old times, as a session with new ids."""
    before = ""
    for seq, (event, draft) in enumerate(changed, 1):
        made = make_event(event.session_id, seq, event.ts, draft, before)
        yield made
        before = made.id


def is_purged(events: Sequence[Event]) -> bool:
    """Tell whether the text of a session was erased; `events` are its last ones."""
    return bool(events) and events[-1].type == PURGED


def _empty(event: Event) -> Draft:
    kept = _read_usage(event) if event.type == USAGE else None
    if kept is not None:
        return Draft(USAGE, kept)
    kind = event.type if event.type in FIELDS else "unknown"
    return Draft(ERASED, {"type": kind, "characters": len(event.text)})


def _read_usage(event: Event) -> dict[str, Any] | None:
    """Return the model and the numbers of a report, or None if it is unreadable."""
    try:
        data = event.data
    except StoreError:
        return None
    model = data.get("model")
    return {"model": model, **_keep_numbers(data)} if isinstance(model, str) else None


def _keep_numbers(data: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, int | float):
            kept[name] = value
        elif name == "context" and isinstance(value, Mapping):
            kept[name] = _keep_numbers(value)
    return kept
