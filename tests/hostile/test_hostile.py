"""The first forty hostile cases: each ends as it should, does no harm, and leaves the next run as it was."""

from __future__ import annotations

import asyncio
import os
import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reharness.envs.errors import SandboxUnavailable
from reharness.solver.sandbox import Sandbox, probe_rungs

RUNNER = runpy.run_path(str(Path(__file__).with_name("runner.py")))
PROGRAMS: list[Any] = RUNNER["PROGRAMS"]


@pytest.fixture(scope="module")
def cage() -> Iterator[tuple[asyncio.Runner, Sandbox]]:
    """One sandbox on the default rung for all cases: what one leaves behind, the next would meet."""
    with asyncio.Runner() as loop:
        os.environ["REHARNESS_SECRET"] = "in the host's environment"
        try:
            sandbox = loop.run(Sandbox.start())
        except SandboxUnavailable as error:
            pytest.skip(str(error))
        yield loop, sandbox
        loop.run(sandbox.aclose())
        del os.environ["REHARNESS_SECRET"]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: f"{program.number:02}-{program.name}")
def test_contained(program: Any, cage: tuple[asyncio.Runner, Sandbox], secret_file: Path) -> None:
    loop, sandbox = cage
    assert loop.run(RUNNER["complaint"](sandbox, program, secret_file)) is None


def test_all_forty_are_here() -> None:
    assert {program.number for program in PROGRAMS} == set(range(1, 41))
    assert RUNNER["FEW"] <= {program.name for program in PROGRAMS}


def test_without_a_cage_the_secret_is_there_to_take(secret_file: Path) -> None:
    """The programs would succeed outside: a test against a file that nobody could read would prove nothing."""
    home: dict[str, Any] = {}
    exec(next(p.source for p in PROGRAMS if p.name == "host-file"), home)
    assert home["run"](str(secret_file), None) == secret_file.read_text()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_few_on_every_rung(number: int, secret_file: Path) -> None:
    report = next(report for report in probe_rungs() if report.number == number)
    if not report.ok:
        pytest.skip(f"rung {number}: {report.why}; {report.cure}")
    assert asyncio.run(RUNNER["few_on"](number, secret_file)) == []


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_few_as_an_ordinary_user(number: int, secret_file: Path, as_ordinary_user: Any) -> None:
    script = Path(__file__).with_name("runner.py")
    done: subprocess.CompletedProcess[str] = as_ordinary_user(script, str(secret_file), str(number))
    if "SandboxUnavailable" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
