"""Locks for the cage: namespaces, uid, capabilities, Landlock, limits, seccomp. Plain ctypes, x86-64 Linux, no imports
beyond the standard library. Runs inside the cage, in the zygote and in its children.

What can be locked once for all children (namespaces, uid, capabilities, Landlock, most limits) is locked in the zygote;
what is per process (session, the system-call filter) in the child while it waits for a run, and the limits of the
run, hard ones, just before the harness is loaded.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

from . import seccomp  # noqa: TID251  in the cage this package is `cage`, not reharness

NOBODY = 65534
MAX_FDS = 64
MAX_THREADS = 4096
_SITE_DIRS = {"site-packages", "dist-packages"}

_libc = ctypes.CDLL(None, use_errno=True)
_holding_the_gil = ctypes.PyDLL(None, use_errno=True)

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 1, 4, 38, 22
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_KEPT_FLAGS, _ST_RELATIME, _MS_RELATIME = 8 | 1024 | 2048, 4096, 1 << 21  # noexec, noatime, nodiratime
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT, _CAPSET, _PIVOT_ROOT = 444, 445, 446, 126, 155
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3


def _check(result: int, what: str) -> int:
    if result < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")
    return result


def _syscall(number: int, what: str, *args: object) -> int:
    return _check(_libc.syscall(ctypes.c_long(number), *args), what)


def _prctl(option: int, value: int, what: str) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)), what)


def library_dirs(path: Iterable[str]) -> list[Path]:
    """The directories of the standard library on `sys.path`."""
    return [Path(p) for p in path if Path(p).is_dir()]


# --- once, in the zygote ---------------------------------------------------------------------------------------------


def enter_namespaces(keep: Iterable[str]) -> None:
    """Own user (unless root), mount, pid, network, ipc and uts namespaces; a root that holds only `keep`, read-only.

    Returns in the first process of the new pid namespace; the caller's process waits for it and exits as it does.
    """
    uid, gid = os.getuid(), os.getgid()
    flags = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID | _CLONE_NEWNET
    _check(_libc.unshare(flags | (_CLONE_NEWUSER if uid else 0)), "unshare")
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    child = os.fork()
    if child:
        os.closerange(0, 1024)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    new_root = "/tmp"  # any directory will do: it is covered here only
    _mount(b"none", "/", None, _MS_REC | _MS_PRIVATE)
    wanted = [os.path.realpath(p) for p in keep]
    handles = [(path, os.open(path, os.O_PATH)) for path in wanted]  # still reachable once /tmp is covered
    _mount(b"tmpfs", new_root, b"tmpfs", _MS_NOSUID | _MS_NODEV)
    for path, handle in handles:
        target = new_root + path
        Path(target).mkdir(parents=True, exist_ok=True)
        _mount(f"/proc/self/fd/{handle}".encode(), target, None, _MS_BIND | _MS_REC)
        kept = os.statvfs(target).f_flag  # a mount copied into a user namespace may not lose its restrictions
        locked = (kept & _KEPT_FLAGS) | (_MS_RELATIME if kept & _ST_RELATIME else 0)
        _mount(b"none", target, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | locked)
        os.close(handle)
    os.chdir(new_root)
    _syscall(_PIVOT_ROOT, "pivot_root", b".", b".")
    _check(_libc.umount2(b".", 2), "umount of the old root")
    os.chdir("/")
    _mount(b"none", "/", None, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)


def _mount(source: bytes, target: str, kind: bytes | None, flags: int) -> None:
    _check(_libc.mount(source, target.encode(), kind, ctypes.c_ulong(flags), None), f"mount on {target}")


def drop_privileges() -> None:
    """Become `nobody` if root, lose every capability, gain none by exec, and hide from ptrace and /proc readers."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    header, none = struct.pack("<Ii", 0x20080522, 0), bytes(24)
    _syscall(_CAPSET, "capset", header, none)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")
    _prctl(_PR_SET_DUMPABLE, 0, "not dumpable")


