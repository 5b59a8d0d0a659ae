"""The filter of system calls for a sandboxed command, as classic BPF.

It refuses: network (or all of it except the Internet), other processes' memory, mounts and
namespaces, keys, modules, clocks, and ways around path rules. It knows no sandbox, and installs
nothing. Numbers: asm/unistd_64.h for x86_64, asm-generic/unistd.h for aarch64.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

ALLOW: Final = 0x7FFF0000
KILL: Final = 0x80000000
ERRNO: Final = 0x00050000
"""include/uapi/linux/seccomp.h"""

INSTRUCTION: Final = struct.Struct("=HBBI")
"""struct sock_filter: code, jump if true, jump if false, operand."""

LOAD: Final = 0x20
EQUAL: Final = 0x15
AT_LEAST: Final = 0x35
ANY_BIT: Final = 0x45
AND: Final = 0x54
RETURN: Final = 0x06
"""include/uapi/linux/bpf_common.h: BPF_LD|W|ABS, BPF_JMP|..|K, BPF_ALU|AND|K, BPF_RET|K."""

X32: Final = 0x40000000
"""Numbers from here on are the x32 calls of x86_64; they would bypass a list of numbers."""

AF_UNIX: Final = 1
AF_INET: Final = 2
AF_INET6: Final = 10
SOCK_STREAM: Final = 1
SOCK_SEQPACKET: Final = 5
SOCK_TYPE: Final = 0xF
NAMESPACES: Final = 0x7E020080
"""CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET and TIME of clone(2)."""

SET_ID: Final = 0o6000
"""S_ISUID and S_ISGID: a file with these bits would carry its owner's rights out of the sandbox."""

CREATES: Final = 0o100 | 0o20000000
"""O_CREAT and the bit of O_TMPFILE (fcntl.h)."""

