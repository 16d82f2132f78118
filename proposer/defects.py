"""Defects of a competent harness (track R): a taxonomy of ways to spoil a right answer, planted in source and undone.

A defect is a few expressions in which ``X`` stands for what is spoilt: the answer, or for `drop_last_line` the
question. Planting writes one of them into a harness; undoing finds any of them and takes it out again. Which defects
are for what is in ``envs/data/rg_split.toml``: moves undo those of its train list only.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from reharness.envs.errors import HarnessError, UnknownNameError
from reharness.envs.types import content_hash
from reharness.proposer.moves_edit import functions, replaced


@dataclass(frozen=True)
class Defect:
    """``spellings`` are expressions in ``X``. ``spoils`` says what ``X`` is."""

    name: str
    spellings: tuple[str, ...]
    spoils: str = "answer"

    def undone(self, source: str) -> str | None:
        """The source without the defect: the first place that holds one of its spellings, looked for in what `run`
        returns, then in the lines that rework a name (``x = ...x...``), then in the functions that `run` returns
        through. None where there is none."""
        for node in _places(ast.parse(source), self.spoils):
            for pattern in self._patterns:
                bound = dict[str, ast.expr]()
                if _matches(pattern, node, bound) and _is_text(bound["X"]):
                    text = ast.get_source_segment(source, bound["X"])
                    assert text is not None
                    return _without_idle_lines(replaced(source, [(node, text)]))
        return None

    @property
    def _patterns(self) -> list[ast.expr]:
        return [ast.parse(spelling, mode="eval").body for spelling in self.spellings]


DEFECTS: dict[str, Defect] = {
    d.name: d
    for d in (
        Defect("prefix", ('"The answer is " + X', 'f"The answer is {X}"', '"The result is: " + X', 'f"It is {X}"')),
        Defect("suffix", ('X + " is the answer"', 'f"{X} (final)"', 'X + "\\nDone"', 'f"{X}!"')),
        Defect("dict_wrap", ('str({"answer": X})', 'repr({"result": X})', "str(dict(value=X))")),
        Defect("quoted", ("repr(X)", "'\"' + X + '\"'", "f\"'{X}'\"", 'f"`{X}`"')),
        Defect("bracketed", ('"[" + X + "]"', 'f"({X})"', 'f"<{X}>"', "str([X])")),
        Defect("doubled", ("X + X", "X * 2", 'X + " " + X', 'f"{X}, {X}"')),
        Defect("first_char", ("X[0]", "X[:1]", "next(iter(X))", "min(X[:1])")),
        Defect("last_char", ("X[-1]", "X[-1:]", "list(X).pop()")),
        Defect("first_char_lost", ("X[1:]", '"".join(list(X)[1:])', "X.removeprefix(X[:1])")),
        Defect("reversed", ("X[::-1]", '"".join(reversed(X))')),
        Defect("spaced_out", ('" ".join(X)', '"-".join(X)', '"\\n".join(X)')),
        Defect("length", ("str(len(X))", 'f"{len(X)}"')),
        Defect(
            "drop_last_line",
            ('X.rsplit("\\n", 3)[0]', '"\\n".join(X.split("\\n")[:-3])', '"\\n".join(X.splitlines()[:-3])'),
            "question",
        ),
        Defect("trailing_dot", ('X + "."', 'f"{X}."')),
        Defect("lowercase", ("X.lower()", "X.casefold()")),
        Defect("returns_prompt", ("question if X else X", "X and question", "[X, question][1]"), "answer"),
        Defect("first_word", ("X.split()[0]", 'X.split(" ")[0]', 'X.partition(" ")[0]')),
        Defect("separators_swapped", ('X.replace(", ", ";")', 'X.replace(" ", ", ")', 'X.replace("\\n", " ")')),
        Defect("digits_only", ('"".join(c for c in X if c.isdigit())', '"".join(filter(str.isdigit, X))')),
    )
}  # fmt: skip

HARMLESS = ("X.strip()", "str(X)", "X[:2000]", 'X.replace("\\t", " ")', "X or '0'", 'X.rstrip("\\n")')
"""Post-processing that changes no right answer, planted beside some defects: not all that stands there is wrong."""

_TIDY = ("finish", "tidy", "cleaned", "final_form", "as_text", "presented")
_PARAMETERS = ("text", "value", "answer", "raw")


def planted(source: str, defect: str, seed: int, *, harmless: bool = False) -> str:
    """``source``, whose ``run`` ends in its one ``return``, with the defect in a spelling, place and form drawn by
    ``seed``: in the return, on a line before it, or in a helper function. ``harmless`` puts a step of `HARMLESS` beside
    it.

    Raises UnknownNameError for an unknown defect, HarnessError for a source without such a ``run``.
    """
    if defect not in DEFECTS:
        raise UnknownNameError("defect", defect, DEFECTS)
    rng = random.Random(content_hash("defect", defect, seed, source))
    kind = DEFECTS[defect]
    try:
        run = functions(ast.parse(source)).get("run")
    except SyntaxError as error:
        raise HarnessError(f"defect {defect!r} cannot be planted: line {error.lineno}: {error.msg}") from None
    last = run.body[-1] if run else None
    if run is None or not isinstance(last, ast.Return) or last.value is None:
        raise HarnessError(f"defect {defect!r} cannot be planted: `run` must end in a return of the answer")
    lines = source.rstrip("\n").split("\n")
    spoil = rng.choice(kind.spellings)
    if kind.spoils == "question":
        first = run.body[0].lineno - 1
        lines[first:first] = [f"    question = {_put(spoil, 'question')}"]
        return "\n".join(lines) + "\n"
    steps = [spoil]
    if harmless:
        steps.insert(rng.randrange(2), rng.choice(HARMLESS))
    value = ast.get_source_segment(source, last.value)
    assert value is not None
    place = rng.choice(("line", "return", "helper") if "question" not in spoil else ("line", "return"))
    at = last.lineno - 1
    if place == "helper":
        taken = set(re.findall(r"\w+", source))
        name = rng.choice([n for n in _TIDY if n not in taken])
        own = rng.choice(_PARAMETERS)
        body = [f"    {own} = {_put(step, own)}" for step in steps[:-1]] + [f"    return {_put(steps[-1], own)}"]
        lines[at:] = [f"    return {name}({value})", *lines[at + 1 :], "", "", f"def {name}({own}):", *body]
    else:
        simple = isinstance(last.value, ast.Name)
        own = value if simple else rng.choice(("answer", "found"))
        new = [] if simple else [f"    {own} = {value}"]
        if place == "line":
            new += [f"    {own} = {_put(step, own)}" for step in steps] + [f"    return {own}"]
        else:
            new += [f"    {own} = {_put(step, own)}" for step in steps[:-1]] + [f"    return {_put(steps[-1], own)}"]
        lines[at : at + 1] = new
    return "\n".join(lines) + "\n"


def _places(tree: ast.Module, spoils: str) -> Iterator[ast.expr]:
    """Where a defect may stand, the likeliest first."""
    named = functions(tree)
    run = named.get("run")
    if run is None:
        return
    if spoils == "question":
        yield from (node for node in ast.walk(run) if isinstance(node, ast.expr))
        return
    way = [run]  # `run` and the functions that it returns through
    for function in way:
        called = [c.func for c in ast.walk(function.body[-1]) if isinstance(c, ast.Call)]
        ahead = [named[f.id] for f in called if isinstance(f, ast.Name) and f.id in named]
        way += [f for f in dict.fromkeys(ahead) if f not in way]
    for function in way:
        nodes = list(ast.walk(function))
        yield from (node.value for node in nodes if isinstance(node, ast.Return) and node.value)
        yield from (
            node.value for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            and any(isinstance(n, ast.Name) and n.id == node.targets[0].id for n in ast.walk(node.value))
        )  # fmt: skip


def _is_text(node: ast.expr) -> bool:
    """Whether the expression may be an answer: a name, or the call of a function or of ``strip``."""
    match node:
        case ast.Name() | ast.Call(ast.Name() | ast.Attribute(attr="strip")):
            return True
    return False


def _put(spelling: str, name: str) -> str:
    return re.sub(r"\bX\b", name, spelling)


def _matches(pattern: ast.AST, node: ast.AST, bound: dict[str, ast.expr]) -> bool:
    """Whether ``node`` is ``pattern`` with one and the same expression wherever the name X stands."""
    if isinstance(pattern, ast.Name) and pattern.id == "X":
        assert isinstance(node, ast.expr)
        same = bound.setdefault("X", node)
        return ast.dump(same) == ast.dump(node) and not isinstance(node, ast.Constant)
    if type(pattern) is not type(node):
        return False
    for name, value in ast.iter_fields(pattern):
        other = getattr(node, name, None)
        if name == "ctx":
            continue
        if isinstance(value, list):
            if not isinstance(other, list) or len(value) != len(other):
                return False
            for one, two in zip(value, other, strict=True):
                if not (_matches(one, two, bound) if isinstance(one, ast.AST) else one == two):
                    return False
        elif isinstance(value, ast.AST):
            if not isinstance(other, ast.AST) or (isinstance(value, ast.Name) and not isinstance(other, ast.expr)):
                return False
            if not _matches(value, other, bound):
                return False
        elif value != other:
            return False
    return True


def _without_idle_lines(source: str) -> str:
    """The source without lines that only assign a name to itself."""
    return re.sub(r"^[ \t]+(\w+) = \1\n", "", source, flags=re.MULTILINE)
