"""Places of recorded sessions: files, folders, files with one conversation per line, logs.

A place is a text that names one session; another process loads the session by it. Sizes are in
bytes, so that the largest sessions can go first.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ullage import importers
from ullage.core.dialects import registry
from ullage.core.errors import ConfigurationError, CorruptLog
from ullage.core.session.log.event import upcast_data
from ullage.core.session.log.fold import fold
from ullage.core.session.log.render import Renderer
from ullage.core.values.fullness import read_count
from ullage.importers.files import is_file
from ullage.importers.opencode.disk import is_kept
from ullage.importers.session import ImportedSession
from ullage.storage import ndjson, open_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ullage.core.session.log.event import Event

ENDINGS: Final = (".json", ".jsonl", ".json.gz", ".jsonl.gz", ".jsonl.zst", ".json.zst")
"""Endings of session files in a folder."""

LOG: Final = "log:"
"""Prefix of the place of a session in an ullage log: log:NAME@URL."""

LINE: Final = "#bytes="
"""Separates a file from the byte range of a line that is its own session."""

_IN_LOG: Final = re.compile(rf"(?s){LOG}(.*?)@([a-z]+:.*)")
_AT_LINE: Final = re.compile(rf"(?s)(.*){LINE}(\d+)-(\d+)")

PACKED: Final = (".jsonl.gz", ".jsonl.zst")
"""Endings of files whose lines cannot be read from the middle."""


class SessionPlace(NamedTuple):
    """A session: its name, and its size in bytes."""

    name: str
    size: int


def list_places(given: Iterable[str | os.PathLike[str]]) -> list[SessionPlace]:
    """Return the sessions in files, and in folders with their subfolders, each once.

    Raises ConfigurationError for a missing path, and if there is no session at all.
    """
    asked = list(given)
    found: dict[str, SessionPlace] = {}
    for each in asked:
        for place in _list_at(os.fspath(each)):
            found.setdefault(place.name, place)
    if not found:
        told = ", ".join(map(str, asked)) or "nothing"
        raise ConfigurationError(
            f"no session is in {told}: give session files, folders with {' or '.join(ENDINGS[:2])} "
            "files, or the places that `ullage context --list` names"
        )
    return list(found.values())


def _list_at(name: str) -> Iterator[SessionPlace]:
    path = Path(name).expanduser().absolute()
    if name.startswith(LOG):
        yield SessionPlace(name, 0)
    elif _split_line(str(path)) is not None:
        yield SessionPlace(str(path), 0)
    elif path.is_dir():
        for each in sorted(path.rglob("*")):
            if each.name.endswith(ENDINGS) and each.is_file():
                yield from _list_in_file(each)
    elif path.is_file():
        yield from _list_in_file(path)
    elif is_kept(path):
        yield SessionPlace(str(path), 0)
    else:
        raise ConfigurationError(f"{name} is not there: give a session file or a folder of them")


def _list_in_file(path: Path) -> Iterator[SessionPlace]:
    """Yield the sessions of a file: its lines if they are conversations, else the file.

    An unreadable file is a session, too: loading it reports the error.
    """
    try:
        size = path.stat().st_size
        is_collection = path.name.endswith(".jsonl") and _is_collection(path)
    except OSError:
        size, is_collection = 0, False
    if not is_collection:
        yield SessionPlace(str(path), size)
        return
    start = 0
    with path.open("rb") as lines:
        for line in lines:
            if line.strip():
                yield SessionPlace(f"{path}{LINE}{start}-{start + len(line)}", len(line))
            start += len(line)


def _split_log(name: str) -> tuple[str, str]:
    """Return the name of a logged session, which may contain an @, and the URL of its log."""
    found = _IN_LOG.fullmatch(name)
    if found is None:
        raise ConfigurationError(
            f"{name} names no session of a log: give {LOG}NAME@URL, such as {LOG}NAME@sqlite:FILE"
        )
    return found[1], found[2]


def _split_line(name: str) -> tuple[str, int, int] | None:
    """Return the file of a line and the line's byte range, or None for other names.

    A file may have such a name itself: an existing file is not a line of another.
    """
    found = _AT_LINE.fullmatch(name)
    if found is None or is_file(name):
        return None
    return found[1], int(found[2]), int(found[3])


def _is_collection(path: Path) -> bool:
    with path.open("rb") as lines:
        return _are_conversations(lines)


def _are_conversations(lines: Iterable[bytes]) -> bool:
    """Tell whether lines are independent conversations.

    Requests of one conversation begin alike, because each continues the previous one.
    """
    heads = [_read_messages(line) for line in islice(lines, 2)]
    if len(heads) < 2:
        return False
    first, second = heads
    if not first or not second or len(first) < 2:
        return False
    return first[:2] != second[:2]


def _read_messages(line: bytes) -> list[Any]:
    """Return the messages of a line that is a conversation, or [] for any other line."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return []
    if isinstance(value, dict):
        held = (value.get(key) for key in ("messages", "input"))
        value = next((one for one in held if isinstance(one, list)), [])
    return value if isinstance(value, list) and all(isinstance(m, dict) for m in value) else []