def restrict_files(readable: Iterable[Path]) -> None:
    """Landlock: read the standard library (never site-packages, which may hold task generators), and nothing else."""
    abi = _syscall(_LANDLOCK_CREATE, "landlock", None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    fs_bits = 13 + (abi >= 2) + (abi >= 3) + (abi >= 5)
    fields = [(1 << fs_bits) - 1] + ([3] if abi >= 4 else []) + ([3] if abi >= 6 else [])  # files, TCP, scopes
    attr = struct.pack(f"<{len(fields)}Q", *fields)
    ruleset = _syscall(_LANDLOCK_CREATE, "landlock ruleset", attr, ctypes.c_size_t(len(attr)), ctypes.c_uint32(0))
    for directory in readable:
        _landlock_allow(ruleset, directory, _READ_DIR)
        for entry in directory.iterdir():
            if entry.name not in _SITE_DIRS:
                _landlock_allow(ruleset, entry, _READ_FILE | _READ_DIR)
    _syscall(_LANDLOCK_RESTRICT, "landlock restrict", ruleset, ctypes.c_uint32(0))
    os.close(ruleset)


def _landlock_allow(ruleset: int, path: Path, access: int) -> None:
    try:
        handle = os.open(path, os.O_PATH)
    except OSError:
        return  # a link that leads out of the cage: nothing to allow
    if not stat.S_ISDIR(os.fstat(handle).st_mode):
        access &= _READ_FILE
    rule = struct.pack("<Qi", access, handle)
    _syscall(_LANDLOCK_ADD, f"landlock rule for {path}", ruleset, 1, rule, ctypes.c_uint32(0))
    os.close(handle)


def limit_for_all() -> None:
    """Limits that are the same for every run; the zygote itself lives within them too."""
    _libc.mallopt(-8, 1)  # M_ARENA_MAX: one arena, or a dozen threads use up the address space
    for name, value in (("CORE", 0), ("FSIZE", 0), ("NOFILE", 4096), ("MSGQUEUE", 0)):
        _lower(getattr(resource, f"RLIMIT_{name}"), value)


def _lower(which: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, hard as well as soft unless `hard` is given, and never above the present hard one."""
    present = resource.getrlimit(which)[1]
    most = soft if hard is None else hard
    most = most if present == resource.RLIM_INFINITY else min(most, present)
    resource.setrlimit(which, (min(soft, most), most))


def fork() -> int:
    """fork(2) without the repairs that `os.fork` makes to locks and threads in the child: the zygote has one thread and
    holds its interpreter lock, so there is nothing to repair, and the repairs copy 200 pages (0.5-0.9 ms a run)."""
    return _check(_holding_the_gil.fork(), "fork")


# --- per run, in the child -------------------------------------------------------------------------------------------

_programs = [ctypes.create_string_buffer(program) for program in (seccomp.build_filter(), seccomp.build_last_filter())]
_filter, _last_filter = (struct.pack("<HxxxxxxQ", (len(p) - 1) // 8, ctypes.addressof(p)) for p in _programs)


def lock_child(zygote: int) -> None:
    """Own session, die with the zygote, fixed limits, the system-call filter."""
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, "parent-death signal")
    if os.getppid() != zygote:
        os._exit(1)  # the zygote died before the line above
    _lower(resource.RLIMIT_NOFILE, MAX_FDS)
    _lower(resource.RLIMIT_NPROC, MAX_THREADS)
    _add_filter(_filter)


def _add_filter(program: bytes) -> None:
    _check(_libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(2), program, ctypes.c_ulong(0), ctypes.c_ulong(0)), "seccomp")


def limit_run(cpu_s: int, memory_mb: int) -> None:
    """The limits of one run; nothing can change them again."""
    _lower(resource.RLIMIT_AS, memory_mb << 20)
    _lower(resource.RLIMIT_CPU, cpu_s, cpu_s + 1)  # SIGXCPU, which names its reason; SIGKILL if that is blocked
    _add_filter(_last_filter)
