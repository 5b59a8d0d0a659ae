"""`open_store`: which URL opens what, and what is said of one that opens nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ullage.core.errors import ConfigurationError
from ullage.storage import MemoryStore, Store, _path, open_store
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
        ("", "names no store that there is: there are memory:, sqlite:FILE"),
        ("store.db", "names no store"),
        ("postgresql://host/db", "names no store"),
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


def test_sqlite_is_loaded_for_a_store_of_sqlite_only():
    code = (
        "import sys, ullage.storage as s; s.open_store('memory:'); "
        "print([m for m in ('apsw', 'ullage.storage.sqlite') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_sqlite_the_extra_is_named():
    code = (
        "import sys; sys.modules['apsw'] = None\n"
        "from ullage.storage import open_store\n"
        "from ullage.core.errors import ConfigurationError\n"
        "try: open_store('sqlite:never.db')\n"
        "except ConfigurationError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs apsw, which is not installed: pip install 'ullage[sqlite]'" in done.stdout
