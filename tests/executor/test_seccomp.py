"""The filter of system calls, run by an interpreter of its instructions."""

from __future__ import annotations

import struct

import pytest

from ullage.tools import seccomp
from ullage.tools.seccomp import AARCH64, ALLOW, ERRNO, KILL, MACHINES, X86_64, Machine

EPERM, ENOSYS = ERRNO | 1, ERRNO | 38
BOTH = pytest.mark.parametrize("machine", [X86_64, AARCH64], ids=["x86_64", "aarch64"])


def verdict(
    machine: Machine,
    call: str | int,
    *arguments: int,
    network: bool = False,
    namespaces: bool = True,
    audit: int | None = None,
) -> int:
    """Return what the filter says of a call."""
    number = machine.numbers[call] if isinstance(call, str) else call
    given = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, audit or machine.audit, 0, *given)
    program = seccomp.program(machine, network=network, namespaces=namespaces)
    steps: list[tuple[int, ...]] = list(seccomp.INSTRUCTION.iter_unpack(program))
    at = value = 0
    while True:
        code, yes, no, operand = steps[at]
        at += 1
        if code == seccomp.LOAD:
            value = struct.unpack_from("=I", data, operand)[0]
        elif code == seccomp.AND:
            value &= operand
        elif code == seccomp.RETURN:
            return operand
        else:
            holds = {
                seccomp.EQUAL: value == operand,
                seccomp.AT_LEAST: value >= operand,
                seccomp.ANY_BIT: bool(value & operand),
            }[code]
            at += yes if holds else no


@BOTH
def test_ordinary_calls_pass(machine) -> None:
    listed = set(machine.numbers.values())
    for number in set(range(460)) - listed:
        assert verdict(machine, number) == ALLOW


@BOTH
def test_calls_on_other_processes_mounts_keys_and_modules_do_not(machine) -> None:
    for name in seccomp.REFUSED:
        if name in machine.numbers:
            assert verdict(machine, name) == EPERM


def test_every_refused_call_has_a_number_on_one_machine_at_least() -> None:
    for name in (*seccomp.REFUSED, *seccomp.BY_PATH, *seccomp.SHARED, *seccomp.CONNECTING):
        assert name in X86_64.numbers
    assert set(AARCH64.numbers) <= set(X86_64.numbers)


@BOTH
def test_calls_that_cannot_be_looked_into_are_not_there(machine) -> None:
    for name in ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"):
        assert verdict(machine, name) == ENOSYS


@BOTH
def test_without_network_no_socket_is_made_nor_connected(machine) -> None:
    for family in range(46):
        assert verdict(machine, "socket", family, 1) == EPERM
    assert verdict(machine, "connect", 3) == EPERM


@BOTH
def test_with_network_only_sockets_of_the_internet_are_made(machine) -> None:
    allowed = {
        family for family in range(46) if verdict(machine, "socket", family, network=True) == ALLOW
    }
    assert allowed == {2, 10}
    assert verdict(machine, "connect", 3, network=True) == ALLOW


@BOTH
def test_pairs_are_streams_that_cannot_reach_another(machine) -> None:
    for network in (False, True):
        flags = 0o2000000 | 0o4000  # SOCK_CLOEXEC, SOCK_NONBLOCK
        assert verdict(machine, "socketpair", 1, 1 | flags, network=network) == ALLOW
        assert verdict(machine, "socketpair", 1, 5, network=network) == ALLOW
        assert verdict(machine, "socketpair", 1, 2, network=network) == EPERM


@BOTH
def test_no_namespace_is_made(machine) -> None:
    assert verdict(machine, "clone", 17) == ALLOW
    assert verdict(machine, "clone", 0x3D0F00) == ALLOW  # a thread, as the C library makes it
    for bit in (7, 17, 25, 26, 27, 28, 29, 30):
        assert verdict(machine, "clone", 1 << bit | 17) == EPERM


@BOTH
def test_no_key_is_typed_into_a_terminal(machine) -> None:
    assert verdict(machine, "ioctl", 0, 0x5401) == ALLOW
    assert verdict(machine, "ioctl", 0, 0x5412) == EPERM
    assert verdict(machine, "ioctl", 0, 0x541C) == EPERM
    assert verdict(machine, "ioctl", 0, 0x5412 | 1 << 32) == EPERM


@BOTH
def test_metadata_by_path_is_left_alone_where_mounts_do_not_guard_it(machine) -> None:
    for name in seccomp.BY_PATH + seccomp.SHARED:
        if name in machine.numbers:
            assert verdict(machine, name, namespaces=False) == EPERM
            assert verdict(machine, name) == ALLOW
    assert verdict(machine, "utimensat", 3, 0, namespaces=False) == ALLOW
    assert verdict(machine, "utimensat", 3, 1 << 32, namespaces=False) == EPERM
    assert verdict(machine, "utimensat", 3, 4096, namespaces=False) == EPERM


def test_another_architecture_ends_the_process() -> None:
    assert verdict(X86_64, 1, audit=0x40000003) == KILL  # i386


def test_the_other_numbers_of_x86_are_not_there() -> None:
    assert verdict(X86_64, 0x40000000 | 41, 2) == ENOSYS


def test_a_filter_is_within_what_the_kernel_takes() -> None:
    for machine in MACHINES.values():
        program = seccomp.program(machine, network=False, namespaces=False)
        assert len(program) // 8 < 4_096
