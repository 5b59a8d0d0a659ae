"""The shell: what a command can do, and above all what none can; real ones, for real."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.executor.calls import call, dry, ran
from tests.support.waiting import eventually
from ullage.core.errors import ConfigurationError
from ullage.core.session.permissions import Posture
from ullage.core.session.reach import Reach
from ullage.core.session.tools import ToolOutcome
from ullage.tools import Executor, Sandbox, Workspace, sandbox, seccomp, shell
from ullage.tools.confine import __file__ as confine

LACKING = Sandbox().lacking(Workspace(Path("/tmp")))
PRIVATE: frozenset[Reach] = frozenset({"private"})

needs_sandbox = pytest.mark.skipif(bool(LACKING), reason=LACKING or "none")
KEY = "sk-sentinel-0123456789"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with the state in it, a secret beside it, and a key in the environment."""
    for name in ("space/.state", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outside/secret").write_text("hush-hush")
    (tmp_path / "space/.state/log.db").write_text("events")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return tmp_path


@pytest.fixture
def executor(home: Path) -> Executor:
    return Executor(home / "space", state=home / "space/.state", shell=Sandbox(timeout_s=20))


def sh(executor: Executor, command: str, **arguments: int) -> ToolOutcome:
    return ran(executor, "shell", command=command, **arguments)


def python(executor: Executor, code: str) -> ToolOutcome:
    return sh(executor, f"{shlex.quote(sys.executable)} -c {shlex.quote(textwrap.dedent(code))}")


def running(marker: str) -> set[int]:
    """Return the processes whose command line has a marker."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
        except OSError:
            continue
    return found - {os.getpid()}


@needs_sandbox
def test_a_command_works_in_the_workspace(executor, home) -> None:
    outcome = sh(executor, "echo 'echo hi' >a.sh; chmod +x a.sh; ./a.sh; pwd; echo no >&2; exit 3")
    assert outcome == ToolOutcome(
        f"hi\n{home}/space\nno\n[exit code 3]", exit_code=3, reach=PRIVATE
    )
    assert sh(executor, "true") == ToolOutcome("[no output]", exit_code=0, reach=PRIVATE)
    assert sh(executor, "cat") == ToolOutcome(
        "[no output]", exit_code=0, reach=PRIVATE
    )  # nothing comes in
    assert sh(executor, "kill -TERM $$").exit_code == 143
    assert sh(executor, "a=(1 2); echo ${a[1]}").text == "2\n"


@needs_sandbox
def test_its_own_temporary_folder_goes_with_the_command(executor) -> None:
    text = sh(executor, "echo x >$TMPDIR/a; cd; pwd; ls").text
    folder = Path(text.splitlines()[0])
    assert text.splitlines()[1] == "a"
    assert folder.parent == Path(tempfile.gettempdir())
    assert not folder.exists()


@needs_sandbox
@pytest.mark.parametrize(
    "command",
    [
        "echo x >{outside}/new",
        "echo x >>{outside}/secret",
        "rm -rf {outside}",
        "mv {outside}/secret .",
        "ln {outside}/secret hard && echo x >hard",
        "ln -s {outside} link; echo x >link/new; rm link",
        "chmod 777 {outside}/secret",
        "touch -d 2001-01-01 {outside}/secret",
        "mkdir {outside}/new",
        "cd ..; rm -r outside",
        "truncate -s 0 {outside}/secret",
    ],
)
def test_nothing_outside_is_changed(executor, home, command) -> None:
    outside = home / "outside"
    before = (outside / "secret").stat()
    sh(executor, command.format(outside=outside))
    assert [each.name for each in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "hush-hush"
    after = (outside / "secret").stat()
    assert (after.st_mode, after.st_mtime, after.st_nlink, after.st_ino) == (
        before.st_mode, before.st_mtime, before.st_nlink, before.st_ino,
    )  # fmt: skip


@needs_sandbox
@pytest.mark.parametrize(
    "command",
    [
        "cat {outside}/secret",
        "cp {outside}/secret .; cat secret",
        "ls {outside}",
        "ln -s {outside}/secret l; cat l",
        "cat /etc/shadow",
        "cat /proc/$(ps -o ppid= -p $PPID)/environ /proc/{pid}/environ",
        "cat /proc/{pid}/{root}{outside}/secret /proc/{pid}/cwd/*",
        "cat /proc/1/environ",
        "ls -R {user} /dev/shm /var /run; cat {user}/.ssh/* {user}/.bashrc",
        "env; set",
    ],
)
def test_no_secret_is_read(executor, home, command) -> None:
    places = {"outside": home / "outside", "root": "root", "user": Path.home(), "pid": os.getpid()}
    text = sh(executor, command.format(**places)).text
    assert "hush" not in text
    assert KEY not in text
    assert "root:" not in text


@needs_sandbox
@pytest.mark.parametrize(
    "command",
    [
        "cat .state/log.db",
        "ls .state/log.db",
        "rm -rf .state",
        "mv .state other",
        "echo x >.state/log.db",
        "echo x >.state/new",
        "chmod 777 .state",
        "umount .state; cat .state/log.db",
        "ln .state/log.db x; cat x",
        "cat $(find . -name 'log*')",
    ],
)
def test_the_state_directory_is_not_to_be_seen_or_touched(executor, home, command) -> None:
    state = home / "space/.state"
    before = state.stat()
    assert "events" not in sh(executor, command).text
    assert [each.name for each in state.iterdir()] == ["log.db"]
    assert (state / "log.db").read_text() == "events"
    assert (state.stat().st_mode, state.stat().st_ino) == (before.st_mode, before.st_ino)


@needs_sandbox
def test_a_state_directory_elsewhere_is_as_closed(home) -> None:
    executor = Executor(home / "space", state=home / "outside", shell=Sandbox())
    assert "hush" not in sh(executor, f"cd {home}; cat outside/*; ls outside").text
    readable = Executor(home / "space", state=home / "outside", shell=Sandbox(readable=(home,)))
    assert "events" in sh(readable, f"cat {home}/space/.st*/log.db").text
    assert "hush" not in sh(readable, f"cat {home}/out*/secret; cat {home}/out*/*").text


def test_a_state_directory_to_come_in_the_workspace_turns_the_shell_off(home) -> None:
    executor = Executor(home / "space", state=home / "space/later", shell=Sandbox())
    outcome = sh(executor, "mkdir later")
    assert outcome.is_error
    if not LACKING:
        assert "is not there to be covered" in outcome.text


@needs_sandbox
def test_there_is_no_network(executor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcome = sh(executor, f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected")
        assert "connected" not in outcome.text
        outcome = python(
            executor,
            """
            import socket
            for family in range(46):
                for kind in (1, 2, 3, 5):
                    try:
                        socket.socket(family, kind)
                        print("made", family, kind)
                    except OSError:
                        pass
            """,
        )
        assert "made" not in outcome.text
        opened = Executor(executor.workspace.root, shell=Sandbox(network=True))
        outcome = sh(opened, f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected")
        assert outcome.text == "connected\n"


@needs_sandbox
def test_no_socket_of_this_machine_is_reached_even_with_network(home) -> None:
    # Behind such sockets are Docker and the session bus: both start programs outside.
    with socket.socket(socket.AF_UNIX) as listening:
        path = home / "space/socket"
        listening.bind(os.path.relpath(path))
        listening.listen()
        for network in (False, True):
            executor = Executor(home / "space", shell=Sandbox(network=network))
            outcome = python(
                executor,
                """
                import socket
                first, second = socket.socketpair()
                first.sendall(b"ours")
                print(second.recv(9))
                for make in (socket.socket, lambda family: first):
                    try:
                        make(socket.AF_UNIX).connect("socket")
                        print("reached")
                    except OSError as error:
                        print(error)
                """,
            )
            assert "b'ours'" in outcome.text
            assert "reached" not in outcome.text
            assert outcome.exit_code == 0


@needs_sandbox
def test_nothing_is_gained_and_nobody_else_is_signalled(executor) -> None:
    text = sh(executor, "grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status").text
    assert text.count("0000000000000000") == 5
    assert "NoNewPrivs:\t1" in text
    assert "Seccomp:\t2" in text
    if sandbox.landlock_version() >= 6:
        for pid in (os.getpid(), os.getppid()):
            assert sh(executor, f"kill -0 {pid}").exit_code == 1
    for attempt in ("unshare -r true", "mount -t tmpfs x .", "chroot . true", "strace -p 1 true"):
        assert sh(executor, attempt).exit_code != 0


@needs_sandbox
def test_what_a_command_leaves_running_is_ended_with_it(executor) -> None:
    command = (
        "sleep 987 & setsid sleep 987 & (setsid setsid sleep 987 &) ; nohup sleep 987 & echo on"
    )
    outcome = sh(executor, command)
    assert outcome == ToolOutcome("on\n", exit_code=0, reach=PRIVATE)
    assert not running("sleep\x00987")


@needs_sandbox
def test_a_command_that_takes_too_long_is_stopped_with_all_it_started(executor) -> None:
    outcome = sh(executor, "echo begun; setsid sleep 986 & sleep 986; echo over", timeout_s=1)
    assert outcome.is_error
    assert outcome.exit_code == 124
    assert outcome.text == "begun\n[stopped after 1 s; ask for more with timeout_s]"
    assert not running("sleep\x00986")


@needs_sandbox
def test_a_call_cannot_ask_for_more_time_than_there_is(home) -> None:
    executor = Executor(home / "space", shell=Sandbox(longest_s=1))
    assert "stopped after 1 s" in sh(executor, "sleep 30", timeout_s=900).text


@needs_sandbox
@pytest.mark.parametrize("command", ["sleep 985", "setsid sleep 985"])
def test_a_flood_of_processes_is_ended(home, command) -> None:
    executor = Executor(home / "space", shell=Sandbox(processes=20))
    outcome = sh(executor, f"for i in $(seq 100); do {command} & done; wait", timeout_s=30)
    assert outcome.text.endswith("[stopped: more than 20 processes at once]")
    assert outcome.is_error
    assert not running("sleep\x00985")


@needs_sandbox
def test_a_fork_bomb_is_ended(home) -> None:
    executor = Executor(home / "space", shell=Sandbox(processes=20))
    outcome = sh(executor, "bomb() { bomb 984 | bomb & }; bomb; sleep 30", timeout_s=60)
    assert outcome.text.endswith("[stopped: more than 20 processes at once]")
    assert not running("bomb 984")


@needs_sandbox
def test_shared_memory_is_its_own(executor) -> None:
    sh(executor, "echo x >/dev/shm/ullage-test; ls /dev/shm")
    assert not Path("/dev/shm/ullage-test").exists()


@needs_sandbox
def test_output_is_bounded_while_it_comes(executor) -> None:
    outcome = sh(executor, "head -c 5000000 /dev/zero | tr '\\0' x; echo end")
    assert len(outcome.text) <= 30_000
    assert outcome.text.endswith("end\n")
    assert "of 5,000,004 bytes are left out here" in outcome.text
    assert outcome.marks == {"truncated": 5_000_004 - 27_000}


@needs_sandbox
def test_a_file_has_a_largest_size(home) -> None:
    executor = Executor(home / "space", shell=Sandbox(file_bytes=10_000))
    sh(executor, "head -c 1000000 /dev/zero >large")
    assert (home / "space/large").stat().st_size == 10_000


@needs_sandbox
def test_who_cancels_waits_until_all_is_ended(executor) -> None:
    async def cancelled() -> None:
        wanted = call("shell", command="setsid sleep 983 & sleep 983")
        task = asyncio.ensure_future(executor.run(wanted, key="k"))
        await asyncio.to_thread(eventually, lambda: len(running("sleep\x00983")) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not running("sleep\x00983")


@needs_sandbox
def test_when_this_program_is_killed_its_commands_end_too(home) -> None:
    code = f"""
    import asyncio
    from pathlib import Path
    from ullage.core.messages.transcript import Call
    from ullage.tools import Executor, Sandbox
    executor = Executor(Path({str(home / "space")!r}), shell=Sandbox())
    wanted = Call("1", "shell", '{{"command": "setsid sleep 982 & sleep 982"}}')
    asyncio.run(executor.run(wanted, key="k"))
    """
    program = [sys.executable, "-c", textwrap.dedent(code)]
    # Its temporary folder is left behind: nobody is there to take it away.
    with subprocess.Popen(program, env={**os.environ, "TMPDIR": str(home)}) as process:
        eventually(lambda: len(running("sleep\x00982") - {process.pid}) >= 2)
        process.send_signal(signal.SIGKILL)
    eventually(lambda: not running("sleep\x00982"))


@needs_sandbox
def test_the_path_has_only_folders_that_can_be_read(executor, monkeypatch, home) -> None:
    monkeypatch.setenv("PATH", f"{home}/outside:/usr/bin:/bin")
    granted = Executor(
        executor.workspace.root,
        shell=Sandbox(environment={"COLOUR": "red"}, readable=(home / "outside",)),
    )
    assert str(home) not in sh(executor, "echo $PATH").text
    assert sh(granted, "echo $PATH $COLOUR; cat $PWD/../outside/secret").text.startswith(
        f"{home}/outside:/usr/bin:/bin"
    )


@needs_sandbox
def test_without_a_mount_namespace_metadata_by_path_is_refused(executor, home) -> None:
    # In a sandbox no namespace can be made: a second one within it has Landlock and filter alone.
    inner = home / "space/inner"
    (inner / "deep").mkdir(parents=True)
    (inner / "file").write_text("x")
    workspace = Workspace(inner)
    command = "chmod 700 file; touch file; echo x >new; cat new; echo y >../no; true"
    request = Sandbox().request(workspace, command, inner / "deep")
    assert request["covered_by_mount"] is False
    driver = """
    import json, os, subprocess, sys
    order = json.load(open("order"))
    read, told = os.pipe()
    order["report"] = told
    child = subprocess.Popen([sys.executable, "-I", "-S", "confine.py"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=(told,))
    child.stdin.write(json.dumps(order).encode() + b"\\n")
    child.stdin.flush()
    print(child.stdout.read().decode())
    os.close(told)
    child.stdin.close()
    child.wait()
    print(os.read(read, 9000).decode())
    """
    (home / "space/order").write_text(json.dumps(request))
    (home / "space/confine.py").write_bytes(Path(confine).read_bytes())
    text = python(executor, driver).text
    assert "changing permissions of 'file': Operation not permitted" in text
    assert "touch" not in text
    assert "\nx\n" in text
    assert "../no: Permission denied" in text
    assert '"status": 0' in text
    hidden = Executor(inner, state=inner / "deep", shell=Sandbox())
    assert hidden.workspace.state == inner / "deep"
    order = Sandbox().request(hidden.workspace, "true", home)
    assert order["covered_by_mount"] is True
    (home / "space/order").write_text(json.dumps(order))
    assert '"lacking": "PermissionError' in python(executor, driver).text


@needs_sandbox
@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/usr/bin/python3").exists(), reason="only root becomes another"
)
def test_an_ordinary_user_has_the_same_sandbox() -> None:
    folder = Path(tempfile.mkdtemp(prefix="ullage-user-"))
    (folder / "state").mkdir()
    (folder / "state/log.db").write_text("events")
    # The checkout may lie where only root may look.
    library = Path(tempfile.mkdtemp(prefix="ullage-library-"))
    library.chmod(0o755)
    package = Path(confine).parents[1]
    shutil.copytree(package, library / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    code = f"""
    import asyncio, json, sys
    sys.path[:0] = [{str(library)!r}]
    from pathlib import Path
    from ullage.core.messages.transcript import Call
    from ullage.tools import Executor, Sandbox
    folder = Path({str(folder)!r})
    executor = Executor(folder, state=folder / "state", shell=Sandbox())
    command = "echo x >a; chmod 700 a; cat state/log.db; id -u; touch {folder.parent}/no; echo end"
    wanted = Call("1", "shell", json.dumps({{"command": command}}))
    print(asyncio.run(executor.run(wanted, key="k")).text)
    """
    try:
        for path in (folder, folder / "state", folder / "state/log.db"):
            os.chown(path, 65534, 65534)
        done = subprocess.run(
            ["/usr/bin/python3", "-I", "-c", textwrap.dedent(code)],
            user=65534,
            group=65534,
            extra_groups=[],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin"},
            cwd="/",
            timeout=60,
            check=False,
        )
        if "not permitted" in done.stdout and "could not be set up" in done.stdout:
            pytest.skip("users may make no namespaces here")
        assert "cat: state/log.db: Permission denied" in done.stdout, done.stdout + done.stderr
        assert f"cannot touch '{folder.parent}/no': Read-only file system" in done.stdout
        assert "\n65534\n" in done.stdout
        assert "end\n" in done.stdout
        assert (folder / "a").stat().st_mode & 0o777 == 0o700
    finally:
        subprocess.run(["rm", "-rf", str(folder), str(library)], check=True)


def test_a_shell_that_is_off_says_so_and_is_an_ordinary_error(home) -> None:
    executor = Executor(home / "space")
    outcome = sh(executor, "echo x >a")
    assert outcome == ToolOutcome(
        "error: the shell is off: the operator has not turned it on", is_error=True, reach=PRIVATE
    )
    assert executor.decide(call("shell", command="echo x >a"), Posture()).verdict == "allow"
    assert not (home / "space/a").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("sys.platform", "darwin"), "the sandbox needs Linux"),
        (("platform.machine", lambda: "riscv64"), "no system calls of riscv64"),
        (("ullage.tools.sandbox.landlock_version", lambda: 2), "here is 2"),
        (("os.getpid", lambda: 1 << 30), "CONFIG_PROC_CHILDREN"),
    ],
)
def test_a_system_that_lacks_something_turns_the_shell_off(home, monkeypatch, change, said) -> None:
    executor = Executor(home / "space", shell=Sandbox())
    monkeypatch.setattr(*change)
    assert said in Sandbox().lacking(executor.workspace)
    assert "the shell is off: the sandbox" in sh(executor, "true").text
    assert "shell" not in [spec.name for spec in executor.specs(Posture())]


@needs_sandbox
def test_a_sandbox_that_cannot_be_set_up_runs_nothing(home, monkeypatch) -> None:
    monkeypatch.setattr(seccomp, "program", lambda *args, **kwargs: b"\0" * 8)
    outcome = sh(Executor(home / "space", shell=Sandbox()), "echo x >a")
    assert "the shell is off: the sandbox could not be set up (OSError" in outcome.text
    assert not (home / "space/a").exists()


@needs_sandbox
def test_a_watcher_that_is_gone_is_no_answer(executor, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    outcome = sh(executor, "x" * 1_000_000)
    assert outcome.is_error
    assert outcome.text == "[the command ended the process that watched over it]"
    monkeypatch.setattr(sys, "executable", str(executor.workspace.root / "nowhere"))
    assert "No such file" in sh(executor, "true").text


@needs_sandbox
def test_a_watcher_that_does_not_end_is_ended(executor, monkeypatch, home) -> None:
    stuck = home / "stuck"
    stuck.write_text("#!/bin/sh\nexec sleep 981\n")
    stuck.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stuck))
    monkeypatch.setattr(shell, "_PATIENCE_S", 0.2)
    assert sh(executor, "true", timeout_s=1).exit_code == 124
    assert not running("sleep\x00981")


@needs_sandbox
def test_dry_nothing_is_executed(executor, home) -> None:
    outcome = dry(executor, "shell", command="echo x >a")
    assert outcome == ToolOutcome("[dry run] not run: echo x >a", marks={"dry_run": True})
    assert not (home / "space/a").exists()


@needs_sandbox
def test_a_command_that_no_program_can_be_given_is_an_error(executor) -> None:
    assert "a NUL character" in sh(executor, "echo \0").text
    assert "surrogate" in sh(executor, "echo \ud800").text
    outcome = sh(executor, "#" * 200_000)
    assert outcome.is_error
    assert "Argument list too long" in outcome.text


def test_a_read_only_command_is_not_asked_for(executor) -> None:
    ask = Posture("build", "ask")
    assert executor.decide(call("shell", command="git status"), ask).verdict == "allow"
    assert executor.decide(call("shell", command="git status; rm a"), ask).verdict == "ask"
    assert executor.decide(call("shell", command="git status"), Posture("plan")).verdict == "deny"


@pytest.mark.parametrize("name", ["timeout_s", "longest_s", "processes", "file_bytes"])
def test_a_bound_below_one_is_refused(name) -> None:
    bounds: dict[str, Any] = {name: 0}
    with pytest.raises(ConfigurationError, match=f"{name} of the sandbox is 0, below 1"):
        Sandbox(**bounds)
