"""GRPO: one step against TRL's stock path, the reward of a batch in parallel, and what is not work of the models."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROMPT, GROUP, TOKENS = 1200, 8, 200
HERE = Path(__file__).resolve().parent


def grpo_step_vs_trl() -> dict[str, Any]:
    """One group of 8 completions of exactly 200 tokens on one prompt of 1,200, embedded model, LoRA of rank 16, fp32:
    sampling and update by our path and by TRL's, each in a process of its own (peak memory is the process's). TRL's
    update takes two micro-batches of 4: one of 8 does not fit into 24 GiB."""
    found = {path: _in_process("step", path) for path in ("stock", "shared")}
    stock, shared = found["stock"], found["shared"]
    return {
        "ratio": (stock["sampling_s"] + stock["update_s"]) / (shared["sampling_s"] + shared["update_s"]),
        "ratio_sampling": stock["sampling_s"] / shared["sampling_s"],
        "ratio_update": stock["update_s"] / shared["update_s"],
        "loss_difference": abs(stock["loss"] - shared["loss"]),
        **found,
    }


def _in_process(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "benchmarks.bench_grpo", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode} (-9: no memory left?)\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _step(path: str) -> dict[str, Any]:
    import resource

    import torch

    from reharness.proposer.base_model import cores, find_base
    from reharness.proposer.checkpoints import Checkpoints
    from reharness.proposer.grpo_config import GrpoConfig
    from reharness.proposer.grpo_plan import GrpoPlan
    from reharness.proposer.grpo_trainer import make_trainer
    from reharness.proposer.rollout import DecodingSampler
    from reharness.proposer.training import quiet

    config = GrpoConfig(
        contexts=(Path("none"),), updates=1, groups=1, group_size=GROUP, max_tokens=TOKENS, temperature=1.0,
        device="cpu", share_prompt=path == "shared",
    )  # fmt: skip
    base = find_base("embedded", False)
    plan = GrpoPlan(config, base, (), None, "cpu", "fp32", cores())
    with tempfile.TemporaryDirectory() as folder, quiet(plan.threads):
        trainer = make_trainer(plan, Checkpoints(Path(folder), 1))
        trainer._step = 1
        text = (HERE / "bench_grpo.py").read_text(encoding="utf-8") * 3
        prompt = base.tokenizer.encode(text)[:PROMPT]
        completions, sampling = [], []
        sampler = DecodingSampler(config, base, trainer.model, "fp32") if path == "shared" else None
        if sampler:
            sampler.chat.__dict__["eos_ids"] = []  # none ends early
        trainer.generation_config.min_new_tokens = TOKENS
        for _ in range(2):  # the first warms up
            started = time.monotonic()
            if sampler:
                (samples,) = sampler([prompt], [list(range(GROUP))])
                completions = [list(s.ids) for s in samples]
            else:
                completions = trainer._generate_single_turn([prompt] * GROUP, None, {}, GROUP)[0]
            sampling.append(time.monotonic() - started)
        assert [len(ids) for ids in completions] == [TOKENS] * GROUP
        torch.manual_seed(0)
        fixed = torch.randint(100, 40_000, (GROUP, TOKENS))
        ones = torch.ones_like(fixed)
        rows = {
            "prompt_ids": torch.tensor([prompt] * GROUP), "prompt_mask": torch.ones(GROUP, len(prompt)).long(),
            "completion_ids": fixed, "completion_mask": ones, "tool_mask": ones,
            "advantages": torch.linspace(-1, 1, GROUP),
        }  # fmt: skip
        parts = 1 if sampler else 2
        trainer.current_gradient_accumulation_steps = parts
        trainer.model.train()
        update, loss = [], 0.0
        for _ in range(2):
            started, loss = time.monotonic(), 0.0
            for i in range(parts):
                part = {name: values.chunk(parts)[i] for name, values in rows.items()}
                value = trainer._compute_loss(trainer.model, {**part, "num_items_in_batch": ones.sum()})
                value.backward()
                loss += value.item()
            trainer.model.zero_grad()
            update.append(time.monotonic() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"sampling_s": min(sampling), "update_s": min(update), "peak_gib": peak, "loss": loss}


def reward_parallel_speedup() -> dict[str, Any]:
    """`judge` on 8 groups of 8 candidates with 8 questions, each asking a scripted solver that takes 300 ms, in the
    sandbox: all at once, and candidate by candidate, question by question."""
    return asyncio.run(_rewards())


async def _rewards() -> dict[str, Any]:
    from reharness.envs.registry import get_task
    from reharness.envs.splits import question_sets
    from reharness.proposer.policy import Proposal, make_context
    from reharness.proposer.revise import judge
    from reharness.solver.evaluate import Solver, evaluate
    from reharness.solver.harness import seed_harness
    from reharness.solver.ledger import Ledger
    from reharness.solver.models.scripted import ScriptedEngine
    from reharness.solver.sandbox import Sandbox

    async def run(concurrency: int, one_by_one: bool) -> float:
        sandbox = await Sandbox.start()
        solver = Solver(ScriptedEngine(lambda *_: "7", latency_s=0.3), sandbox, Ledger(), concurrency=concurrency)
        try:
            task, contexts, proposals = get_task("chain_sum"), [], []
            for g in range(8):
                sets = question_sets(task, "train", 1, 8, 0, g)
                card = await evaluate(seed_harness(), sets.scoring, solver, task=task)
                context = make_context(
                    task, seed_harness(), feedback=sets.scoring, feedback_card=card, scoring=sets.scoring,
                    parent_card=card, count_tokens=lambda text: len(text) // 4,
                )  # fmt: skip
                line = "    reply = tools.llm(question, max_tokens=512, temperature=0.0)"
                new = [line.replace("question", f"{str(g * 8 + i)!r} + question") for i in range(8)]
                edits = [f"x\n<<<<<<< SEARCH\n{line}\n=======\n{text}\n>>>>>>> REPLACE\n" for text in new]
                contexts.append(context)
                proposals.append([Proposal(context.key, i, text, "w") for i, text in enumerate(edits)])
            started = time.monotonic()
            if one_by_one:
                for context, own in zip(contexts, proposals, strict=True):
                    for proposal in own:
                        await judge([context], [[proposal]], solver)
            else:
                await judge(contexts, proposals, solver)
            return time.monotonic() - started
        finally:
            await solver.stop()
            await sandbox.aclose()

    serial, parallel = await run(1, True), await run(128, False)
    return {"ratio": serial / parallel, "serial_s": serial, "parallel_s": parallel, "runs": 512, "concurrency": 128}


def grpo_overhead_share() -> dict[str, Any]:
    """The share of the steps of a short run (embedded model, committed adapter, 3 updates of 4 x 8) that is neither
    sampling nor judging nor update."""
    from reharness.proposer.grpo import GrpoConfig, run_grpo

    root = HERE.parent
    config = GrpoConfig(
        contexts=(root / "recipes/micro_rg/contexts.jsonl",), adapter=root / "recipes/micro_rg/sft_adapter", updates=3,
        groups=4, group_size=8, max_tokens=192, lr=1e-5, save_every=10, device="cpu", loss_type="dr_grpo",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        run_grpo(config, Path(folder) / "run")
        rows = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
    parts = ("seconds/sampling", "seconds/judging", "seconds/update")
    shares = [1 - sum(row[part] for part in parts) / row["seconds"] for row in rows]
    told = {part.partition("/")[2] + "_s": statistics.fmean(row[part] for row in rows) for part in parts}
    step = statistics.fmean(row["seconds"] for row in rows)
    return {"share": statistics.fmean(shares), "step_s": step, **told, "n": len(rows)}


if __name__ == "__main__":
    print(json.dumps(_step(sys.argv[2])))
