"""GRPO by the real TRL and PEFT in the real sandbox, on a tiny model with random weights that is paid for vowels."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import killed_grpo
import pytest
from grpo_room import make_room, paid_by_letters, settings, vowels
from hypothesis import given
from hypothesis import strategies as st
from solving import edit, with_solver
from tiny_model import tiny_model

from reharness.envs.config import load_config
from reharness.envs.errors import ConfigError, EngineError, InfraLimitError, LedgerError, RewardError, UnknownNameError
from reharness.proposer import grpo_trainer, grpo_update
from reharness.proposer.checkpoints import Checkpoints
from reharness.proposer.contexts import load_contexts
from reharness.proposer.grpo import GrpoConfig, run_grpo
from reharness.proposer.grpo_plan import make_grpo_plan
from reharness.proposer.grpo_trainer import make_trainer
from reharness.proposer.policy import Proposal, ReplayProposer
from reharness.proposer.revise import judge, revise
from reharness.proposer.shared_prompt import packs
from reharness.proposer.stream import ContextStream, Drawn, Multistep
from reharness.solver.evaluate import Solver
from reharness.solver.ledger import Ledger
from reharness.solver.models.scripted import ScriptedEngine

ROOT = Path(__file__).resolve().parents[2]
STEPS = {"share": 0.5, "depth": 2, "highest": 0.5}


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_room(tmp_path_factory.mktemp("grpo"))


@pytest.fixture(autouse=True)
def paid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo_update, "judge", paid_by_letters)


@pytest.fixture(scope="module")
def done(room: Path) -> tuple[Path, dict[str, Any]]:
    """An unbroken multistep run with a KL term and two optimiser steps an update."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo_update, "judge", paid_by_letters)
        return room / "run", run_grpo(whole(room), room / "run")


def whole(room: Path) -> GrpoConfig:
    return settings(room, multistep=STEPS, beta=0.01, iterations=2)


def metrics(out: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]


def records(out: Path) -> dict[str, Any]:
    ledger = Ledger(out / "ledger.sqlite")
    try:
        return {kind: dict(ledger.records(kind)) for kind in ("proposal", "outcome")}  # type: ignore[misc]
    finally:
        ledger.close()


def test_a_run_leaves_its_adapter_and_says_what_it_was_made_of(room: Path, done: tuple[Path, dict[str, Any]]) -> None:
    out, summary = done
    rows = metrics(out)
    assert [row["step"] for row in rows] == list(range(1, 11)) and [row["update"] for row in rows] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert summary["completions"] == 45 and summary == json.loads((out / "summary.json").read_text())
    first = [row for row in rows if "groups" in row]
    assert len(first) == 5 and all(row["dead_group_ratio"] == 0 and row["groups_trained"] == 3 for row in first)
    assert rows[0]["kl"] == pytest.approx(0, abs=1e-6) and rows[-1]["kl"] > 1e-4
    assert max(row["sampling/sampling_logp_difference/mean"] for row in rows if "groups" in row) < 1e-4
    assert any(row["depth/mean"] > 0 for row in first[1:]) and first[0]["depth/mean"] == 0 and first[0]["pool"] > 0
    note = json.loads((out / "adapter" / "reharness.json").read_text())
    assert note["settings"]["multistep"]["depth"] == 2 and note["steps"] == 10 and note["from"] is None
    assert run_grpo(whole(room), out) == summary  # finished: nothing is done again


def test_every_proposal_carries_the_weights_that_wrote_it(done: tuple[Path, dict[str, Any]]) -> None:
    groups = [group for record in records(done[0])["proposal"].values() for group in record["groups"]]
    assert len(groups) == 15 and all(len({p["weights"] for p in g["proposals"]}) == 1 for g in groups)
    assert len({g["proposals"][0]["weights"] for g in groups}) == 5  # other ones every update
    assert all(len(s["ids"]) == len(s["logps"]) == p["completion_tokens"] for g in groups for s, p in zip(g["samples"], g["proposals"], strict=True))


def test_what_is_paid_is_written_more_often(room: Path, tmp_path: Path) -> None:
    """At this temperature it begins with next to no vowels."""
    run_grpo(
        settings(room, updates=8, group_size=8, groups=4, temperature=0.06, max_tokens=6, save_every=50, lora={"r": 8, "alpha": 64}),
        tmp_path / "run",
    )
    rewards = [row["reward"] for row in metrics(tmp_path / "run")]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:2]) / 2 + 0.15, rewards


