"""The system-call filter, run by a small interpreter of classic BPF over every number, not only those that tests make."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from reharness.solver.sandbox import seccomp

FILTERS = [list(struct.iter_unpack("<HBBI", build())) for build in (seccomp.build_filter, seccomp.build_last_filter)]
KILL, ALLOW = seccomp.RET_KILL, seccomp.RET_ALLOW
DENY, UNKNOWN = seccomp.RET_ERRNO | seccomp.EPERM, seccomp.RET_ERRNO | seccomp.ENOSYS
SPECIAL = {435, 56, 9, 10, 16, 72, 302, 53, 44}
U64 = st.integers(0, 2**64 - 1)


def decide(nr: int, *args: int, arch: int = seccomp.AUDIT_ARCH_X86_64) -> int:
    """What the kernel would answer to system call `nr` with these arguments: the strictest of both filters' answers."""
    return min((run(program, nr, args, arch) for program in FILTERS), key=lambda answer: (answer ^ 1 << 31) - (1 << 31))


def run(program: list[tuple[int, ...]], nr: int, args: tuple[int, ...], arch: int) -> int:
    data = struct.pack("<IIQ6Q", nr, arch, 0, *(*args, *[0] * 6)[:6])
    a = x = pc = 0
    memory = [0] * 16
    for _ in range(len(program)):
        code, jt, jf, k = program[pc]
        pc += 1
        match code:
            case 0x06:
                return k
            case 0x20:
                a = struct.unpack_from("<I", data, k)[0]
            case 0x00:
                a = k
            case 0x54:
                a &= k
            case 0x74:
                a >>= k
            case 0x6C:
                a = (a << x) & 0xFFFFFFFF
            case 0x07:
                x = a
            case 0x02:
                memory[k] = a
            case 0x60:
                a = memory[k]
            case 0x15:
                pc += jt if a == k else jf
            case 0x35:
                pc += jt if a >= k else jf
            case 0x45:
                pc += jt if a & k else jf
            case _:
                raise AssertionError(f"instruction {code:#x} is none that this filter uses")
    raise AssertionError("the filter does not end")


def test_every_number_is_answered_by_the_list_and_nothing_else() -> None:
    for nr in set(range(1024)) - SPECIAL:
        assert decide(nr) == (ALLOW if nr in seccomp._ALLOWED.values() else DENY), nr
    for name, nr in {"fork": 57, "vfork": 58, "execve": 59, "kill": 62, "tgkill": 234, "socket": 41, "ptrace": 101}.items():
        assert decide(nr) == DENY, name


@given(nr=st.integers(0, 2**32 - 1), args=st.lists(U64, max_size=6), arch=st.integers(0, 2**32 - 1))
def test_foreign_entries_are_killed(nr: int, args: list[int], arch: int) -> None:
    if arch != seccomp.AUDIT_ARCH_X86_64:
        assert decide(nr, *args, arch=arch) == KILL
    assert decide(nr | seccomp.X32_BIT, *args) == KILL


@given(flags=U64)
def test_clone_makes_threads_only(flags: int) -> None:
    threads = (0x3D0F00, 0x7D0F00)
    assert decide(56, flags) == (ALLOW if flags & 0xFFFFFFFF in threads else DENY)
    assert decide(56, threads[0]) == ALLOW
    assert decide(435, flags) == UNKNOWN


@given(address=U64, prot=st.integers(0, 15))
def test_no_executable_memory(address: int, prot: int) -> None:
    for nr in (9, 10):
        assert decide(nr, address, 4096, prot) == (DENY if prot & 4 else ALLOW)


@given(pointer=U64, pid=st.integers(0, 2**31 - 1))
def test_sendto_has_no_address_and_prlimit_sets_nothing(pointer: int, pid: int) -> None:
    assert decide(44, 3, 0, 0, 0, pointer) == (DENY if pointer else ALLOW)
    assert decide(302, 0, 7, pointer, 1) == (DENY if pointer else ALLOW)
    assert decide(302, pid, 7, 0, 1) == (DENY if pid else ALLOW)
    assert decide(157, 22, 2, pointer) == decide(157, pid) == DENY


def test_socket_pairs_are_unix_streams_and_descriptors_send_no_signals() -> None:
    assert decide(53, 1, 1) == decide(53, 1, 1 | 0o2000000 | 0o4000) == ALLOW
    assert [decide(53, family, kind) for family, kind in ((1, 2), (1, 5), (2, 1), (16, 3))] == [DENY] * 4
    assert [decide(72, 3, command) for command in (8, 10, 15, 1024, 1031, 1033)] == [DENY] * 6  # F_SETOWN, F_SETSIG, ...
    assert decide(72, 3, 4) == decide(16, 3, 0x5421) == ALLOW
    assert [decide(16, 0, request) for request in (0x5412, 0x8901, 0x5452)] == [DENY] * 3  # TIOCSTI, FIOSETOWN, FIOASYNC
