"""A third party's task and proposer, as their package would hold them; `install` makes them importable from a folder."""

from __future__ import annotations

from pathlib import Path

TASK = '''\
"""A task of one's own: say which of three numbers is the largest."""
import random

from reharness.envs.types import Question


class Largest:
    name = "largest"
    interface = "search_replace"
    description = "say which of three numbers is the largest"
    scorer_version = "1"

    def __init__(self, top: int = 99) -> None:
        self.top = top

    def questions(self, n: int, seed: int) -> list[Question]:
        rng, made = random.Random(seed), {}
        while len(made) < n:
            numbers = rng.sample(range(self.top), 3)
            text = f"Which is the largest: {', '.join(map(str, numbers))}?"
            made.setdefault(text, Question(self.name, text, str(max(numbers))))
        return list(made.values())

    def score(self, question: Question, answer: str) -> float:
        return float(answer.strip() == question.gold)

    def reveal(self, question: Question) -> str:
        return question.gold
'''

PROPOSER = '''\
"""A proposer of one's own: computes the answer, and tries two edits that do not help."""
from reharness.proposer.policy import Proposal

LINE = "    reply = tools.llm(question, max_tokens=512, temperature=0.0)"
EDITS = [
    (LINE, LINE.replace("512", "64"), "Fewer tokens."),
    (LINE, "    import re\\n    reply = str(max(map(int, re.findall(r'[0-9]+', question))))", "Compute the maximum."),
    ("    return reply", "    return tools.llm('Shorten: ' + reply).strip()", "Shorten it."),
]


class Mine:
    name = "mine"

    def __init__(self, prefix: str = "") -> None:
        self.identity = f"mine/1 {prefix}"
        self.prefix = prefix

    async def propose(self, contexts, n):
        blocks = [
            f"{self.prefix}{what}\\n<<<<<<< SEARCH\\n{old}\\n=======\\n{new}\\n>>>>>>> REPLACE\\n" for old, new, what in EDITS
        ]
        return [[Proposal(c.key, i, blocks[i % len(blocks)], "mine") for i in range(n)] for c in contexts]

    async def aclose(self):
        pass
'''

ENTRY_POINTS = """\
[reharness.tasks]
largest = their_task:Largest

[reharness.proposers]
mine = their_proposer:Mine
"""


def install(folder: Path) -> None:
    """What `pip install` of such a package leaves in a folder of the import path."""
    (folder / "their_task.py").write_text(TASK)
    (folder / "their_proposer.py").write_text(PROPOSER)
    info = folder / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
