"""Moves on the way out (the form of the answer) and on defects of a harness that already knows the answer.

Forms and defects are those of the train lists in ``envs/data/rg_split.toml``.
"""

from __future__ import annotations

import ast
import json
import re

from reharness.envs.formats import FORMATS
from reharness.envs.splits import load_split
from reharness.proposer.defects import DEFECTS
from reharness.proposer.moves_edit import Move, Rewrite, functions, replaced, wrapped


def _returned(body: str, *, mark: str, inner: str = "bare_answer") -> Rewrite:
    """Puts a function around ``run``, unless the source already holds ``mark``."""

    def rewrite(source: str) -> str | None:
        return None if mark in source else wrapped(source, functions(ast.parse(source)).get("run"), inner, body)

    return rewrite


def _rewrite_each(source: str, inner_of: dict[ast.expr, ast.expr]) -> str | None:
    """Every outermost expression of ``inner_of`` replaced by the text of the one inside it; None if there is none."""
    changes: list[tuple[ast.expr, str]] = []
    nested = {below for node in inner_of for below in ast.walk(node) if below is not node}
    for node, inner in inner_of.items():
        if node in nested:
            continue
        text = ast.get_source_segment(source, inner)
        assert text is not None
        changes.append((node, text))
    return replaced(source, changes) if changes else None


def _keep_last_line(source: str) -> str | None:
    """A question that loses its last lines (``rsplit`` or ``rpartition`` at LF, or lines ``[:-1]``) keeps them."""
    if whole := DEFECTS["drop_last_line"].undone(source):
        return whole
    found: dict[ast.expr, ast.expr] = {}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Subscript(
                ast.Call(ast.Attribute(value=text, attr="rsplit" | "rpartition"), [ast.Constant("\n"), *_]),
                ast.Constant(0),
            ):
                found[node] = text
            case ast.Subscript(ast.Call(ast.Attribute(attr="split" | "splitlines")) as lines, ast.Slice() as cut):
                at_line_ends = not lines.args or ast.unparse(lines.args[0]) == repr("\n")
                if at_line_ends and re.fullmatch(r":-\d", ast.unparse(cut)):
                    found[node] = lines
    return _rewrite_each(source, found)


_NO_PREFIX = r"""
import re
answer = INNER(QUESTION, TOOLS)
return re.sub(r"^\s*(the )?(final )?answer( is)?:?\s*", "", answer, flags=re.IGNORECASE)
"""
_NO_DICT = r"""
import ast
answer = INNER(QUESTION, TOOLS)
try:
    value = ast.literal_eval(answer.strip())
except (ValueError, SyntaxError):
    return answer
return str(next(iter(value.values()))) if isinstance(value, dict) and len(value) == 1 else answer
"""
_NO_QUOTES = r"""
answer = INNER(QUESTION, TOOLS).strip()
return answer[1:-1] if len(answer) > 1 and answer[0] == answer[-1] and answer[0] in "'\"" else answer
"""

def _in_form(prefix: str, suffix: str) -> Rewrite:
    """Puts fixed texts around the answer, once."""
    parts = [json.dumps(prefix)] if prefix else []
    parts += ["INNER(QUESTION, TOOLS)", *([json.dumps(suffix)] if suffix else [])]
    return _returned("return " + " + ".join(parts), mark=f"return {json.dumps(prefix)} +")


def _format_moves() -> list[Move]:
    moves = []
    for name in load_split().formats["train"]:
        if name != "plain":
            prefix, suffix = FORMATS[name].render("\0").split("\\u0000" if "json" in name else "\0")
            form = json.dumps(f"{prefix}...{suffix}")
            text = f"The right answers have the form {form}: put the answer into it."
            moves.append(Move(f"as_{name}", "format", text, _in_form(prefix, suffix)))
    return moves


_CURES = {
    "prefix": "Return the answer alone, without the words before it.",
    "suffix": "Return the answer alone, without what comes after it.",
    "dict_wrap": "Return the answer itself, not a dict that holds it.",
    "quoted": "Return the answer without quotes around it.",
    "bracketed": "Return the answer without brackets around it.",
    "doubled": "Return the answer once, not twice.",
    "first_char": "Return the whole answer, not only its first character.",
    "last_char": "Return the whole answer, not only its last character.",
    "first_char_lost": "Return the answer with its first character, which was cut off.",
    "reversed": "Return the answer in its own order, not backwards.",
    "spaced_out": "Return the answer without something between its characters.",
    "length": "Return the answer itself, not its length.",
    "drop_last_line": "Keep the last line of the question, which was cut off.",
}
"""What the move says that undoes a defect of the train list."""


def _undo(defect: str) -> Rewrite:
    return _keep_last_line if defect == "drop_last_line" else DEFECTS[defect].undone


REPAIR_MOVES = [
    *_format_moves(),
    Move(
        "as_json",
        "format",
        "Return the answer as a JSON object with the key 'answer'.",
        _returned('import json\nreturn json.dumps({"answer": INNER(QUESTION, TOOLS)})', mark='dumps({"answer"'),
    ),
    *(Move(f"undo_{name}", "repair", text, _undo(name)) for name, text in _CURES.items()),
    Move(
        "strip_prefix",
        "repair",
        "Take the words before the answer, like 'The answer is', off.",
        _returned(_NO_PREFIX, mark="(final )?answer", inner="worded_answer"),
    ),
    Move(
        "unwrap_dict",
        "repair",
        "Take the answer out of the dict that it is wrapped in.",
        _returned(_NO_DICT, mark="literal_eval", inner="wrapped_answer"),
    ),
    Move(
        "unquote",
        "repair",
        "Take the quotes around the answer off.",
        _returned(_NO_QUOTES, mark="answer[1:-1]", inner="quoted_answer"),
    ),
]
