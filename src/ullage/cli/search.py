"""`ullage search`: find text that was said or left out, by words."""

from __future__ import annotations

import argparse
import json

from ullage.api.search import search
from ullage.cli.recall import find_places
from ullage.core.search.ranking import HITS, Hit

SUMMARY = "search messages and dropped texts by words"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("words", nargs="+", help="what to look for, in any language")
    parser.add_argument(
        "--store",
        "--log",
        metavar="URL",
        help="where to look, a store or a log of sessions: sqlite:FILE or postgresql://... "
        "(else the setting `store`, then the user's own sessions and the proxy's store)",
    )
    parser.add_argument("--session", metavar="NAME", help="look into one session only")
    parser.add_argument("--hits", type=int, default=HITS, metavar="N", help="at most so many")
    parser.add_argument("--json", action="store_true", help="print one JSON object a hit")


def run(given: argparse.Namespace) -> int:
    """Print the hits, the best first; exit code 1 without any."""
    found: list[Hit] = []
    for url in find_places(given.store):
        query = " ".join(given.words)
        found += search(query, store=url, hits=given.hits, session=given.session)
    best = sorted(found, key=lambda hit: -hit.score)[: given.hits]
    for hit in best:
        print(json.dumps(hit.to_dict(), ensure_ascii=False) if given.json else _write(hit))
    return 0 if best else 1


def _write(hit: Hit) -> str:
    where = f" in session {hit.session}" if hit.session else ""
    return f"{hit.reference} from character {hit.offset:,}{where}\n{hit.text.strip()}\n"
