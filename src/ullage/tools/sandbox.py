"""What a command may reach, and whether this system can hold it to that.

Reading: the system's programs, the workspace, its own temporary folder. Writing: the workspace and
that folder. No network unless the operator wants it, and never the state directory. It starts
nothing: `confine` is told the request that is made here.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ullage.core.errors import ConfigurationError
from ullage.tools import seccomp
from ullage.tools.workspace import Workspace

LEAST_LANDLOCK: Final = 3
"""Before version 3 (Linux 6.2), files outside could be cut to nothing."""

READ: Final = 1 | 1 << 2 | 1 << 3
"""LANDLOCK_ACCESS_FS_EXECUTE, READ_FILE, READ_DIR (include/uapi/linux/landlock.h)."""

READ_FILE: Final = 1 | 1 << 2
USE_DEVICE: Final = 1 << 1 | 1 << 2

CHANGE: Final = READ | 1 << 1 | 0b110000 | 0b11 << 7 | 1 << 10 | 1 << 12 | 1 << 13 | 1 << 14
"""Besides: WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, MAKE_FIFO, MAKE_SYM, REFER,
TRUNCATE; no devices and no sockets."""

_HANDLED: Final[Mapping[int, int]] = MappingProxyType({3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF})
"""Rights over files that are held back, by version; later versions up to 7 add none."""

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
"""Read, too: what programs look up. No secret is in them: /etc/shadow, private keys and
/etc/ssl/private are not among them, and Landlock keeps other processes' insides in /proc closed."""

DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

PASSED: Final = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME")
"""Variables that a command is given as they are, besides PATH; keys are in the others."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What an operator grants the shell. Raises ConfigurationError for bounds that cannot be.

    `network` opens the Internet, and so every service on this machine that listens for it.
    `readable` are further files and folders to read, `environment` further variables. Bounds:
    `timeout_s` where a call names none and `longest_s` at all, processes at once, bytes of a file.
    """

    network: bool = False
    readable: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: int = 120
    longest_s: int = 1_800
    processes: int = 256
    file_bytes: int = 4_000_000_000

    def __post_init__(self) -> None:
        for name in ("timeout_s", "longest_s", "processes", "file_bytes"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} of the sandbox is {getattr(self, name)}, below 1")

    def lacking(self, workspace: Workspace) -> str:
        """Return why no command can run here, "" where it can."""
        if not sys.platform.startswith("linux"):
            return "the sandbox needs Linux"
        if platform.machine() not in seccomp.MACHINES:
            return f"the sandbox knows no system calls of {platform.machine()}"
        version = landlock_version()
        if version < LEAST_LANDLOCK:
            return f"the sandbox needs Landlock {LEAST_LANDLOCK} (Linux 6.2), here is {version}"
        if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
            return "the sandbox needs the lists of children in /proc (CONFIG_PROC_CHILDREN)"
        state = workspace.state
        if state is not None and workspace.root in state.parents and not state.is_dir():
            return (
                f"the state directory {state} is in the workspace, and is not there to be covered"
            )
        return ""

    def request(self, workspace: Workspace, command: str, private: Path) -> dict[str, Any]:
        """Return what `confine` is to do for a command; `private` is its temporary folder.

        Only where `lacking` says nothing.
        """
        machine = seccomp.MACHINES[platform.machine()]
        writable = [str(workspace.root), str(private)]
        reading = self._reading()
        state = workspace.state
        return {
            "program": [_shell(), "-c", command],
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
        """Return the folders of programs that can be read; a shim elsewhere would be in the way."""
        folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), f"{sys.prefix}/bin"]
        granted = {Path(each).resolve() for each in self._reading()}
        return os.pathsep.join(
            each for each in folders if granted & {(at := Path(each).resolve()), *at.parents}
        )

    def _reading(self) -> list[str]:
        return [*PROGRAMS, sys.prefix, sys.base_prefix, *map(str, self.readable)]


def landlock_version() -> int:
    """Return the version of Landlock that this kernel offers, 0 for none."""
    library = ctypes.CDLL(None, use_errno=True)
    create, version = ctypes.c_long(444), ctypes.c_uint(1)  # LANDLOCK_CREATE_RULESET_VERSION
    found: int = library.syscall(create, None, ctypes.c_size_t(0), version)
    return max(found, 0)


def _ruleset(*, network: bool) -> bytes:
    """Return struct landlock_ruleset_attr, as long as this kernel's version has it."""
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
    """Tell whether the state directory is in what is granted, so that Landlock alone won't do."""
    if state is None:
        return False
    around = {state, *state.parents}
    return any(Path(path).resolve() in around for path in granted)


def _shell() -> str:
    # Models write for bash.
    return "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"


def _ascii(data: bytes) -> str:
    return b64encode(data).decode()
