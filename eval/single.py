"""One harness on one task: `reharness run`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from pydantic import Field
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reharness.envs.config import Config
from reharness.envs.errors import InfraLimitError
from reharness.envs.registry import get_task
from reharness.envs.types import Question, Task
from reharness.eval.render.text import visible
from reharness.eval.rundir import RunDir
from reharness.eval.stats import bounded_mean
from reharness.solver.evaluate import Solver, evaluate
from reharness.solver.harness import Harness, seed_harness
from reharness.solver.models.factory import EmbeddedConfig, EngineField, make_engine
from reharness.solver.outcomes import Answered, Failed, Outcome, Scorecard
from reharness.solver.sandbox import Sandbox
from reharness.solver.sandbox.types import Limits
from reharness.solver.tools import Budgets


class RunConfig(Config):
    """One harness (a file, or ``seed``) on ``n`` questions of one task."""

    harness: str
    task: str
    n: int = Field(16, ge=1, le=100_000)
    seed: int = 0
    repeats: int = Field(1, ge=1, le=1000)
    solver: EngineField = EmbeddedConfig()
    concurrency: int = Field(32, ge=1, le=1000)
    rung: int | None = Field(None, ge=1, le=3)
    limits: Limits = Limits()
    budgets: Budgets = Budgets()


async def run_harness(config: RunConfig, path: Path) -> tuple[Task, Sequence[Question], Scorecard]:
    """Task, questions and scorecard; what the run folder ``path`` already holds is not paid for again."""
    task = get_task(config.task)
    seed = config.harness == "seed"
    harness = seed_harness(task.interface) if seed else Harness.load(config.harness, task.interface)
    questions = task.questions(config.n, config.seed)
    async with AsyncExitStack() as stack:
        run = RunDir(path, config, {"tasks": [task.scorer_version], "harnesses": [harness.fingerprint]})
        stack.callback(run.close)
        engine = make_engine(config.solver)
        stack.push_async_callback(engine.aclose)
        await engine.probe()
        sandbox = await Sandbox.start(rung=config.rung)
        stack.push_async_callback(sandbox.aclose)
        solver = Solver(engine, sandbox, run.ledger, config.limits, config.budgets, config.concurrency)
        stack.push_async_callback(solver.stop)
        card = await evaluate(harness, questions, solver, task=task, repeats=config.repeats)
    if not card.n:
        raise InfraLimitError(f"no run could be measured; the first was {card.outcomes[0]}")
    return task, questions, card


def print_scorecard(console: Console, task: Task, questions: Sequence[Question], card: Scorecard, show: int) -> None:
    """The mean with n and interval, completion, failures by kind, tokens; then the first ``show`` outcomes."""
    texts = {q.key: q for q in questions}
    usage = [o.usage for o in card.measured]
    console.print(f"{card.task}: mean score {bounded_mean(list(card.by_question.values()))}", highlight=False)
    console.print(
        f"completed {card.completed_share:.0%}; failed {dict(card.failures) or 'none'}; infra {card.infra}; "
        f"{sum(u.llm_calls for u in usage)} solver calls, {sum(u.prompt_tokens for u in usage)} tokens in, "
        f"{sum(u.completion_tokens for u in usage)} out",
        highlight=False,
    )
    table = Table("question", "outcome", "returned", "right answer")
    for key, outcome in list(zip(card.questions, card.outcomes, strict=True))[:show]:
        question = texts[key]
        gold = task.reveal(question) or ""
        row = (question.text[:300], _verdict(outcome), _shown(outcome)[:300], gold[:200])
        table.add_row(*(Text(visible(cell)) for cell in row))  # what a model wrote is no markup and no terminal command
    if show:
        console.print(table)


def _verdict(outcome: Outcome) -> str:
    return f"score {outcome.score:.2f}" if isinstance(outcome, Answered) else outcome.kind


def _shown(outcome: Outcome) -> str:
    if isinstance(outcome, Answered):
        return repr(outcome.answer)
    return outcome.detail if isinstance(outcome, Failed) else f"(no measurement) {outcome.detail}"
