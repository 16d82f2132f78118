"""The layer rule: a room imports only from rooms to its left; nothing imports a bare room."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ["envs", "solver", "proposer", "eval", "recipes"]


def imports(path: Path) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, f"{path}:{node.lineno}: an import from above its own folder; write reharness.…"
            if node.level:  # within one folder: what runs in the cage is loaded there under another name
                continue
            found.append((node.lineno, node.module or ""))
            if node.module == "reharness":
                found += [(node.lineno, f"reharness.{alias.name}") for alias in node.names]
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_rooms_to_its_left(room: str) -> None:
    allowed = ROOMS[: ROOMS.index(room) + 1]
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        for line, name in imports(path):
            parts = name.split(".")
            assert parts[0] not in ROOMS, f"{path}:{line}: bare room {name}; import reharness.{name}"
            if parts[0] == "reharness" and len(parts) > 1:
                assert parts[1] in allowed, f"{path}:{line}: {room} must not import {name}"


def test_every_room_imports_without_the_heavy_libraries_and_no_bare_room_is_loaded() -> None:
    modules = [
        ".".join(["reharness", *p.relative_to(ROOT).with_suffix("").parts])
        for room in ROOMS
        for p in sorted((ROOT / room).rglob("*.py"))
        if p.name not in ("__init__.py", "__main__.py") and "seeds" not in p.parts
    ]
    heavy = ["torch", "transformers", "openvino_genai", "reasoning_gym", "vllm", "matplotlib"]
    program = (
        "import sys, importlib\n"
        f"for m in {modules!r}: importlib.import_module(m)\n"
        f"print([m for m in {[*ROOMS, *heavy]!r} if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT / "tests", timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "[]"
