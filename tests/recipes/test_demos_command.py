"""`reharness demos` as a user runs it, killed again and again: nothing is lost, and nothing is paid for twice."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from endpoint import EndpointServer

from reharness.proposer.demo_rows import load_demos
from reharness.recipes.cli import main
from reharness.solver.models.base import Message, Sampling
from reharness.solver.models.scripted import ScriptedEngine

ROOT = Path(__file__).resolve().parents[2]
KILLED = ("call:1", "proposal:1", "call:3", "outcome:40", "proposal:6")


def reply(messages: Sequence[Message], _: Sampling) -> str:
    return f"I think it is {len(messages[-1]['content']) % 7}."


def command(server: EndpointServer, out: Path, die_at: str = "") -> subprocess.CompletedProcess[str]:
    """One call at a time. A proposal is written while another start may be waiting for a call, which dies with the
    process unanswered: those kills work on one start at a time, so that every call can be accounted for."""
    program = [str(ROOT / "tests" / "support" / "killed_cli.py"), die_at] if die_at else ["-m", "reharness.recipes"]
    sets = [
        f"solver=endpoint?url={server.url}&model=m&key_env=NONE", 'families=["chain_sum", "spell_backward"]', "per_family=1",
        "per_format=0", "per_defect=1", "feedback=2", "score=2", "repeats=1", "proposals=14", "chunk=3", "window=2000",
        "with_history=0.5", "concurrency=1", f"in_flight={1 if die_at.startswith('proposal') else 4}",
    ]  # fmt: skip
    arguments = ["demos", "--rows", str(out / "rows.jsonl"), "--out", str(out), *(a for s in sets for a in ("--set", s))]
    return subprocess.run([sys.executable, *program, *arguments], capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)


def records(out: Path) -> list[tuple[str, str, Any]]:
    """What the ledger holds, in order, but times."""
    rows = sqlite3.connect(out / "ledger.sqlite").execute("SELECT kind, key, body FROM records ORDER BY seq").fetchall()
    made = [(kind, key, json.loads(body)) for kind, key, body in rows]
    for _, _, body in made:
        for time in ("cpu_s", "wall_s"):
            body.get("usage", {}).pop(time, None)
    return made


def test_a_killed_and_resumed_search_equals_an_unbroken_one_and_pays_nothing_twice(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    with EndpointServer(ScriptedEngine(reply), "m") as server:
        done = command(server, whole)
        assert done.returncode == 0 and f"demonstrations: {whole / 'rows.jsonl'}" in done.stdout, done.stderr
        unbroken = Counter(json.dumps(b, sort_keys=True) for b in server.bodies)
        server.bodies.clear()
        for die_at in KILLED:
            killed = command(server, broken, die_at)
            assert killed.returncode == -signal.SIGKILL, (die_at, killed.stderr)
            assert records(broken)[-1][0] == die_at.split(":")[0] and not (broken / "rows.jsonl").exists()
        resumed = command(server, broken)
        assert resumed.returncode == 0, resumed.stderr
        asked = Counter(json.dumps(b, sort_keys=True) for b in server.bodies)
    assert asked == unbroken and set(asked.values()) == {1}, "a call was paid for twice"
    assert (broken / "rows.jsonl").read_bytes() == (whole / "rows.jsonl").read_bytes()
    assert len(load_demos(whole / "rows.jsonl")) > 10
    first, second = (json.loads((out / "summary.json").read_text()) for out in (whole, broken))
    assert {**first, "paid": 0} == {**second, "paid": 0}
    assert first["paid"]["solver_calls"] == len(asked) > second["paid"]["solver_calls"]
    assert sorted(records(whole), key=str) == sorted(records(broken), key=str)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--set", "per_defects=1"], ["per_defects", "per_defect"]),
        (["--set", "part=unseen"], ["part", "unseen", "validation"]),
        (["--set", "margin=0"], ["margin", "0"]),
        (["--set", "teacher=move_serch"], ["move_serch", "move_search"]),
        (["--set", "teacher.name=mode"], ["mode", "model"]),
        (["--set", "parents=nowhere"], ["nowhere/train", "basic_arithmetic"]),
        (["--set", 'families=["lcm"]'], ["lcm", "train", "chain_sum"]),
        (["--set", "solver=endpoint?url=http://127.0.0.1:9/v1&model=m"], ["127.0.0.1:9"]),
        (["--config", "nowhere.toml"], ["nowhere.toml"]),
    ],
)  # fmt: skip
def test_bad_input_is_named(
    arguments: list[str], names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    parents = ["--set", f"parents={ROOT / 'recipes' / 'micro_rg' / 'parents'}"]
    monkeypatch.setattr(sys, "argv", ["reharness", "demos", *parents, *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    text = capsys.readouterr().err
    assert stopped.value.code == 2 and all(name in text for name in names), text
    assert not (tmp_path / "demos.jsonl").exists()
