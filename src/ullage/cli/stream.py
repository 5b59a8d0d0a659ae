"""`--events`: the events of a session as lines of JSON, live, for a program that hosts it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ullage.cli import activity, lines
from ullage.core.session.log.event import HEAD, Event

if TYPE_CHECKING:
    import argparse

    from ullage.agent import Ended, Session
    from ullage.agent.session import Told

VERSION: Final = 1
"""The version of a line's form; an added field does not change it."""


class EventStream:
    """Writes a line for each event of a session to stdout, as soon as it happens.

    Each has `v`, `kind` and `session`: `recorded` (an event of the log: seq, ts, type, data),
    `live` (type and data, shown while it happens), and at last `ended` (how the turn ended). If the
    reader goes away, writing stops, but the turn continues.
    """

    def __init__(self) -> None:
        self._gone = False

    def hear(self, event: Told) -> None:
        """Write a recorded or a live event."""
        if isinstance(event, Event):
            head = {name: getattr(event, name) for name in HEAD if name not in ("session_id", "v")}
            self._write("recorded", event.session_id, {**head, "data": event.data})
        else:
            self._write("live", event.session_id, {"type": event.type, "data": dict(event.data)})

    def end(self, session: Session, ended: Ended) -> None:
        """Write how the turn ended: the fields of `--json`."""
        self._write("ended", session.name, json.loads(activity.document(session, ended)))

    def _write(self, kind: str, session: str, fields: dict[str, Any]) -> None:
        if self._gone:
            return
        line = json.dumps({"v": VERSION, "kind": kind, **fields, "session": session})
        try:
            lines.raw(f"{line}\n".encode())
        except BrokenPipeError:
            self._gone = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the output forms for programs."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document")
    form.add_argument(
        "--events", action="store_true", help="print each event as a line of JSON, as it happens"
    )
