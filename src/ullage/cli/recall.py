"""`ullage recall`: the text that a placeholder stands for."""

from __future__ import annotations

import argparse
import sys

from ullage import config
from ullage.api.recall import page
from ullage.core.errors import ConfigurationError

SUMMARY = "print the text that a placeholder stands for, by its reference"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("reference", help="the reference in the placeholder (u:0123456789abcdef)")
    parser.add_argument(
        "--store", metavar="URL", help="where it is kept: sqlite:FILE (else the setting `store`)"
    )
    parser.add_argument(
        "--offset", type=int, default=0, metavar="CHARACTERS", help="how many to skip"
    )
    parser.add_argument("--limit", type=int, metavar="CHARACTERS", help="how many to print")


def run(given: argparse.Namespace) -> int:
    """Print the text as it was; say on stderr how much of it is left."""
    url = given.store or config.load().settings.store
    if url is None:
        raise ConfigurationError(
            "no store is named: give --store sqlite:FILE, or set `store` (ULLAGE_STORE)"
        )
    found = page(given.reference, store=url, offset=given.offset, limit=given.limit)
    sys.stdout.flush()
    # Bytes, since a terminal's encoding may lack a character and Windows would change line ends.
    sys.stdout.buffer.write(found.text.encode("utf-8", "backslashreplace"))
    sys.stdout.flush()
    if found.after is not None:
        print(
            f"ullage: {found.after:,} of {found.total:,} characters; "
            f"the rest with --offset {found.after}",
            file=sys.stderr,
        )
    return 0
