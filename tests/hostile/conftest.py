"""A secret on the host that no hostile program may bring home, and another user to be attacked as."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import reharness.envs
import reharness.solver
from reharness.solver.sandbox.cage import find_interpreter

SECRET = "the-host's-secret-7f3a"


@pytest.fixture(scope="session")
def secret_file() -> Iterator[Path]:
    """A file that every user of the machine can read, so that only the cage keeps a harness from it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "secret")
        path.write_text(SECRET)
        path.chmod(0o644)
        yield path


@pytest.fixture
def as_ordinary_user() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Runs a script of this folder under an ordinary uid, with a copy of the code and a Python that it can read."""
    python = find_interpreter()
    if os.getuid() != 0:
        pytest.skip("not root, so every test here is run by an ordinary user")
    if python is None:
        pytest.skip("no Python 3.11+ that an ordinary user can read")
    with tempfile.TemporaryDirectory() as folder:
        for package in (reharness.envs, reharness.solver):
            room = Path(package.__path__[0])
            shutil.copytree(room, Path(folder, "reharness", room.name), ignore=shutil.ignore_patterns("__pycache__"))
        for script in Path(__file__).parent.glob("*.py"):
            shutil.copy(script, folder)
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o755)

        def run(script: Path, *args: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [python.path, str(Path(folder, script.name)), *args],
                capture_output=True,
                text=True,
                cwd=folder,
                env={"PATH": os.environ["PATH"], "REHARNESS_SECRET": "in the host's environment"},
                user=65534,
                group=65534,
                extra_groups=[],
                timeout=120,
            )

        yield run
