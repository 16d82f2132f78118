"""Shared by tests: a small search for demonstrations, its solver (and a teacher, if need be) scripted behind an endpoint."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from endpoint import EndpointServer
from solving import edit

from reharness.proposer.demo_rows import DemoRow, load_demos
from reharness.proposer.demos import DemosConfig, run_demos
from reharness.solver.models.base import Message, Sampling

PARENTS = Path(__file__).resolve().parents[2] / "recipes" / "micro_rg" / "parents"
LINE = "    reply = tools.llm(question, max_tokens=512, temperature=0.0)"
PLAIN, HALF, EXACT = "Calm: ", "Half: ", "Exact: "


def asking(word: str, description: str = "Ask in another way.") -> str:
    """The completion of an edit of the seed harness: the solver reads ``word`` before the question."""
    return edit(LINE, LINE.replace("question", f"{word!r} + question"), description)


def reply(messages: Sequence[Message], _: Sampling) -> str:
    """The solver knows sums if it is asked with EXACT; else its answers are wrong, and differ."""
    text = messages[-1]["content"]
    found = re.search(r": ([-+0-9 ]+) =", text)
    return str(eval(found[1])) if found and text.startswith(EXACT) else f"The answer is {len(text) % 7}."


class Script:
    """What the endpoint replies, by test: ``solver`` to harnesses, ``edit`` to a teacher."""

    solver: Any = staticmethod(reply)
    edit = "NO CHANGE\n"

    def __call__(self, messages: Sequence[Message], sampling: Sampling) -> str:
        return self.edit if messages[0]["role"] == "system" else self.solver(messages, sampling)


def settings(server: EndpointServer, **changes: Any) -> DemosConfig:
    """By default one start: the seed harness on sums, with one proposal of the teacher at the endpoint."""
    engine = f"endpoint?url={server.url}&model=m&key_env=NONE&retries=0"
    fields = {
        "parents": PARENTS, "families": ("chain_sum",), "per_family": 1, "per_format": 0, "per_defect": 0, "feedback": 2,
        "score": 3, "repeats": 1, "with_history": 0, "proposals": 1, "window": 2000, "solver": engine,
        "teacher": {"name": "model", "engine": engine},
    }  # fmt: skip
    return DemosConfig.model_validate({**fields, **changes})


def searched(config: DemosConfig, out: Path, watch: Any = None) -> tuple[dict[str, Any], list[DemoRow]]:
    summary = asyncio.run(run_demos(config, out, out / "rows.jsonl", watch))
    assert json.loads((out / "summary.json").read_text()) == summary
    return summary, load_demos(out / "rows.jsonl")


def unpaid(summary: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in summary.items() if k != "paid"}
