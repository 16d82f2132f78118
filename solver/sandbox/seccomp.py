"""The system calls that a harness may make, as a hand-assembled classic BPF program (x86-64). Runs inside the cage.

An allow-list: whatever is not named here answers EPERM, so a kernel newer than this file opens nothing. Left out on
purpose: fork, vfork, exec, socket, connect, bind, sendmsg, kill, tgkill, ptrace, process_vm_*, mount, unshare, setns,
io_uring, bpf, userfaultfd, keyctl, perf_event_open, memfd, prctl, executable mappings and the scheduler's knobs.
"""

from __future__ import annotations

import struct

AUDIT_ARCH_X86_64 = 0xC000003E
X32_BIT = 0x40000000
RET_ALLOW, RET_KILL, RET_ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, ENOSYS = 1, 38

_ALLOWED = {
    # files (Landlock decides which) and descriptors
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8,
    "pread64": 17, "readv": 19, "writev": 20, "access": 21, "pipe": 22, "select": 23, "dup": 32, "dup2": 33,
    "getcwd": 79, "readlink": 89, "getdents64": 217, "epoll_wait": 232, "epoll_ctl": 233, "openat": 257,
    "newfstatat": 262, "readlinkat": 267, "faccessat": 269, "pselect6": 270, "ppoll": 271, "epoll_pwait": 281,
    "eventfd2": 290, "epoll_create1": 291, "dup3": 292, "pipe2": 293, "statx": 332, "faccessat2": 439,
    # memory and threads
    "munmap": 11, "brk": 12, "mremap": 25, "madvise": 28, "exit": 60, "futex": 202, "set_robust_list": 273, "rseq": 334,
    # its own signals and timers
    "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "pause": 34, "nanosleep": 35, "getitimer": 36,
    "alarm": 37, "setitimer": 38, "rt_sigpending": 127, "rt_sigtimedwait": 128, "sigaltstack": 131,
    "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230,
    # its own socket pairs (asyncio wakes itself through one)
    "recvfrom": 45, "shutdown": 48, "getsockname": 51, "getpeername": 52, "getsockopt": 55,
    # harmless questions
    "sched_yield": 24, "getpid": 39, "uname": 63, "gettimeofday": 96, "getrlimit": 97, "getrusage": 98, "sysinfo": 99,
    "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110, "getpgrp": 111,
    "gettid": 186, "time": 201, "sched_getaffinity": 204, "exit_group": 231, "getcpu": 309, "getrandom": 318,
}  # fmt: skip

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQ, _JUMP_GE, _JUMP_ANY = 0x15, 0x35, 0x45
_TO_X, _LOAD_CONST, _SHIFT_BY_X, _SHIFT_RIGHT, _STORE, _LOAD_STORED = 0x07, 0x00, 0x6C, 0x74, 0x02, 0x60
_NR, _ARCH = 0, 4


def _arg(index: int, high: bool = False) -> int:
    return 16 + 8 * index + (4 if high else 0)


def _op(code: int, k: int, jt: int = 0, jf: int = 0) -> bytes:
    return struct.pack("<HBBI", code, jt, jf, k)


def _ret(value: int) -> bytes:
    return _op(_RETURN, value)


def _rule(nr: int, body: list[bytes]) -> list[bytes]:
    """`body` for system call `nr`; any other falls through, with the number still loaded."""
    return [_op(_JUMP_EQ, nr, 0, len(body)), *body]


def _allow_if(nr: int, offset: int, values: tuple[int, ...], mask: int = 0xFFFFFFFF) -> list[bytes]:
    """Allow `nr` if the 32-bit word at `offset`, masked, is one of `values`."""
    body = [_op(_LOAD, offset), _op(_AND, mask)]
    for value in values:
        body += [_op(_JUMP_EQ, value, 0, 1), _ret(RET_ALLOW)]
    return _rule(nr, [*body, _ret(RET_ERRNO | EPERM)])


