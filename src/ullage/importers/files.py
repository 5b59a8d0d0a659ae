"""The bytes of a session file: plain, compressed or from standard input, up to a limit.

It knows neither the places of such files nor their contents.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO, cast

from ullage.core.errors import ConfigurationError
from ullage.core.errors.extras import explain_missing

MOST_BYTES: Final = 512 * 1024 * 1024
"""Far more than real sessions; a parsed file takes several times its size in memory."""

ZST: Final = ".zst"
_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_GZIP: Final = b"\x1f\x8b"

Importer = Callable[[str], Any]
"""A function that imports modules; tests replace it."""


def content(path: Path, importer: Importer = importlib.import_module) -> bytes:
    """Return a file's bytes, decompressed; raises ConfigurationError that names the fault.

    A plain file takes precedence over a compressed one of the same name; either one alone is read.
    """
    plain = path.with_suffix("") if path.suffix == ZST else path
    packed = Path(f"{plain}{ZST}")
    chosen = plain if is_file(plain) or not is_file(packed) else packed
    try:
        with chosen.open("rb") as file:
            start = file.read(len(_MAGIC))
            file.seek(0)
            if start == _MAGIC:
                return _read_compressed(file, chosen, importer)
            if start.startswith(_GZIP):
                return _read_gzip(file, chosen)
            return read_bounded(file, str(chosen))
    except OSError as error:
        raise ConfigurationError(f"{chosen} cannot be read: {error.strerror or error}") from error


def is_file(path: str | Path) -> bool:
    """Tell whether a file exists; False for text that cannot be a path, such as a sentence."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def find_input() -> TextIO:
    """Return standard input; raises ConfigurationError if it was closed before the start."""
    if sys.stdin is None:
        raise ConfigurationError("standard input is closed: pipe something in, or name a file")
    return sys.stdin


def standard_input() -> bytes:
    """Return all of standard input; raises ConfigurationError if it cannot be read."""
    stream = find_input()
    try:
        return read_bounded(stream.buffer, "standard input")
    except OSError as error:
        why = error.strerror or error
        raise ConfigurationError(f"standard input cannot be read: {why}") from error


def read_bounded(file: BinaryIO, name: str, most: int = MOST_BYTES) -> bytes:
    """Return the contents of a file; raises ConfigurationError if it exceeds `most` bytes."""
    data = file.read(most + 1)
    if len(data) > most:
        raise ConfigurationError(
            f"{name} is larger than {most // 1024**2:,} MiB, the most that is read of a session: "
            "cut it to the part you want to see (`tail -n 10000`)"
        )
    return data


def _read_compressed(file: BinaryIO, path: Path, importer: Importer) -> bytes:
    module = _zstandard(path, importer)
    try:
        with _open_compressed(module, file) as stream:
            return read_bounded(stream, str(path))
    except (EOFError, ValueError, module.ZstdError) as error:
        raise ConfigurationError(f"{path} cannot be decompressed: {error}") from error


def _read_gzip(file: BinaryIO, path: Path) -> bytes:
    import gzip
    import zlib

    try:
        with gzip.GzipFile(fileobj=file) as stream:
            return read_bounded(cast("BinaryIO", stream), str(path))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ConfigurationError(f"{path} cannot be decompressed: {error}") from error


def _zstandard(path: Path, importer: Importer) -> Any:
    """Return the module of the standard library, or an installed package."""
    for name in ("compression.zstd", "backports.zstd", "zstandard"):
        try:
            return importer(name)
        except ImportError:
            continue
    raise explain_missing(f"{path} is compressed and", "backports.zstd")


def _open_compressed(module: Any, file: BinaryIO) -> Any:
    """Return the decompressed stream; by default the package stops after one frame."""
    if hasattr(module, "ZstdFile"):
        return module.open(file, "rb")
    return module.ZstdDecompressor().stream_reader(file, read_across_frames=True)
