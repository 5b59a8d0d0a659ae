"""What a command may try against this machine and its repository; and what git still may."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.executor.calls import ran
from ullage.core.errors import ConfigurationError
from ullage.core.session.tools import ToolOutcome
from ullage.tools import Executor, Sandbox, Workspace, commands, sandbox, seccomp
from ullage.tools.shell import _read

LACKING = Sandbox().lacking(Workspace(Path("/tmp")))
pytestmark = pytest.mark.skipif(bool(LACKING), reason=LACKING or "none")


@pytest.fixture
def space(needs_git: None, tmp_path: Path) -> Path:
    """A workspace that is a repository with one commit."""
    space = tmp_path / "space"
    space.mkdir()
    for words in (
        ["init", "-q", "-b", "main"],
        ["config", "user.name", "Ann"],
        ["config", "user.email", "ann@example.org"],
        ["commit", "-q", "--allow-empty", "-m", "Begin"],
    ):
        subprocess.run(["git", *words], cwd=space, check=True, capture_output=True)
    return space


@pytest.fixture
def executor(space: Path) -> Executor:
    return Executor(space, shell=Sandbox(timeout_s=30))


def sh(executor: Executor, command: str, **arguments: int) -> ToolOutcome:
    return ran(executor, "shell", command=command, **arguments)


def python(executor: Executor, code: str) -> ToolOutcome:
    return sh(executor, f"{shlex.quote(sys.executable)} -c {shlex.quote(textwrap.dedent(code))}")


# --- other processes ------------------------------------------------------------------------------


def test_no_process_outside_is_seen_signalled_or_limited(executor: Executor) -> None:
    parent = os.getpid()
    with subprocess.Popen(["sleep", "61"]) as other:
        seen = sh(executor, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").text
        assert "sleep 61" not in seen
        assert "pytest" not in seen
        for pid in (parent, other.pid):
            assert sh(executor, f"kill -9 {pid}").exit_code != 0
            assert not sh(executor, f"cat /proc/{pid}/environ").text.startswith("PATH")
        assert other.poll() is None
        other.kill()
    limits = python(
        executor,
        """
        import resource, os
        for pid in (1, os.getppid(), 2 ** 22 - 1):
            try:
                resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))
            except OSError as error:
                print("refused", error.errno)
        resource.prlimit(0, resource.RLIMIT_CPU, (60, 60))
        print("own")
        """,
    )
    assert limits.text.split("\n")[-2] == "own"
    assert limits.text.count("refused 1") == 3


def test_the_first_process_of_the_namespace_cannot_be_ended_from_inside(executor: Executor) -> None:
    outcome = sh(executor, "kill -9 1; kill -TERM 1; kill -9 $PPID; sleep 0.2; echo still here")
    assert outcome.text.endswith("still here\n")
    assert outcome.exit_code == 0


@pytest.mark.parametrize(
    "attempt",
    [
        "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))",
        "os.setpriority(os.PRIO_PROCESS, 0, 5)",
        "os.sched_setaffinity(1, {0})",
        "os.chmod('f', 0o4755)",
        "os.chmod('f', 0o2755)",
        "os.fchmod(os.open('f', os.O_RDWR), 0o4755)",
        "os.close(os.open('new', os.O_CREAT | os.O_WRONLY, 0o4755))",
        "os.mknod('node', 0o104755)",
    ],
)
def test_priorities_and_rights_beyond_the_commands_own_are_refused(
    executor: Executor, space: Path, attempt: str
) -> None:
    outcome = python(
        executor,
        f"""
        import os
        open('f', 'w').close()
        try:
            {attempt}
        except PermissionError:
            print("refused")
        """,
    )
    assert outcome.text == "refused\n"
    assert all(not path.stat().st_mode & 0o6000 for path in space.iterdir() if path.is_file())


def test_ordinary_modes_and_new_files_are_as_ever(executor: Executor) -> None:
    code = """
        import os
        open('f', 'w').close()
        os.chmod('f', 0o755)
        os.close(os.open('g', os.O_CREAT | os.O_WRONLY, 0o600))
        os.mkdir('d', 0o700)
        os.sched_setaffinity(0, os.sched_getaffinity(0))
        print(oct(os.stat('f').st_mode & 0o7777), oct(os.stat('g').st_mode & 0o7777))
        """
    assert python(executor, code).text == "0o755 0o600\n"


# --- memory and disk ------------------------------------------------------------------------------


def test_a_command_that_takes_too_much_memory_is_stopped(space: Path) -> None:
    executor = Executor(space, shell=Sandbox(timeout_s=60, memory_bytes=200_000_000))
    hog = "b = []\nwhile True:\n    b.append(bytearray(10_000_000)); __import__('time').sleep(0.01)"
    outcome = python(executor, hog)
    assert outcome.is_error
    assert "more than 0.2 GB of memory" in outcome.text
    alone = f"{shlex.quote(sys.executable)} -c 'x = bytearray(90_000_000); input()' < /dev/zero & "
    assert "of memory" in sh(executor, alone * 4 + "sleep 20").text


def test_a_command_that_fills_the_disk_is_stopped(space: Path) -> None:
    executor = Executor(space, shell=Sandbox(timeout_s=60, disk_bytes=100_000_000))
    many = "for n in $(seq 1000); do head -c 5000000 /dev/urandom > f$n; sleep 0.02; done; echo all"
    outcome = sh(executor, many)
    assert "more than 0.1 GB of disk" in outcome.text
    assert sum(path.stat().st_size for path in space.glob("f*")) < 2_000_000_000


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="memory_bytes"):
        Sandbox(memory_bytes=0)
    with pytest.raises(ConfigurationError, match="disk_bytes"):
        Sandbox(disk_bytes=0)


# --- the repository -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attempt",
    [
        "echo evil > .git/hooks/pre-commit",
        "echo evil >> .git/config",
        "git config core.fsmonitor ./evil",
        "mv .git elsewhere",
        "rm -rf .git",
        "ln .git/config link && echo evil >> link",
        "ln -s .git gone && echo evil >> gone/config",
        "echo ../evil > .git/commondir",
        "git -c core.hooksPath=./evil commit --allow-empty -m x",
        "git commit --allow-empty -m x && echo more",
        "git submodule add ./x y",
        "git rebase --exec ./evil HEAD",
    ],
)
def test_no_command_writes_what_git_keeps(executor: Executor, space: Path, attempt: str) -> None:
    before = {p: p.read_bytes() for p in (space / ".git").rglob("*") if p.is_file()}
    sh(executor, attempt)
    after = {p: p.read_bytes() for p in (space / ".git").rglob("*") if p.is_file()}
    assert after == before


@pytest.mark.parametrize(
    "path", [".git/config", ".git/hooks/post-commit", ".GIT/config", "in/config"]
)
def test_no_file_tool_writes_it_either(executor: Executor, space: Path, path: str) -> None:
    (space / "in").symlink_to(".git")
    before = (space / ".git/config").read_text()
    written = ran(executor, "write", path=path, content="evil")
    assert written.is_error
    assert "git's own" in written.text
    changed = ran(executor, "edit", path=path, old="[core]", new="[evil]")
    assert changed.is_error
    assert (space / ".git/config").read_text() == before
    assert not (space / ".git/hooks/post-commit").exists()


def test_a_repository_below_the_workspace_is_kept_as_well(space: Path) -> None:
    inner = space / "a" / "b"
    inner.mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=inner, check=True)
    executor = Executor(space, shell=Sandbox(timeout_s=30))
    assert sh(executor, "echo evil > a/b/.git/hooks/post-checkout").exit_code != 0
    assert not (inner / ".git/hooks/post-checkout").exists()


def test_git_itself_still_works_without_hooks_and_without_settings(
    executor: Executor, space: Path
) -> None:
    (space / ".git/hooks").mkdir(exist_ok=True)
    hook = space / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    (space / "watch").write_text("#!/bin/sh\ntouch watched\n")
    (space / "watch").chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", "./watch"], cwd=space, check=True)
    (space / "file").write_text("text\n")
    assert sh(executor, "git add file").exit_code == 0
    assert sh(executor, "git commit -m 'Add a file'").exit_code == 0
    assert sh(executor, "git checkout -b other").exit_code == 0
    assert "Add a file" in sh(executor, "git log --oneline").text
    assert sh(executor, "git status --short").exit_code == 0
    assert not (space / "hooked").exists()
    assert not (space / "watched").exists()
    branch = subprocess.run(
        ["git", "branch", "--show-current"], cwd=space, capture_output=True, text=True, check=True
    )
    assert branch.stdout == "other\n"


def test_git_settings_are_read_only_even_for_git(executor: Executor, space: Path) -> None:
    before = (space / ".git/config").read_text()
    sh(executor, "git branch --set-upstream-to=main")
    sh(executor, "git tag -m x v1")
    assert (space / ".git/config").read_text() == before


@pytest.mark.parametrize(
    ("command", "writes"),
    [
        ("git status", False),
        ("git log --oneline -3", False),
        ("git commit -m 'a; b $(c)'", True),
        ('git commit -m "it is so"', True),
        ("git commit -m $(evil)", None),
        ('git commit -m "`evil`"', None),
        ("git add . && evil", None),
        ("git add *", None),
        ("git config user.name x", None),
        ("git -c a=b status", None),
        ("git rebase --exec evil", None),
        ("git 'unfinished", None),
        ("git", None),
        ("gitk", None),
        (" 'git' commit -m x", True),
        ('g"it" commit -m x', True),
        (f"git commit -m {'x' * 1_000_000}", None),
    ],
)
def test_what_is_taken_for_git_alone(command: str, writes: bool | None) -> None:
    """A command of a megabyte took twelve seconds to be read: no test would end in time."""
    found = commands.read_git(command)
    assert (None if found is None else found.writes) == writes


# --- who runs it, and where -----------------------------------------------------------------------


def test_root_runs_no_commands_unless_somebody_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(Path("/tmp"))
    monkeypatch.delenv(sandbox.ROOT)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "do not run as root" in Sandbox().lacking(workspace)
    assert Sandbox(as_root=True).lacking(workspace) == ""
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    assert Sandbox().lacking(workspace) == ""


REFUSE = """
import ctypes, json, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
numbers = json.loads(sys.argv[1])
steps = [(0x20, 0, 0, 0)]
for number in numbers:
    steps += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]
