"""Messages and requests as JSON: a list, one request, lines of either, or logged pairs.

The form of a request shows its dialect (`core.dialects.registry`). It knows no session files, and
asks nobody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from ullage.core.dialects import registry
from ullage.core.dialects.registry import find_history, recognise
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.core.values.progress import Progress, ignore
from ullage.importers.lines import ObjectLines, find_fault, note, value
from ullage.importers.session import (
    BrokenJson,
    CallReport,
    ImportedSession,
    ModelTurn,
    NoMessages,
    plural,
    total,
    words,
)

DIALECTS: Final[Mapping[str, str]] = {known.short: known.name for known in registry.dialects()}
"""Names of sources, and their dialects."""

CAPS: Final = tuple(
    dict.fromkeys(name for known in registry.dialects() for name in known.fields.output)
)

ITEMS: Final = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "item_reference",
        "compaction",
    }
)
"""Types that identify an item of the Responses API without a role."""

EXPECTED: Final = (
    "expected a list of messages, a request with 'messages' or 'input', one of these a line, or "
    'lines of {"request": ..., "response": ...}'
)


@dataclass(frozen=True, slots=True)
class ImportedRequest:
    """One request in its parts, and the provider's report on it."""

    messages: Sequence[Any]
    system: Any = None
    tools: tuple[Any, ...] = ()
    max_tokens: int | None = None
    model: str | None = None
    report: CallReport | None = None
    """The report, or None if the file holds no response for it."""
    at: str | None = None
    dialect: str | None = None
    """The dialect that its keys show, or None."""


def read(
    data: bytes, path: str = "", dialect: str | None = None, report: Progress = ignore
) -> ImportedSession:
    """Read messages or requests; raises ConfigurationError for anything else."""
    name = path or "the file"
    unread: dict[str, int] = {}
    log = _Log()
    envelope: Mapping[str, Any] | None = None
    inside: tuple[str, ...] = ()
    whole = value(data.strip(b"\0 \t\r\n"))
    if isinstance(whole, list):
        log.hold(ImportedRequest(_objects(whole, unread)))
    elif isinstance(whole, dict):
        found = request(whole)
        if found is None:
            found = _message(whole, name)
        else:
            envelope, inside = whole, place(whole)
        log.hold(found) if found.report is None else log.call(found)
    else:
        if _is_whole(data) and (fault := find_fault(data, name)) is not None:
            raise BrokenJson(f"{fault}\nmend it there")
        _lines(ObjectLines(data, report), name, log, unread)
    if not log.messages:
        raise _empty(data, name)
    session = _session(log, path, dialect, unread)
    return replace(session, envelope=envelope, inside=inside)


def _session(log: _Log, path: str, dialect: str | None, unread: dict[str, int]) -> ImportedSession:
    last, told = log.last, log.current()
    window = log.messages[log.start :]
    dialect = (
        dialect or last.dialect or recognise(window, system=last.system, tools=last.tools or None)
    )
    return ImportedSession(
        source=next((source for source, of in DIALECTS.items() if of == dialect), "chat"),
        dialect=dialect,
        messages=tuple(log.messages),
        turns=tuple(log.turns),
        start=log.start,
        system=last.system,
        tools=last.tools,
        max_tokens=last.max_tokens,
        model=last.model,
        tokens=told.tokens if told is not None else None,
        covered=told.stop if told is not None else None,
        path=path,
        spent=total([turn.usage for turn in log.turns if turn.usage is not None]),
        unread=MappingProxyType(unread),
        warnings=tuple(log.warnings(path or "the file")),
    )


