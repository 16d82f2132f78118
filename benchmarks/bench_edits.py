"""How fast edits are applied: one block on a 100-line harness, one core, with and without the Python checks."""

from __future__ import annotations

import time
from typing import Any

from reharness.proposer.edits import apply_edit

_STEP = '''
def step_{i}(text, tools):
    """Asks for part {i} of the answer."""
    prompt = f"Part {i}: {{text}}"
    reply = tools.llm(prompt, max_tokens=64 + {i}, temperature=0.0)
    if not reply.strip():
        tools.note("part {i} came back empty")
        return text
    lines = [line for line in reply.split("\\n") if line.strip()]
    return lines[-1].strip() if lines else text
'''


def edits_per_second(seconds: float = 1.0) -> dict[str, Any]:
    """``parse_apply`` and ``with_python_checks`` in edits per second, each the best of three runs of ``seconds``;
    ``n``: edits applied in all; ``lines`` of the harness."""
    source = "".join(_STEP.format(i=i) for i in range(9)).lstrip("\n")
    source += '\n\ndef run(question, tools):\n    text = question\n'
    source += "".join(f"    text = step_{i}(text, tools)\n" for i in range(9)) + "    return text\n"
    completion = (
        "Part 5 may be longer than part 4.\n\n"
        "<<<<<<< SEARCH\n    reply = tools.llm(prompt, max_tokens=64 + 5, temperature=0.0)\n"
        "    if not reply.strip():\n=======\n    reply = tools.llm(prompt, max_tokens=256, temperature=0.0)\n"
        "    if not reply.strip():\n>>>>>>> REPLACE\n"
    )
    rates: dict[str, float] = {}
    total = 0
    for name, checks in (("parse_apply", False), ("with_python_checks", True)):
        assert apply_edit(source, completion, python_checks=checks).error is None
        best = 0.0
        for _ in range(3):
            n, start = 0, time.perf_counter()
            while (spent := time.perf_counter() - start) < seconds:
                for _ in range(20):
                    apply_edit(source, completion, python_checks=checks)
                n += 20
            best, total = max(best, n / spent), total + n
        rates[name] = round(best, 1)
    return {**rates, "n": total, "lines": source.count("\n")}


if __name__ == "__main__":
    print(edits_per_second())
