"""A session of opencode: the messages in the window at each call, and the reports.

A session is an object `{info, messages: [{info, parts}]}`, as `opencode export` prints it; `disk`
builds the same from its database and from the files of older versions. An assistant message is a
call with its `tokens`, its `cost` and its model. opencode does not store the window, the system
prompt and the tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ullage.core.dialects import names
from ullage.core.errors import ConfigurationError
from ullage.core.values.progress import Progress, ignore
from ullage.importers import titles
from ullage.importers.lines import value
from ullage.importers.opencode.parts import (
    KeptMessage,
    find_text,
    read_dollars,
    read_ms,
    read_rows,
    tell_time,
)
from ullage.importers.opencode.window import SentWindow
from ullage.importers.session import (
    NOT_IN_FILE,
    BrokenJson,
    ImportedSession,
    mapping,
    plural,
    total,
    words,
)

UNTITLED: Final = ("New session - ", "Child session - ")
"""Prefixes of the titles that opencode gives before a model writes one."""


def read(data: bytes, path: str = "", report: Progress = ignore) -> ImportedSession:
    """Read a session from the bytes of its export; raises ConfigurationError without messages."""
    report(0, len(data))
    fields = value(data)
    report(len(data), len(data))
    if fields is None:
        raise BrokenJson(f"{path or 'the file'} is no whole JSON: expected `opencode export`")
    return read_value(fields, path)


def read_value(fields: Any, path: str = "", warnings: Sequence[str] = ()) -> ImportedSession:
    """Read a session from the value of its export; raises ConfigurationError without messages.

    `warnings` are warnings about its source.
    """
    info = mapping(mapping(fields).get("info"))
    unread: dict[str, int] = {}
    rows = read_rows(mapping(fields).get("messages"), unread)
    window = SentWindow(rows, mapping(info.get("revert")))
    if not window.messages and not window.calls:
        raise ConfigurationError(
            f"{path or 'the file'} holds no messages of an opencode session: expected messages "
            "of user and assistant with their parts"
        )
    now, last = window.current(), _find_last(rows)
    told = max(window.dollars, read_dollars(info.get("cost")))
    said = [find_text(row.parts) for row in rows if not row.answers]
    return ImportedSession(
        source="opencode",
        dialect=names.OPENAI_CHAT,
        messages=tuple(window.messages),
        turns=tuple(window.turns),
        start=window.start,
        model=_find_model(last),
        tokens=now.tokens if now is not None else None,
        covered=now.stop if now is not None else None,
        id=words(info.get("id")),
        path=path,
        summaries=tuple(window.summaries),
        spent=total([call.usage for call in window.calls if call.usage is not None]),
        dollars=told or None,
        calls=tuple(window.calls),
        providers=_find_providers(last),
        apart=NOT_IN_FILE,
        project=words(info.get("directory")) or _find_folder(last),
        title=make_title(info, said),
        at=_find_time(info, rows),
        unread=MappingProxyType(unread),
        warnings=(*warnings, *_warn(window)),
    )


def _find_last(rows: Sequence[KeptMessage]) -> Mapping[str, Any]:
    """Return the last answer that names its model, or else the last message that does."""
    answers = (row.info for row in reversed(rows) if row.answers and not row.summarises)
    found = next((info for info in answers if words(info.get("modelID"))), None)
    asked = (mapping(row.info.get("model")) for row in reversed(rows))
    return found or next((model for model in asked if words(model.get("modelID"))), {})


def _find_model(last: Mapping[str, Any]) -> str | None:
    return words(last.get("modelID"))


def _find_providers(last: Mapping[str, Any]) -> tuple[str, ...]:
    provider = words(last.get("providerID"))
    return (provider,) if provider is not None else ()


def _find_folder(last: Mapping[str, Any]) -> str | None:
    return words(mapping(last.get("path")).get("cwd"))


def _find_time(info: Mapping[str, Any], rows: Sequence[KeptMessage]) -> str | None:
    updated = read_ms(mapping(info.get("time")).get("updated"))
    return tell_time(max([updated, *(row.created_ms for row in rows)]))


def _warn(window: SentWindow) -> list[str]:
    """Return warnings about parts of the session that are not in the window."""
    told = []
    if window.reverted:
        told.append(f"left out: {plural(window.reverted, 'message')} reverted in opencode")
    if window.cleared:
        told.append(f"opencode cleared {plural(window.cleared, 'older result')}")
    return told


def is_export(fields: Any) -> bool:
    """Tell whether a value is a session as `opencode export` prints it."""
    messages = mapping(fields).get("messages")
    if not isinstance(mapping(fields).get("info"), Mapping) or not isinstance(messages, list):
        return False
    first = mapping(messages[0]) if messages else {}
    return "info" in first and "parts" in first


def make_title(info: Mapping[str, Any], said: Sequence[str]) -> str | None:
    """Return the title that a model wrote, or else the user's first words."""
    named = words(info.get("title"))
    if named is not None and not named.startswith(UNTITLED):
        return titles.line(named)
    return next((titles.line(text) for text in said if text.strip()), None)
