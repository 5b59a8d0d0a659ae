"""What was left out of requests, found in the events of a session by its reference.

Most texts stand in the log as they were; those that do not are recorded with the compaction that
names them. It knows no store and no dialect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ullage.core.compaction.edits import reference
from ullage.core.session.log.event import upcast_data

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
"""The field of each type of event that a request may hold as it is."""

KEEPING: Final = frozenset({"history_compaction", "branch_summary"})
"""Events with `originals`: texts that stand in no other event, by reference."""


def find_original(events: Iterable[Event], name: str) -> str | None:
    """Return the text that a reference names, None where no event has it."""
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
    """Yield the sessions that one goes on from: what it names may stand there."""
    for event in events:
        if event.type == "branch_summary":
            parent = (upcast_data(event) or {}).get("parent")
            if isinstance(parent, str):
                yield parent
