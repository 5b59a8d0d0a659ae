"""Stores of older versions, opened by this one; and what older versions make of ours.

`versions/` holds what the last versions before each change of a schema left behind: a session that
was compacted, a fork of it, and what their proxy kept (`tests.storage.versions` wrote it).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.storage.versions import (
    FIXTURES,
    OLDER,
    ROOT,
    WINDOW,
    Version,
    answering,
    unpack,
    write_log,
    write_store,
)
from ullage import Guard, search
from ullage.cli.main import main
from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.guard.events import Compacted
from ullage.storage import open_log, open_store
from ullage.storage.log import faults_of
from ullage.storage.ndjson import lines
from ullage.storage.schema import read_schema
from ullage.workers.engines.sqlite import SqliteEngine, place_queue

KNOWN = {"sqlite": 3, "postgresql": 4}
STRICT = {OLDER["sqlite-2"]}
"""Versions that refuse a session whose guard remembers more than they know of."""

SAME_SCHEMA = "7bb367479a0433f69dac395cf471f8748479a501"


class Left:
    """What an older version left behind: its stores at `url`, its exports, its proxy's part."""

    def __init__(self, name: str, url: str, packed: zipfile.ZipFile) -> None:
        self.name = name
        self.url = url
        texts = {n: packed.read(n) for n in packed.namelist()}
        self.sessions = {Path(n).stem: text for n, text in texts.items() if "ndjson" in n}
        self.proxy: dict[str, Any] = json.loads(texts["proxy.json"])


