"""Paths: nothing outside the workspace is read or written, and nothing of the state directory."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.executor.calls import call, ran
from ullage.core.errors import ConfigurationError
from ullage.core.session.permissions import Posture
from ullage.tools import Executor, Workspace, syscalls
from ullage.tools.tool import Fault
from ullage.tools.workspace import StateRefused

WAYS = [
    pytest.param(True, marks=pytest.mark.skipif(not syscalls.has_openat2(), reason="no openat2")),
    False,
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a workspace, a secret beside it, and a state directory beside it."""
    for name in ("work/src", "state", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outside/secret").write_text("secret")
    (tmp_path / "state/log.db").write_text("events")
    (tmp_path / "work/src/main.py").write_text("print(1)\n")
    return tmp_path


@pytest.fixture(params=WAYS)
def space(request: pytest.FixtureRequest, home: Path) -> Workspace:
    """The workspace, by openat2 and without it."""
    return Workspace(home / "work", home / "state", kernel=request.param)


def read(space: Workspace, path: str) -> str:
    with space.file(space.relative(path)) as descriptor:
        return os.read(descriptor, 1_000).decode()


def write(space: Workspace, path: str, text: str = "written") -> bool:
    return space.replace(space.relative(path), text.encode())


@pytest.mark.parametrize("path", ["src/main.py", "./src//main.py", "src/../src/main.py", "/src"])
def test_paths_beneath_the_workspace_are_read_however_written(space, path) -> None:
    if path == "/src":
        path = str(space.root / "src/main.py")
    assert read(space, path) == "print(1)\n"


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret",
        "src/../../outside/secret",
        "/etc/passwd",
        "/proc/self/root/etc/passwd",
        "..",
        "src\0.py",
        "\ud800",
        "/",
    ],
)
def test_paths_that_lead_out_are_refused_before_anything_is_opened(space, path) -> None:
    with pytest.raises(Fault):
        space.relative(path)


def test_a_workspace_of_another_name_is_known_by_both(home) -> None:
    (home / "alias").symlink_to("work")
    space = Workspace(home / "alias")
    assert space.relative(str(home / "alias/src")) == "src"
    assert space.relative(str(home / "work/src")) == "src"
    with pytest.raises(Fault):
        space.relative(str(home / "work2/src"))


@given(st.text(st.sampled_from("./a\0\ud800"), max_size=12))
def test_no_path_comes_out_with_a_way_up(path) -> None:
    space = Workspace(Path("/tmp"))
    try:
        found = space.relative(path)
    except Fault:
        return
    assert not {"", ".", ".."} & set(found.split("/")) or found == ""


def test_links_out_of_the_workspace_are_not_followed(space, home) -> None:
    (home / "work/link").symlink_to(home / "outside/secret")
    (home / "work/up").symlink_to("../outside")
    (home / "work/proc").symlink_to("/proc/self/root")
    (home / "work/cwd").symlink_to("/proc/self/cwd")
    stateless = Workspace(home / "work", kernel=space._kernel)
    for path in ("link", "up/secret", "proc/etc/passwd", "cwd/README.md"):
        for each in (space, stateless):
            with pytest.raises((Fault, OSError)):
                read(each, path)
            with pytest.raises((Fault, OSError)):
                write(each, path)
            with pytest.raises((Fault, OSError)):
                list(each.walk(path))
    assert (home / "outside/secret").read_text() == "secret"
    assert sorted(each.name for each in (home / "outside").iterdir()) == ["secret"]


def test_links_to_files_inside_are_followed_for_reading_only(space, home) -> None:
    (home / "work/one").symlink_to("src/main.py")
    (home / "work/src/two").symlink_to("../one")
    (home / "work/three").symlink_to(home / "work/src/two")
    assert read(space, "three") == "print(1)\n"
    with pytest.raises(Fault, match="'one' is a symbolic link; only ordinary files"):
        write(space, "one")
    assert (home / "work/src/main.py").read_text() == "print(1)\n"


def test_a_chain_of_links_has_an_end(space, home) -> None:
    (home / "work/round").symlink_to("round")
    with pytest.raises(Fault, match="chain of more than 8 links"):
        read(space, "round")


def test_links_to_folders_inside_are_followed_for_reading_where_the_system_can(home) -> None:
    if not syscalls.has_openat2():
        pytest.skip("no openat2")
    (home / "work/lib").symlink_to("src")
    space = Workspace(home / "work")
    assert read(space, "lib/main.py") == "print(1)\n"
    with pytest.raises(Fault, match="goes through a symbolic link; use the path"):
        write(space, "lib/main.py")