steps.append((0x06, 0, 0, 0x7FFF0000))
program = b"".join(struct.pack("=HBBI", *step) for step in steps)
held = ctypes.create_string_buffer(program, len(program))
frame = struct.pack("@HP", len(steps), ctypes.addressof(held))
assert libc.prctl(38, ctypes.c_ulong(1), 0, 0, 0) == 0
assert libc.prctl(22, 2, frame, 0, 0) == 0
exec(sys.argv[2])
"""
"""A program under a real filter that refuses system calls, as a container does."""


def under(names: list[str], code: str) -> str:
    """Return what code prints where these system calls are refused."""
    import platform

    known = seccomp.MACHINES[platform.machine()].numbers
    numbers = json.dumps([known[name] for name in names])
    done = subprocess.run(
        [sys.executable, "-c", REFUSE, numbers, textwrap.dedent(code)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


ASK = """
from pathlib import Path
from ullage.tools import Sandbox, Workspace, sandbox
sandbox.landlock_version = lambda: {version}
print(Sandbox().lacking(Workspace(Path("/tmp"))) or "nothing")
"""


@pytest.mark.parametrize(("version", "off"), [(3, True), (5, True), (6, False), (7, False)])
def test_without_namespaces_an_older_kernel_has_no_shell(version: int, off: bool) -> None:
    said = under(["unshare"], ASK.format(version=version))
    assert ("holds a command's signals back" in said) is off
    assert (said == "nothing\n") is not off


@pytest.mark.parametrize("version", [3, 5])
def test_with_namespaces_an_older_kernel_has_one(version: int) -> None:
    assert under([], ASK.format(version=version)) == "nothing\n"


TRY = """
import asyncio, os, sys
from pathlib import Path
from tests.executor.calls import ran
from ullage.tools import Executor, Sandbox
executor = Executor(Path("{space}"), shell=Sandbox(timeout_s=20))
for command in ("kill -9 {pid}", "prlimit --pid {pid} --cpu=1", "chmod u+s f", "echo ran"):
    print(ran(executor, "shell", command=command).text)
