"""`reharness adapt` as a user runs it: a third party's task and proposer, a model behind an endpoint, kill and resume."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from endpoint import EndpointServer
from plugin import PROPOSER, TASK, install
from solving import hear_ctrl_c

from reharness.envs.errors import EngineError
from reharness.recipes.cli import main
from reharness.solver.models.base import Message, Sampling
from reharness.solver.models.scripted import ScriptedEngine

SUPPORT = Path(__file__).resolve().parent.parent / "support"


def reply(messages: Sequence[Message], _: Sampling) -> str:
    return f"I think it is the {len(messages[-1]['content']) % 7}th."


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    install(folder)
    return folder


def command(
    site: Path, out: Path, url: str, *more: str, die_at: int | None = None, tasks: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    program = [str(SUPPORT / "killed_cli.py"), str(die_at)] if die_at else ["-m", "reharness.recipes"]
    arguments = ["adapt", "largest?top=50", *tasks, "--proposer", "mine", "--rounds", "2", "--proposals", "3", "--dev", "4",
                 "--held-out", "5", "--solver", f"endpoint?url={url}&model=m&key_env=NONE", "--set", "concurrency=1",
                 "--out", str(out), *more]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(site), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *program, *arguments], capture_output=True, text=True, timeout=120, env=environment, check=False, cwd=site
    )


def derived(folder: Path) -> Any:
    """Everything that a run leaves but times."""

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: timeless(v) for k, v in value.items() if k not in ("seconds", "paid", "cpu_s", "wall_s")}
        return [timeless(v) for v in value] if isinstance(value, list) else value

    database = sqlite3.connect(folder / "ledger.sqlite")
    rows = database.execute("SELECT kind, key, body FROM records ORDER BY kind, key").fetchall()
    return {
        "ledger": [(kind, key, timeless(json.loads(body))) for kind, key, body in rows],
        "summary": timeless(json.loads((folder / "summary.json").read_text())),
        "metrics": [timeless(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()],
        "files": {
            p.name: p.read_text() for sub in ("harnesses", "diffs") for p in sorted((folder / sub).iterdir())
        },
    }


def test_a_third_party_s_task_and_proposer_are_used_and_short(site: Path, tmp_path: Path) -> None:
    assert len(TASK.splitlines()) < 40 and len(PROPOSER.splitlines()) < 40
    with EndpointServer(ScriptedEngine(reply), "m") as server:
        done = command(site, tmp_path / "run", server.url)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    (arm,) = summary["arms"]
    assert (arm["task"], arm["proposer"]) == ("largest?top=50", "mine")
    assert arm["held_out"]["final"]["mean"] == 1.0 and arm["held_out"]["seed"]["mean"] == 0.0
    assert arm["held_out"]["gain"]["n"] == 5
    assert summary["sandbox"] and summary["paid"]["solver"]["calls"] == len(server.bodies) > 13
    assert "largest?top=50" in done.stdout and "[0.57, 1.00]" in done.stdout and str(tmp_path / "run" / "report.html") in done.stdout
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Compute the maximum." in page


def test_a_killed_and_resumed_run_equals_an_unbroken_one_and_pays_nothing_twice(site: Path, tmp_path: Path) -> None:
    with EndpointServer(ScriptedEngine(reply), "m") as server:
        two = ["largest?top=30"]  # two chains at once, so that order of arrival could show
        whole = command(site, tmp_path / "whole", server.url, tasks=two)
        assert whole.returncode == 0, whole.stderr
        # The endpoint's address is part of the configuration, so the broken run has the same server.
        server.bodies.clear()
        events = 0
        for die_at in (1, 2, 7, 5, 11):
            killed = command(site, tmp_path / "broken", server.url, die_at=die_at, tasks=two)
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            events += die_at
        resumed = command(site, tmp_path / "broken", server.url, tasks=two)
        assert resumed.returncode == 0, resumed.stderr
        asked = Counter(json.dumps(b, sort_keys=True) for b in server.bodies)
    assert set(asked.values()) == {1}, "a call was paid for twice"
    first, second = derived(tmp_path / "whole"), derived(tmp_path / "broken")
    assert len(first["ledger"]) > events
    assert first == second
    again = command(site, tmp_path / "broken", "http://127.0.0.1:9/v1")
    assert again.returncode == 2 and "another config" in again.stderr and "solver" in again.stderr


def test_a_chain_that_was_measured_on_held_out_questions_is_over(site: Path, tmp_path: Path) -> None:
    broken = {"on": True}

    def flaky(messages: Sequence[Message], sampling: Sampling) -> str:
        if broken["on"] and messages[-1]["content"].startswith("Shorten"):
            raise EngineError("down for the third edit only")
        return reply(messages, sampling)

    with EndpointServer(ScriptedEngine(flaky), "m") as server:
        arguments = ("--rounds", "1", "--solver", f"endpoint?url={server.url}&model=m&key_env=NONE&retries=0")
        first = command(site, tmp_path / "run", server.url, *arguments)
        assert first.returncode == 0, first.stderr
        before = json.loads((tmp_path / "run" / "summary.json").read_text())
        assert before["infra"] == 4 and before["arms"][0]["rounds"][0]["judged"][2]["infra"] == 4
        broken["on"] = False
        server.bodies.clear()
        again = command(site, tmp_path / "run", server.url, *arguments)
        assert again.returncode == 0 and server.bodies == [], again.stderr
        metrics = (tmp_path / "run" / "metrics.jsonl").read_text()
    down = command(site, tmp_path / "run", server.url, *arguments)
    assert down.returncode == 2 and (tmp_path / "run" / "metrics.jsonl").read_text() == metrics != ""
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["arms"] == before["arms"]


def test_a_finished_run_is_shown_again_without_a_single_call(site: Path, tmp_path: Path) -> None:
    with EndpointServer(ScriptedEngine(reply), "m") as server:
        first = command(site, tmp_path / "run", server.url)
        server.bodies.clear()
        again = command(site, tmp_path / "run", server.url)
        assert first.returncode == again.returncode == 0, again.stderr
        assert server.bodies == []
    assert "none is paid for again" in again.stdout


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["adapt", "chain_sum", "--set", "limits.cpu_s=-1"], ["limits", "cpu_s must be above 0"]),
        (["adapt", "chain_sum", "--set", "budgets.llm_calls=-1"], ["llm_calls must not be -1"]),
        (["adapt", "chain_sum?exact=maybe"], ["exact", "maybe"]),
        (["adapt", "chain_sum", "--set", "solver=3"], ["engine = 3", "table"]),
        (["tasks", "chain_sum?foo=1"], ["foo"]),
        (["adapt", "chian_sum"], ["chian_sum", "chain_sum"]),
        (["adapt", "chain_sum?max_term=3"], ["max_term", "max_terms"]),
        (["adapt", "chain_sum?min_terms=9&max_terms=2"], ["rg/chain_sum", "max_terms"]),
        (["adapt", "chain_sum?format=tagg"], ["tagg", "tag"]),
        (["adapt", "chain_sum", "--proposer", "move_serch"], ["move_serch", "move_search"]),
        (["adapt", "chain_sum", "--set", "round=2"], ["round", "rounds"]),
        (["adapt", "chain_sum", "--set", "budgets.llm_cals=2"], ["budgets.llm_cals", "budgets.llm_calls"]),
        (["adapt", "chain_sum", "--set", "rounds=0"], ["rounds", "0"]),
        (["adapt", "chain_sum", "--config", "nowhere.toml"], ["nowhere.toml"]),
        (["adapt", "chain_sum", "--harness", "nowhere.py"], ["nowhere.py"]),
        (["adapt", "chain_sum", "--solver", "endpont?url=x&model=m"], ["endpont", "endpoint"]),
        (["adapt", "chain_sum", "--solver", "endpoint?url=http://127.0.0.1:9/v1&model=m"], ["127.0.0.1:9"]),
        (["adapt"], ["tasks"]),
        (["run", "nowhere.py", "chain_sum"], ["nowhere.py"]),
        (["run", "seed", "chain_sun"], ["chain_sun", "chain_sum"]),
        (["tasks", "chain_sm"], ["chain_sm", "chain_sum"]),
        (["audit", "chain_sm"], ["chain_sm", "chain_sum"]),
    ],
)  # fmt: skip
def test_bad_input_is_named_with_the_nearest_valid_name(
    arguments: list[str], names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["reharness", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    text = capsys.readouterr().err
    assert stopped.value.code == 2 and all(name in text for name in names), text


def test_wrong_key_and_wrong_model_are_found_before_any_work(site: Path, tmp_path: Path) -> None:
    with EndpointServer(ScriptedEngine(reply), "other-model") as server:
        done = command(site, tmp_path / "run", server.url)
        assert done.returncode == 2 and "other-model" in done.stderr, done.stderr
        assert server.bodies == []
        server.faults.key = "secret"
        server.model = "m"
        done = command(site, tmp_path / "run", server.url)
        assert done.returncode == 2 and "key" in done.stderr and "secret" not in done.stderr, done.stderr
        assert server.bodies == []


def test_results_with_holes_are_no_success_and_are_filled_by_the_same_command(site: Path, tmp_path: Path) -> None:
    broken = {"on": True}
    asked: list[str] = []  # the distinct questions in order: four dev ones, then five held out

    def some_down(messages: Sequence[Message], sampling: Sampling) -> str:
        text = messages[-1]["content"]
        if text.startswith("Which") and text not in asked:
            asked.append(text)
        if broken["on"] and text in [*asked[1:2], *asked[5:6]]:
            raise EngineError("the lights went out")
        return reply(messages, sampling)

    with EndpointServer(ScriptedEngine(some_down), "m") as server:
        arguments = ("--rounds", "1", "--solver", f"endpoint?url={server.url}&model=m&key_env=NONE&retries=0")
        first = command(site, tmp_path / "run", server.url, *arguments)
        assert first.returncode == 2 and "could not be measured" in first.stderr and "lights" in first.stderr, first.stderr
        broken["on"] = False
        again = command(site, tmp_path / "run", server.url, *arguments)
        assert again.returncode == 0, again.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["arms"][0]["held_out"]["gain"]["n"] == 5
    assert summary["arms"][0]["dev"]["seed"]["n"] == 3  # what was sealed stays as it was


def test_ctrl_c_says_that_the_same_command_goes_on(site: Path, tmp_path: Path) -> None:
    with EndpointServer(ScriptedEngine(reply, latency_s=2), "m") as server:
        arguments = ["adapt", "largest", "--proposer", "mine", "--solver", f"endpoint?url={server.url}&model=m&key_env=NONE",
                     "--out", str(tmp_path / "run")]  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-m", "reharness.recipes", *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": str(site)}, cwd=site, preexec_fn=hear_ctrl_c,
        )  # fmt: skip
        while not server.bodies:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and "the same command goes on" in errors, errors
