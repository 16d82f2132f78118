"""Hostile harnesses: what each tries, and the ends that are right for it.

Each program's `run` gets the path of a secret file of the host as its question, and does its worst. Where its end may
be `returned`, what it returns must not be the secret, nor start with BROKE. Numbers are those of the design's list.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    number: int
    name: str
    source: str
    ends: frozenset[str]
    """Kinds of failure, or `returned`."""


_SYSCALL = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def syscall(number, *args):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
"""


def _run(body: str) -> str:
    return "def run(question, tools):\n" + "\n".join("    " + line for line in body.strip().splitlines()) + "\n"


def _program(number: int, name: str, body: str, *ends: str, head: str = "") -> Program:
    return Program(number, name, head + _run(body), frozenset(ends))


def _syscall(number: int, name: str, call: str) -> Program:
    """A raw system call that must be refused."""
    return _program(number, name, f"done = {call}\nreturn f'BROKE {{done}}'", "denied", head=_SYSCALL)


# Without namespaces a path of the host exists and is denied; with them it is not there at all.
_UNREADABLE = ("denied", "harness_error")

PROGRAMS = [
    _program(1, "tcp", "import socket\nsocket.create_connection(('127.0.0.1', 22))\nreturn 'BROKE'", "denied"),
    _program(
        2,
        "udp",
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 53))\nreturn 'BROKE'",
        "denied",
    ),
    _program(
        3,
        "abstract-unix",
        """
import socket
pair = socket.socketpair()          # a stream pair is allowed; a datagram pair could reach any named socket
try:
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return 'BROKE'
except PermissionError:
    pass
socket.socket(socket.AF_UNIX).connect(chr(0) + question)
return 'BROKE'
""",
        "denied",
    ),
    _program(4, "etc-passwd", "return 'BROKE ' + open('/etc/passwd').read()", *_UNREADABLE),
    _program(5, "host-file", "return open(question).read()", *_UNREADABLE),
    _program(
        6,
        "list-homes",
        """
import os
seen = []
for place in ('/home', '/root', '/tmp', '/'):
    try:
        seen += os.listdir(place)
    except OSError:
        pass
return 'BROKE' if set(seen) & {'home', 'root', 'etc', 'proc', question.split('/')[-2]} else 'nothing'
""",
        "returned",
    ),
    _program(
        7,
        "environment",
        """
import os
found = dict(os.environ)
for place in ('/proc/self/environ', '/proc/1/environ', f'/proc/{os.getppid()}/environ'):
    try:
        found[place] = open(place, 'rb').read()
    except OSError:
        pass
return 'BROKE' if 'REHARNESS_SECRET' in str(found) else 'nothing'
""",
        "returned",
    ),
    _program(8, "proc-mem", "return 'BROKE ' + str(open('/proc/1/mem', 'rb').read(1))", *_UNREADABLE),
    _program(9, "fork-bomb", "import os\nwhile True:\n    os.fork()", "denied"),
    _program(
        10,
        "thread-bomb",
        """
import threading, time
while True:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
""",
        "harness_error",
        "memory",
    ),
    _program(11, "memory-bomb", "kept = []\nwhile True:\n    kept.append(bytearray(1 << 20))", "memory"),
    _program(12, "huge-allocation", "return str(len(bytearray(1 << 40)))", "memory"),
    _program(
        13,
        "fill-tmp",
        """
import os
for place in ('/tmp', '/dev/shm', '/var/tmp', '.', '/'):
    try:
        with open(os.path.join(place, 'reharness-fill'), 'wb') as file:
            file.write(bytes(1 << 20))
        return 'BROKE ' + place
    except OSError:
        pass
return 'nothing'
""",
        "returned",
    ),
    _program(
        14,
        "fill-inodes",
        """
import os
made = 0
for place in ('/tmp', '/dev/shm', '.'):
    for number in range(1000):
        for make in (os.mkdir, os.mkfifo, lambda path: os.symlink('/', path)):
            try:
                make(f'{place}/reharness-{number}')
                made += 1
            except OSError:
                pass
return f'BROKE {made}' if made else 'nothing'
""",
        "returned",
    ),
    _program(15, "endless-loop", "while True:\n    pass", "timeout_cpu"),
    _program(16, "long-c-loop", "return str(sum(range(10 ** 12)))", "timeout_cpu"),
    _program(17, "redos", "import re\nreturn str(re.match(r'(a+)+$', 'a' * 40 + 'b'))", "timeout_cpu"),
    _program(
        18,
        "ignore-signals",
        """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    pass
""",
        "timeout_cpu",
    ),
    _program(
        19,
        "except-everything",
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        "timeout_cpu",
    ),
    _program(20, "sleep", "import time\ntime.sleep(3600)\nreturn 'BROKE'", "timeout_wall"),
    _program(21, "huge-print", "for _ in range(200):\n    print('x' * (1 << 20))\nreturn 'printed'", "returned"),
    _program(22, "huge-result", "return 'x' * (50 << 20)", "output_limit"),
    _program(23, "flood-without-newline", "import os\nwhile True:\n    os.write(3, b'x' * 65536)", "output_limit"),
    _program(24, "call-flood", "while True:\n    tools.llm('ping')", "budget"),
    _program(25, "kill-parent", "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nreturn 'BROKE'", "denied"),
    _program(25, "kill-init", "import os, signal\nos.kill(1, signal.SIGKILL)\nreturn 'BROKE'", "denied"),
    _program(25, "kill-all", "import os, signal\nos.kill(-1, signal.SIGKILL)\nreturn 'BROKE'", "denied"),
    _program(26, "exit-silently", "import os\nos._exit(0)", "died"),
    _program(27, "segfault", "import ctypes\nctypes.string_at(0)\nreturn 'BROKE'", "died"),
    _syscall(28, "ptrace", "syscall(101, 16, os.getppid(), 0, 0)"),
    _syscall(29, "process-vm-readv", "syscall(310, os.getppid(), 0, 0, 0, 0, 0)"),
    _syscall(30, "unshare", "syscall(272, 0x10000000)"),
    _syscall(31, "mount", "syscall(165, b'none', b'/', b'tmpfs', 0, 0)"),
    _syscall(32, "io-uring", "syscall(425, 8, bytes(120))"),
    _syscall(33, "bpf", "syscall(321, 0, bytes(120), 120)"),
    _syscall(34, "userfaultfd", "syscall(323, 1)"),
    _syscall(35, "add-key", "syscall(248, b'user', b'k', b'v', 1, -3)"),
    _syscall(36, "perf-event-open", "syscall(298, bytes(120), 0, -1, -1, 0)"),
    _syscall(37, "memfd", "syscall(319, b'm', 0)"),
    _program(38, "exec-shell", "import os\nos.execv('/bin/sh', ['sh', '-c', 'echo BROKE'])\nreturn 'BROKE'", "denied"),
    _program(
        39,
        "rwx-mmap",
        """
import mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
try:
    syscall(10, address, 4096, 7)  # mprotect
    return 'BROKE mprotect'
except PermissionError:
    pass
mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
return 'BROKE'
""",
        "denied",
        head=_SYSCALL,
    ),
    _program(
        40,
        "double-fork",
        """
for flags in (17, 0x4000 | 0x100 | 17, 0x8000 | 17):  # fork, vfork and CLONE_PARENT by raw clone
    try:
        if syscall(56, flags, 0, 0, 0, 0) == 0:
            os._exit(0)
        return 'BROKE'
    except PermissionError:
        pass
if os.fork() == 0:
    os.setsid()
    os.fork()
return 'BROKE'
""",
        "denied",
        head=_SYSCALL,
    ),
]
