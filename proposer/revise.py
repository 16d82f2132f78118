"""`revise` = contexts -> propose -> judge. `judge` is the one path by which an edit becomes a candidate, runs and is
paid: GRPO's reward calls it on its own samples, adaptation and co-evolution reach it through `revise`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from reharness.envs.errors import ProposerError, ReharnessError
from reharness.envs.types import content_hash
from reharness.proposer.edits import EditResult, apply_edit, check_harness
from reharness.proposer.policy import Context, Proposal, Proposer
from reharness.proposer.report import EditRecord
from reharness.proposer.reward import REWARDS
from reharness.solver.evaluate import Solver, evaluate, gather_all
from reharness.solver.harness import Harness
from reharness.solver.outcomes import Infra, Scorecard


@dataclass(frozen=True)
class Judged:
    """A proposal and what came of it. Exactly one of: ``edit.error`` is set (no candidate), or ``candidate`` and
    ``card`` are. ``reward`` is None when the scoring run was no measurement (infra)."""

    proposal: Proposal
    edit: EditResult
    candidate: Harness | None
    card: Scorecard | None
    reward: float | None
    inert: bool
    """The candidate ran and changed no scoring answer."""

    @property
    def status(self) -> str:
        """The edit error's kind, or ``ran``."""
        return self.edit.error.kind if self.edit.error else "ran"

    @property
    def stage(self) -> int:
        """How far the proposal came: 0 nothing, 1 parsed, 2 applied, 3 ran (some run of it completed)."""
        if self.edit.error is not None:
            return {"parse": 0, "apply": 1, "result": 2}[self.edit.error.stage]
        return 3 if self.card and self.card.n and self.card.completed_share > 0 else 2

    @property
    def valid(self) -> bool:
        """Parsed, applied, ran, and changed at least one scoring answer."""
        return self.stage == 3 and not self.inert

    def record(self) -> dict[str, Any]:
        """Plain JSON, equal for equal proposals wherever they were judged."""
        return {
            "context": self.proposal.context,
            "index": self.proposal.index,
            "status": self.status,
            "description": self.edit.description,
            "candidate": self.candidate.fingerprint if self.candidate else None,
            "score": self.card.mean if self.card and self.card.n else None,
            "n": self.card.n if self.card else 0,
            "completed_share": self.card.completed_share if self.card and self.card.n else None,
            "failures": dict(self.card.failures) if self.card else {},
            "infra": self.card.infra if self.card else 0,
            "reward": self.reward,
            "inert": self.inert,
            "near_markers": self.edit.near_markers,
        }


async def judge(
    contexts: Sequence[Context], proposals: Sequence[Sequence[Proposal]], solver: Solver
) -> list[list[Judged]]:
    """Edits, runs and pays every proposal; ``proposals[i]`` belong to ``contexts[i]``. All candidates of all contexts
    are in flight together, and the solver's calls are batched across them.

    Raises ``ValueError`` when a proposal is of another context (a group must never hold two contexts).
    """

    async def group(context: Context, own: Sequence[Proposal]) -> list[Judged]:
        if any(p.context != context.key for p in own):
            raise ValueError(f"a proposal of another context in the group of {context.key[:12]}")
        return await gather_all(_judge_one(context, p, solver) for p in own)

    return await gather_all(group(c, own) for c, own in zip(contexts, proposals, strict=True))


async def _judge_one(context: Context, proposal: Proposal, solver: Solver) -> Judged:
    interface = context.task.interface
    edit = apply_edit(
        context.parent.source, proposal.text, interface=interface, think_prefilled=proposal.think_prefilled
    )
    edit = check_harness(edit, interface)
    reward = REWARDS[interface]
    if edit.source is None or edit.error is not None:
        return Judged(proposal, edit, None, None, reward(edit.error.kind if edit.error else None, None), False)
    candidate = Harness(edit.source)
    card = await evaluate(candidate, context.scoring, solver, task=context.task, repeats=context.repeats)
    return Judged(proposal, edit, candidate, card, reward(None, card), _inert(context.parent_card, card))


def _inert(parent: Scorecard, card: Scorecard) -> bool:
    """Whether no answer changed, of the runs that both measured."""
    seen = [
        was == now
        for before, after, was, now in zip(parent.outcomes, card.outcomes, parent.answers, card.answers, strict=True)
        if not isinstance(before, Infra) and not isinstance(after, Infra)
    ]
    return bool(seen) and all(seen)


async def revise(contexts: Sequence[Context], proposer: Proposer, n: int, solver: Solver) -> list[list[Judged]]:
    """``n`` proposals for each context from ``proposer`` (asked only for what the ledger does not hold), judged."""
    return await judge(contexts, await propose(contexts, proposer, n, solver), solver)


def edit_records(number: int, parent: Scorecard, judged: Sequence[Judged], accepted: int | None) -> list[EditRecord]:
    """What the next report says of a round's edits: each distinct edit once. ``accepted`` is the index of the one that
    was kept."""
    rows: dict[tuple[str, str], EditRecord] = {}
    for i, j in enumerate(judged):
        description = j.edit.description or "(no description)"
        if j.edit.error is not None:
            effect = f"not used: {j.edit.error}"
            if j.edit.error.nearest:
                effect += f"; the nearest lines are {list(j.edit.error.nearest)}"
        elif j.card and j.card.n:
            verdict = "accepted" if i == accepted else "rejected"
            effect = f"score {parent.mean:.3f} -> {j.card.mean:.3f}, {verdict}"
        else:
            effect = "could not be measured"
        rows.setdefault((description, effect), EditRecord(number, description, effect))
    return list(rows.values())


async def propose(contexts: Sequence[Context], proposer: Proposer, n: int, solver: Solver) -> list[list[Proposal]]:
    """The proposals, written to the ledger before they are used. Raises ``ProposerError`` when the proposer does not
    give exactly ``n`` per context."""
    missing = {c.key: c for c in contexts if solver.ledger.get("proposal", _key(c, proposer, n)) is None}
    # The scoring questions, and their gold, are for `judge` alone.
    blind = [replace(c, scoring=()) for c in missing.values()]
    for context, group in zip(blind, await _ask(blind, proposer, n) if blind else [], strict=True):
        solver.ledger.put("proposal", _key(context, proposer, n), {"proposals": [asdict(p) for p in group]})
    # What is used is what was written: a proposer need not say the same thing twice.
    records = [solver.ledger.get("proposal", _key(c, proposer, n)) or {} for c in contexts]
    return [[Proposal(**row) for row in record["proposals"]] for record in records]


async def _ask(contexts: Sequence[Context], proposer: Proposer, n: int) -> list[list[Proposal]]:
    """What the proposer gives, held to its protocol."""
    try:
        groups = await proposer.propose(contexts, n)
    except ReharnessError:
        raise
    except Exception as error:
        raise ProposerError(f"proposer {proposer.name!r} failed: {type(error).__name__}: {error}; mend it") from error
    wanted = [[(c.key, i) for i in range(n)] for c in contexts]
    got = [[(p.context, p.index) for p in group] for group in groups]
    if got != wanted:
        raise ProposerError(
            f"proposer {proposer.name!r}: propose() must give {n} proposals for each of {len(contexts)} contexts, with"
            f" the context's key and index 0 to {n - 1} in order; it gave {[len(g) for g in got]}"
        )
    return groups


def _key(context: Context, proposer: Proposer, n: int) -> str:
    return content_hash("proposal", context.key, proposer.name, proposer.identity, n)
