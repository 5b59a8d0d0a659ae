"""`ullage window`: how big the window of a model is, and who says so."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from ullage.api import window

SUMMARY = "show the true context window of a model, with its source"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", nargs="?", help="model id; not needed for a single-model server")
    parser.add_argument("--base-url", help="the server's URL, such as http://127.0.0.1:8080/v1")
    parser.add_argument(
        "--window", type=int, metavar="N", help="the operator's own word, in tokens"
    )
    parser.add_argument("--explain", action="store_true", help="show every claim that was heard")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(given: argparse.Namespace) -> int:
    """Print the window; unknown is an answer too, so the exit code is 0."""
    found = window(given.model, base_url=given.base_url, override=given.window)
    if given.json:
        print(json.dumps({"known": found.known, **asdict(found)}, indent=2))
    elif given.explain or not found.known:
        print(found.explain())
    else:
        print(f"{found.input_tokens:,} tokens of input ({found.said_by()})")
    return 0
