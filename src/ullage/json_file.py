"""One small JSON file that outlives the process: written whole and atomically.

Several processes may write; the last one wins. An unreadable file is replaced: it is never trusted
and never fatal. This module does not know the content.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

log = logging.getLogger("ullage.files")

Content = TypeVar("Content")

UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError)
"""The errors that reading a file from elsewhere may raise."""


class JsonFile:
    """The file `name` in a folder; if `folder` is None, nothing is read or written."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self._path = folder / name if folder is not None else None

    def load(self, read: Callable[[Any], Content]) -> Content | None:
        """Return the result of `read` on the file, or None if the file is missing or unreadable."""
        if self._path is None:
            return None
        try:
            return read(json.loads(self._path.read_text("utf-8")))
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("%s cannot be read: %s", self._path, error.strerror or error)
            return None
        except UNREADABLE as error:
            log.warning("%s is unreadable and will be replaced (%s)", self._path, error)
            return None

    def save(self, content: Any) -> None:
        """Write the content; a failure is only one warning, as the process has the data anyway."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _replace(self._path, json.dumps(content))
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error)

    def clear(self) -> None:
        """Remove the file."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _replace(path: Path, text: str) -> None:
    import tempfile

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
