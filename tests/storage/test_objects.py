"""Texts in object storage: written once, checked when read, told when gone; files and real S3."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.objects import BUCKET, serve_s3
from ullage.core.errors import ConfigurationError, StoreAway, StoreError
from ullage.storage.objects import (
    LostText,
    MovedText,
    ObjectPlace,
    ObjectReader,
    pack_original,
    read_original,
    unpack_original,
)

TEXTS = ("", "seven casks", "é\ud800\0", "x" * 300_000)


@pytest.fixture(scope="module")
def s3() -> Iterator[Mapping[str, str]]:
    with serve_s3() as variables:
        yield variables


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectPlace:
    if request.param == "file":
        return ObjectPlace(f"file://{tmp_path}/texts", create=True)
    patch = request.getfixturevalue("monkeypatch")
    for name, value in request.getfixturevalue("s3").items():
        patch.setenv(name, value)
    return ObjectPlace(f"s3://{BUCKET}/{tmp_path.name}/")


def test_what_is_written_is_read_and_listed(place: ObjectPlace):
    moved = [place.put(text) for text in TEXTS]
    assert [place.get(one) for one in moved] == list(TEXTS)
    twice = place.put(TEXTS[1])
    assert twice.name != moved[1].name, "no two rows share an object"
    there = dict(place.list_objects(time.time() + 60))
    assert there == {one.name: one.size for one in (*moved, twice)}
    assert dict(place.list_objects(0.0)) == {}
    place.delete([twice.name, twice.name])
    assert twice.name not in dict(place.list_objects(time.time() + 60))
    assert place.get(moved[1]) == TEXTS[1]


def test_one_that_is_gone_or_changed_is_told(place: ObjectPlace):
    kept, gone = place.put("kept"), place.put("gone")
    place._store.put(kept.name, b"other")
    place.delete([gone.name])
    with pytest.raises(LostText, match=f"{kept.name} was changed after it was written"):
        place.get(kept)
    with pytest.raises(LostText, match=f"{gone.name} cannot be read: .* no such object"):
        place.get(gone)


def test_a_reader_fetches_what_rows_name(place: ObjectPlace):
    moved = [place.put(text).write() for text in TEXTS]
    reader = ObjectReader()
    mixed = ["{}", *moved, "[]"]
    assert reader.resolve(mixed) == ["{}", *TEXTS, "[]"]
    assert reader.resolve([moved[1]]) == [TEXTS[1]]
    assert reader.resolve([]) == []
    reader.forget([moved[2], "a text"])
    with pytest.raises(LostText) as told:
        reader.resolve(mixed)
    assert told.value.at == 3
    assert reader.resolve(mixed, lost=True) == ["{}", *TEXTS[:2], moved[2], TEXTS[3], "[]"]


def test_what_cannot_be_deleted_is_told_and_left(
    s3: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    for name, value in {**s3, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    moved = MovedText(f"s3://{BUCKET}/x", "ab/name", "0", 1)
    with caplog.at_level(logging.WARNING):
        ObjectReader().forget([moved.write()])
    assert "ab/name is named by no row any more, and stays" in caplog.text
    with pytest.raises(StoreAway, match="check that it is there, its credentials"):
        ObjectReader().resolve([moved.write()])


@pytest.mark.parametrize(
    "url",
    ["", "memory:///", "ftp://x/y", "https://host/x", "s3://", "s3://key:secret@bucket/x",
     "s3://bucket/x?y=1", "file://host/folder"],
)  # fmt: skip
def test_other_places_are_refused(url: str):
    with pytest.raises(ConfigurationError, match="names no place for objects"):
        ObjectPlace(url)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="its folder cannot be made"):
        ObjectPlace(f"file://{tmp_path}/file/texts", create=True)
    with pytest.raises(StoreError, match="it cannot be opened"):
        ObjectPlace(f"file://{tmp_path}/none")


def test_the_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigurationError, match="needs obstore"):
        ObjectPlace(f"file://{tmp_path}")


@pytest.mark.parametrize("text", ["{}", "object", "object:", "object:{}", 'object:{"url":1}'])
def test_what_names_no_object_is_a_text(text: str):
    assert MovedText.read(text) is None
    assert read_original(ObjectReader(), pack_original(text)) == text


def test_an_original_that_reads_like_a_place_stays_what_it_is(tmp_path: Path):
    moved = ObjectPlace(f"file://{tmp_path}").put("seven casks")
    body = pack_original(moved.write())
    assert unpack_original(body) == moved.write()
    assert read_original(ObjectReader(), body) == "seven casks"
    assert read_original(ObjectReader(), moved.write().encode()) == moved.write()


def _read_in_fork(url: str, moved: MovedText) -> None:
    try:
        ObjectPlace(url).get(moved)
    except StoreAway as error:
        os._exit(7 if "was forked" in str(error) else 8)
    os._exit(9)


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_is_told_instead_of_hanging(s3: Mapping[str, str], monkeypatch: pytest.MonkeyPatch):
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    url = f"s3://{BUCKET}/fork"
    child = multiprocessing.get_context("fork").Process(
        target=_read_in_fork, args=(url, ObjectPlace(url).put("x"))
    )
    child.start()
    child.join(30)
    assert child.exitcode == 7
