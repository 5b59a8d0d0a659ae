"""What outlives the process: kept whole, replaced when broken, never fatal."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ullage.core.tokens.claim import Claim
from ullage.windows.disk import FILE, Disk, StoredClaims

CLAIM = Claim("total", 4096, "refusal", "http://h", 5.0, 0.9, "said")
KEPT = StoredClaims({"k": (CLAIM,), "old": (CLAIM,)}, {"k": 100.0, "old": 10.0})


def test_what_is_saved_is_loaded_until_it_expires(tmp_path: Path) -> None:
    Disk(tmp_path / "deep").save(KEPT)
    found = Disk(tmp_path / "deep").load(now=50.0)
    assert (dict(found.claims), dict(found.until)) == ({"k": (CLAIM,)}, {"k": 100.0})


def test_a_file_of_version_1_is_dropped_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text('{"version": 1, "entries": {"k": 1}}')
    assert Disk(tmp_path).load(0.0) == StoredClaims()
    assert caplog.records == []


def test_without_a_folder_nothing_is_kept() -> None:
    disk = Disk(None)
    disk.save(KEPT)
    disk.clear()
    assert disk.load(0.0) == StoredClaims()


def test_a_missing_file_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert Disk(tmp_path).load(0.0) == StoredClaims()
    assert caplog.records == []


BROKEN: list[Any] = [
    "not json",
    "[]",
    json.dumps({"version": 3, "entries": {}}),
    json.dumps({"version": 2, "entries": {"k": {"claims": [{}], "until": 1}}}),
    json.dumps({"version": 2, "entries": {"k": 1}}),
    json.dumps(
        {
            "version": 2,
            "entries": {
                "k": {
                    "claims": [
                        {
                            "kind": "guess",
                            "tokens": 5000,
                            "source": "refusal",
                            "where": "",
                            "at": 0,
                            "confidence": 1,
                            "note": "",
                        }
                    ],
                    "until": 1e12,
                }
            },
        }
    ),
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_is_one_warning_and_is_replaced(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text(text)
    disk = Disk(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert disk.load(0.0) == StoredClaims()
    assert len(caplog.records) == 1
    assert "will be replaced" in caplog.text
    disk.save(KEPT)
    assert "k" in disk.load(0.0).claims


def test_a_folder_that_cannot_be_written_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        Disk(tmp_path / "file").save(KEPT)
    assert "cannot be written" in caplog.text


def test_a_file_in_the_place_of_the_folder_is_not_said_to_be_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        assert Disk(tmp_path / "file").load(0.0) == StoredClaims()
    assert f"{tmp_path / 'file' / FILE} cannot be read: Not a directory" in caplog.text
    assert "replaced" not in caplog.text


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.save(KEPT)
    with pytest.raises(TypeError):
        disk.save(StoredClaims({"k": (CLAIM,)}, {"k": object()}))  # type: ignore[dict-item]  # the fault
    assert [p.name for p in tmp_path.iterdir()] == [FILE]
    assert "k" in disk.load(0.0).claims


def test_clear_removes_the_file(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.save(KEPT)
    disk.clear()
    disk.clear()
    assert list(tmp_path.iterdir()) == []
