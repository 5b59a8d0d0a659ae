"""The process between this program and a sandboxed command; run by path, imports nothing of ullage.

It reads one line of JSON from standard input (the fields that `sandbox.Sandbox.request` returns).
It runs the command in a child that has given up its rights: capabilities, files (a mount namespace
if the system grants one, and always Landlock), system calls (seccomp). It ends the command and all
its descendants when the command is over, when there are too many processes, or when standard input
ends, because then the parent wants that or is gone. It writes the outcome to the descriptor
`report`. It knows no workspace and decides nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import struct
import sys
import time
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

if sys.platform != "linux":
    raise ImportError("the sandbox needs Linux")

WATCH_MS: Final = 50
"""Milliseconds between two counts of the processes."""

GRACE_S: Final = 10.0
"""Seconds to wait for killed processes to end."""

BESIDE: Final = 2
"""Processes of this program among those of a command: the one that enters the namespaces, and their
first process."""

MOST_AT_ONCE: Final = 1_000
"""Processes listed before some of them are killed: a flood of new ones would make the list
endless."""

PR_SET_PDEATHSIG: Final = 1
PR_SET_SECCOMP: Final = 22
PR_CAPBSET_DROP: Final = 24
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38
SECCOMP_MODE_FILTER: Final = 2
"""include/uapi/linux/prctl.h, seccomp.h"""

CAPABILITY_VERSION: Final = 0x20080522
LAST_CAPABILITY: Final = 63
"""include/uapi/linux/capability.h"""

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 0x40000
OPEN_TREE: Final = 428
MOVE_MOUNT: Final = 429
MOUNT_SETATTR: Final = 442
OPEN_TREE_CLONE: Final = 1
AT_FDCWD: Final = -100
AT_RECURSIVE: Final = 0x8000
AT_EMPTY_PATH: Final = 0x1000
MOVE_MOUNT_F_EMPTY_PATH: Final = 4
MOUNT_ATTR_RDONLY: Final = 1
"""include/uapi/linux/mount.h, sched.h, fcntl.h"""

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - covered by an empty one for the command
"""Python's multiprocessing creates its locks here."""

LANDLOCK_CREATE_RULESET: Final = 444
LANDLOCK_ADD_RULE: Final = 445
LANDLOCK_RESTRICT_SELF: Final = 446
PATH_BENEATH: Final = 1
"""include/uapi/linux/landlock.h"""

LIBC: Final = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Run the command that standard input requests, and write the outcome to the report."""
    request = json.loads(_first_line())
    report: int = request["report"]
    os.set_inheritable(report, False)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    with suppress(OSError):  # only root may; other users have RLIMIT_NPROC instead
        # A higher priority than any flood of processes, so that it can be found and killed.
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    child = os.fork()
    if child == 0:
        _become(request, report)
    told = _watch(child, request)
    with suppress(OSError):  # the parent has gone
        os.write(report, json.dumps(told).encode() + b"\n")


def _watch(child: int, request: dict[str, Any]) -> dict[str, Any]:
    """Wait for the command, then kill all its descendants; return how it ended."""
    most = request["processes"] + BESIDE
    before = _measure_free(request["writable"])
    ended = os.pidfd_open(child)
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    poll.register(ended, select.POLLIN)
    told: dict[str, Any] = {}
    while not told:
        ready = {descriptor for descriptor, _ in poll.poll(WATCH_MS)}
        if ended in ready:
            told["ended"] = True
        elif 0 in ready and not os.read(0, 4096):
            told["stopped"] = True
        else:
            _reap_children(child)
            told = _find_excess(_descendants(most), before, request)
    os.close(ended)
    told["status"] = _end_all(child)
    return told


def _find_excess(pids: set[int], before: dict[str, int], request: dict[str, Any]) -> dict[str, Any]:
    """Return the limit that the command and its descendants exceed, or an empty dict."""
    if len(pids) > request["processes"] + BESIDE:
        return {"processes": request["processes"]}
    if _measure_memory(pids) > request["memory_bytes"]:
        return {"memory": request["memory_bytes"]}
    now = _measure_free(request["writable"])
    if any(before[path] - now.get(path, 0) > request["disk_bytes"] for path in before):
        return {"disk": request["disk_bytes"]}
    return {}


def _measure_memory(pids: set[int]) -> int:
    """Return the private memory of processes in bytes: resident, and not shared with files."""
    pages = 0
    for pid in pids:
        with suppress(OSError, ValueError):  # gone meanwhile
            _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
            pages += max(int(resident) - int(shared), 0)
    return pages * resource.getpagesize()


def _measure_free(paths: list[str]) -> dict[str, int]:
    """Return the free bytes of the file systems that hold the folders."""
    found = {}
    for path in paths:
        with suppress(OSError):
            held = os.statvfs(path)
            found[path] = held.f_bavail * held.f_frsize
    return found


def _end_all(child: int) -> int | None:
    """Kill all descendants, one process group at a time; return the exit status of `child`."""
    status = None
    end = time.monotonic() + GRACE_S
    while left := _descendants(MOST_AT_ONCE):
        for group in _groups(left):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        found = _reap_children(child)
        status = found if status is None else status
        if time.monotonic() > end:
            break
    return status


def _reap_children(child: int) -> int | None:
    """Reap ended children; return the exit status of the command, or None while it runs."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = os.waitstatus_to_exitcode(status)


