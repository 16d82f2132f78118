"""Moves on the way out (the form of the answer) and on defects of a harness that already knows the answer.

Forms and defects are those of the train lists in ``envs/data/rg_split.toml``.
"""

from __future__ import annotations

import ast

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


def _whole_string(source: str) -> str | None:
    """``return text[0]``, ``return text[:1]`` or ``text = text[:1]`` without the cut; not where it cuts a list."""
    found: dict[ast.expr, ast.expr] = {}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Return(ast.Subscript(inner, index) as cut) if ast.unparse(index) in ("0", ":1", "0:1"):
                pass
            case ast.Assign(value=ast.Subscript(inner, index) as cut) if ast.unparse(index) in (":1", "0:1"):
                pass
            case _:
                continue
        match inner:
            case ast.Name() | ast.Call(ast.Name() | ast.Attribute(attr="strip")):
                found[cut] = inner
    return _rewrite_each(source, found)


def _keep_last_line(source: str) -> str | None:
    """A question that loses its last line (``rsplit`` or ``rpartition`` at LF, or lines ``[:-1]``) keeps it."""
    found: dict[ast.expr, ast.expr] = {}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Subscript(
                ast.Call(ast.Attribute(value=text, attr="rsplit" | "rpartition"), [ast.Constant("\n"), *_]),
                ast.Constant(0),
            ):
                found[node] = text
            case ast.Subscript(ast.Call(ast.Attribute(attr="split" | "splitlines")) as lines, ast.Slice() as cut):
                if ast.unparse(cut) == ":-1" and not (lines.args and ast.unparse(lines.args[0]) != repr("\n")):
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

REPAIR_MOVES = [
    Move(
        "as_tag",
        "format",
        "Put the answer between answer tags.",
        _returned('return f"<answer>{INNER(QUESTION, TOOLS)}</answer>"', mark="<answer>{"),
    ),
    Move(
        "as_json",
        "format",
        "Return the answer as a JSON object with the key 'answer'.",
        _returned('import json\nreturn json.dumps({"answer": INNER(QUESTION, TOOLS)})', mark='dumps({"answer"'),
    ),
    Move(
        "as_last_line",
        "format",
        "Return a line of working first, then the answer alone on the last line.",
        _returned(r'return "The result is:\n" + INNER(QUESTION, TOOLS)', mark="The result is:"),
    ),
    Move(
        "as_label",
        "format",
        "Begin the answer's line with the label 'Answer:'.",
        _returned('return "Answer: " + INNER(QUESTION, TOOLS)', mark='"Answer: "'),
    ),
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
    Move("whole_string", "repair", "Return the whole answer, not only its first character.", _whole_string),
    Move("keep_last_line", "repair", "Keep the last line of the question, which was cut off.", _keep_last_line),
]