def list_log(url: str) -> list[SessionPlace]:
    """Return the sessions of an ullage log at a URL."""
    log = open_log(url, create=False)
    try:
        return [SessionPlace(f"{LOG}{head.session}@{url}", head.seq) for head in log.sessions()]
    finally:
        log.close()


def load_place(name: str, source: str | None = None) -> ImportedSession:
    """Return the session at a place; raises what reading it raises."""
    if name.startswith(LOG):
        session, url = _split_log(name)
        log = open_log(url, create=False)
        try:
            return read_logged(log.read(session), url, session)
        finally:
            log.close()
    line = _split_line(name)
    if line is not None:
        path, start, end = line
        with Path(path).open("rb") as file:
            file.seek(start)
            return importers.parse(file.read(max(end - start, 0)), source=source, path=name)
    if name.endswith(PACKED) and _are_conversations(BytesIO(importers.content(name))):
        raise ConfigurationError(
            f"{name} holds a conversation a line and is compressed: decompress it, so that each is "
            "replayed"
        )
    if source is None and name != "-" and _is_exported(Path(name)):
        return read_logged(ndjson.parse(Path(name).read_bytes(), name).events, name)
    return importers.load(name, source=source)


def _is_exported(path: Path) -> bool:
    """Tell whether a file holds an ullage session, as `ullage export` writes it."""
    if not path.is_file():
        return False
    with path.open("rb") as lines:
        return is_log(next(iter(lines), b""))


def is_log(line: bytes) -> bool:
    """Tell whether a line is an ullage event."""
    try:
        return bool(ndjson.parse(line.rstrip(b"\n") + b"\n").events)
    except CorruptLog:
        return False


def read_logged(events: Iterable[Event], path: str, name: str | None = None) -> ImportedSession:
    """Return all messages of an ullage session, in the form for its last model."""
    recorded = list(events)
    held = fold(recorded)
    dialect = registry.parse_name(held.served.get("dialect") or registry.DEFAULT)
    model = held.served.get("model")
    named = model if isinstance(model, str) else None
    messages = tuple(Renderer(dialect, named or "").render(held))
    return ImportedSession(
        source="ullage",
        dialect=dialect,
        messages=messages,
        model=named,
        window_tokens=_find_window(recorded, held.served),
        id=name,
        path=path,
    )


def _find_window(events: Sequence[Event], served: Mapping[str, Any]) -> int | None:
    """Return the window in the last report of the last model, or else the session's window."""
    model = served.get("model")
    for event in reversed(events):
        data = upcast_data(event) if event.type == "provider_usage" else None
        if data is None or (model is not None and data.get("model") not in (None, model)):
            continue
        context = data.get("context")
        window = read_count(context.get("window")) if isinstance(context, Mapping) else None
        if window:
            return window
    return read_count(served.get("window")) or None