def _descendants(most: int) -> set[int]:
    """Return the descendants of this process; stop soon after `most` of them.

    This process is their subreaper, so orphans among them become its children.
    """
    found: set[int] = set()
    left = [os.getpid()]
    while left and len(found) <= most:
        children = _children(left.pop()) - found
        found |= children
        left.extend(children)
    return found


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    with suppress(OSError):  # gone meanwhile
        for task in Path(f"/proc/{pid}/task").iterdir():
            found.update(map(int, (task / "children").read_text().split()))
    return found


def _groups(pids: set[int]) -> set[int]:
    """Return the process groups of descendants, without the group of this process.

    Each descendant has its own session, so these groups hold no other process.
    """
    found: set[int] = set()
    for pid in pids:
        with suppress(OSError):
            found.add(os.getpgid(pid))
    return found - {os.getpgrp()}


def _become(request: dict[str, Any], report: int) -> NoReturn:
    """Give up the forbidden rights, and become the command."""
    try:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)  # Python ignores them, and exec would keep that
        _limit(request)
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
        mounted = _isolate(request, report)
        os.chdir(request["folder"])
        _landlock(request)
        _drop_capabilities()
        _seccomp(b64decode(request["filter" if mounted else "strict_filter"]))
        if mounted:
            _stand_first(report)
        os.execve(request["program"][0], request["program"], request["environment"])  # noqa: S606 - it is a shell
    except (OSError, TypeError, ValueError) as error:
        os.write(report, json.dumps({"lacking": f"{type(error).__name__}: {error}"}).encode())
    os._exit(127)


