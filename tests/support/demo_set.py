"""Real little demonstrations: edits of small parents, made and proven like those that train a proposer."""

from __future__ import annotations

from typing import Any

from reharness.proposer.demo_rows import DemoRow
from reharness.proposer.edits import apply_edit, check_harness
from reharness.solver.harness import Harness

FAMILIES = ("chain_sum", "spell_backward", "gcd", "word_sorting")


def demo(i: int = 0, **changes: Any) -> DemoRow:
    """Demonstration number ``i``: its parent's answer is wrong in one way or another, the edit mends it."""
    family = FAMILIES[i % len(FAMILIES)]
    defect = ("keeps blanks", "answers twice")[i % 2]
    wrong, right = (("answer", "answer.strip()"), ("answer * 2", "answer"))[i % 2]
    parent = f"def run(question, tools):\n    answer = tools.llm(question, max_tokens={64 + i})\n    return {wrong}\n"
    completion = (
        f"The answer {defect}; return it clean.\n<<<<<<< SEARCH\n    return {wrong}\n=======\n    return {right}\n"
        ">>>>>>> REPLACE\n"
    )
    candidate = check_harness(apply_edit(parent, completion)).source
    assert candidate is not None
    fields: dict[str, Any] = {
        "task": f"{family}?exact=true", "family": family, "format": "plain", "track": "SFR"[i % 3], "defect": defect,
        "messages": [
            {"role": "system", "content": "You improve a harness."},
            {"role": "user", "content": f"Task: {family}\n{parent}Report: the answer {defect}."},
        ],
        "completion": completion, "parent_source": parent, "parent": Harness(parent).fingerprint,
        "candidate": Harness(candidate).fingerprint, "parent_score": 0.25, "candidate_score": 1.0, "n": 8, "repeats": 1,
        "context": f"context-{i}", "teacher": "move_search", "move": None,
    }  # fmt: skip
    return DemoRow.make(**{**fields, **changes})


def demos(n: int) -> list[DemoRow]:
    return [demo(i) for i in range(n)]
