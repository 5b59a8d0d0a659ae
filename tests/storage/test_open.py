"""`open_store` and `open_log`: which URL opens what, and what is said of one that opens nothing."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from ullage.core.errors import ConfigurationError, StoreError
from ullage.storage import MemoryStore, Store, open_log, open_store
from ullage.storage.log import EventLog
from ullage.storage.log_memory import MemoryLog
from ullage.storage.opening import _path
from ullage.storage.sqlite import SqliteStore


@pytest.mark.parametrize("url", ["memory:", "memory://"])
def test_memory_is_a_store(url: str):
    store: Store = open_store(url)
    assert isinstance(store, MemoryStore)
    assert store.url == "memory:"


def test_a_relative_and_an_absolute_url_open_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    made = open_store("sqlite:folder/store.db")
    assert isinstance(made, SqliteStore)
    made.originals.keep({"u:1": "text"})
    made.close()
    for url in (
        made.url,
        f"sqlite://{tmp_path}/folder/store.db",
        f"sqlite:{tmp_path}/folder/store.db",
    ):
        again = open_store(url, create=False)
        assert again.originals.read("u:1") == "text"
        again.close()


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///a/b.db", "/a/b.db"),
        ("sqlite:////a/b.db", "/a/b.db"),
        ("sqlite:/a/b.db", "/a/b.db"),
        ("sqlite:///a%20b#c.db", "/a%20b#c.db"),
    ],
)
def test_a_path_is_taken_as_it_stands(url: str, path: str):
    assert _path(url, url.removeprefix("sqlite:")) == Path(path).absolute()


def test_a_drive_of_windows_is_no_root():
    assert str(_path("", "///C:/store.db")).endswith("C:/store.db")
    assert not str(_path("", "///C:/store.db")).startswith("/C:")


def test_a_tilde_is_the_users_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert _path("", "~/store.db") == tmp_path / "store.db"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "names no store of a known kind: give memory:, sqlite:FILE"),
        ("store.db", "names no store"),
        ("postgresql:db", "names no store"),
        ("mysql://me:geheim@host/db", "'mysql://me@host/db' names no store"),
        ("memory:name", "names no store"),
        ("sqlite:", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:folder/", "names no file"),
        ("sqlite::memory:", "names no file"),
        ("sqlite://host/store.db", "names a host"),
        ("sqlite:store.db?mode=ro", r"neither \? nor NUL"),
        ("sqlite:~nobody-of-this-name/store.db", "sqlite:~nobody"),
    ],
)
def test_a_url_that_opens_nothing_is_refused_by_name(url: str, said: str):
    with pytest.raises(ConfigurationError, match=said):
        open_store(url)


@pytest.mark.parametrize("url", ["", "postgresql:db", "mysql://me:geheim@host/db", "sqlite:"])
def test_a_log_is_opened_by_the_same_urls_and_no_others(url: str):
    with pytest.raises(ConfigurationError) as told:
        open_log(url)
    with pytest.raises(ConfigurationError) as of_store:
        open_store(url)
    assert str(told.value) == str(of_store.value)
    assert "geheim" not in str(told.value)


def test_a_log_is_in_memory_or_in_the_file_of_a_store(tmp_path: Path):
    memory: EventLog = open_log("memory:")
    assert isinstance(memory, MemoryLog)
    url = f"sqlite:{tmp_path / 'store.db'}"
    with pytest.raises(StoreError, match="there is no store at"):
        open_log(url, create=False)
    with closing(open_store(url)) as store, closing(open_log(url, create=False)) as log:
        store.originals.keep({"u:1": "text"})
        log.create("s", 1.0)
    with closing(open_log(log.url, create=False)) as again:
        assert again.head("s").seq == 0


def test_sqlite_and_postgresql_are_loaded_for_their_own_stores_only():
    code = (
        "import sys, ullage.storage as s; s.open_store('memory:'); s.open_log('memory:'); "
        "print([m for m in ('apsw', 'psycopg', 'ullage.storage.sqlite') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("module", "url", "said"),
    [
        ("apsw", "sqlite:never.db", "'sqlite:never.db' needs apsw"),
        ("psycopg", "postgresql://me:geheim@host/db", "'postgresql://me@host/db' needs psycopg"),
    ],
)
@pytest.mark.parametrize("opening", ["open_store", "open_log"])
def test_without_its_package_the_extra_is_named(module: str, url: str, said: str, opening: str):
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        f"from ullage.storage import {opening} as opening\n"
        "from ullage.core.errors import ConfigurationError\n"
        f"try: opening({url!r})\n"
        "except ConfigurationError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said in done.stdout
    assert "which is not installed: pip install 'ullage[all]'" in done.stdout
