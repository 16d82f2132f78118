"""Summaries of adaptation runs, built through the real dataclasses without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reharness.eval.adapt import Chain, Round
from reharness.eval.experiment import Arm, _record
from reharness.eval.heldout import HeldOut
from reharness.proposer.edits import apply_edit
from reharness.proposer.policy import Proposal
from reharness.proposer.revise import Judged
from reharness.proposer.reward import rg_reward
from reharness.proposer.select import AcceptIfBetter
from reharness.solver.harness import Harness, seed_harness
from reharness.solver.outcomes import Answered, Failed, Infra, Outcome, Scorecard

HOSTILE = 'Retry </title></code><script>alert("x")</script><img src=x onerror=alert(1)> \u202eright to left'
NOTHING: Any = None
Worths = Sequence[float | str]


def card(harness: Harness, worths: Worths, task: str = "t") -> Scorecard:
    """A number is answered with that score; ``f`` failed; ``i`` infra."""
    made: list[Outcome] = []
    for w in worths:
        if w == "f":
            made.append(Failed("timeout_cpu", "slow"))
        elif w == "i":
            made.append(Infra("engine_error", "down"))
        else:
            made.append(Answered(f"answer worth {w}", float(w)))
    return Scorecard(harness.fingerprint, task, tuple(map(str, range(len(made)))), (0,) * len(made), tuple(made))


def judged(parent: Harness, parent_card: Scorecard, index: int, completion: str, worths: Worths) -> Judged:
    proposal = Proposal("c", index, completion, "w", 400, 50)
    edit = apply_edit(parent.source, completion)
    if edit.source is None:
        assert edit.error is not None
        return Judged(proposal, edit, None, None, rg_reward(edit.error.kind, None), False)
    candidate = Harness(edit.source)
    scored = card(candidate, worths)
    return Judged(proposal, edit, candidate, scored, rg_reward(None, scored), scored.answers == parent_card.answers)


def edit_of(old: str, new: str, description: str) -> str:
    return f"{description}\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"


def arm(
    task: str, proposer: str, rounds: Sequence[Sequence[tuple[str, Worths]]], seed_worths: Worths,
    held: tuple[Worths, Worths],
) -> dict[str, Any]:  # fmt: skip
    """The record of one task and proposer whose rounds are lists of (completion, worths of its candidate)."""
    seed = parent = seed_harness()
    seed_card = parent_card = card(seed, seed_worths)
    done = []
    for number, proposals in enumerate(rounds, 1):
        group = tuple(judged(parent, parent_card, i, c, w) for i, (c, w) in enumerate(proposals))
        decision = AcceptIfBetter()(parent_card, [j.card for j in group])
        done.append(Round(number, f"context {number}", parent, parent_card, group, decision, 61.04))
        if (taken := done[-1].accepted) and taken.candidate and taken.card:
            parent, parent_card = taken.candidate, taken.card
    chain = Chain(task, seed, seed_card, tuple(done), parent, parent_card)
    whole = Arm(label=task, task=NOTHING, sets=NOTHING, seed=seed, proposer=NOTHING, title=proposer, count_tokens=len)
    measured = HeldOut(card(seed, held[0]), card(parent, held[1])).record()
    return {**_record(whole, chain, lambda h: h.fingerprint), "held_out": measured, "seconds": 130.0}


REPLY = "    return reply\n"
STRIP = "    return reply.strip()\n"
LINES = "    lines = [line for line in reply.splitlines() if line.strip()]\n    return lines[-1] if lines else reply\n"


def make_summary(description: str = HOSTILE) -> dict[str, Any]:
    """Two tasks and two proposers: edits kept, edits refused, failed runs, infra, and an arm that measured nothing."""
    better = edit_of(REPLY, LINES, description)
    inert = edit_of(REPLY, STRIP, "Strip the reply")
    more = edit_of(
        "    reply = tools.llm(question, max_tokens=512, temperature=0.0)\n",
        "    reply = tools.llm(question, max_tokens=768, temperature=0.0)\n",
        "Longer replies",
    )
    no_match, no_block = edit_of("    nowhere\n", "x\n", "Nothing"), "I would not change it."
    low, mid, high = [1, 0, 0, 0.25], [1, 0.5, 0, 0.5], [1, 1, 0.5, 1]
    arms = [
        arm("chain_sum?format=tag", "move_search",
            [[(better, mid), (inert, low), (no_match, []), (no_block, [])],
             [(more, high), (no_match, []), (more, [1, "f", "f", 1]), (no_block, [])],
             [(no_block, []), (no_match, []), (no_match, []), (no_block, [])]],
            low, ([1, 0, 0, 0, 0, 0, 0, 0] * 4, [1, 1, 0, 1, 1, 1, 1, 0] * 4)),
        arm("chain_sum?format=tag", "model <embedded>",
            [[(no_block, []), (no_match, []), (inert, low), (no_block, [])]] * 3,
            low, ([1, 0, 0, 0, 0, 0, 0, 0] * 4, [1, 0, 0, 0, 0, 0, 0, 0] * 4)),
        arm("letter_counting", "move_search",
            [[(better, ["i", "i", "i", "i"]), (inert, [0, 1, 0, 0]), (no_block, []), (no_block, [])],
             [(no_block, [])] * 4, [(no_block, [])] * 4],
            [0, 0, 0, "f"], ([0, 1, "i", 0], [0, 1, 1, "i"])),
        arm("letter_counting", "model <embedded>",
            [[(no_block, [])] * 4] * 3, ["i", "i", "i", "i"], (["i"] * 4, ["i"] * 4)),
    ]  # fmt: skip
    paid = {"calls": 1234, "prompt_tokens": 234567, "completion_tokens": 45678}
    return {
        "config": "0123456789abcdef" * 4, "mode": "sequential",
        "solver": {"engine": "openvino-genai", "weights": "ab" * 32}, "sandbox": "namespaces",
        "arms": arms, "paid": {"solver": paid, "proposer": dict.fromkeys(paid, 0)},
        "infra": 13, "seconds": 312.4,
    }  # fmt: skip