def _allow_if_null(nr: int, index: int) -> list[bytes]:
    """Allow `nr` if its pointer argument `index` is NULL."""
    body = [_op(_LOAD, _arg(index)), _op(_JUMP_EQ, 0, 0, 3), _op(_LOAD, _arg(index, high=True))]
    return _rule(nr, [*body, _op(_JUMP_EQ, 0, 0, 1), _ret(RET_ALLOW), _ret(RET_ERRNO | EPERM)])


def build_filter() -> bytes:
    """The program as an array of `struct sock_filter`."""
    thread_flags = 0x3D0F00  # what glibc's pthread_create passes to clone; musl adds CLONE_DETACHED
    program = [
        _op(_LOAD, _ARCH),
        _op(_JUMP_EQ, AUDIT_ARCH_X86_64, 1, 0),
        _ret(RET_KILL),  # int 0x80 and other foreign entries
        _op(_LOAD, _NR),
        _op(_JUMP_GE, X32_BIT, 0, 1),
        _ret(RET_KILL),
    ]
    # The plain ones as bit maps of 32 numbers each: a test for every number would make a run's filter dearer to load.
    word_of_nr = [_op(_LOAD, _NR), _op(_SHIFT_RIGHT, 5)]
    program += [_op(_AND, 31), _op(_TO_X, 0), _op(_LOAD_CONST, 1), _op(_SHIFT_BY_X, 0), _op(_STORE, 0), *word_of_nr]
    for word in sorted({nr >> 5 for nr in _ALLOWED.values()}):
        bits = sum(1 << (nr & 31) for nr in _ALLOWED.values() if nr >> 5 == word)
        program += _rule(word, [_op(_LOAD_STORED, 0), _op(_JUMP_ANY, bits, 0, 1), _ret(RET_ALLOW), *word_of_nr])
    program.append(_op(_LOAD, _NR))
    program += _rule(435, [_ret(RET_ERRNO | ENOSYS)])  # clone3: its flags are in memory; glibc then falls back to clone
    program += _allow_if(56, _arg(0), (thread_flags, thread_flags | 0x400000))  # clone: threads only
    program += _allow_if(9, _arg(2), (0,), mask=0x4)  # mmap without PROT_EXEC
    program += _allow_if(10, _arg(2), (0,), mask=0x4)  # mprotect without PROT_EXEC
    # ioctl: TCGETS (isatty), FIONBIO, FIONREAD, FIONCLEX, FIOCLEX
    program += _allow_if(16, _arg(1), (0x5401, 0x5421, 0x541B, 0x5450, 0x5451))
    # fcntl: no F_SETOWN or F_SETSIG (they send signals to others), no pipe sizes, no leases
    program += _allow_if(72, _arg(1), (0, 1, 2, 3, 4, 1030))
    program += _allow_if(302, _arg(0), (0,))  # prlimit64 on itself: until `build_last_filter` shuts it
    program += _allow_if(157, _arg(0), (22,))  # prctl(PR_SET_SECCOMP): likewise
    # socketpair(AF_UNIX, SOCK_STREAM): a datagram pair could send to any named socket
    family = [_op(_LOAD, _arg(0)), _op(_JUMP_EQ, 1, 0, 4), _op(_LOAD, _arg(1)), _op(_AND, 0xF)]
    program += _rule(53, [*family, _op(_JUMP_EQ, 1, 0, 1), _ret(RET_ALLOW), _ret(RET_ERRNO | EPERM)])
    program += _allow_if_null(44, 4)  # sendto: to the peer only
    program.append(_ret(RET_ERRNO | EPERM))
    return b"".join(program)


def build_last_filter() -> bytes:
    """What goes on top once a run's own limits are set and before its code is heard of: limits can be read, not set (a
    harness that lowers them could make its end pass for a fault of ours), and no filter can be added."""
    program = [_op(_LOAD, _NR), *_allow_if_null(302, 2), *_rule(157, [_ret(RET_ERRNO | EPERM)])]
    return b"".join([*program, _ret(RET_ALLOW)])
