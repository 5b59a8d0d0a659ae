"""Left-out texts of requests, found in the events of a session by their reference.

Most texts are in the log as they were; the others are recorded with the compaction that refers to
them. This module knows no store and no dialect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ullage.core.compaction.edits import reference
from ullage.core.search.index import SearchSource
from ullage.core.search.names import RECALL, SEARCH
from ullage.core.session.log.event import upcast_data
from ullage.core.session.searching import FOUND

if TYPE_CHECKING:
    from ullage.core.session.log.event import Event

TEXTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "user_message": "text",
        "assistant_message": "text",
        "tool_call": "arguments",
        "tool_result": "text",
        "branch_summary": "text",
    }
)
"""The field of each event type whose text a request may contain unchanged."""

KEEPING: Final = frozenset({"history_compaction", "branch_summary"})
"""Events with `originals`: texts that are in no other event, by reference."""

OWN: Final = frozenset({RECALL, SEARCH})
"""Tools whose calls contain no text of their own."""


def find_original(events: Iterable[Event], name: str) -> str | None:
    """Return the text for a reference, or None if no event has it."""
    for event in events:
        data = upcast_data(event) if event.type in TEXTS or event.type in KEEPING else None
        if data is None:
            continue
        kept = read_originals(data).get(name)
        if kept is not None:
            return kept
        text = data.get(TEXTS.get(event.type, ""))
        if isinstance(text, str) and reference(text) == name:
            return text
    return None


def read_originals(data: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the texts that an event keeps, by reference."""
    kept = data.get("originals")
    return kept if isinstance(kept, Mapping) else {}


def find_parents(events: Iterable[Event]) -> Iterator[str]:
    """Yield the sessions that a session continues; referenced texts may be there."""
    for event in events:
        if event.type == "branch_summary":
            parent = (upcast_data(event) or {}).get("parent")
            if isinstance(parent, str):
                yield parent


def list_sources(events: Iterable[Event]) -> Iterator[SearchSource]:
    """Yield the texts of events for search, without earlier search results and recalls."""
    for event in events:
        name = TEXTS.get(event.type)
        data = (upcast_data(event) or {}) if name is not None else {}
        text = data.get(name or "")
        if event.type == "branch_summary" or data.get("name") in OWN or not isinstance(text, str):
            continue
        if not text.startswith(FOUND):
            yield SearchSource(reference(text), text, event.seq)