class _Log:
    """Requests in order, joined to one conversation if each continues the previous one."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.turns: list[ModelTurn] = []
        self.start = 0
        self.last = ImportedRequest(())
        self.lines: ObjectLines | None = None
        self._others = 0

    def hold(self, found: ImportedRequest) -> None:
        """Set messages whose calls are unknown."""
        self.messages, self.last = list(found.messages), found

    def call(self, found: ImportedRequest) -> None:
        """Add the next call: it continues the conversation, shortens it, or starts another."""
        given, known = found.messages, len(self.messages) - self.start
        first = self.messages[self.start] if known else None
        compacted = False
        if continues(given, self.messages, self.start):
            self.messages.extend(given[known:])
        elif known and continues(given, [first], 0):
            compacted = True
            self.start = len(self.messages)
            self.messages.extend(given)
        else:
            self._others += len(self.turns)
            self.messages, self.turns, self.start = list(given), [], 0
        report = found.report or CallReport()
        self.turns.append(
            ModelTurn(
                len(self.turns) + 1,
                self.start,
                len(self.messages),
                report.tokens,
                report.usage,
                found.model,
                found.at,
                compacted,
            )
        )
        self.last = found

    def current(self) -> ModelTurn | None:
        """Return the last reported call in this window, or None."""
        ours = (t for t in reversed(self.turns) if t.start == self.start and t.tokens is not None)
        return next(ours, None)

    def warnings(self, name: str) -> list[str]:
        """Return warnings about parts of the file that are not in the window."""
        found = []
        if self._others:
            found.append(f"{plural(self._others, 'request')} of other conversations are left out")
        if self.lines is not None and self.lines.fault is not None:
            number, text = self.lines.fault
            fault = find_fault(text, name, number)
            found.append(f"a line is left out: {fault or f'{name}, line {number}: no object'}")
        return found


def continues(given: Sequence[Any], messages: Sequence[Any], start: int) -> bool:
    """Tell whether a request begins with all of `messages[start:]`."""
    known = len(messages) - start
    try:
        return known <= len(given) and all(
            messages[start + place] == given[place] for place in range(known)
        )
    except RecursionError:  # parsed, but too deep to be compared
        return False


def request(fields: Mapping[str, Any]) -> ImportedRequest | None:
    """Read a request, a logged pair or a line of a batch, or None for anything else.

    It opens envelopes: `request` with `response`, and `body` as in batch files.
    """
    inner = next((fields[key] for key in _find_envelopes(fields)), None)
    at = words(fields.get("timestamp"))
    if inner is not None:
        found = request(inner)
        if found is None:
            return None
        return replace(found, report=_report(fields) or found.report, at=found.at or at)
    history = find_history(fields)
    if history is None or (history[0] == "input" and "role" in fields):
        return None
    key, dialect = history
    given = fields[key]
    if isinstance(given, str):
        given = [{"type": "message", "role": "user", "content": given}]
    tools = fields.get("tools")
    caps = (fields.get(name) for name in CAPS)
    return ImportedRequest(
        [message for message in given if isinstance(message, dict)],
        fields.get("system") or fields.get("instructions"),
        tuple(tools) if isinstance(tools, list) else (),
        next((cap for cap in caps if isinstance(cap, int) and cap > 0), None),
        words(fields.get("model")),
        _report(fields),
        at,
        dialect,
    )


def _find_envelopes(fields: Mapping[str, Any]) -> Iterator[str]:
    """Return the keys under which an envelope holds a request."""
    return (key for key in ("request", "body") if isinstance(fields.get(key), dict))


def place(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys that lead to the messages that `request` read."""
    for key in _find_envelopes(fields):
        return (key, *place(fields[key]))
    found = find_history(fields)
    return (found[0] if found is not None else "messages",)


def _report(fields: Mapping[str, Any]) -> CallReport | None:
    """Return the report in the response of a logged pair, or None without a response."""
    response = fields.get("response")
    if not isinstance(response, dict):
        return None
    body = response.get("body")
    return CallReport.of(Usage.from_report(body if isinstance(body, dict) else response))


def _lines(lines: ObjectLines, name: str, log: _Log, unread: dict[str, int]) -> None:
    """Read lines of messages or of requests; a file holds one kind."""
    log.lines = lines
    messages = []
    for fields, _ in lines:
        found = request(fields)
        if found is not None:
            log.call(found)
        elif _is_message(fields):
            messages.append(fields)
        else:
            note(unread, fields.get("type"))
    unread.update(lines.unread)
    if messages and log.turns:
        raise ConfigurationError(f"{name} holds messages and requests, line by line: {EXPECTED}")
    if messages:
        log.hold(ImportedRequest(messages))


def _is_whole(data: bytes) -> bool:
    """Tell whether invalid JSON was meant as one value instead of one value per line.

    A list was, and also an object that breaks off in the first value if most lines hold no object.
    """
    text = data.strip(b"\0 \t\r\n")
    if not text.startswith(b"{"):
        return text.startswith(b"[")
    with suppress(ValueError, RecursionError):
        json.JSONDecoder().raw_decode(text.decode("utf-8", "replace"))
        return False
    lines = ObjectLines(text)
    return sum(1 for _ in lines) < sum(lines.unread.values())


def _empty(data: bytes, name: str) -> NoMessages:
    """Return the error for a file without messages: the place of its JSON fault, if any."""
    fault = find_fault(data, name) if data.lstrip(b"\0 \t\r\n").startswith(b"{") else None
    if fault is not None:
        return BrokenJson(f"{fault}\nmend it there")
    return NoMessages(f"{name} holds no messages: {EXPECTED}")


def read_empty(data: bytes, name: str) -> ImportedRequest | None:
    """Return the request of a file with an empty list of messages, or None for other files.

    Raises NoMessages if the list is null.
    """
    whole = value(data.strip(b"\0 \t\r\n"))
    if whole == []:
        return ImportedRequest([])
    if not isinstance(whole, dict):
        return None
    found = request(whole)
    *outer, key = place(whole)
    for step in outer:
        whole = whole[step]
    if found is not None:
        return found if whole.get(key) == [] else None
    key = next((key for key in registry.list_histories() if whole.get(key, ...) is None), "")
    if key:
        raise NoMessages(f"{name}: {key!r} is null: give a list of messages")
    return None


def _objects(values: Sequence[Any], unread: dict[str, int]) -> list[Any]:
    found = [value for value in values if isinstance(value, dict)]
    for _ in range(len(values) - len(found)):
        note(unread, "message that is no object")
    return found


def _message(fields: Mapping[str, Any], name: str) -> ImportedRequest:
    if _is_message(fields):
        return ImportedRequest([fields])
    raise NoMessages(f"{name} holds an object without messages: {EXPECTED}")


def _is_message(fields: Mapping[str, Any]) -> bool:
    """Tell whether an object is a message or an item: it has a role, or the type of an item."""
    return words(fields.get("role")) is not None or words(fields.get("type")) in ITEMS
