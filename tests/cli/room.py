"""A place for commands in a terminal: a workspace, a log and an environment of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.agent.acting import data, scripted
from tests.cli.terminal import Terminal
from tests.support.faults import Answer, FaultServer
from ullage.agent import Session
from ullage.storage import open_log

ULLAGE = str(Path(sys.executable).with_name("ullage"))


class Room:
    """A workspace, a log and an environment of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        (folder / "state").mkdir(mode=0o700)  # a folder that is made is told of
        (folder / "config.toml").write_text("")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ULLAGE", "NO_COLOR"))}
        self.environment = {
            **kept,
            "ULLAGE_CONFIG": str(folder / "config.toml"),
            "ULLAGE_CACHE_DIR": str(folder / "cache"),
            "HOME": str(folder),
            "ULLAGE_ALLOW_ROOT": "1",
        }

    @property
    def store(self) -> str:
        return f"sqlite:{self.folder}/state/s.db"

    def command(self, server: FaultServer, *words: str) -> list[str]:
        where = ["--store", self.store, "--workspace", str(self.work), "--window", "8000"]
        model = ["--model", "model", "--base-url", server.base_url]
        return [ULLAGE, *words, *where, *model]

    def events(self, kind: str) -> list[Any]:
        log = open_log(self.store)
        session = Session(log, log.sessions()[-1].session)
        found = data(session, kind)
        log.close()
        return found


@contextmanager
def running(
    room: Room, script: tuple[Answer, ...], *words: str, **terminal: Any
) -> Iterator[tuple[Terminal, FaultServer]]:
    """Run a command in a terminal, over a scripted model; changes are asked for."""
    with scripted(*script) as server:
        command = [*room.command(server, *words), "--permission", "ask"]
        with Terminal(command, room.environment, **terminal) as shown:
            yield shown, server
