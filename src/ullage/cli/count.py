"""`ullage count`: how many tokens the messages in a file take."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ullage.api import count
from ullage.core.errors import ConfigurationError

SUMMARY = "count the tokens of a JSON or JSONL file of messages"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "file", help="a list of messages, a request with `messages`, or - for stdin"
    )
    parser.add_argument("--model", help="whose vocabulary to count with")
    parser.add_argument("--base-url", help="a server that counts itself (llama.cpp)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(given: argparse.Namespace) -> int:
    """Print the count, its band and its basis."""
    messages, tools = read(given.file)
    found = count(messages, model=given.model, tools=tools, base_url=given.base_url)
    if given.json:
        fields = ("tokens", "low", "high", "basis")
        print(json.dumps({name: getattr(found, name) for name in fields}))
    else:
        band = "" if found.low == found.high else f", {found.low:,} to {found.high:,}"
        print(f"{found.tokens:,} tokens ({found.basis}{band}) in {len(messages)} messages")
    return 0


def read(name: str) -> tuple[list[Any], list[Any] | None]:
    """Return the messages and tools of a file: a JSON list, a request object, or JSON lines."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{name} cannot be read: {error}") from error
    try:
        data = json.loads(text)
    except ValueError:
        data = _lines(name, text)
    if isinstance(data, dict) and "messages" in data:
        return data["messages"], data.get("tools")
    if isinstance(data, list):
        return data, None
    raise ConfigurationError(
        f"{name} holds a JSON {type(data).__name__}: expected a list of messages, or an object "
        "with 'messages'"
    )


def _lines(name: str, text: str) -> list[Any]:
    messages = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            messages.append(json.loads(line))
        except ValueError as error:
            raise ConfigurationError(
                f"{name}, line {number} is not JSON ({error}): expected JSON or one message a line"
            ) from error
    return messages
