"""Chains on real questions in the real sandbox, with a scripted model and a scripted proposer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from solving import edit, with_solver

from reharness.envs.errors import TaskError
from reharness.envs.registry import get_task
from reharness.envs.splits import question_sets
from reharness.eval.adapt import Adaptation, Chain, Round
from reharness.eval.heldout import held_out
from reharness.proposer.policy import Context, Proposal, ScriptedProposer
from reharness.proposer.select import AcceptIfBetter, TakeBestScoring
from reharness.solver.evaluate import Solver
from reharness.solver.harness import seed_harness
from reharness.solver.models.scripted import ScriptedEngine
from reharness.solver.outcomes import Scorecard

TASK = get_task("chain_sum", exact=True, min_terms=2, max_terms=3)
SETS = question_sets(TASK, "adapt_rg", 6, 6, 10, seed=1)
ENGINE = ScriptedEngine(lambda messages, sampling: "The answer is 7.")
LINE = "    reply = tools.llm(question, max_tokens=512, temperature=0.0)"
WORK = edit(
    LINE,
    "    import re\n    expression = re.search(r': (.*) =', question).group(1)\n    reply = str(eval(expression))",
    "Compute it.",
)
SPOIL = edit("    return reply", "    return reply + '!'", "Add a mark.")


def chain(proposer: Any, rounds: int = 2, n: int = 2, mode: str = "sequential", rule: Any = None, **options: Any) -> Any:
    seen: list[Round | Scorecard] = []

    async def body(solver: Solver) -> tuple[Chain, Any, list[Round | Scorecard]]:
        adaptation = Adaptation(
            TASK, SETS, seed_harness(), proposer, solver, rounds, n, rule or AcceptIfBetter(),
            solver.engine.count_tokens, seen.append,
        )  # fmt: skip
        made = await getattr(adaptation, mode)()
        return made, await held_out(made.seal, made.seed, made.harness, TASK, SETS, solver), seen

    return with_solver(ENGINE, body, **options)


def test_a_chain_keeps_what_gains_and_is_measured_on_held_out_questions_when_sealed() -> None:
    made, held, seen = chain(ScriptedProposer([SPOIL, WORK]))
    assert [r.decision.index for r in made.rounds] == [1, None]
    assert made.seed_card.mean == 0.0 and made.card.mean == 1.0
    assert (held.seed.mean, held.final.mean, held.gain.mean, held.gain.n) == (0.0, 1.0, 1.0, 10)
    assert seen == [made.seed_card, *made.rounds]
    record = made.rounds[0].record()
    assert (record["parsed_share"], record["ran_share"], record["valid_share"], record["best_score"]) == (1, 1, 1, 1.0)
    # The second round's edits no longer apply to the harness that was kept, or change nothing of its score.
    assert [j["status"] for j in made.rounds[1].record()["judged"]] == ["ran", "no_match"]


def test_the_next_report_tells_what_earlier_edits_did() -> None:
    class Reading(ScriptedProposer):
        texts: list[str] = []

        async def propose(self, contexts: Sequence[Context], n: int) -> list[list[Proposal]]:
            Reading.texts += [c.messages[-1]["content"] for c in contexts]
            return await super().propose(contexts, n)

    chain(Reading([SPOIL, "nothing of use"]), rounds=2)
    first, second = Reading.texts
    assert "Earlier edits" not in first and "The answer is 7." in first
    assert "Add a mark.: score 0.000 -> 0.000, rejected" in second and "not used: no_block" in second


def test_independent_proposals_all_read_the_seed_s_report() -> None:
    made, held, _ = chain(ScriptedProposer([SPOIL, SPOIL, WORK, SPOIL]), rounds=2, n=2, mode="independent")
    assert len(made.rounds) == 1 and len(made.rounds[0].judged) == 4 and made.rounds[0].decision.index == 2
    assert held.final.mean == 1.0


def test_the_qa_rule_moves_even_when_lower() -> None:
    broken = edit("    return reply", "    return 1 / 0", "Break it.")
    made, _, _ = chain(ScriptedProposer([broken]), rounds=1, n=1, rule=TakeBestScoring())
    assert made.harness != made.seed and made.card.completed_share == 0.0


def test_concurrency_does_not_change_a_chain() -> None:
    wide, _, _ = chain(ScriptedProposer([SPOIL, WORK]), concurrency=16)
    narrow, _, _ = chain(ScriptedProposer([SPOIL, WORK]), concurrency=1)
    assert [r.record() for r in wide.rounds] == [r.record() for r in narrow.rounds]
    assert wide.harness == narrow.harness and wide.card.answers == narrow.card.answers


def test_q_eval_is_disjoint_and_opens_only_to_a_seal() -> None:
    dev = {q.key for q in SETS.scoring}
    with pytest.raises(TaskError, match="seal"):
        SETS.held_out(None)  # type: ignore[arg-type]
    made, _, _ = chain(ScriptedProposer([SPOIL]), rounds=1, n=1)
    assert not dev & {q.key for q in SETS.held_out(made.seal)} and SETS.n_eval == 10
