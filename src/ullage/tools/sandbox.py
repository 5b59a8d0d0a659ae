"""The rights of a command, and whether this system can enforce them.

Read: the system's programs, the workspace, a private temporary folder. Write: the workspace and
that folder. No network unless the operator allows it, and never the state directory. It starts
nothing: `confine` gets the request that is built here.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ullage.core.errors import ConfigurationError
from ullage.tools import commands, seccomp
from ullage.tools.workspace import Workspace

LEAST_LANDLOCK: Final = 3
"""Before version 3 (Linux 6.2), a command could truncate files outside."""

SIGNALS_LANDLOCK: Final = 6
"""From version 6 on (Linux 6.12), Landlock can block signals out of the sandbox without
namespaces."""

ROOT: Final = "ULLAGE_ALLOW_ROOT"
PROBE_S: Final = 10.0

BOUNDS: Final = (
    *("timeout_s", "longest_s", "processes", "file_bytes", "memory_bytes", "disk_bytes"),
)

GUARDED: Final = ("config", "config.worktree", "hooks", "info", "modules")
"""Parts of a repository from which git reads commands."""

MOST_FOLDERS: Final = 2_000
DEEPEST: Final = 4
"""Most folders, and levels of them, that are searched for repositories."""

READ: Final = 1 | 1 << 2 | 1 << 3
"""LANDLOCK_ACCESS_FS_EXECUTE, READ_FILE, READ_DIR (include/uapi/linux/landlock.h)."""

READ_FILE: Final = 1 | 1 << 2
USE_DEVICE: Final = 1 << 1 | 1 << 2

CHANGE: Final = READ | 1 << 1 | 0b110000 | 0b11 << 7 | 1 << 10 | 1 << 12 | 1 << 13 | 1 << 14
"""In addition: WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, MAKE_FIFO, MAKE_SYM, REFER,
TRUNCATE; no devices and no sockets."""

_HANDLED: Final[Mapping[int, int]] = MappingProxyType({3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF})
"""File rights that the ruleset controls, by version; later versions up to 7 add none."""

TCP: Final = 0b11
"""LANDLOCK_ACCESS_NET_BIND_TCP and CONNECT_TCP, from version 4 on."""

SCOPES: Final = 0b11
"""No abstract sockets and no signals out of the sandbox, from version 6 on."""

PROGRAMS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store")

_ETC: Final = (
    "alternatives bash.bashrc ca-certificates debian_version environment fonts gai.conf gitconfig "
    "group host.conf hosts inputrc java java-17-openjdk java-21-openjdk ld.so.cache ld.so.conf "
    "ld.so.conf.d localtime locale.alias lsb-release magic mime.types nsswitch.conf os-release "
    "passwd perl pki/tls/certs profile protocols python3 resolv.conf services ssl/certs "
    "ssl/openssl.cnf terminfo timezone"
)

FACTS: Final = (
    "/proc",
    "/sys/devices/system/cpu",
    "/run/systemd/resolve",
    *(f"/etc/{name}" for name in _ETC.split()),
)
"""Also readable: facts that programs look up. They hold no secrets: /etc/shadow, private keys and
/etc/ssl/private are not included, and Landlock blocks the private parts of other processes in
/proc."""

DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

PASSED: Final = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME")
"""Variables passed to a command unchanged, in addition to PATH; the others may hold keys."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Rights that an operator grants the shell. Raises ConfigurationError for invalid limits.

    `network` opens the Internet, and so every service on this machine that listens on it.
    `readable` are more files and folders to read, `environment` more variables. Limits: `timeout_s`
    if a call names none, and `longest_s` for any call; processes at once; bytes of a file, of
    memory, and of disk space used meanwhile. As root, commands run only with `as_root`, or with
    ULLAGE_ALLOW_ROOT=1 in the environment.
    """

    network: bool = False
    readable: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: int = 120
    longest_s: int = 1_800
    processes: int = 256
    file_bytes: int = 4_000_000_000
    memory_bytes: int = 8_000_000_000
    disk_bytes: int = 16_000_000_000
    as_root: bool = False

    def __post_init__(self) -> None:
        for name in BOUNDS:
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} of the sandbox is {getattr(self, name)}, below 1")

    def lacking(self, workspace: Workspace) -> str:
        """Return why no command can run here, or "" if one can."""
        return _find_lack() or self._find_risk(workspace)

    def _find_risk(self, workspace: Workspace) -> str:
        """Return a reason against commands for this user and this workspace, or ""."""
        if sys.platform == "win32":
            return ""  # `_find_lack` has reported it
        if not (self.as_root or os.environ.get(ROOT) == "1" or os.geteuid() != 0):
            return f"commands do not run as root: use another user, or say --allow-root ({ROOT}=1)"
        state = workspace.state
        if state is not None and workspace.root in state.parents and not state.is_dir():
            return (
                f"the state directory {state} is in the workspace, and is not there to be covered"
            )
        return ""

    def request(self, workspace: Workspace, command: str, private: Path) -> dict[str, Any]:
        """Return the request to `confine` for a command; `private` is its temporary folder.

        Call it only if `lacking` returns "". Git's own files are read-only, except for git itself.
        """
        git = commands.read_git(command)
        machine = seccomp.MACHINES[platform.machine()]
        writable = [str(workspace.root), str(private)]
        reading = self._reading()
        state = workspace.state
        return {
            "program": [_shell(), "-c", command] if git is None else git.program(self._path()),
            "read_only": _list_guarded(workspace.root, git),
            "holds_signals": landlock_version() >= SIGNALS_LANDLOCK,
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
            "folder": str(workspace.root),
            "environment": self._environment(private),
            "processes": self.processes,
            "file_bytes": self.file_bytes,
            "writable": writable,
            "hidden": str(state) if state is not None and state.is_dir() else None,
            "covered_by_mount": _within(state, [*writable, *reading, *FACTS]),
            "ruleset": _ascii(_ruleset(network=self.network)),
            "rules": [
                *((path, _rights(path, READ)) for path in (*reading, *FACTS)),
                *((path, USE_DEVICE) for path in DEVICES),
                *((path, CHANGE) for path in writable),
            ],
            "change": CHANGE,
            "filter": _ascii(seccomp.program(machine, network=self.network, namespaces=True)),
            "strict_filter": _ascii(
                seccomp.program(machine, network=self.network, namespaces=False)
            ),
        }

    def _environment(self, private: Path) -> dict[str, str]:
        passed = {name: os.environ[name] for name in PASSED if name in os.environ}
        own = {"HOME": str(private), "TMPDIR": str(private), "TERM": "dumb", "SHELL": _shell()}
        return {**passed, "PATH": self._path(), **own, **self.environment}

    def _path(self) -> str:
        """Return the readable folders of programs; a shim elsewhere would only fail."""
        folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), f"{sys.prefix}/bin"]
        granted = {Path(each).resolve() for each in self._reading()}
        return os.pathsep.join(
            each for each in folders if granted & {(at := Path(each).resolve()), *at.parents}
        )

    def _reading(self) -> list[str]:
        return [*PROGRAMS, sys.prefix, sys.base_prefix, *map(str, self.readable)]


def _find_lack() -> str:
    """Return what this system lacks for any sandbox, or "" if nothing."""
    if not sys.platform.startswith("linux"):
        return "the sandbox needs Linux"
    if platform.machine() not in seccomp.MACHINES:
        return f"the sandbox knows no system calls of {platform.machine()}"
    version = landlock_version()
    if version < LEAST_LANDLOCK:
        return f"the sandbox needs Landlock {LEAST_LANDLOCK} (Linux 6.2), here is {version}"
    if version < SIGNALS_LANDLOCK and not has_namespaces():
        return (
            "nothing here holds a command's signals back: the sandbox needs namespaces of users "
            f"and processes, or Landlock {SIGNALS_LANDLOCK} (Linux 6.12), here is {version}"
        )
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        return "the sandbox needs the lists of children in /proc (CONFIG_PROC_CHILDREN)"
    return ""


def _list_guarded(root: Path, git: commands.GitCall | None) -> list[str]:
    """Return the parts of the workspace's repositories that a command may not write.

    A direct git call may write all but the files that can start a program later: settings and
    hooks.
    """
    found: list[str] = []
    for folder in _find_repositories(root):
        if git is None or not git.writes:
            found.append(str(folder))
        elif folder.is_dir():
            found += [str(folder / name) for name in GUARDED if (folder / name).exists()]
    return found


def _find_repositories(root: Path) -> Iterator[Path]:
    """Yield the `.git` of a workspace and of its subfolders, up to a limit."""
    waiting, looked = [(root, 0)], 0
    while waiting and looked < MOST_FOLDERS:
        folder, depth = waiting.pop(0)
        looked += 1
        with suppress(OSError):
            for entry in os.scandir(folder):
                if entry.name == ".git" and not entry.is_symlink():
                    yield Path(entry.path)
                elif depth < DEEPEST and entry.is_dir(follow_symlinks=False):
                    waiting.append((Path(entry.path), depth + 1))


@cache
def has_namespaces() -> bool:
    """Tell whether this system grants mount and process namespaces; tested once."""
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("confine.py")), "--probe"]
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            command, check=False, env={}, timeout=PROBE_S, capture_output=True
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def landlock_version() -> int:
    """Return the Landlock version of this kernel, or 0 if it has none."""
    library = ctypes.CDLL(None, use_errno=True)
    create, version = ctypes.c_long(444), ctypes.c_uint(1)  # LANDLOCK_CREATE_RULESET_VERSION
    found: int = library.syscall(create, None, ctypes.c_size_t(0), version)
    return max(found, 0)


def _ruleset(*, network: bool) -> bytes:
    """Return struct landlock_ruleset_attr, in the length of this kernel's version."""
    version = landlock_version()
    fields = [_HANDLED.get(version, _HANDLED[max(_HANDLED)])]
    if version >= 4:
        fields.append(0 if network else TCP)
    if version >= 6:
        fields.append(SCOPES)
    return struct.pack(f"={len(fields)}Q", *fields)


def _rights(path: str, wanted: int) -> int:
    return wanted if Path(path).is_dir() else wanted & READ_FILE


def _within(state: Path | None, granted: list[str]) -> bool:
    """Tell whether the granted paths contain the state directory, as Landlock cannot exclude it."""
    if state is None:
        return False
    around = {state, *state.parents}
    return any(Path(path).resolve() in around for path in granted)


def _shell() -> str:
    # Models write for bash.
    return "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"


def _ascii(data: bytes) -> str:
    return b64encode(data).decode()
