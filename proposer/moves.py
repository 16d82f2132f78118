"""The library of moves: family-agnostic edits, each a real SEARCH/REPLACE completion made from the parent's source.

No move knows a task's name. They are written for the train lists of ``envs/data/rg_split.toml`` only. Kinds: prompt,
extract, tokens, temperature, retry, vote, code (the solver writes a program), algorithm (the harness computes by
itself), format and repair (of a harness that knows the answer).
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from reharness.proposer import moves_snippets as snippets
from reharness.proposer.moves_edit import Move, Rewrite, answering, llm_calls, make_edit, wrapped
from reharness.proposer.moves_repair import REPAIR_MOVES
from reharness.proposer.moves_solver import SOLVER_MOVES

__all__ = ["MOVES", "Move", "make_edit", "moves_for"]


def _first_try(helper: Callable[[str], str | None]) -> Rewrite:
    """The algorithm is tried first; what answered before answers where it does not apply."""
    body = f"""
answer = {helper.__name__}(QUESTION)
return INNER(QUESTION, TOOLS) if answer is None else answer
"""
    return lambda source: wrapped(source, answering(ast.parse(source)), "ask_solver", body, helper)


_ALGORITHMS: list[tuple[Callable[[str], str | None], str]] = [
    (snippets.exact_value, "Compute the arithmetic expression of the question exactly, in Python."),
    (snippets.lowest_terms, "Reduce the fraction of the question by the greatest common divisor."),
    (snippets.primes_between, "Count the primes between the two numbers of the question with a sieve."),
    (snippets.sorted_words, "Sort the words of the question in Python and join them with commas."),
    (snippets.sorted_numbers, "Sort the numbers of the question in Python and return them as a list of strings."),
    (snippets.spelled_backward, "Reverse the word of the question in Python."),
    (snippets.rotated_matrix, "Rotate the matrix of the question in Python, by quarter turns."),
    (snippets.converted_base, "Convert the number of the question from base to base in Python."),
    (snippets.caesar_plain, "Try every Caesar shift and return the text that looks most like English."),
    (snippets.grouped_anagrams, "Group the words of the question by their sorted letters."),
]

MOVES: dict[str, Move] = {
    move.name: move
    for move in [
        *(Move(helper.__name__, "algorithm", text, _first_try(helper)) for helper, text in _ALGORITHMS),
        *SOLVER_MOVES,
        *REPAIR_MOVES,
    ]
}


def moves_for(source: str) -> list[tuple[Move, str]]:
    """Every move that fits the source, with its completion: in the library's order where the source asks the solver,
    else (it computes by itself) repairs and forms before new algorithms."""
    proposed = ((move, move.propose(source)) for move in MOVES.values())
    fitting = [(move, completion) for move, completion in proposed if completion is not None]
    if fitting and not llm_calls(ast.parse(source)):
        order = ("repair", "format")
        fitting.sort(key=lambda pair: order.index(pair[0].kind) if pair[0].kind in order else len(order))
    return fitting
