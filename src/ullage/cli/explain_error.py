"""`ullage explain-error`: explain a provider's error, and what to do about it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ullage.core.errors import ConfigurationError, Kind
from ullage.importers import files
from ullage.sdk.errors import classify_error

SUMMARY = "tell what a provider's error means, and what to do; exit code 1 if unknown"

ADVICE: Final[Mapping[Kind, str]] = {
    "input": "The prompt is larger than the window. Compact it, or use a model with a larger one.",
    "total": "Prompt and output together are larger than the window. Lower max_tokens first.",
    "output_cap": "max_tokens is over what the model may write. Lower it; the window is no issue.",
    "bytes": "The request has too many bytes. Leave out or shrink media; tokens are no issue.",
    "media": "An image, recording or file is too large or not accepted. Shrink or leave it out.",
    "malformed_history": "The messages break the protocol. ullage.repair(messages) mends them.",
    "rate_limit": "Too much was asked in a short time. Wait and ask again; compacting is no help.",
    "quota": "The account has run out, or is not entitled. Waiting and compacting are no help.",
    "server_state": "The server has lost, or refuses, history of its own. Send the whole history.",
    "other": "No wording that ullage knows is in it, so it tells nothing about the window.",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("body", help="the error as text or JSON, a file that holds it, or -")
    parser.add_argument("--status", type=int, help="the HTTP status, where there was one")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(given: argparse.Namespace) -> int:
    """Print kind, the limit and size if named, and the advice; exit code 1 for an unknown error."""
    body, source = _body(given.body)
    found = classify_error(given.status, body)
    code = 1 if found.kind == "other" else 0
    if given.json:
        fields = ("kind", "limit", "input_tokens", "certainty")
        print(json.dumps({name: getattr(found, name) for name in fields}))
        return code
    if found.kind == "other":
        print(f"unknown error: {ADVICE[found.kind]} The text was read from {source}.")
        return code
    named = [f"limit {found.limit:,} tokens"] if found.limit is not None else []
    if found.input_tokens is not None:
        named.append(f"sent {found.input_tokens:,} tokens")
    print(" · ".join([f"{found.kind} ({found.certainty})", *named]))
    print(ADVICE[found.kind])
    return code


def _body(name: str) -> tuple[str | bytes, str]:
    """Return the body and its source: standard input, a file, or the words themselves."""
    if name == "-":
        return files.standard_input(), "standard input"
    words = "the words given; there is no file of that name"
    try:
        path = Path(name)
        return (path.read_bytes(), f"the file {name}") if path.is_file() else (name, words)
    except (OSError, ValueError) as error:
        # A long sentence is no file name; an unreadable file is an error.
        if isinstance(error, PermissionError):
            raise ConfigurationError(f"{name} cannot be read: {error}") from error
        return name, words
