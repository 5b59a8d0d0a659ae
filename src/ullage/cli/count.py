"""`ullage count`: how many tokens a request, a session or a text takes."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ullage import importers
from ullage.api import count, count_text
from ullage.contents import served
from ullage.core.counting import Count
from ullage.core.errors import ConfigurationError

SUMMARY = "count the tokens of messages, a request, a session or a text"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "file", help="messages or a request (JSON or JSON lines), a session file, or - for stdin"
    )
    parser.add_argument("--model", help="whose vocabulary to count with (else the file's model)")
    parser.add_argument("--base-url", help="a server that counts itself (llama.cpp, vLLM)")
    parser.add_argument(
        "--from", dest="source", choices=importers.SOURCES, help="who wrote it (else recognised)"
    )
    parser.add_argument("--text", action="store_true", help="count the file as plain text")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(given: argparse.Namespace) -> int:
    """Print the count, its band and its basis."""
    found, what = _text(given) if given.text else _messages(given)
    if given.json:
        fields = ("tokens", "low", "high", "basis")
        print(json.dumps({name: getattr(found, name) for name in fields}))
    else:
        band = "" if found.low == found.high else f", {found.low:,} to {found.high:,}"
        print(f"{found.tokens:,} tokens ({found.basis}{band}) in {what}")
    return 0


def _messages(given: argparse.Namespace) -> tuple[Count, str]:
    """Count what stands in the window at the end of a file."""
    session = importers.load(given.file, source=given.source)
    messages = session.current
    found = count(
        messages,
        model=served(given.model or session.model),
        tools=list(session.tools),
        system=session.system,
        dialect=session.dialect,
        base_url=given.base_url,
    )
    return found, f"{len(messages):,} message{'' if len(messages) == 1 else 's'}"


def _text(given: argparse.Namespace) -> tuple[Count, str]:
    if given.base_url is not None or given.source is not None:
        raise ConfigurationError("--text counts offline: leave --base-url and --from out")
    try:
        data = sys.stdin.buffer.read() if given.file == "-" else Path(given.file).read_bytes()
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{given.file} cannot be read as text: {error}") from error
    found = count_text(text, model=given.model)
    if isinstance(found, int):
        found = Count(found, found, found, "exact")
    return found, f"{len(text):,} characters"
