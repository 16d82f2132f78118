"""How a move rewrites a harness: anchors in its syntax tree, and two sources turned into SEARCH/REPLACE blocks."""

from __future__ import annotations

import ast
import difflib
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from reharness.proposer.edits import DEFAULT_CAPS
from reharness.solver.harness import MARKER_LINE

Rewrite = Callable[[str], str | None]


@dataclass(frozen=True)
class Move:
    """One way to change a harness, told from its source alone.

    ``describe`` is the description that the edit carries, different for every move. ``rewrite(source)`` is the whole
    new source, or None where the move does not fit. ``kind`` groups moves in tables.
    """

    name: str
    kind: str
    describe: str
    rewrite: Rewrite

    def propose(self, source: str) -> str | None:
        """The completion a proposer would write: a description and minimal SEARCH/REPLACE blocks; None: no fit."""
        try:
            new = self.rewrite(source)
        except SyntaxError:
            return None
        return None if new is None or new == source else make_edit(source, new, self.describe)


def make_edit(parent: str, new: str, description: str) -> str:
    """The completion whose blocks turn ``parent`` into ``new`` (both end in LF): as few lines as are unambiguous.

    Raises ``ValueError`` where there is no such edit: equal texts, a marker line, a blank parent.
    """
    if parent == new or not parent.strip() or MARKER_LINE.search(parent) or MARKER_LINE.search(new):
        raise ValueError("no edit turns one text into the other: equal texts, a marker line, or a blank parent")
    old, fresh = parent.split("\n")[:-1], new.split("\n")[:-1]
    matcher = difflib.SequenceMatcher(None, old, fresh, autojunk=False)
    hunks = [_Hunk(*places) for tag, *places in matcher.get_opcodes() if tag != "equal"]
    i = 0
    while i < len(hunks):
        # Context may be shared with no other hunk: a hunk that needs more is one with its neighbour.
        low = hunks[i - 1].old_end if i else 0
        high = hunks[i + 1].old_start if i + 1 < len(hunks) else len(old)
        if hunk := _unique(hunks[i], old, fresh, low, high):
            hunks[i] = hunk
            i += 1
        else:
            j = i + 1 if i + 1 < len(hunks) else i - 1
            first, last = sorted((i, j))
            hunks[first : last + 1] = [_merged(hunks[first], hunks[last])]
            i = first
    while len(hunks) > DEFAULT_CAPS.blocks:
        at = min(range(len(hunks) - 1), key=lambda k: hunks[k + 1].old_start - hunks[k].old_end)
        hunks[at : at + 2] = [_merged(hunks[at], hunks[at + 1])]
    parts = [description.strip() + "\n"]
    for h in hunks:
        search, replace = old[h.old_start : h.old_end], fresh[h.new_start : h.new_end]
        parts.append("\n".join(["<<<<<<< SEARCH", *search, "=======", *replace, ">>>>>>> REPLACE", ""]))
    return "\n".join(parts)


@dataclass(frozen=True)
class _Hunk:
    old_start: int
    old_end: int
    new_start: int
    new_end: int

    def grown(self, up: int, down: int) -> _Hunk:
        return _Hunk(self.old_start - up, self.old_end + down, self.new_start - up, self.new_end + down)


def _merged(a: _Hunk, b: _Hunk) -> _Hunk:
    return _Hunk(a.old_start, b.old_end, a.new_start, b.new_end)


def _unique(hunk: _Hunk, old: Sequence[str], new: Sequence[str], low: int, high: int) -> _Hunk | None:
    """The hunk with just enough lines around it to stand once in the text that its block will meet; None: never."""
    met = [*new[: hunk.new_start], *old[hunk.old_start :]]  # the blocks before this one have been applied
    own = hunk.old_end - hunk.old_start
    while True:
        search = old[hunk.old_start : hunk.old_end]
        if any(line.strip() for line in search) and _placements(met, search) == 1:
            return hunk
        upward = (hunk.old_end - hunk.old_start - own) % 2 == 0
        if hunk.old_start > low and (upward or hunk.old_end == high):
            hunk = hunk.grown(1, 0)
        elif hunk.old_end < high:
            hunk = hunk.grown(0, 1)
        else:
            return None


def _placements(lines: Sequence[str], search: Sequence[str]) -> int:
    return sum(lines[i : i + len(search)] == search for i in range(len(lines) - len(search) + 1))


# ---- anchors -------------------------------------------------------------------------------------------------------


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """The top-level functions by name, in the order of the source."""
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def llm_calls(node: ast.AST) -> list[ast.Call]:
    """The calls of ``<anything>.llm(...)`` in it, in the order of the source."""
    found = [
        call
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "llm"
    ]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def asking(tree: ast.Module) -> ast.FunctionDef | None:
    """The function that asks the solver; where moves were stacked, the innermost: it stands last."""
    return next((f for f in reversed(functions(tree).values()) if llm_calls(f)), None)


def answering(tree: ast.Module) -> ast.FunctionDef | None:
    """The function that makes the bare answer: ``run``, or what it calls where it only puts the answer into a form."""
    named = functions(tree)
    node, seen = named.get("run"), set[str]()
    while node and node.name not in seen:
        seen.add(node.name)
        match node.body[-1]:
            case ast.Return(
                ast.JoinedStr() | ast.BinOp() | ast.Call(ast.Attribute(attr="dumps")) as form
            ):
                called = [c.func.id for c in ast.walk(form) if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)]
                if called and called[0] in named:
                    node = named[called[0]]
    return node


def replaced(source: str, changes: Iterable[tuple[ast.expr, str]]) -> str:
    """The source with each expression's text replaced; the expressions must not overlap."""
    lines = [line.encode() for line in source.split("\n")]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    raw = source.encode()  # the tree's columns are bytes
    for node, text in sorted(changes, key=lambda change: (-change[0].lineno, -change[0].col_offset)):
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        raw = raw[:begin] + text.encode() + raw[end:]
    return raw.decode()


def wrapped(
    source: str, target: ast.FunctionDef | None, inner: str, body: str, *helpers: Callable[..., object]
) -> str | None:
    """``target`` renamed to ``inner`` (or ``inner_2``, ...) under a new function of its name and parameters.

    In ``body`` the words QUESTION, TOOLS and INNER stand for the parameters and the renamed function. ``helpers`` are
    copied in between. None where the function has not exactly two plain parameters and a header of one line, or a
    helper is already there.
    """
    if target is None:
        return None
    lines = source.split("\n")
    header, names = lines[target.lineno - 1], [arg.arg for arg in target.args.args]
    if len(names) != 2 or not (header.startswith(f"def {target.name}(") and header.rstrip().endswith(":")):
        return None
    taken = set(re.findall(r"\w+", source))
    if any(helper.__name__ in taken for helper in helpers):
        return None
    free = next(name for n in itertools.count(1) if (name := inner if n == 1 else f"{inner}_{n}") not in taken)
    for word, text in (("QUESTION", names[0]), ("TOOLS", names[1]), ("INNER", free)):
        body = re.sub(rf"\b{word}\b", text, body)
    new = [header, *textwrap.indent(textwrap.dedent(body).strip("\n"), "    ").split("\n")]
    for helper in helpers:
        new += ["", "", *inspect.getsource(helper).rstrip("\n").split("\n")]
    new += ["", "", header.replace(f"def {target.name}(", f"def {free}(", 1)]
    return "\n".join([*lines[: target.lineno - 1], *new, *lines[target.lineno :]])
