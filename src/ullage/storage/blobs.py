"""Contents of files, by their hash: in a private folder, or in memory.

The total size is limited: the oldest contents are removed first. It knows no session and no
workspace.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from ullage.core.errors import StoreError

MONTH_S: Final = 30 * 24 * 3600.0
LARGEST: Final = 1024 * 1024 * 1024
"""Most bytes of all contents together."""


def hash_content(data: bytes) -> str:
    """Return the name of a content: its hash."""
    return blake2b(data, digest_size=20).hexdigest()


class Blobs:
    """Contents by their hashes; `folder` None keeps them in memory, until the process ends.

    `purge` removes contents older than `ttl_s` seconds, and the oldest ones over `largest` bytes in
    total. `known` is a cache for code that reads the same files again: entries by path.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        largest: int = LARGEST,
        ttl_s: float = MONTH_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.known: dict[str, tuple[list[int], str]] = {}
        self._folder, self._largest, self._ttl_s, self._now = folder, largest, ttl_s, now
        self._memory: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def keep(self, data: bytes, *, sync: bool = False) -> str:
        """Keep a content and return its hash; `sync` makes it survive a power cut. StoreError."""
        name = hash_content(data)
        with self._lock:
            if self._folder is None:
                self._memory.pop(name, None)
                self._memory[name] = data
            else:
                self._write(self._folder, name, data, sync=sync)
        return name

    def has(self, name: str) -> bool:
        """Tell whether a content is there."""
        return name in self._memory if self._folder is None else self._path(name).is_file()

    def read(self, name: str) -> bytes | None:
        """Return a content, or None if it is gone or has changed."""
        if self._folder is None:
            return self._memory.get(name)
        try:
            data = self._path(name).read_bytes()
        except OSError:
            return None
        return data if hash_content(data) == name else None

    def forget(self, name: str) -> None:
        """Remove a content; do nothing if it is not there."""
        with self._lock:
            self._forget(name)

    def purge(self) -> int:
        """Remove expired contents and those over the limit; return how many."""
        with self._lock:
            held = self._list_held()
            total, gone = sum(size for _, size, _ in held), 0
            for kept, size, name in sorted(held):
                if total <= self._largest and kept > self._now() - self._ttl_s:
                    break
                total, gone = total - size, gone + 1
                self._forget(name)
            return gone

    def _list_held(self) -> list[tuple[float, int, str]]:
        if self._folder is None:
            now = self._now()
            return [(now, len(data), name) for name, data in self._memory.items()]
        found = []
        for path in self._folder.glob("??/*"):
            with suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path.name))
        return found

    def _forget(self, name: str) -> None:
        if self._folder is None:
            self._memory.pop(name, None)
            return
        with suppress(OSError):
            self._path(name).unlink()

    def _path(self, name: str) -> Path:
        assert self._folder is not None  # noqa: S101 - only called with a folder
        return self._folder / name[:2] / name

    def _write(self, folder: Path, name: str, data: bytes, *, sync: bool) -> None:
        path = folder / name[:2] / name
        made = path.with_name(f".{secrets.token_hex(8)}")
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.chmod(0o700)
            if path.is_file() and path.stat().st_size == len(data):
                os.utime(path)  # kept again: it is removed last
                return
            descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            made.replace(path)
        except OSError as error:
            with suppress(OSError):
                made.unlink()
            raise StoreError(
                f"what a file held cannot be kept in {folder} ({error}): nothing was changed; make "
                "room there"
            ) from error