def _limit(request: dict[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, request["file_bytes"])
    if os.geteuid() != 0:  # RLIMIT_NPROC does not limit root; `_watch` counts in any case
        _lower(resource.RLIMIT_NPROC, _tasks() + request["processes"] * 4)


def _lower(kind: int, value: int) -> None:
    _, most = resource.getrlimit(kind)
    value = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(kind, (value, value))


def _tasks() -> int:
    """Return the number of threads of this user, which RLIMIT_NPROC counts."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.stat().st_uid == os.geteuid():
                count += len(list((folder / "task").iterdir()))
    return count


def _isolate(request: dict[str, Any], report: int) -> bool:
    """Continue in the command's own namespaces, as a child; False if the system grants none.

    Raises OSError if they are needed: to cover a folder, or because nothing else blocks signals.
    """
    try:
        _new_namespace()
        _check(LIBC.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None))
    except OSError:
        if request["covered_by_mount"] or not request["holds_signals"]:
            raise
        return False
    first = os.fork()  # the first process of the namespace: all others end with it
    if first:
        os.close(report)
        _, status = os.waitpid(first, 0)
        os._exit(status and 128 + signal.SIGKILL)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _mount_all(request)
    return True


def _stand_first(report: int) -> None:
    """Continue as a child; the first process of the namespace waits for it and reports."""
    command = os.fork()
    if not command:
        os.setsid()
        return
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == command:
            break
    os.write(report, json.dumps({"status": os.waitstatus_to_exitcode(status)}).encode() + b"\n")
    os._exit(0)


def _mount_all(request: dict[str, Any]) -> None:
    """Make all read-only except the writable folders, and cover shared or hidden places."""
    writable = [os.fsencode(path) for path in request["writable"]]
    trees = [
        _call(OPEN_TREE, AT_FDCWD, path, OPEN_TREE_CLONE | os.O_CLOEXEC | AT_RECURSIVE)
        for path in writable
    ]
    read_only = struct.pack("=4Q", MOUNT_ATTR_RDONLY, 0, 0, 0)
    _call(MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, read_only, len(read_only))
    for tree, path in zip(trees, writable, strict=True):
        _call(MOVE_MOUNT, tree, b"", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH)
        os.close(tree)
    for path in request["read_only"]:
        at = os.fsencode(path)
        tree = _call(OPEN_TREE, AT_FDCWD, at, OPEN_TREE_CLONE | os.O_CLOEXEC | AT_RECURSIVE)
        _call(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH | AT_RECURSIVE, read_only, len(read_only))
        _call(MOVE_MOUNT, tree, b"", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH)
        os.close(tree)
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    # If the system does not grant it (because it masks parts of its own /proc), Landlock excludes
    # /proc.
    if LIBC.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(flags), None) < 0:
        request["rules"] = [rule for rule in request["rules"] if rule[0] != "/proc"]
    with suppress(OSError):  # without it, programs have no shared memory
        _cover(SHARED_MEMORY, flags, b"mode=1777,size=64m")
        request["rules"].append((SHARED_MEMORY, request["change"]))
    if request["hidden"] is not None:
        _cover(request["hidden"], flags | MS_RDONLY, b"mode=0,size=4k")


def _cover(path: str, flags: int, options: bytes) -> None:
    at = os.fsencode(path)
    _check(LIBC.mount(b"ullage", at, b"tmpfs", ctypes.c_ulong(flags), options))


def _new_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        _check(LIBC.unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID))
        return
    _check(LIBC.unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWUSER))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _landlock(request: dict[str, Any]) -> None:
    attributes = b64decode(request["ruleset"])
    ruleset = _call(LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    for path, rights in request["rules"]:
        try:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError):
            continue  # a path that this user cannot open cannot be granted either
        rule = struct.pack("=Qi", rights, opened)
        _call(LANDLOCK_ADD_RULE, ruleset, PATH_BENEATH, rule, 0)
        os.close(opened)
    _call(LANDLOCK_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _drop_capabilities() -> None:
    for capability in range(LAST_CAPABILITY + 1):
        # This fails without the right to do it, and for numbers that this kernel does not have.
        LIBC.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    _check(LIBC.capset(header, bytes(24)))


def _seccomp(program: bytes) -> None:
    held = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of 8-byte instructions, padding, their address.
    frame = struct.pack("@HP", len(program) // 8, ctypes.addressof(held))
    _check(LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, frame, 0, 0))


def _prctl(option: int, value: int) -> None:
    _check(LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def _call(number: int, *arguments: int | bytes) -> int:
    """Make a system call that the C library does not offer."""
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return _check(LIBC.syscall(ctypes.c_long(number), *given))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _first_line() -> bytes:
    """Read up to the newline without a buffer, so that `_watch` sees the end of the pipe."""
    line = bytearray()
    while not line.endswith(b"\n"):
        data = os.read(0, 1)
        if not data:
            sys.exit("ullage: standard input ended before the request came")
        line += data
    return bytes(line)


def probe() -> None:
    """Exit with 0 if the system grants namespaces, else with an error."""
    _new_namespace()


if __name__ == "__main__":
    main() if sys.argv[1:] != ["--probe"] else probe()
