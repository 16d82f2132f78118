"""Moves on how the solver is asked, and on what is taken out of its reply."""

from __future__ import annotations

import ast

from reharness.proposer.moves_edit import Move, Rewrite, asking, llm_calls, replaced, wrapped


def _number(call: ast.Call, name: str) -> ast.Constant | None:
    """The literal that the call gives for a keyword."""
    for keyword in call.keywords:
        match keyword.value:
            case ast.Constant(value=int() | float()) as constant if keyword.arg == name:
                return constant
    return None


def _set(name: str, value: str, low: float, high: float) -> Rewrite:
    """Sets a number of every solver call that now lies in [low, high]."""

    def rewrite(source: str) -> str | None:
        found = [_number(call, name) for call in llm_calls(ast.parse(source))]
        changes = [(n, value) for n in found if n and low <= float(ast.literal_eval(n)) <= high]
        return replaced(source, changes) if changes else None

    return rewrite


def _append_to_prompt(text: str) -> Rewrite:
    """Adds a text to the prompt of the innermost solver call, where the prompt is a plain name; once."""

    def rewrite(source: str) -> str | None:
        literal = '"' + text.replace("\n", "\\n") + '"'
        if literal in source:
            return None
        function = asking(ast.parse(source))
        match llm_calls(function)[0].args if function else []:
            case [ast.Name(id=name) as prompt, *_]:
                return replaced(source, [(prompt, f"{name} + {literal}")])
        return None

    return rewrite


def _around(inner: str, body: str) -> Rewrite:
    """Puts a function around the one that asks the solver; not where the source already holds the body's last line."""
    mark = body.strip().split("\n")[-1].split("INNER")[0]
    return lambda source: None if mark in source else wrapped(source, asking(ast.parse(source)), inner, body)


def _vote(source: str) -> str | None:
    """Only a call at a known temperature is voted on: at 0 every reply is the same, so that it is raised too."""
    function = asking(ast.parse(source))
    heat = _number(llm_calls(function)[0], "temperature") if function else None
    if heat is None or "most_common" in source:
        return None
    warm = replaced(source, [(heat, "0.7")]) if heat.value == 0 else source
    return wrapped(warm, asking(ast.parse(warm)), "one_reply", _VOTE)


_VOTE = """
from collections import Counter
replies = [INNER(QUESTION, TOOLS).strip() for _ in range(5)]
return Counter(replies).most_common(1)[0][0]
"""
_RETRY = r"""
reply = INNER(QUESTION, TOOLS)
return reply if reply.strip() else INNER(QUESTION + "\n\nAnswer:", TOOLS)
"""
_CODE = r"""
prompt = QUESTION + "\n\nWrite a short Python program that prints the answer. Reply with the code only."
reply = TOOLS.llm(prompt, max_tokens=512, temperature=0.0)
code = reply.split("```")[1].removeprefix("python") if "```" in reply else reply
printed = TOOLS.python(code).stdout.strip()
return printed or INNER(QUESTION, TOOLS)
"""
_LAST_NUMBER = r"""
import re
reply = INNER(QUESTION, TOOLS)
numbers = re.findall(r"-?\d+(?:\.\d+)?(?:/\d+)?", reply.replace(",", ""))
return numbers[-1] if numbers else reply
"""
_FIRST_LINE = r"""
reply = INNER(QUESTION, TOOLS)
return reply.strip().split("\n")[0].strip()
"""
_LAST_LINE = r"""
reply = INNER(QUESTION, TOOLS)
return reply.strip().split("\n")[-1].strip()
"""
_TAG = r"""
import re
reply = INNER(QUESTION, TOOLS)
tagged = re.findall(r"<answer>(.*?)</answer>", reply, re.DOTALL)
return tagged[-1].strip() if tagged else reply
"""
_ANSWER_IS = r"""
import re
reply = INNER(QUESTION, TOOLS)
said = re.findall(r"answer(?: is)?:? *([^\n]+)", reply, re.IGNORECASE)
return said[-1].strip(" .*") if said else reply
"""

SOLVER_MOVES = [
    Move(
        "bare_answer",
        "prompt",
        "Ask for the bare answer, without any explanation.",
        _append_to_prompt("\n\nGive only the final answer, without explanation."),
    ),
    Move(
        "answer_cue",
        "prompt",
        "End the prompt with the first words of an answer, so that the reply goes straight to it.",
        _append_to_prompt("\nThe answer is:"),
    ),
    Move(
        "steps",
        "prompt",
        "Ask for the steps first and for the answer alone on the last line.",
        _append_to_prompt("\n\nThink step by step. Write the answer alone on the last line."),
    ),
    Move("last_number", "extract", "Return only the last number of the reply.", _around("full_reply", _LAST_NUMBER)),
    Move("first_line", "extract", "Return only the first line of the reply.", _around("full_reply", _FIRST_LINE)),
    Move("last_line", "extract", "Return only the last line of the reply.", _around("full_reply", _LAST_LINE)),
    Move(
        "tag_content",
        "extract",
        "Return only what the reply puts between answer tags.",
        _around("full_reply", _TAG),
    ),
    Move(
        "after_answer_is",
        "extract",
        "Return only what the reply says after the words 'the answer is'.",
        _around("full_reply", _ANSWER_IS),
    ),
    Move("fewer_tokens", "tokens", "Cut the reply short: answers are short.", _set("max_tokens", "32", 33, 1 << 20)),
    Move("more_tokens", "tokens", "Let the reply be longer: it may be cut off.", _set("max_tokens", "1024", 1, 1023)),
    Move("warmer", "temperature", "Sample the reply at temperature 0.7.", _set("temperature", "0.7", 0, 0.69)),
    Move("greedy", "temperature", "Take the likeliest reply: temperature 0.", _set("temperature", "0.0", 0.01, 10)),
    Move(
        "retry_empty",
        "retry",
        "Ask once more, in other words, when the reply is empty.",
        _around("first_try", _RETRY),
    ),
    Move("vote", "vote", "Ask five times and return the commonest reply.", _vote),
    Move(
        "write_code",
        "code",
        "Let the solver write a program, run it, and return what it prints.",
        _around("direct_reply", _CODE),
    ),
]