def test_a_file_with_other_names_is_not_written(space, home) -> None:
    os.link(home / "outside/secret", home / "work/hard")
    with pytest.raises(Fault, match="one of 2 names of a file"):
        write(space, "hard")
    assert (home / "outside/secret").read_text() == "secret"


def test_pipes_sockets_devices_and_folders_are_no_files(space, home) -> None:
    os.mkfifo(home / "work/pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.path.relpath(home / "work/socket"))
    listening.close()
    for path in ("pipe", "socket", "src"):
        with pytest.raises((Fault, OSError)):
            read(space, path)
        with pytest.raises(Fault, match="only ordinary files are written"):
            write(space, path)
    assert stat.S_ISFIFO((home / "work/pipe").stat().st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_devices_are_no_files(space, home) -> None:
    os.mknod(home / "work/null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    with pytest.raises(Fault, match="a device, no ordinary file"):
        read(space, "null")
    with pytest.raises(Fault, match="a device; only ordinary"):
        write(space, "null")


def test_the_state_directory_is_closed_by_every_name(home) -> None:
    inside = home / "work/.state"
    inside.mkdir()
    (inside / "log.db").write_text("events")
    (home / "work/door").symlink_to(".state")
    (home / "work/file").symlink_to(".state/log.db")
    os.link(inside / "log.db", home / "work/hard")
    for kernel in (syscalls.has_openat2(), False):
        space = Workspace(home / "work", inside, kernel=kernel)
        for path in (".state/log.db", "./src/../.state//log.db", "door/log.db", "file", "hard"):
            with pytest.raises((StateRefused, OSError)):
                read(space, path)
            with pytest.raises((Fault, OSError)):
                write(space, path)
        for path in (".state", ".state/new", ".state/deep/new", "door/new"):
            with pytest.raises((Fault, OSError)):
                write(space, path)
            if path != ".state":
                assert space.protects(path)
        assert space.protects(str(inside))
        assert not space.protects("src/main.py")
        assert ".state" not in [entry.path for entry in space.walk("")]
    assert sorted(each.name for each in inside.iterdir()) == ["log.db"]
    assert (inside / "log.db").read_text() == "events"


def test_a_hard_link_to_a_file_of_the_state_is_known_wherever_the_state_is(space, home) -> None:
    os.link(home / "state/log.db", home / "work/innocent")
    with pytest.raises(StateRefused, match="a file of the state directory"):
        read(space, "innocent")
    os.link(home / "outside/secret", home / "work/other")
    assert read(space, "other") == "secret"


def test_a_state_directory_that_is_not_there_yet_stops_nothing(home) -> None:
    space = Workspace(home / "work", home / "later")
    assert read(space, "src/main.py")
    assert not space.protects("src\0")


def test_writing_keeps_the_mode_and_makes_folders(space, home) -> None:
    script = home / "work/run.sh"
    script.write_text("old")
    script.chmod(0o750)
    assert write(space, "run.sh", "new") is False
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert write(space, "a/b/c.txt", "deep") is True
    assert (home / "work/a/b/c.txt").read_text() == "deep"
    assert sorted(each.name for each in (home / "work").iterdir()) == ["a", "run.sh", "src"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_writing_keeps_the_owner(space, home) -> None:
    os.chown(home / "work/src/main.py", 1234, 1234)
    write(space, "src/main.py")
    assert (home / "work/src/main.py").stat().st_uid == 1234


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(space, home) -> None:
    with pytest.raises(OSError, match="File name too long"):
        write(space, "src/" + "x" * 300)
    with pytest.raises((Fault, OSError)):
        write(space, "src/main.py/below")
    with pytest.raises(Fault, match="names the workspace itself"):
        write(space, ".")
    assert [each.name for each in (home / "work/src").iterdir()] == ["main.py"]


def test_a_rename_that_fails_leaves_no_temporary_file(space, home, monkeypatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "rename", broken)
    with pytest.raises(OSError, match="Input/output"):
        write(space, "src/main.py")
    assert [each.name for each in (home / "work/src").iterdir()] == ["main.py"]


def test_a_file_changed_since_it_was_read_is_not_replaced(space, home) -> None:
    before = (home / "work/src/main.py").stat()
    (home / "work/src/main.py").write_text("by a person")
    with pytest.raises(Fault, match="changed meanwhile by someone else"):
        space.replace("src/main.py", b"by a model", before)
    assert (home / "work/src/main.py").read_text() == "by a person"


def test_a_walk_follows_no_link_and_goes_where_it_may(space, home) -> None:
    (home / "work/src/up").symlink_to(home / "outside")
    (home / "work/.git").mkdir()
    (home / "work/.git/config").write_text("")
    found = [entry.path for entry in space.walk("", enter=lambda entry: entry.name != ".git")]
    assert found == [".git", "src", "src/main.py", "src/up"]
    assert [entry.path for entry in space.walk("", 1)] == [".git", "src"]


def test_a_folder_that_goes_while_it_is_walked_is_left_out(space, home) -> None:
    (home / "work/zz").mkdir()
    walk = space.walk("")
    next(walk)
    (home / "work/zz").rmdir()
    assert "zz" not in [entry.path for entry in walk]
    (home / "work/aa").mkdir()
    walk = space.walk("")
    assert next(walk).path == "aa"
    (home / "work/aa").rmdir()
    (home / "work/aa").symlink_to(home / "outside")
    assert [entry.path for entry in walk] == ["src", "src/main.py"]


def test_a_workspace_that_cannot_be_one_is_refused(home) -> None:
    with pytest.raises(ConfigurationError, match="cannot be used"):
        Workspace(home / "nowhere")
    with pytest.raises(ConfigurationError, match="is no folder"):
        Workspace(home / "outside/secret")
    for state in (home / "work", home):
        with pytest.raises(ConfigurationError, match="lies in the state directory"):
            Workspace(home / "work", state)


@pytest.mark.parametrize("kernel", WAYS)
def test_nothing_is_written_outside_while_a_folder_is_swapped_for_a_link(home, kernel) -> None:
    space = Workspace(home / "work", kernel=kernel)
    door, room = home / "work/door", home / "work/room"
    door.mkdir()
    stop = threading.Event()

    def swap() -> None:
        # A write makes the folder that it misses, so each step may find one in its way.
        while not stop.is_set():
            door.rename(room)
            with suppress(FileExistsError):
                door.symlink_to(home / "outside")
            if door.is_symlink():
                door.unlink()
            while room.exists():
                try:
                    room.rename(door)
                except OSError:
                    shutil.rmtree(door, ignore_errors=True)

    swapping = threading.Thread(target=swap)
    swapping.start()
    refused = tried = 0
    until = time.monotonic() + 30  # by then the other thread has been given time, however busy
    try:
        while tried < 2_000 or (refused == tried and time.monotonic() < until):
            tried += 1
            try:
                space.replace(f"door/{tried % 10}", b"x")
            except (Fault, OSError):
                refused += 1
    finally:
        stop.set()
        swapping.join()
    assert sorted(each.name for each in (home / "outside").iterdir()) == ["secret"]
    assert refused < tried


def test_the_executor_answers_with_an_error_and_denies_the_state(home) -> None:
    executor = Executor(home / "work", state=home / "state")
    outcome = ran(executor, "read", path="../outside/secret")
    assert outcome.is_error
    assert "leads out of the workspace" in outcome.text
    (home / "work/link").symlink_to(home / "state")
    for path in ("link/log.db", str(home / "state/log.db"), "../state/log.db"):
        for tool in ("read", "write", "edit"):
            given = {"path": path, "content": "", "old": "a", "new": "b"}
            wanted = {"read": 1, "write": 2}.get(tool)
            names = ["path", "content"][:wanted] if wanted else ["path", "old", "new"]
            asked = call(tool, **{name: given[name] for name in names})
            assert executor.decide(asked, Posture()).by == "state"
    for command in ("cat link/log.db", "echo x>../state/log.db", f"rm -rf {home}/state"):
        assert executor.decide(call("shell", command=command), Posture()).by == "state"
    assert (home / "state/log.db").read_text() == "events"


def test_a_system_that_refuses_openat2_is_done_without(home, monkeypatch) -> None:
    def refused(*args: object) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(syscalls, "openat2", refused)
    assert not syscalls.has_openat2()
    assert read(Workspace(home / "work"), "src/main.py") == "print(1)\n"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not syscalls.has_openat2()


def test_a_folder_moved_away_meanwhile_is_noticed(space, home) -> None:
    with space.folder("src") as folder, space.folder("") as base:
        (home / "work/src").rename(home / "outside/src")
        with pytest.raises(Fault, match="moved out of the workspace"):
            space._clear_of_state(folder, base)
