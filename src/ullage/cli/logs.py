"""The log of services on stderr: its form, its levels by room, and its privacy.

A line is text for people or one JSON object, with the fields of its request or job (`ullage.logs`).
It holds no secret of a configuration and no well-known key. A traceback shows only places and
types, since the message of a foreign error may hold text of a conversation.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ullage import config
from ullage.cli import glyphs
from ullage.cli.lines import note
from ullage.config import sources
from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.errors.nearest import suggest
from ullage.core.messages.redaction import Redactor
from ullage.logs import list_fields

if TYPE_CHECKING:
    from ullage.config.serving import Serve

log = logging.getLogger("ullage.serve")

LEVELS: Final = tuple(map(str.lower, sources.LEVELS))
SAFE: Final = (ConfigurationError, OSError, StoreError)
"""Errors with our own messages or the system's: a line may repeat them."""


class Discreet(logging.Formatter):
    """Writes records without secrets; one record is one line, except for tracebacks in text.

    Control characters are escaped. With `as_json`, each record is a JSON object.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self.as_json = as_json
        self._secrets: frozenset[str] = frozenset()
        self._redactor = Redactor(keys=True)

    def learn(self, serve: Serve) -> None:
        """Leave out the keys and tokens of a configuration from now on."""
        keys = [one.api_key for one in serve.upstreams if one.api_key is not None]
        self.hide([*keys, *serve.tokens.values()])

    def hide(self, secrets: Iterable[str]) -> None:
        """Leave out further values from now on, both plain and as JSON strings."""
        found = frozenset(secrets)
        self._secrets |= found | {json.dumps(secret)[1:-1] for secret in found}
        self._redactor = Redactor(self._secrets, keys=True)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or several lines with a text traceback."""
        if self.as_json:
            return self._redactor.text(json.dumps(self._make_object(record)))
        request = getattr(record, "request", None)
        if request is not None:
            text = f"{self.formatTime(record)} {request}"
        else:
            fields = "".join(f"  {key}={value}" for key, value in _find_fields(record).items())
            first, *rest = super().format(record).split("\n")
            text = "\n".join([first + fields, *rest])
        return self._redactor.text("\n".join(map(glyphs.clean, text.split("\n"))))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as logging names it
        """Return the place and type of an error, with its message only if that is safe."""
        return "\n".join(_describe_error(ei[1]))

    def _make_object(self, record: logging.LogRecord) -> dict[str, Any]:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        room = record.name.removeprefix("ullage.")
        found: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "room": room}
        request = getattr(record, "request", None)
        if request is not None:
            return {**found, "event": "request", "message": "request", **request.fields()}
        event = getattr(record, "event", "log")
        found |= {"event": event, "message": record.getMessage(), **_find_fields(record)}
        if record.exc_info and record.exc_info[1] is not None:
            found["traceback"] = self.formatException(record.exc_info)
        return found


def _find_fields(record: logging.LogRecord) -> Mapping[str, Any]:
    """Return the fields of a record: those of its request or job, and its own."""
    return {**list_fields(), **getattr(record, "fields", {})}


def _describe_error(error: BaseException | None) -> Iterator[str]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield "Traceback (most recent call last):" if len(seen) == 1 else "which came from:"
        yield from "".join(traceback.format_tb(error.__traceback__)).splitlines()
        words = f": {error}" if isinstance(error, SAFE) else ""
        yield f"{type(error).__name__}{words}"
        error = error.__cause__ or error.__context__


# ── options ─────────────────────────────────────────────────────────────────────────────────────


def add_options(parser: argparse._ActionsContainer) -> None:
    """Declare the form of lines, and levels."""
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="one line for people, or one JSON object a line (text)",
    )
    parser.add_argument(
        "--log-level",
        type=read_levels,
        default={},
        metavar="ROOM=LEVEL,...",
        help="how much is logged: a level for all, or by room, such as proxy=debug,storage=error "
        "(the settings `logging`)",
    )


def list_rooms() -> tuple[str, ...]:
    """Return the names of rooms for levels."""
    from ullage.config.schema import LoggingTable

    return LoggingTable.__struct_fields__


def read_levels(text: str) -> dict[str, str]:
    """Return levels by room; raises argparse.ArgumentTypeError for invalid ones."""
    found = {}
    for part in filter(None, (part.strip().lower() for part in text.split(","))):
        room, equals, level = part.partition("=")
        room, level = (room, level) if equals else ("all", room)
        for what, value, known in (("room", room, list_rooms()), ("level", level, LEVELS)):
            if value not in known:
                there = suggest(value, known, f"there are {', '.join(known)}")
                raise argparse.ArgumentTypeError(f"{value!r:.80} is no {what}: {there}")
        found[room] = level
    return found


def begin_logging(held: ExitStack, given: argparse.Namespace) -> Discreet:
    """Write log records to stderr until the end, by the options; return the formatter."""
    discreet = Discreet(as_json=given.log_format == "json")
    discreet.hide(config.credentials())
    add_handler(held, logging.StreamHandler(sys.stderr), discreet)
    for room in list_rooms():
        logger = config.get_logger(room)
        held.callback(logger.setLevel, logger.level)
    for room in ("requests", "serve", "workers"):
        config.get_logger(room).setLevel(logging.INFO)
    apply_levels(given)
    return discreet


def add_handler(held: ExitStack, handler: logging.Handler, discreet: Discreet) -> None:
    """Let a handler write log records until the end."""
    handler.setFormatter(discreet)
    logging.getLogger().addHandler(handler)
    held.callback(logging.getLogger().removeHandler, handler)


def apply_levels(given: argparse.Namespace) -> None:
    """Set the levels of the options, over those of files and environment."""
    config.set_log_levels({}, given.log_level)


def announce(given: argparse.Namespace, event: str, lines: Iterable[str], **fields: Any) -> None:
    """Announce the start or the end of a service: in lines for people, or as one JSON object."""
    if given.log_format == "json":
        log.info("%s", event, extra={"event": event, "fields": {"pid": os.getpid(), **fields}})
    else:
        for line in lines:
            note(line)
