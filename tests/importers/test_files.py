"""The bytes of a file: bounded, and decompressed where this Python can."""

from __future__ import annotations

import bz2
import io

import pytest

from ullage.core.errors import ConfigurationError
from ullage.importers.files import content, read_bounded

MAGIC = b"\x28\xb5\x2f\xfd"


class BrokenError(Exception):
    """What the fake module raises for data it cannot read."""


def unpack(file):
    packed = file.read().removeprefix(MAGIC)
    if packed == b"broken":
        raise BrokenError("no frame")
    return io.BytesIO(bz2.decompress(packed))


class Package:
    """The shape of `zstandard`, over another compression."""

    ZstdError = BrokenError

    class ZstdDecompressor:
        def stream_reader(self, file, *, read_across_frames):
            assert read_across_frames
            return unpack(file)


class Standard:
    """The shape of `compression.zstd`."""

    ZstdError = BrokenError
    ZstdFile = io.BytesIO

    @staticmethod
    def open(file, mode):
        assert mode == "rb"
        return unpack(file)


def importer(present):
    """Return an import that finds one module only."""

    def imported(name):
        if name != present:
            raise ImportError(name)
        return {"compression.zstd": Standard, "zstandard": Package}[name]

    return imported


def packed(path, data):
    path.write_bytes(MAGIC + bz2.compress(data))
    return path


@pytest.mark.parametrize("present", ["compression.zstd", "zstandard"])
def test_a_compressed_file_is_read_with_whichever_module_is_there(tmp_path, present):
    path = packed(tmp_path / "rollout.jsonl.zst", b"lines")
    assert content(path, importer(present)) == b"lines"


def test_without_a_module_the_error_names_the_fix(tmp_path):
    path = packed(tmp_path / "rollout.jsonl.zst", b"lines")
    with pytest.raises(
        ConfigurationError, match=r"needs backports.zstd.*pip install 'ullage\[all\]'"
    ):
        content(path, importer("neither"))


def test_data_that_cannot_be_decompressed_is_named(tmp_path):
    path = tmp_path / "rollout.jsonl.zst"
    path.write_bytes(MAGIC + b"broken")
    with pytest.raises(ConfigurationError, match=r"rollout\.jsonl\.zst cannot be decompressed"):
        content(path, importer("zstandard"))


def test_the_plain_file_wins_and_either_stands_in_for_the_other(tmp_path):
    plain = tmp_path / "rollout.jsonl"
    twin = packed(tmp_path / "rollout.jsonl.zst", b"packed")
    assert content(plain, importer("zstandard")) == b"packed"
    plain.write_bytes(b"plain")
    assert content(plain, importer("zstandard")) == b"plain"
    assert content(twin, importer("zstandard")) == b"plain"


@pytest.mark.parametrize("name", ["missing.jsonl", "missing.jsonl.zst", ""])
def test_a_file_that_cannot_be_opened_is_named(tmp_path, name):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        content(tmp_path / name)


def test_more_than_the_limit_is_refused_with_the_limit():
    assert read_bounded(io.BytesIO(b"1234"), "x", 4) == b"1234"
    with pytest.raises(ConfigurationError, match="x is larger than 1 MiB"):
        read_bounded(io.BytesIO(b"\0" * (1024**2 + 1)), "x", 1024**2)
