"""`ullage count`: count the tokens of a request, a session or a text."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ullage import importers
from ullage.api.context import strip_window_mark
from ullage.api.functions import count, count_text
from ullage.cli import notes, progress
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.counting import Count
from ullage.importers import BrokenJson, ImportedSession, NoMessages
from ullage.importers.requests import ImportedRequest, read_empty

SUMMARY = "count the tokens of messages, a request, a session or a text"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "file",
        help="messages or a request (JSON or JSON lines), a session file, a plain text, or - for "
        "stdin",
    )
    parser.add_argument("--model", help="the model whose vocabulary counts (else the file's model)")
    parser.add_argument("--base-url", help="a server that counts itself (llama.cpp, vLLM)")
    parser.add_argument(
        "--from",
        dest="source",
        choices=importers.SOURCES,
        help="the program that wrote it (else recognised)",
    )
    parser.add_argument("--text", action="store_true", help="count the file as plain text")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(given: argparse.Namespace) -> int:
    """Print the count, its band, its basis, and the detected form of the file."""
    data = importers.content(given.file)
    notes.check_model(strip_window_mark(given.model))
    found, form, what = _text(given, data) if given.text else _either(given, data)
    if given.json:
        fields = ("tokens", "low", "high", "basis")
        print(json.dumps({**{name: getattr(found, name) for name in fields}, "form": form}))
    else:
        band = "" if found.low == found.high else f", {found.low:,} to {found.high:,}"
        print(f"{found.tokens:,} tokens ({found.basis}{band}) in {what}")
    return 0


def _either(given: argparse.Namespace, data: bytes) -> tuple[Count, str, str]:
    """Count messages; other content is plain text, unless it is broken JSON."""
    try:
        return _messages(given, data)
    except BrokenJson as error:
        if given.source or given.base_url or _is_meant(given.file, data):
            raise BrokenJson(f"{error}, or count it as plain text with --text") from error
    except NoMessages:
        empty = read_empty(data, given.file)
        if empty is not None:
            return _count(given, empty, [])
        if given.source or given.base_url:
            raise
    return _text(given, data)


JSON_NAMES: Final = (".json", ".jsonl", ".ndjson")
KEYS: Final = (b'"role"', b'"content"', b'"messages"', b'"input"')
"""Names and keys which show that a broken file was meant as messages."""


def _is_meant(name: str, data: bytes) -> bool:
    return name.lower().endswith(JSON_NAMES) or any(key in data[:65_536] for key in KEYS)


def _messages(given: argparse.Namespace, data: bytes) -> tuple[Count, str, str]:
    """Count the messages in the window at the end of a file."""
    with progress.watch(f"reading {Path(given.file).name}") as bar:
        session = importers.parse(data, source=given.source, path=given.file, report=bar)
    notes.warn(session)
    return _count(given, session, session.current)


def _count(
    given: argparse.Namespace, held: ImportedSession | ImportedRequest, messages: Sequence[Any]
) -> tuple[Count, str, str]:
    found = count(
        messages,
        model=strip_window_mark(given.model or held.model),
        tools=list(held.tools),
        system=held.system,
        dialect=held.dialect,
        base_url=given.base_url,
    )
    return found, "messages", f"{len(messages):,} message{'' if len(messages) == 1 else 's'}"


def _text(given: argparse.Namespace, data: bytes) -> tuple[Count, str, str]:
    if given.base_url is not None or given.source is not None:
        raise ConfigurationError("--text counts offline: leave --base-url and --from out")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{given.file} cannot be read as text: {error}") from error
    found = count_text(text, model=strip_window_mark(given.model))
    if isinstance(found, int):
        found = Count(found, found, found, "exact")
    return found, "text", f"{len(text):,} characters of plain text"
