"""The ladder: a rung is had only if its self-test holds, a missing one refuses, and every refusal says what to change."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reharness.envs.errors import SandboxUnavailable
from reharness.solver.sandbox import Sandbox, ladder, probe_rungs


@pytest.fixture(autouse=True)
def fresh_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "_verdicts", {})


async def _start(**options: Any) -> Sandbox:
    sandbox = await Sandbox.start(**options)
    await sandbox.aclose()
    return sandbox


def test_every_rung_is_reported_with_its_cure() -> None:
    reports = probe_rungs()
    assert [report.number for report in reports] == [1, 2, 3]
    assert all(bool(report.why) != report.ok and bool(report.cure) != report.ok for report in reports)


def test_without_bwrap_the_next_rung_is_taken_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "find_bwrap", lambda: None)
    try:
        rung = asyncio.run(_start()).rung
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    assert rung.number in (2, 3)
    assert rung.why_not_higher[0] == "rung 1 (bwrap + landlock + seccomp): bwrap is not installed"


def test_a_rung_that_is_insisted_on_but_missing_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "find_bwrap", lambda: None)
    with pytest.raises(SandboxUnavailable, match=r"bwrap is not installed.*install bubblewrap"):
        asyncio.run(_start(rung=1))
    with pytest.raises(SandboxUnavailable, match="there is no sandbox rung 7; the rungs are 1, 2, 3"):
        asyncio.run(_start(rung=7))


def test_a_cage_that_a_canary_breaks_is_no_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no cage forbids, as a canary, must fail every rung: the self-test is able to fail."""
    monkeypatch.setattr(ladder, "_CANARIES", {"breathe": "1 + 1"})
    with pytest.raises(SandboxUnavailable, match='the self-test broke out: \\["breathe"\\]') as refusal:
        asyncio.run(_start())
    assert all(f"rung {number}" in str(refusal.value) for number in (1, 2, 3))


def test_a_cage_in_which_tools_do_not_work_is_no_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "_CANARY_HARNESS", "def run(question, tools):\n    return 'tools do not work'\n")
    with pytest.raises(SandboxUnavailable, match="tools do not work"):
        asyncio.run(_start(rung=3))


@pytest.mark.parametrize("name", sorted(ladder._CANARIES.keys() - {"execute a program", "attach to another process"}))
def test_the_canaries_would_succeed_outside(name: str, tmp_path: Path) -> None:
    """Each canary is an attack that works on an open machine; else the self-test would pass for nothing. (Left out: the
    one that leaves nothing to report, and the one that would stop this process.)"""
    secret = tmp_path / "secret"
    secret.write_text("s")
    code = f"import ctypes, mmap, os, resource, socket\nSECRET = {str(secret)!r}\n{ladder._CANARIES[name]}\nprint('done')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    Path("/tmp/reharness-canary").unlink(missing_ok=True)
    assert done.stdout == "done\n", done.stderr


def test_no_interpreter_is_a_refusal_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "find_interpreter", lambda: None)
    with pytest.raises(SandboxUnavailable, match=r"no Python 3\.11\+.*any user can read"):
        asyncio.run(_start())
