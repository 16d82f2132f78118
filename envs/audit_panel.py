"""Answers that must not be paid: nonsense, constants, echoes of the question, all known answers at once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

NONSENSE: dict[str, str] = {
    "blank": " ",
    "letters": "zqxvj",
    "punctuation": "?!;:",
    "no answer": "I do not know.",
    "a sentence": "The answer to this question follows from the text above.",
    "unicode": "\u2603\u200b\u00e9\u4e2d",
    "nan": "nan",
    "inf": "inf",
    "nan i": "nan+nani",
    "1e999": "1e999",
    "brackets": "[[[[",
    "quotes": "\"'\"'",
    "expression": "((1+2)*3",
    "shotgun of truth values": "yes no true false",
    "shotgun of numbers": " ".join(map(str, range(101))),
    "shotgun of numbers, listed": str(list(range(101))),
    "shotgun of letters": "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
    "long text": "lorem ipsum " * 400,
    "deep list": "[" * 300 + "]" * 300,
    "code": "__import__('os').getcwd()",
}
"""Texts that answer no question of any family; each is one panel entry, the same for every item."""

CONSTANTS = ("0", "1", "2", "-1", "True", "False", "Yes", "No", "yes", "no", "[]", "None", "A", "B", "N/A", "0 0")
"""Guesses that a lazy harness returns whatever it is asked; the commonest golds of the family are added to them."""
COMMONEST = 6
SWEEP = " ".join(f"{piece}{sign}{n}" for n in (1, 2, 1, 3) for sign in "+-" for piece in "BCDEFGHIJKLMA") + " A+5"
"""Moves every car of a rush_hour board to and fro: a constant that solves boards nobody looked at."""

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_QUOTED = re.compile(r"['\"`]([^'\"`\n]+)['\"`]")
_LIST_MARK = re.compile(r"^\s*(?:[-*.]|\d+[.):])\s*")


def constants(golds: Sequence[str]) -> list[str]:
    """The fixed guesses and the commonest golds among those given."""
    return list(dict.fromkeys([*(g for g, _ in Counter(golds).most_common(COMMONEST)), *CONSTANTS, SWEEP]))


def echoes(question: str) -> dict[str, str]:
    """What can be copied out of a question without understanding it: ``{kind: text}``."""
    lines = [line.strip() for line in question.splitlines() if line.strip()]
    kinds = {"the question": question, "its last word": question.split()[-1].strip(".?!:")}
    for i, line in enumerate(lines[:8], 1):
        kinds[f"its line {i}"] = line
        kinds[f"its line {i} without the list mark"] = _LIST_MARK.sub("", line)
    for i, line in enumerate(reversed(lines[-4:]), 1):
        kinds[f"its line {i} from the end"] = line
        kinds[f"what follows the last colon of its line {i} from the end"] = line.rpartition(":")[2].strip()
    for name, pattern in (("number", _NUMBER), ("quoted text", _QUOTED)):
        found = pattern.findall(question)
        if found:
            kinds[f"its first {name}"], kinds[f"its last {name}"] = found[0], found[-1]
    return {kind: text for kind, text in kinds.items() if text.strip()}


def shotguns(gold: str, others: Sequence[str]) -> dict[str, str]:
    """Every answer seen on other items in one, the item's own left out: pays where the answers are few."""
    distinct = [g for g in dict.fromkeys(others) if g != gold]
    return {f"other golds joined by {sep!r}": sep.join(distinct) for sep in (", ", " or ", "\n") if len(distinct) > 1}


def crowds(gold: str, other: str) -> dict[str, str]:
    """The gold beside another item's. To write this one must know the gold, so it earns nothing by itself; but a
    scorer that takes it lets a harness offer two guesses at once."""
    return {
        "gold or other": f"{gold} or {other}",
        "other, gold": f"{other}, {gold}",
        "both on lines": f"{other}\n{gold}",
        "both in a sentence": f"The answer is {other} or {gold}.",
    }