"""


def test_without_namespaces_landlock_holds_signals_back(space: Path) -> None:
    if sandbox.landlock_version() < sandbox.SIGNALS_LANDLOCK:
        pytest.skip("this kernel's Landlock holds no signals")
    (space / "f").touch()
    with subprocess.Popen(["sleep", "61"]) as other:
        said = under(["unshare"], TRY.format(space=space, pid=other.pid))
        assert other.poll() is None
        other.kill()
    assert said.endswith("ran\n\n"), said
    assert not (space / "f").stat().st_mode & 0o6000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_is_held_the_same(space: Path, tmp_path: Path) -> None:
    """As `nobody`, by a Python that everybody may run: this one may lie where only root looks."""
    python3 = next((p for p in ("/usr/bin/python3",) if Path(p).exists()), None)
    if python3 is None:
        pytest.skip("no Python of the system's")
    confine = Path(sandbox.__file__).with_name("confine.py")
    held = tmp_path / "held"
    held.mkdir()
    (held / "confine.py").write_bytes(confine.read_bytes())
    for path in (tmp_path, held, *tmp_path.parents):
        if path != Path("/"):
            path.chmod(path.stat().st_mode | 0o755)
    subprocess.run(["chown", "-R", "65534:65534", str(space), str(held)], check=True)
    with subprocess.Popen(["sleep", "61"]) as other:
        attempts = (
            f"kill -9 {other.pid}; cat /proc/{other.pid}/cmdline; chmod u+s {space}/f; "
            f"echo evil >> {space}/.git/config; touch /tmp/outside-$$; id -u; echo done"
        )
        request = Sandbox(as_root=True).request(Workspace(space), attempts, held)
        (space / "f").touch()
        read, write = os.pipe()
        order = json.dumps({**request, "report": write}).encode() + b"\n"
        done = asyncio.run(
            _as_nobody([python3, "-I", "-S", str(held / "confine.py")], order, write)
        )
        os.close(write)
        with os.fdopen(read, "rb") as file:
            report = _read(file.read())
        assert other.poll() is None
        other.kill()
    assert "lacking" not in report, report
    assert done.endswith("65534\ndone\n"), done
    assert "sleep" not in done.replace("sleep: ", "")
    assert not (space / "f").stat().st_mode & 0o6000
    assert "evil" not in (space / ".git/config").read_text()


async def _as_nobody(command: list[str], order: bytes, report: int) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, user=65534, group=65534, extra_groups=[], pass_fds=(report,), env={},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(order)
    async with asyncio.timeout(60):
        said = await process.stdout.read()
        await process.wait()
    return said.decode()