def test_killed_at_any_moment_it_ends_with_the_same_adapter_and_records(room: Path, done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(whole(room).model_dump_json(exclude_unset=True))
    out = tmp_path / "run"
    script = [sys.executable, killed_grpo.__file__, str(tmp_path / "config.json"), str(out), "1"]
    ended = subprocess.run(script, capture_output=True, text=True, timeout=900)
    ends = json.loads(ended.stdout.splitlines()[-1])
    assert ends[-1] == 0 and ends.count(-9) >= 7, (ends, ended.stderr[-2000:])
    unbroken = done[0]
    for name in ("adapter_model.safetensors", "reharness.json", "adapter_config.json"):
        assert (out / "adapter" / name).read_bytes() == (unbroken / "adapter" / name).read_bytes()
    for ours, theirs in zip(metrics(out), metrics(unbroken), strict=True):
        assert {k: (ours.get(k), theirs.get(k)) for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k)} == {}
    ours, theirs = records(out), records(unbroken)
    assert ours["proposal"] == theirs["proposal"] and set(ours["outcome"]) == set(theirs["outcome"])
    assert not list(out.rglob(".part/*"))


def test_one_pass_over_a_group_gives_the_loss_and_gradients_of_a_pass_per_completion(room: Path, tmp_path: Path) -> None:
    import torch

    found = {}
    for share, limit in ((True, 16_384), (True, 130), (False, 16_384)):  # 130: three rows and one
        plan = make_grpo_plan(settings(room, share_prompt=share, pack_tokens=limit, beta=0.05, temperature=0.7, group_size=4, iterations=2))
        trainer = make_trainer(plan, Checkpoints(tmp_path / f"{share}{limit}", 1))
        generator = torch.Generator().manual_seed(1)
        for parameter in (p for _, p in sorted(trainer.model.named_parameters()) if p.requires_grad):
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
        prompt = torch.randint(3, 40_000, (1, 90), generator=generator).expand(4, 90)
        completion = torch.randint(3, 40_000, (4, 21), generator=generator)
        mask = torch.tensor([[i < n for i in range(21)] for n in (21, 5, 12, 1)]).long()
        padded = torch.cat([torch.zeros(4, 7, dtype=torch.long), prompt], dim=1)
        told = torch.cat([torch.zeros(4, 7), torch.ones(4, 90)], dim=1).long()
        inputs = {
            "prompt_ids": padded, "prompt_mask": told, "completion_ids": completion * mask, "completion_mask": mask,
            "tool_mask": torch.ones_like(mask), "advantages": torch.tensor([1.0, -0.5, 0.2, -0.7]), "num_items_in_batch": mask.sum(),
            "ref_per_token_logps": torch.full((4, 21), -10.0), "old_per_token_logps": torch.full((4, 21), -10.7),
        }  # fmt: skip
        trainer.current_gradient_accumulation_steps = 1  # what the training loop sets
        trainer._step = 3  # past the first pass, where sampler and trainer are compared
        trainer.model.train()
        loss = trainer._compute_loss(trainer.model, inputs)
        loss.backward()
        gradients = {n: p.grad.clone() for n, p in trainer.model.named_parameters() if p.requires_grad}
        found[share, limit] = loss.item(), gradients, trainer._last_logps
    other, plain, stock = found.pop((False, 16_384))
    assert max(g.abs().max().item() for g in plain.values()) > 1e-2
    mask = torch.tensor([[i < n for i in range(21)] for n in (21, 5, 12, 1)])
    for one, shared, logps in found.values():
        assert one == pytest.approx(other, abs=1e-4) and set(shared) == set(plain)
        assert max((shared[n] - plain[n]).abs().max().item() for n in plain) <= 1e-4
        assert (logps - stock)[mask].abs().max().item() <= 1e-4


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(1, 60), st.integers(1, 200))
def test_a_pass_takes_as_many_rows_as_its_limit_allows(lengths: list[int], prompt: int, limit: int) -> None:
    sizes = packs(lengths, prompt, limit)
    assert sum(sizes) == len(lengths) and min(sizes) >= 1
    ends = list(accumulate(sizes))
    parts = [lengths[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    tokens = [prompt - 1 + sum(n + 1 for n in part) for part in parts]
    assert all(n <= limit or size == 1 for n, size in zip(tokens, sizes, strict=True))
    assert all(n + lengths[end] + 1 > limit for n, end in zip(tokens, ends[:-1], strict=False))


def test_training_judges_as_adaptation_does(room: Path, done: tuple[Path, dict[str, Any]]) -> None:
    rows = load_contexts(room / "contexts.jsonl")
    contexts = [row.open() for row in rows if row.track == "R"][:3]
    texts = {}
    for i, context in enumerate(contexts):
        first = next(line for line in context.parent.source.splitlines() if line.startswith("def run"))
        texts[context.key] = [edit(first, f"{first}\n    return '{i}'"), "nothing", edit("nowhere", "x"), edit(first, f"{first}\n    1 / 0")]
    trained = [[Proposal(c.key, i, t, "w") for i, t in enumerate(texts[c.key])] for c in contexts]

    async def both(solver: Solver) -> tuple[Any, Any]:
        return await judge(contexts, trained, solver), await revise(contexts, ReplayProposer(texts), 4, solver)

    in_training, in_adaptation = with_solver(ScriptedEngine(lambda *_: "none"), both)
    assert [[j.record() for j in g] for g in in_training] == [[j.record() for j in g] for g in in_adaptation]
    assert {j.status for g in in_training for j in g} >= {"ran", "no_block", "no_match"}


class Fates:
    """`judge` whose rewards follow a list of what each group of an update gets; None is a lost completion."""

    def __init__(self, *fates: Any) -> None:
        self.fates, self.calls = fates, 0

    async def __call__(self, contexts: Sequence[Any], proposals: Any, solver: Any) -> Any:
        judged = await judge(contexts, proposals, solver)
        fate = self.fates[min(self.calls, len(self.fates) - 1)]
        self.calls += 1
        return [[replace(j, reward=r) for j, r in zip(g, fate[i % len(fate)], strict=True)] for i, g in enumerate(judged)]


def test_groups_that_teach_nothing_are_dropped_counted_and_made_up_for(room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo_update, "judge", Fates([[0.1, 0.2, 0.3], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]))
    run_grpo(settings(room, updates=2), tmp_path / "run")
    for row in metrics(tmp_path / "run"):
        assert row["groups_trained"] == 1 and row["dead_group_ratio"] == pytest.approx(2 / 3) and row["groups"] == 3
    more = Fates([[0.1, 0.2, 0.3], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]], [[0.1, 0.4, 0.2], [0.5, 0.5, 0.5]], [[0.3, 0.2, 0.1]])
    monkeypatch.setattr(grpo_update, "judge", more)
    run_grpo(settings(room, updates=1, oversample=3), tmp_path / "more")
    (row,) = metrics(tmp_path / "more")
    assert more.calls == 3 and row["groups"] == 6 and row["groups_trained"] == 3 and row["dead_group_ratio"] == 0.5


def test_nothing_to_learn_from_stops_the_run_with_its_reason(room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo_update, "judge", judge)  # the real reward: random letters are all worth 0
    with pytest.raises(RewardError, match=r"update 2: nothing to train on for 2 updates in a row.*equal rewards.*parsed 0%"):
        run_grpo(settings(room, max_empty=2), tmp_path / "run")
    assert not (tmp_path / "run" / "adapter").exists()
    monkeypatch.setattr(grpo_update, "judge", Fates([[0.1, "x", 0.3]]))
    with pytest.raises(RewardError, match="group 0, proposal 1: the reward is 'x'"):
        run_grpo(settings(room), tmp_path / "words")


def test_a_sampler_with_other_weights_is_noticed(room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reharness.proposer import rollout

    monkeypatch.setattr(rollout, "merge_into", lambda copy, model: copy.lm_head.weight.data.mul_(3.0))
    with pytest.raises(EngineError, match="sampler and trainer differ by"):
        run_grpo(settings(room), tmp_path / "run")


def test_bad_input_is_named_before_any_step(room: Path, tmp_path: Path, done: tuple[Path, dict[str, Any]]) -> None:
    with pytest.raises(UnknownNameError, match=r"'group_sise'.*did you mean 'group_size'"):
        load_config(GrpoConfig, None, ["group_sise=3"], contexts=str(room / "contexts.jsonl"), updates=1)
    for changes, words in (
        ({"groups": 50}, "groups = 50, but there are"), ({"contexts": [room / "contexts.jsonl"] * 2}, "is there 2 times"),
        ({"max_tokens": 5000}, "that is over the 1024 that the model holds"), ({"device": "cuda"}, "torch sees no GPU"),
        ({"adapter": room / "nowhere", "lora": None}, "holds no adapter_config.json"), ({"model": "nowhere"}, "is no folder here"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            run_grpo(settings(room, **changes), tmp_path / "bad")
    for data, words in (({"filter": {"flat": "keep"}}, "teaches only with beta > 0"), ({"vllm": True, "device": "cpu"}, "needs a GPU")):
        with pytest.raises(ConfigError, match=words):
            load_config(GrpoConfig, None, [], contexts=str(room / "contexts.jsonl"), updates=1, **data)
    assert not (tmp_path / "bad").exists()
    other = tiny_model(tmp_path / "other", seed=5)
    with pytest.raises(ConfigError, match="was made for the base weights"):
        run_grpo(settings(room, model=str(other), adapter=done[0] / "adapter", lora=None), tmp_path / "bad")
    with pytest.raises(LedgerError, match=r"lr was 0\.02, is 0\.5"):
        run_grpo(whole(room).model_copy(update={"lr": 0.5}), done[0])


def test_a_checkpoint_that_is_not_whole_is_not_gone_on_from_and_no_room_is_named(
    room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Exception):
        pass

    def stop(row: dict[str, Any], steps: int) -> None:
        if row["step"] == 5:
            raise Stop

    out = tmp_path / "run"
    with pytest.raises(Stop):
        run_grpo(settings(room, keep_last=2), out, stop)
    (out / "checkpoints" / "step-000004" / "COMPLETE").unlink()
    seen: list[int] = []
    run_grpo(settings(room, keep_last=2), out, lambda row, _: seen.append(row["step"]))
    assert seen == [3, 4, 5]
    run_grpo(settings(room), tmp_path / "straight")
    assert metrics(out) == metrics(tmp_path / "straight")
    monkeypatch.setattr(grpo_trainer, "need_room", lambda *_: (_ for _ in ()).throw(LedgerError("two checkpoints need 9 MiB")))
    with pytest.raises(LedgerError, match="two checkpoints need"):
        run_grpo(settings(room), tmp_path / "full")


def test_it_goes_on_from_an_adapter_and_keeps_every_kth_checkpoint(room: Path, done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    config = settings(room, adapter=done[0] / "adapter", lora=None, updates=4, save_every=1, keep_every=2, keep_last=1, beta=0.02)
    run_grpo(config, tmp_path / "run")
    kl = [row["kl"] for row in metrics(tmp_path / "run")]
    assert kl[0] == pytest.approx(0, abs=1e-6) and kl[-1] > 1e-5
    kept = sorted(p.name for p in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert kept == ["step-000002", "step-000004"]
    note = json.loads((tmp_path / "run" / "adapter" / "reharness.json").read_text())
    assert note["from"] == done[1]["weights"] and "lora" not in note["settings"]


def test_the_stream_spreads_families_and_a_pool_is_bounded_and_reset(room: Path) -> None:
    rows = load_contexts(room / "contexts.jsonl")
    stream = ContextStream(rows, 0, None, 400, len)
    drawn = [d for update in range(8) for d in stream.draw(update, 3)]
    assert [d.row.context for d in drawn[: len(rows)]] != [r.context for r in rows]
    assert sorted(d.row.context for d in drawn[: len(rows)]) == sorted(r.context for r in rows)
    again = ContextStream(rows, 0, None, 400, len)
    again.restore({"cursor": 6, "pool": []})
    assert [d.row for d in again.draw(2, 3)] == [d.row for d in drawn[6:9]]

    committed = load_contexts(ROOT / "recipes/micro_rg/contexts.jsonl")
    long = ContextStream(committed, 1, None, 400, len)
    of_all = Counter(row.track for row in committed)
    for update in range(28):  # an epoch, but for the rest: no update has much more of a track than its share
        tracks = Counter(d.row.track for d in long.draw(update, 8))
        assert all(abs(tracks[t] - 8 * n / len(committed)) < 1.5 for t, n in of_all.items())

    async def body(solver: Solver) -> ContextStream:
        stream = ContextStream(rows, 0, Multistep(share=1.0, depth=1, size=2, reset_every=3), 600, lambda text: len(text.split()))
        first = stream.draw(0, 3)
        nothing = [[Proposal(d.context.key, 0, "nothing", "w")] for d in first]
        await stream.grow(first, await judge([d.context for d in first], nothing, solver), solver)
        assert 0 < len(stream.pool) <= 2 and all(row.depth == 1 and row.history for row in stream.pool)
        deep: list[Drawn] = stream.draw(1, 2)
        assert any(d.row.depth == 1 for d in deep) and any("not used" in d.context.messages[-1]["content"] for d in deep)
        assert [d.context.parent for d in deep if d.row.depth] == [r.open().parent for d in deep for r in [d.row] if d.row.depth]
        none = [[Proposal(d.context.key, 0, "nothing", "w")] for d in deep]
        before = len(stream.pool)
        await stream.grow([d for d in deep if d.row.depth], await judge(
            [d.context for d in deep if d.row.depth], [n for d, n in zip(deep, none, strict=True) if d.row.depth], solver), solver)
        assert len(stream.pool) == before  # at their depth they end
        stream.pool = [deep[0].row]
        assert stream.draw(3, 1)[0].row.depth == 0 and stream.pool == []
        return stream

    with_solver(ScriptedEngine(lambda *_: "none"), body)


def test_too_many_lost_completions_stop_the_run(room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reharness.proposer import groups

    monkeypatch.setattr(grpo_update, "judge", Fates([[0.1, None, None]]))
    monkeypatch.setattr(groups, "_checked", lambda judged, where: judged.reward)
    with pytest.raises(InfraLimitError, match="67% of its completions could not be measured, over the limit of 20%"):
        run_grpo(settings(room), tmp_path / "run")


def test_vowels_are_counted() -> None:
    assert vowels("aEx-") == 0.5 and vowels("") == 0.0
    assert asyncio.run(paid_by_letters([], [], None)) == []  # type: ignore[arg-type]
