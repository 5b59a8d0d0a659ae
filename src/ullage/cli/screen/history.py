"""The typed lines of all sessions: a file in the user's data folder, readable by its owner only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit.history import History

MOST: Final = 2_000
"""Most lines that are kept; at twice as many, the older ones are dropped."""

LONGEST: Final = 10_000
"""Most characters of a kept line; a longer one was not typed by hand."""

FILE: Final = "chat-history.jsonl"


class HistoryFile(History):
    """Lines of JSON, one for each message: a paste is stored only by its label.

    If the file cannot be read or written, only the history is lost: `fault` says why.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.fault = ""

    def load_history_strings(self) -> Iterable[str]:
        """Return the typed lines, the last one first."""
        return list(reversed(self._read()[-MOST:]))

    def store_string(self, string: str) -> None:
        """Add a line to the file."""
        if len(string) > LONGEST:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            held = self._read()
            if len(held) >= 2 * MOST:
                self._write(held[-MOST:])
            with os.fdopen(os.open(self._path, flags, 0o600), "a", encoding="utf-8") as file:
                if hasattr(os, "fchmod"):  # Windows has no such modes
                    os.fchmod(file.fileno(), 0o600)
                file.write(f"{json.dumps(string)}\n")
        except OSError as error:
            self.fault = f"{self._path} cannot be written: {error.strerror}"

    def _read(self) -> list[str]:
        try:
            rows = self._path.read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            self.fault = f"{self._path} cannot be read: {error.strerror}"
            return []
        return [line for row in rows if (line := _parse(row))]

    def _write(self, held: Iterable[str]) -> None:
        """Write the file again, in one piece."""
        new = self._path.with_name(f"{FILE}.{os.getpid()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(new, flags, 0o600), "w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in held)
        new.replace(self._path)


def _parse(row: str) -> str:
    try:
        line = json.loads(row)
    except ValueError:  # a line that a crash cut
        return ""
    return line if isinstance(line, str) else ""


def find_history() -> Path:
    """Return the file, in the user's data folder."""
    import platformdirs

    return Path(platformdirs.user_data_dir("ullage", appauthor=False)) / FILE