MODES: Final[Mapping[str, int]] = MappingProxyType(
    {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
)
"""Calls that set a mode, and the index of that argument."""

OPENS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({"open": (1, 2), "openat": (2, 3)})
"""Calls whose flags decide whether they set a mode: the indexes of both arguments."""

TIOCSTI: Final = 0x5412
TIOCLINUX: Final = 0x541C


class Machine(NamedTuple):
    """An architecture: its audit number, and its call numbers by name, if it has them."""

    audit: int
    numbers: Mapping[str, int]
    x32: bool = False


def program(machine: Machine, *, network: bool, namespaces: bool) -> bytes:
    """Return the filter.

    `network` allows Internet sockets. If the command has no `namespaces` for mounts and shared
    memory, the filter also refuses to change modes, owners and times by path, and to share memory
    by number: Landlock does not control these (its documentation, "Current limitations").
    """
    steps = [
        *_unless(EQUAL, 4, machine.audit, KILL),
        (LOAD, 0, 0, 0),
    ]
    if machine.x32:
        steps += [(AT_LEAST, 0, 1, X32), _make_refusal(errno.ENOSYS)]
    names = REFUSED if namespaces else REFUSED + BY_PATH + SHARED
    names = names if network else names + CONNECTING
    for name in names:
        if name in machine.numbers:
            steps += [(EQUAL, 0, 1, machine.numbers[name]), _make_refusal(errno.EPERM)]
    # These calls take their arguments by a pointer, which the filter cannot read. Programs fall
    # back to calls that it can check.
    for name in ("clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register"):
        steps += [(EQUAL, 0, 1, machine.numbers[name]), _make_refusal(errno.ENOSYS)]
    families = (AF_INET, AF_INET6) if network else ()
    steps += _decide_call(machine.numbers["socket"], _only(0, families))
    # A datagram pair could still send to the path of any socket.
    pairs = [(LOAD, 0, 0, _low(1)), (AND, 0, 0, SOCK_TYPE), *_among((SOCK_STREAM, SOCK_SEQPACKET))]
    steps += _decide_call(machine.numbers["socketpair"], pairs)
    steps += _decide_call(machine.numbers["clone"], _none_of(0, NAMESPACES))
    steps += _hold_rights(machine.numbers)
    steps += _decide_call(machine.numbers["ioctl"], _other_than(1, (TIOCSTI, TIOCLINUX)))
    if not namespaces:
        # Without a path the call sets the times of a descriptor, which was opened under the rules.
        steps += _decide_call(machine.numbers["utimensat"], _null(1))
    steps.append((RETURN, 0, 0, ALLOW))
    return b"".join(INSTRUCTION.pack(*step) for step in steps)


Step = tuple[int, int, int, int]


def _low(argument: int) -> int:
    """Return the offset of an argument's lower half in struct seccomp_data (little-endian)."""
    return 16 + 8 * argument


def _make_refusal(number: int) -> Step:
    return RETURN, 0, 0, ERRNO | number


def _unless(test: int, offset: int, value: int, otherwise: int) -> Iterator[Step]:
    yield LOAD, 0, 0, offset
    yield test, 1, 0, value
    yield RETURN, 0, 0, otherwise


def _decide_call(number: int, steps: list[Step]) -> list[Step]:
    """Return steps that decide one call: they end it, whatever its arguments."""
    return [(EQUAL, 0, len(steps), number), *steps]


def _only(argument: int, allowed: tuple[int, ...]) -> list[Step]:
    return [(LOAD, 0, 0, _low(argument)), *_among(allowed)]


def _among(allowed: tuple[int, ...]) -> list[Step]:
    tests = [(EQUAL, len(allowed) - at, 0, value) for at, value in enumerate(allowed)]
    return [*tests, _make_refusal(errno.EPERM), (RETURN, 0, 0, ALLOW)]


def _other_than(argument: int, refused: tuple[int, ...]) -> list[Step]:
    tests = [(EQUAL, len(refused) - at, 0, value) for at, value in enumerate(refused)]
    return [(LOAD, 0, 0, _low(argument)), *tests, (RETURN, 0, 0, ALLOW), _make_refusal(errno.EPERM)]


def _none_of(argument: int, bits: int) -> list[Step]:
    return [
        (LOAD, 0, 0, _low(argument)),
        (ANY_BIT, 1, 0, bits),
        (RETURN, 0, 0, ALLOW),
        _make_refusal(errno.EPERM),
    ]


def _hold_rights(numbers: Mapping[str, int]) -> list[Step]:
    """Return steps that protect other processes' limits, and refuse set-id modes."""
    steps: list[Step] = []
    # 0 means the process itself; it must not set the limits and processors of others.
    for name in ("prlimit64", "sched_setaffinity"):
        steps += _decide_call(numbers[name], _only_zero(0))
    for name, argument in MODES.items():
        if name in numbers:
            steps += _decide_call(numbers[name], _none_of(argument, SET_ID))
    for name, (flags, mode) in OPENS.items():
        if name in numbers:
            steps += _decide_call(numbers[name], _no_set_id(flags, mode))
    return steps


def _only_zero(argument: int) -> list[Step]:
    return [(LOAD, 0, 0, _low(argument)), *_among((0,))]


def _no_set_id(flags: int, mode: int) -> list[Step]:
    """Return steps for a call that creates a file only if its flags say so."""
    return [
        (LOAD, 0, 0, _low(flags)),
        (ANY_BIT, 0, 3, CREATES),
        (LOAD, 0, 0, _low(mode)),
        (ANY_BIT, 0, 1, SET_ID),
        _make_refusal(errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]


def _null(argument: int) -> list[Step]:
    return [
        (LOAD, 0, 0, _low(argument)),
        (EQUAL, 0, 3, 0),
        (LOAD, 0, 0, _low(argument) + 4),
        (EQUAL, 0, 1, 0),
        (RETURN, 0, 0, ALLOW),
        _make_refusal(errno.EPERM),
    ]


CONNECTING: Final = ("connect",)

_BY_PATH: Final = (
    "chmod chown lchown fchmodat fchmodat2 fchownat setxattr lsetxattr setxattrat removexattr "
    "lremovexattr removexattrat utime utimes futimesat file_setattr"
)
BY_PATH: Final = tuple(_BY_PATH.split())

_SHARED: Final = (
    "shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl "
    "mq_open mq_unlink"
)
SHARED: Final = tuple(_SHARED.split())

_REFUSED: Final = (
    "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise "
    "mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick "
    "mount_setattr open_tree_attr setns unshare "
    "bpf perf_event_open userfaultfd keyctl add_key request_key "
    "init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff "
    "settimeofday clock_settime adjtimex clock_adjtime syslog acct quotactl quotactl_fd "
    "name_to_handle_at open_by_handle_at fanotify_init sethostname setdomainname vhangup "
    "iopl ioperm modify_ldt lookup_dcookie nfsservctl migrate_pages move_pages "
    "sched_setscheduler sched_setparam sched_setattr setpriority ioprio_set"
)
REFUSED: Final = tuple(_REFUSED.split())

_BOTH: Final[Mapping[str, int]] = MappingProxyType(
    {
        "clone3": 435,
        "fchmodat2": 452,
        "file_setattr": 469,
        "fsconfig": 431,
        "fsmount": 432,
        "fsopen": 430,
        "fspick": 433,
        "io_uring_enter": 426,
        "io_uring_register": 427,
        "io_uring_setup": 425,
        "mount_setattr": 442,
        "move_mount": 429,
        "open_tree": 428,
        "open_tree_attr": 467,
        "openat2": 437,
        "pidfd_getfd": 438,
        "process_madvise": 440,
        "quotactl_fd": 443,
        "removexattrat": 466,
        "setxattrat": 463,
    }
)

X86_64: Final = Machine(
    0xC000003E,
    MappingProxyType(
        {
            **_BOTH,
            "acct": 163,
            "add_key": 248,
            "adjtimex": 159,
            "bpf": 321,
            "chmod": 90,
            "creat": 85,
            "fchmod": 91,
            "ioprio_set": 251,
            "mknod": 133,
            "mknodat": 259,
            "open": 2,
            "openat": 257,
            "prlimit64": 302,
            "sched_setaffinity": 203,
            "sched_setattr": 314,
            "sched_setparam": 142,
            "sched_setscheduler": 144,
            "setpriority": 141,
            "chown": 92,
            "chroot": 161,
            "clock_adjtime": 305,
            "clock_settime": 227,
            "clone": 56,
            "connect": 42,
            "delete_module": 176,
            "fanotify_init": 300,
            "fchmodat": 268,
            "fchownat": 260,
            "finit_module": 313,
            "futimesat": 261,
            "init_module": 175,
            "ioctl": 16,
            "ioperm": 173,
            "iopl": 172,
            "kcmp": 312,
            "kexec_file_load": 320,
            "kexec_load": 246,
            "keyctl": 250,
            "lchown": 94,
            "lookup_dcookie": 212,
            "lremovexattr": 198,
            "lsetxattr": 189,
            "migrate_pages": 256,
            "mq_open": 240,
            "mq_unlink": 241,
            "msgctl": 71,
            "msgget": 68,
            "msgrcv": 70,
            "msgsnd": 69,
            "modify_ldt": 154,
            "mount": 165,
            "move_pages": 279,
            "name_to_handle_at": 303,
            "nfsservctl": 180,
            "open_by_handle_at": 304,
            "perf_event_open": 298,
            "pivot_root": 155,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
            "ptrace": 101,
            "quotactl": 179,
            "reboot": 169,
            "removexattr": 197,
            "request_key": 249,
            "semctl": 66,
            "semget": 64,
            "semop": 65,
            "semtimedop": 220,
            "setdomainname": 171,
            "sethostname": 170,
            "setns": 308,
            "settimeofday": 164,
            "setxattr": 188,
            "shmat": 30,
            "shmctl": 31,
            "shmget": 29,
            "socket": 41,
            "socketpair": 53,
            "swapoff": 168,
            "swapon": 167,
            "syslog": 103,
            "umount2": 166,
            "unshare": 272,
            "userfaultfd": 323,
            "utime": 132,
            "utimensat": 280,
            "utimes": 235,
            "vhangup": 153,
        }
    ),
    x32=True,
)

AARCH64: Final = Machine(
    0xC00000B7,
    MappingProxyType(
        {
            **_BOTH,
            "acct": 89,
            "add_key": 217,
            "adjtimex": 171,
            "bpf": 280,
            "chroot": 51,
            "clock_adjtime": 266,
            "clock_settime": 112,
            "clone": 220,
            "fchmod": 52,
            "ioprio_set": 30,
            "mknodat": 33,
            "openat": 56,
            "prlimit64": 261,
            "sched_setaffinity": 122,
            "sched_setattr": 274,
            "sched_setparam": 118,
            "sched_setscheduler": 119,
            "setpriority": 140,
            "connect": 203,
            "delete_module": 106,
            "fanotify_init": 262,
            "fchmodat": 53,
            "fchownat": 54,
            "finit_module": 273,
            "init_module": 105,
            "ioctl": 29,
            "kcmp": 272,
            "kexec_file_load": 294,
            "kexec_load": 104,
            "keyctl": 219,
            "lookup_dcookie": 18,
            "lremovexattr": 15,
            "lsetxattr": 6,
            "migrate_pages": 238,
            "mq_open": 180,
            "mq_unlink": 181,
            "msgctl": 187,
            "msgget": 186,
            "msgrcv": 188,
            "msgsnd": 189,
            "mount": 40,
            "move_pages": 239,
            "name_to_handle_at": 264,
            "nfsservctl": 42,
            "open_by_handle_at": 265,
            "perf_event_open": 241,
            "pivot_root": 41,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
            "ptrace": 117,
            "quotactl": 60,
            "reboot": 142,
            "removexattr": 14,
            "request_key": 218,
            "semctl": 191,
            "semget": 190,
            "semop": 193,
            "semtimedop": 192,
            "setdomainname": 162,
            "sethostname": 161,
            "setns": 268,
            "settimeofday": 170,
            "setxattr": 5,
            "shmat": 196,
            "shmctl": 195,
            "shmget": 194,
            "socket": 198,
            "socketpair": 199,
            "swapoff": 225,
            "swapon": 224,
            "syslog": 116,
            "umount2": 39,
            "unshare": 97,
            "userfaultfd": 282,
            "utimensat": 88,
            "vhangup": 58,
        }
    ),
)

MACHINES: Final[Mapping[str, Machine]] = MappingProxyType(
    {"x86_64": X86_64, "aarch64": AARCH64, "arm64": AARCH64}
)
"""Machines by the name that `platform.machine()` returns."""
