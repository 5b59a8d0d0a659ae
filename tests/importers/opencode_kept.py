"""Sessions of opencode for tests: recorded ones put back where it keeps them, and made-up ones.

The recordings are of the real program (opencode 1.1.65, 1.2.4 and 1.18.33) against a scripted
server of Chat Completions: its rows or files, its export, and the messages of each request that it
sent with tools. Paths of the machine are replaced; in `cleared` (1.18.33) long results are cut to
36 characters in rows and requests alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw

RECORDINGS = Path(__file__).parents[1] / "recordings" / "opencode"
COMPACTED = "ses_deadb3865ffewa7j2cdl6hSqjr"
TAILED = "ses_deadaf171ffeWitAAh5hwEd75Z"
ARCHIVED = "ses_deadab66affebev5u1wd9joAKo"
FILED = "ses_deadd1bceffeL1lPd2Jc4SU6Za"
PROJECT = "/home/dev/notes"


def recorded(name: str) -> Any:
    return json.loads((RECORDINGS / name).read_text("utf-8"))


def restore(home: Path, version: str = "1.18.33", name: str = "opencode.db") -> Path:
    """Put a recorded database below a folder of homes; return its path."""
    told = recorded(f"database-{version}.json")
    path = home / ".local/share/opencode" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_writer(path) as connection:
        for statement in told["schema"]:
            connection.execute(statement)
        for table, held in told["tables"].items():
            marks = ", ".join("?" * len(held["columns"]))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", held["rows"])
    connection.close()
    return path


def open_writer(path: Path) -> apsw.Connection:
    """Open a database as opencode does: a log of writes, and foreign keys."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL")
    return connection


def restore_files(home: Path) -> Path:
    """Put the recorded files of version 1.1 below a folder of homes; return their folder."""
    storage = home / ".local/share/opencode/storage"
    for name, fields in recorded("files-1.1.65.json").items():
        path = storage / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(fields, indent=2), "utf-8")
    return storage


# ── made up ─────────────────────────────────────────────────────────────────────────────────────


def tokens(read: int = 0, given: int = 10, output: int = 2, **more: Any) -> dict[str, Any]:
    return {"input": given, "output": output, "reasoning": 0,
            "cache": {"read": read, "write": 0}, **more}  # fmt: skip


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def tool(call: str, output: str = "done", **state: Any) -> dict[str, Any]:
    held = {"status": "completed", "input": {"path": call}, "output": output,
            "time": {"start": 1, "end": 2}}  # fmt: skip
    return {"type": "tool", "tool": "read", "callID": call, "state": {**held, **state}}


def user(name: str, *parts: Any, at: int = 0, **more: Any) -> dict[str, Any]:
    info = {"id": name, "role": "user", "time": {"created": at}, **more}
    return {"info": info, "parts": list(parts) or [text(name)]}


def answer(name: str, *parts: Any, at: int = 0, **more: Any) -> dict[str, Any]:
    info = {
        "id": name,
        "role": "assistant",
        "time": {"created": at},
        "modelID": "claude-sonnet-4-5",
        "providerID": "anthropic",
        "tokens": tokens(),
        "finish": "stop",
        **more,
    }
    return {"info": info, "parts": list(parts) or [text(name)]}


def export(*messages: Any, **info: Any) -> bytes:
    told: Mapping[str, Any] = {"id": "ses_made", "directory": PROJECT, **info}
    return json.dumps({"info": told, "messages": list(messages)}).encode()
