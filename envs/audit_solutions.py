"""Solutions for the families that store no answer: without one, nobody can tell whether their scorer ever pays.

Entries are the worker's decoded ones. A constructor returns None where it finds no solution.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any


def boxnet(entry: dict[str, Any]) -> str | None:
    """One box at a time, square by square, rows first."""
    state: dict[str, list[str]] = entry["metadata"]["initial_state"]
    where = [(item, square) for square, items in state.items() for item in items]
    targets = [[item, square] for item, square in where if item.startswith("target_")]
    plan = []
    for box, square in where:
        if not box.startswith("box_"):
            continue
        colour = box.removeprefix("box_")
        target = next((t for t in targets if t[0] == f"target_{colour}"), None)
        if target is None:
            return None
        targets.remove(target)
        at, goal = ([float(x) for x in s.split("_")] for s in (square, target[1]))
        for axis in (0, 1):
            while at[axis] != goal[axis]:
                agent = f"Agent[{at[0]}, {at[1]}]"
                at[axis] += 1.0 if goal[axis] > at[axis] else -1.0
                plan.append({agent: f"move({box}, square[{at[0]}, {at[1]}])"})
        plan.append({f"Agent[{at[0]}, {at[1]}]": f"move({box}, target_{colour})"})
    return json.dumps(plan)


def graph_color(entry: dict[str, Any]) -> str | None:
    """The generator's own colouring, from the metadata."""
    return json.dumps({str(vertex): colour for vertex, colour in entry["metadata"]["possible_answer"].items()})


def propositional_logic(entry: dict[str, Any]) -> str | None:
    """All premises joined by "and": they entail it, and it is trivial only if every one of them is."""
    premises: list[str] = entry["metadata"]["premises"]
    joined = premises[0]
    for premise in premises[1:]:
        joined = f"({joined} ∧ {premise})"
    return joined


def rubiks_cube(entry: dict[str, Any]) -> str | None:
    """The generator's own solution (cubes of size 3 only); for a scramble that undid itself, a turn there and back."""
    return entry["metadata"]["example_correct_answer"] or ("R R'" if entry["metadata"]["cube_size"] == 3 else None)


def rush_hour(entry: dict[str, Any], limit: int = 200_000) -> str | None:
    """Breadth-first search over the 6 x 6 board; None when ``limit`` positions do not hold the solution."""
    board = entry["metadata"]["board_config"]
    parent: dict[str, tuple[str, str]] = {board: ("", "")}
    queue = deque([board])
    while queue and len(parent) < limit:
        board = queue.popleft()
        if board[16:18] == "AA":  # row 2, the two right-most columns
            moves = []
            while parent[board][0]:
                board, move = parent[board]
                moves.append(move)
            return " ".join(reversed(moves))
        for move, after in _rush_moves(board):
            if after not in parent:
                parent[after] = (board, move)
                queue.append(after)
    return None


def _rush_moves(board: str) -> Iterator[tuple[str, str]]:
    """Positions one step away, with their moves. The scorer calls the pieces A, B, … in the order of their letters."""
    for index, piece in enumerate(sorted(set(board) - {"o", "x"})):
        cells = [i for i, c in enumerate(board) if c == piece]
        stride = cells[1] - cells[0]
        for sign, end in (("-", cells[0] - stride), ("+", cells[-1] + stride)):
            same_row = stride == 6 or end // 6 == cells[0] // 6
            if 0 <= end < 36 and same_row and board[end] == "o":
                left = cells[-1] if sign == "-" else cells[0]
                after = list(board)
                after[left], after[end] = "o", piece
                yield f"{chr(ord('A') + index)}{sign}1", "".join(after)


CONSTRUCTORS: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "boxnet": boxnet,
    "graph_color": graph_color,
    "propositional_logic": propositional_logic,
    "rubiks_cube": rubiks_cube,
    "rush_hour": rush_hour,
}
