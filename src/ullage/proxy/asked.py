"""The calls that workers may make to the proxy: store, windows, lessons and meters, by name.

A method without a row here cannot be called. The module does not know jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from ullage.storage.threaded import checkpoints_of, conversations_of, originals_of

if TYPE_CHECKING:
    from ullage.proxy.keeping import Keeping
    from ullage.proxy.stored import Histories
    from ullage.runtime import Runtime
    from ullage.storage.protocol import SearchesOriginals
    from ullage.telemetry.metrics import ProxyMeters

Doors = Mapping[tuple[str, str], Callable[..., Any]]
"""Callables by door and method; one that returns a coroutine is awaited."""

METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "checkpoints": ("aload", "asave", "asave_measured", "aundo", "aall"),
    "conversations": ("aload", "asave"),
    "originals": ("akeep", "aread"),
    "windows": (
        *("awindow", "server", "wants_turns", "counts_at", "record", "take_in", "start_trial"),
    ),
    "lessons": ("find", "learn", "note_law", "take_in"),
    "histories": ("fetch",),
    "events": ("record_event",),
    "meters": ("tool_answer", "fault"),
}


def list_doors(kept: Keeping, runtime: Runtime, histories: Histories, meters: ProxyMeters) -> Doors:
    """Return the callables that the workers of a proxy may call."""
    doors: dict[str, Any] = {
        "checkpoints": checkpoints_of(kept),
        "conversations": conversations_of(kept),
        "originals": originals_of(kept),
        "windows": runtime.windows,
        "lessons": runtime.lessons,
        "histories": histories,
        "events": runtime.metrics,
        "meters": meters,
    }

    async def search(*arguments: Any) -> Any:
        originals = cast("SearchesOriginals", kept.originals)
        return await kept.desk.writes.run(originals.search, *arguments)

    found = {
        (door, method): getattr(doors[door], method)
        for door, methods in METHODS.items()
        for method in methods
    }
    return {**found, ("originals", "search"): search, ("log", "write"): _write_log}


def _write_log(name: str, level: int, text: str) -> None:
    logging.getLogger(name).log(level, "%s", text)
