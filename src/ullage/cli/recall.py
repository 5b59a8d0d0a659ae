"""`ullage recall`: print the original text of a placeholder."""

from __future__ import annotations

import argparse
from pathlib import Path

from ullage import config
from ullage.api.recall import find_text, page
from ullage.cli import lines
from ullage.core.errors import ConfigurationError
from ullage.core.session.recall import Page
from ullage.storage.place import PROXY, SESSIONS, default_url

SUMMARY = "print the original text of a placeholder, by its reference"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("reference", help="the reference in the placeholder (u:0123456789abcdef)")
    parser.add_argument(
        "--store",
        "--log",
        metavar="URL",
        help="where it is kept, a store or a log of sessions: sqlite:FILE or postgresql://... "
        "(else the setting `store`, then the user's own sessions and the proxy's store)",
    )
    parser.add_argument(
        "--offset", type=int, default=0, metavar="CHARACTERS", help="how many to skip"
    )
    parser.add_argument("--limit", type=int, metavar="CHARACTERS", help="how many to print")


def run(given: argparse.Namespace) -> int:
    """Print the text as it was; report on stderr how much is left."""
    found = _find(given)
    # Bytes, since a terminal's encoding may lack a character and Windows would change line ends.
    lines.write_bytes(found.text.encode("utf-8", "backslashreplace"))
    if found.after is not None:
        lines.note(
            f"ullage: {found.after:,} of {found.total:,} characters; "
            f"the rest with --offset {found.after}"
        )
    return 0


def _find(given: argparse.Namespace) -> Page:
    """Return the page of the text, from the first place that has it."""
    places = find_places(given.store)
    for url in places[:-1]:
        if find_text(given.reference, url) is not None:
            places = [url]
    return page(given.reference, store=places[-1], offset=given.offset, limit=given.limit)


def find_places(named: str | None) -> list[str]:
    """Return the stores to search: the named one, the configured one, or the user's own.

    Raises ConfigurationError without any.
    """
    chosen = named or config.load().settings.store
    places = [chosen] if chosen else list(filter(_is_there, map(default_url, (SESSIONS, PROXY))))
    if not places:
        raise ConfigurationError(
            "no store is named: give --store sqlite:FILE, or set `store` (ULLAGE_STORE); there are "
            "no sessions of `ullage run` yet either"
        )
    return places


def _is_there(url: str) -> bool:
    return Path(url.partition(":")[2]).is_file()
