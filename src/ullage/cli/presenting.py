"""`--context`: data that the person looks at, shown to the model with the request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ullage.core.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse

LARGEST: Final = 1_000_000
"""Most bytes of a file of presented facts, since they are part of every request."""


def add_context(parser: argparse._ActionsContainer) -> None:
    """Declare the option for the person's data."""
    parser.add_argument(
        "--context",
        metavar="JSON",
        help="the state of your program, as a JSON object or @FILE: the model sees it with the "
        "request, as facts that may be out of date",
    )


def read_context(given: str | None) -> dict[str, Any] | None:
    """Return presented facts; raises ConfigurationError if they are no JSON object."""
    if given is None:
        return None
    text = _read_file(given[1:]) if given.startswith("@") else given
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"--context is no JSON object or @FILE: {error}") from None
    except RecursionError:
        raise ConfigurationError("--context is nested too deep to be read") from None
    if not isinstance(found, dict):
        kind = type(found).__name__
        raise ConfigurationError(
            f'--context is a JSON {kind}: give an object, such as {{"open_file": "a.py"}}'
        )
    return found


def _read_file(name: str) -> str:
    path = Path(name)
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise ConfigurationError(
                f"--context @{name} has {size:,} bytes, and at most {LARGEST:,} are read: it goes "
                "with every request"
            )
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigurationError(f"--context @{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"--context @{name} is no UTF-8 text") from None
