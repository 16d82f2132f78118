"""`reharness contexts` and `reharness train grpo` as a user runs them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from demo_search import PARENTS, reply
from endpoint import EndpointServer
from grpo_room import make_room
from typer.testing import CliRunner

from reharness.proposer.contexts import load_contexts
from reharness.recipes.cli import app, main
from reharness.solver.models.scripted import ScriptedEngine

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_room(tmp_path_factory.mktemp("grpo"))


def run(*args: str) -> str:
    result = CliRunner().invoke(app, args, env={"COLUMNS": "300"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def sets(**values: object) -> list[str]:
    return [a for key, value in values.items() for a in ("--set", f"{key}={value}")]


def test_the_command_finds_contexts_and_says_what_they_cost(tmp_path: Path) -> None:
    rows = tmp_path / "contexts.jsonl"
    with EndpointServer(ScriptedEngine(reply), "m") as server:
        text = run(
            "contexts", "--rows", str(rows), "--out", str(tmp_path / "out"),
            *sets(parents=PARENTS, families='["chain_sum"]', per_family=1, per_format=0, per_defect=1, feedback=2, score=2, repeats=1,
                  proposals=0, seed_share=0.2, solver=f"endpoint?url={server.url}&model=m&key_env=NONE"),
        )  # fmt: skip
        asked = len(server.bodies)
    found = load_contexts(rows)
    assert found and f"{len(found)} contexts" in text and str(rows) in text
    assert f"; {asked} solver calls, " in text and "track S: 1 kept" in text


@pytest.mark.parametrize("recipe", ["rg_grpo", "rg_grpo_multistep"])
def test_the_gpu_profiles_are_planned_without_weights(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import PreTrainedModel

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", lambda *_, **__: pytest.fail("weights were loaded"))
    text = run("train", "grpo", "--dry-run", "--config", f"recipes/{recipe}/gpu.toml")
    for part in (
        "TRL GRPOTrainer with PEFT LoRA; torch", "trl 1.16", "230 of 12 families (tracks: 106 F, 101 R, 23 S)",
        "16 of 40 contexts x 8 proposals", "no KL term", "1e-06, constant", "temperature 0.6", "at most 16384 tokens, by vLLM",
        "Qwen/Qwen3-4B: Qwen3ForCausalLM, 4,022.5 M parameters, 66.06 M trained", "GiB per device: weights 7.49", "vLLM takes 35%",
    ):  # fmt: skip
        assert part in text, text
    assert ("50% of the contexts follow on earlier ones" in text) == (recipe == "rg_grpo_multistep")


def test_a_run_is_begun_and_gone_on_with(room: Path, tmp_path: Path) -> None:
    small = sets(
        contexts=room / "contexts.jsonl", model=room / "model", updates=2, groups=2, group_size=2, max_tokens=6, device="cpu",
        threads=1, infra_limit=1, max_empty=9, solver='{kind = "scripted", replies = ["none"]}',
    )  # fmt: skip
    out = tmp_path / "run"
    text = run("train", "grpo", "--dry-run", "--out", str(out), *small)
    assert "2 of 2 contexts x 2 proposals" in text and "LlamaForCausalLM" in text and not out.exists()
    text = run("train", "grpo", "--out", str(out), *small)
    assert "\n2 updates, 8 proposals" in text and "dead groups 100%" in text  # a model of random weights writes no edit
    assert (out / "adapter" / "adapter_model.safetensors").is_file()
    weights = json.loads((out / "summary.json").read_text())["weights"]
    again = run("train", "grpo", "--resume", "--out", str(out), *small)
    assert f"weights: {weights}" in text and f"weights: {weights}" in again


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--set", "group=4"], ["group", "groups"]),
        (["--set", "group_size=1"], ["group_size"]),
        (["--set", "groups=70"], ["groups = 70", "contexts"]),
        (["--set", "max_tokens=9000"], ["max_tokens = 9000", "lower max_tokens"]),
        (["--set", "contexts=nowhere.jsonl"], ["nowhere.jsonl"]),
        (["--resume", "--out", "absent"], ["absent: there is nothing to go on from"]),
        (["--config", "nowhere.toml"], ["nowhere.toml"]),
    ],
)  # fmt: skip
def test_bad_input_is_named(
    room: Path, arguments: list[str], names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    base = sets(contexts=room / "contexts.jsonl", model=room / "model", updates=1, groups=2)
    monkeypatch.setattr(sys, "argv", ["reharness", "train", "grpo", *base, *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    text = capsys.readouterr().err
    assert stopped.value.code == 2 and all(name in text for name in names), text
    assert list(tmp_path.iterdir()) == []
