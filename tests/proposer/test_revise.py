"""One path: what adaptation revises is what training judges."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from solving import edit, with_solver

from reharness.envs.errors import EngineError, ProposerError
from reharness.envs.registry import get_task
from reharness.proposer.policy import Context, ModelProposer, Proposal, ReplayProposer, ScriptedProposer, make_context
from reharness.proposer.revise import judge, revise
from reharness.solver.evaluate import Solver, evaluate
from reharness.solver.harness import seed_harness
from reharness.solver.models.base import Message, Sampling
from reharness.solver.models.scripted import ScriptedEngine
from reharness.solver.recorded import RecordedEngine

TASK = get_task("chain_sum", exact=True, min_terms=2, max_terms=2)
QUESTIONS = TASK.questions(6, 3)
LINE = "    reply = tools.llm(question, max_tokens=512, temperature=0.0)"
SUM = r"""    import re
    a, op, b = re.search(r'(\d+) ([-+]) (\d+)', question).groups()
    reply = str(int(a) + int(op + b))"""
COMPLETIONS = [
    edit(LINE, SUM, "Compute the sum."),
    "I would not change a thing.\nNO CHANGE\n",
    edit("    return nothing", "    return 1"),
    edit(LINE, LINE.replace("512", "256"), "Fewer tokens."),
    edit("    return reply", "    return reply +", "Broken."),
    edit("def run(question, tools):", "def go(question, tools):", "Renamed."),
    edit("    return reply", "    return 1 / 0", "Divides."),
    "no block at all",
]
STATUSES = ["ran", "no_change", "no_match", "ran", "syntax_error", "no_entry_point", "ran", "no_block"]
ENGINE = ScriptedEngine(lambda messages, sampling: "The answer is 7.")


async def context(solver: Solver) -> Context:
    seed = seed_harness()
    card = await evaluate(seed, QUESTIONS, solver, task=TASK)
    return make_context(
        TASK, seed, feedback=QUESTIONS, feedback_card=card, scoring=QUESTIONS, parent_card=card,
        count_tokens=solver.engine.count_tokens,
    )  # fmt: skip


def test_each_proposal_becomes_what_the_grammar_says_and_is_paid_for_it() -> None:
    async def body(solver: Solver) -> None:
        (judged,) = await revise([await context(solver)], ScriptedProposer(COMPLETIONS), len(COMPLETIONS), solver)
        assert [j.status for j in judged] == STATUSES
        assert [j.reward for j in judged] == pytest.approx([1.30, 0.05, 0.05, 0.30, 0.15, 0.15, 0.15, 0.0])
        assert [j.inert for j in judged] == [False, False, False, True, False, False, False, False]
        assert judged[0].card and judged[0].card.mean == 1.0
        assert judged[6].card and judged[6].card.failures == {"harness_error": 6}

    with_solver(ENGINE, body)


def test_equal_proposals_give_equal_records_through_judge_and_through_revise() -> None:
    async def through_revise(solver: Solver) -> object:
        (judged,) = await revise([await context(solver)], ScriptedProposer(COMPLETIONS), len(COMPLETIONS), solver)
        return [j.record() for j in judged]

    async def through_judge(solver: Solver) -> object:
        c = await context(solver)
        samples = [Proposal(c.key, i, text, "trained") for i, text in enumerate(COMPLETIONS)]
        (judged,) = await judge([c], [samples], solver)
        return [j.record() for j in judged]

    assert with_solver(ENGINE, through_revise) == with_solver(ENGINE, through_judge)


def test_a_group_never_holds_two_contexts() -> None:
    async def body(solver: Solver) -> None:
        c = await context(solver)
        with pytest.raises(ValueError, match="another context"):
            await judge([c], [[Proposal("other", 0, COMPLETIONS[0], "w")]], solver)
        with pytest.raises(ValueError):
            await judge([c], [], solver)

    with_solver(ENGINE, body)


def test_proposals_are_asked_for_once_and_replayed_from_the_ledger() -> None:
    class Counting(ScriptedProposer):
        asked = 0

        async def propose(self, contexts: Sequence[Context], n: int) -> list[list[Proposal]]:
            assert all(c.scoring == () for c in contexts)  # no gold of Q_score for a proposer
            Counting.asked += len(contexts)
            return await super().propose(contexts, n)

    async def body(solver: Solver) -> None:
        c = await context(solver)
        proposer = Counting(COMPLETIONS[:4])
        first = await revise([c], proposer, 4, solver)
        assert await revise([c], proposer, 4, solver) == first and Counting.asked == 1
        replayed = await revise([c], ReplayProposer({c.key: COMPLETIONS[:4]}), 4, solver)
        assert [j.record() for j in replayed[0]] == [j.record() for j in first[0]]
        with pytest.raises(EngineError, match="0 of 2"):
            await revise([c], ReplayProposer({}), 2, solver)

    with_solver(ENGINE, body)


def test_a_proposer_that_gives_too_few_is_named() -> None:
    class Short(ScriptedProposer):
        name = "short"

        async def propose(self, contexts: Sequence[Context], n: int) -> list[list[Proposal]]:
            return [row[:-1] for row in await super().propose(contexts, n)]

    async def body(solver: Solver) -> None:
        with pytest.raises(ProposerError, match=r"'short'.*must give 2 proposals.*\[1\]"):
            await revise([await context(solver)], Short(COMPLETIONS), 2, solver)

    with_solver(ENGINE, body)


def test_a_model_proposer_reads_only_the_messages_and_each_proposal_has_its_seed() -> None:
    def reply(messages: Sequence[Message], sampling: Sampling) -> str:
        assert len(messages) == 2 and sampling.temperature == 0.7
        return edit(LINE, LINE.replace("512", str(1 + sampling.seed % 500)), f"Tokens {sampling.seed}.")

    engine = ScriptedEngine(reply)

    async def body(solver: Solver) -> None:
        c = await context(solver)
        proposer = ModelProposer(RecordedEngine(engine, solver.ledger), Sampling(64, 0.7), seed=5)
        (first,) = await proposer.propose([c], 4)
        assert len({p.text for p in first}) == 4 and {p.context for p in first} == {c.key}
        assert (await proposer.propose([c], 2))[0] == first[:2] and len(engine.calls) == 4
        other = ModelProposer(RecordedEngine(engine, solver.ledger), Sampling(64, 0.7), seed=6)
        assert (await other.propose([c], 1))[0][0].text not in {p.text for p in first}

    with_solver(ENGINE, body)


def test_scoring_questions_that_are_no_feedback_never_reach_the_messages() -> None:
    async def body(solver: Solver) -> None:
        seed = seed_harness()
        feedback, scoring = QUESTIONS[:3], QUESTIONS[3:]
        fb, sc = await asyncio.gather(*(evaluate(seed, q, solver, task=TASK) for q in (feedback, scoring)))
        c = make_context(
            TASK, seed, feedback=feedback, feedback_card=fb, scoring=scoring, parent_card=sc, count_tokens=len,
            window=20_000,
        )  # fmt: skip
        text = "".join(m["content"] for m in c.messages)
        assert all(q.text.split("\n")[0] in text for q in feedback)
        assert not any(q.text.split("\n")[0] in text for q in scoring)

    with_solver(ENGINE, body)


def test_what_is_used_is_what_was_written_though_the_proposer_changes_its_mind() -> None:
    class Moody(ScriptedProposer):
        mood = 0

        async def propose(self, contexts: Sequence[Context], n: int) -> list[list[Proposal]]:
            Moody.mood += 1
            return [[Proposal(c.key, i, COMPLETIONS[Moody.mood], "w") for i in range(n)] for c in contexts]

    async def body(solver: Solver) -> None:
        c = await context(solver)
        first = await revise([c], Moody([]), 2, solver)
        again = await revise([c, c], Moody([]), 2, solver)
        assert again == [first[0], first[0]] and Moody.mood == 1

    with_solver(ENGINE, body)