@pytest.fixture(params=OLDER)
def left(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Left:
    monkeypatch.setenv("ULLAGE_CACHE_DIR", str(tmp_path / "cache"))
    with zipfile.ZipFile(FIXTURES / f"{request.param}.zip") as packed:
        if request.param.startswith("sqlite"):
            return Left(request.param, f"sqlite:{packed.extract('ullage.db', tmp_path)}", packed)
        url = request.getfixturevalue("postgres_database")()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(packed.read("dump.sql"))
        return Left(request.param, url, packed)


def test_the_version_of_an_older_store_is_told_and_then_brought_forward(left, capsys) -> None:
    engine, _, number = left.name.partition("-")
    found = read_schema(left.url)
    assert (found.found, found.known) == (int(number), KNOWN[engine])
    assert main(["doctor", "--ports", "9", "--store", left.url]) == 0
    told = f"schema version {number}, of {KNOWN[engine]} known here; the next session or guard"
    assert told in capsys.readouterr().out
    open_log(left.url).close()
    assert read_schema(left.url).outlook == "this ullage reads and writes it"


def test_every_event_of_an_older_log_is_read_byte_for_byte(left) -> None:
    log = open_log(left.url)
    assert {head.session for head in log.sessions()} == set(left.sessions)
    for name, exported in left.sessions.items():
        assert b"".join(lines(log.read(name))) == exported
        assert list(faults_of(log.read_stamped(name))) == []
    assert any(b'"history_compaction"' in text for text in left.sessions.values())
    log.close()


def test_an_older_session_goes_on_and_its_words_are_found(left, tmp_path) -> None:
    with answering() as model:
        where = ("--store", left.url, "--model", "model", "--base-url", model.base_url)
        for name in left.sessions:
            words = ("run", "Any news?", "--session", name, "--no-tools", "--window", WINDOW)
            assert main([*words, *where, "--workspace", str(tmp_path)]) == 0
        sent = [json.loads(r.body)["messages"] for r in model.requests if r.method == "POST"]
    log = open_log(left.url)
    for name, exported in left.sessions.items():
        events = log.read(name)
        assert b"".join(lines(events)).startswith(exported)
        assert [e.type for e in events][-1] == "turn_completed"
        said = sum(e.type in ("user_message", "assistant_message") for e in events)
        assert len(sent) == len(left.sessions)
        assert all(len(messages) < said for messages in sent), "the compaction holds"
    assert search("valve 17", store=log)
    log.close()


def test_what_an_older_proxy_compacted_is_not_compacted_again(left) -> None:
    history = left.proxy["messages"]
    seen: list[Any] = []
    store = open_store(left.url, now=lambda: left.proxy["written"])
    guard = Guard(
        "model",
        base_url=left.proxy["url"],
        window=int(WINDOW),
        store=store,
        on_event=seen.append,
    )
    view = guard.prepare(history[:-1])  # what the proxy was sent last
    assert len(view.messages) < len(history) - 1
    assert [event for event in seen if isinstance(event, Compacted)] == []
    later = guard.prepare([*history, {"role": "user", "content": "Any news?"}])
    (made,) = [event for event in seen if isinstance(event, Compacted)]
    assert made.checkpoint.generation > 0, "it stands on those before"
    assert len(later.messages) < len(history)
    store.close()


def test_a_store_that_is_not_ours_or_not_there_has_no_version(tmp_path, postgres_database) -> None:
    with pytest.raises(StoreError, match=r"there is no store at .*none\.db"):
        read_schema(f"sqlite:{tmp_path}/none.db")
    (tmp_path / "no.db").write_bytes(b"")
    with pytest.raises(StoreError, match="is another program's SQLite file"):
        read_schema(f"sqlite:{tmp_path}/no.db")
    with pytest.raises(StoreError, match=r"there is no store in postgresql://postgres@/database"):
        read_schema(postgres_database())
    with pytest.raises(StoreError, match=r"cannot be asked: check the URL, and the server \(Oper"):
        read_schema(f"postgresql://u:secret@/x?host={tmp_path}")
    with pytest.raises(ConfigurationError, match="has no schema: give sqlite:FILE or"):
        read_schema("memory:")


def test_a_queue_is_no_store_and_a_store_no_queue(tmp_path) -> None:
    log = tmp_path / "ullage.db"
    queue = place_queue(log)
    asyncio.run(SqliteEngine(log).aclose())
    before = digest(f"sqlite:{queue}")
    for read in (open_log, open_store, read_schema):
        with pytest.raises(StoreError, match="ullage file, without the table records"):
            read(f"sqlite:{queue}")
    assert digest(f"sqlite:{queue}") == before
    asyncio.run(SqliteEngine(log).aclose())
    open_log(f"sqlite:{tmp_path}/x.jobs").close()
    with pytest.raises(StoreError, match="ullage file, without the table jobs"):
        SqliteEngine(tmp_path / "x")


def test_a_store_of_a_later_version_is_named_as_one(tmp_path, monkeypatch) -> None:
    url = f"sqlite:{tmp_path}/later.db"
    open_log(url).close()
    monkeypatch.setattr("ullage.storage.database.MIGRATIONS", ("",))
    assert read_schema(url).outlook.startswith("a later ullage wrote it")


# --- there and back, with the older version itself ------------------------------------------------


def digest(url: str) -> list[str]:
    """Return the hashes of the files of a store in SQLite."""
    path = Path(url.removeprefix("sqlite:"))
    return [hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(path.parent.glob("*"))]


def take(commit: str, folder: Path) -> Version:
    """Return the version of a commit; where the history does not reach so far, the test is none."""
    known = subprocess.run(["git", "-C", str(ROOT), "cat-file", "-e", commit], check=False)
    if known.returncode:
        pytest.skip("the history of this clone does not reach so far")
    return unpack(commit, folder)


@pytest.fixture
def ours(tmp_path: Path) -> Version:
    (tmp_path / "ours").mkdir()
    return Version(ROOT, tmp_path / "ours")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Return what gives the URL of a new store of a name."""
    if request.param == "sqlite":

        def made(name: str) -> str:
            (tmp_path / name).mkdir()
            return f"sqlite:{tmp_path}/{name}/ullage.db"

        return made
    database = request.getfixturevalue("postgres_database")
    return lambda name: database()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_older_version_refuses_a_newer_store_unharmed_and_takes_its_sessions_by_export(
    url, ours, tmp_path
) -> None:
    store = url("new")
    engine = store.partition(":")[0]
    name = max(name for name in OLDER if name.startswith(engine))
    older = take(OLDER[name], tmp_path / "older")
    with answering() as model:
        sessions = write_log(older, store, model)
        write_store(older, store, model)
        ours.run("verify", "--all", "--store", store)
        ours.run("run", "And?", "--session", "branch", "--store", store, "--quiet", model=model)
        before = digest(store) if engine == "sqlite" else []
        refused = older.run("sessions", "--store", store, code=1).stderr
        assert f"has schema version {KNOWN[engine]}, and this ullage reads up to" in refused
        assert "upgrade ullage" in refused
        if engine == "sqlite":
            assert store.removeprefix("sqlite:") in refused
            assert digest(store) == before
        back = url("back")
        for session in sessions:
            file = str(tmp_path / f"{session}.ndjson")
            ours.run("export", session, "--store", store, "--out", file)
            older.run("import", file, "--store", back)
            there = older.run("export", session, "--store", back).stdout
            assert there == Path(file).read_text("utf-8")
        older.run("verify", "--all", "--store", back)
        shown = older.run("show", "branch", "--store", back).stdout
        assert "Go on." in shown
        assert "And?" in shown
        if OLDER[name] not in STRICT:
            older.run("run", "So?", "--session", "branch", "--store", back, model=model)
        ours.run("verify", "--all", "--store", store)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_versions_of_one_schema_take_turns_at_one_store(url, ours, tmp_path) -> None:
    older, store = take(SAME_SCHEMA, tmp_path / "older"), url("shared")
    with answering() as model:
        write_log(ours, store, model)
        write_store(ours, store, model)
        for version in (older, ours, older, ours):
            version.run("verify", "--all", "--store", store)
            version.run("run", "So?", "--session", "branch", "--store", store, model=model)
        write_store(older, store, model)
        ours.run("verify", "--all", "--store", store)
