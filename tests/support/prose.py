"""Text that other people wrote: docstrings of the standard library, cut to about a size.

Every installation of Python has them. A size is in characters; pieces follow one another.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import difflib
import email.message
import inspect
import json
import logging
import pathlib
import random
import sqlite3
import statistics
import subprocess
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from types import ModuleType
from typing import Final

SOURCES: Final[tuple[ModuleType, ...]] = (
    argparse,
    asyncio,
    collections,
    difflib,
    email.message,
    json,
    logging,
    pathlib,
    random,
    sqlite3,
    statistics,
    subprocess,
    textwrap,
)


@cache
def read_all() -> str:
    """Return all docstrings of the sources, one after the other."""
    found = []
    for module in SOURCES:
        found.append(inspect.getdoc(module) or "")
        members = (getattr(module, name) for name in sorted(vars(module)) if name[0] != "_")
        found += [
            inspect.getdoc(m) or "" for m in members if inspect.isroutine(m) or inspect.isclass(m)
        ]
    return "\n\n".join(text for text in dict.fromkeys(found) if text)


def pieces(size: int, place: int = 0) -> Iterator[str]:
    """Yield pieces of 0.5 to 1.5 times a size, for ever, from a place in the text on."""
    text = read_all()
    place %= len(text)
    for share in cycle((1.0, 0.5, 1.5, 0.8, 1.2)):
        wanted = int(size * share)
        if place + wanted > len(text):
            place = 0
        yield text[place : place + wanted]
        place += wanted
