"""Answer formats: the form a reply must have, and how the host reads the answer out of it.

A format is an instruction (appended to the question) and a strict reader applied by the host. Strict on purpose: a
harness that is right in one form must lose its score when the required form changes, as it would when the consumer
of an API changes (track F of the experiments). Reading is still sane: where a reply repeats the form, its last use
counts, and answers of several lines (grids) survive every form but `last_line`.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from reharness.envs.errors import ConfigError, UnknownNameError


@dataclass(frozen=True)
class AnswerFormat:
    """One required form of a reply.

    ``extract(reply)`` is the stripped answer, or None when the reply does not have the form (score 0).
    ``render(answer)`` writes an answer in the form; ``extract(render(a)) == a.strip()`` whenever ``carries(a)``.
    """

    name: str
    instruction: str
    extract: Callable[[str], str | None]
    render: Callable[[str], str]

    def carries(self, answer: str) -> bool:
        """Whether the form can hold ``answer`` (no form holds an empty one; `last_line` holds one line only)."""
        return self.extract(self.render(answer)) == answer.strip() != ""


def _stripped(text: str | None) -> str | None:
    return text.strip() or None if text is not None else None


def _between(opening: str, closing: str) -> Callable[[str], str | None]:
    """Reader of the last ``opening … closing`` pair."""

    def extract(reply: str) -> str | None:
        end = reply.rfind(closing)
        start = reply.rfind(opening, 0, end) if end >= 0 else -1
        return _stripped(reply[start + len(opening) : end]) if start >= 0 else None

    return extract


def _balanced(opening: str, left: str, right: str) -> Callable[[str], str | None]:
    """Reader of the last ``opening`` whose brackets close again; ``opening`` ends in (or is made of) ``left``."""
    depth_in = opening.count(left)

    def extract(reply: str) -> str | None:
        found, at = None, reply.find(opening)
        while at >= 0:
            depth, i = depth_in, at + len(opening)
            while i < len(reply) and depth:
                depth += (reply[i] == left) - (reply[i] == right)
                i += 1
            if depth:  # never closed: nothing after it can be read either
                break
            inner = reply[at + len(opening) : i - depth_in]
            if reply[i - depth_in : i] == right * depth_in:
                found = inner
            at = reply.find(opening, i)
        return _stripped(found)

    return extract


def _after_line_start(marker: str) -> Callable[[str], str | None]:
    """Reader of all that follows the last line beginning with ``marker``, to the end of the reply."""
    pattern = re.compile(rf"^{re.escape(marker)}(?:[ \t]|$)", re.MULTILINE)

    def extract(reply: str) -> str | None:
        found = list(pattern.finditer(reply))
        return _stripped(reply[found[-1].end() :]) if found else None

    return extract


def _last_line(reply: str) -> str | None:
    lines = [line for line in reply.splitlines() if line.strip()]
    return lines[-1].strip() if len(lines) > 1 else None


_FENCE = re.compile(r"^```[^\n`]*$", re.MULTILINE)


def _code_fence(reply: str) -> str | None:
    fences = list(_FENCE.finditer(reply))
    if len(fences) < 2:
        return None
    # Fences pair up from the top; a last one left open does not count.
    opening, closing = fences[(len(fences) // 2 - 1) * 2], fences[(len(fences) // 2 - 1) * 2 + 1]
    return _stripped(reply[opening.end() : closing.start()])


_JSON = json.JSONDecoder(parse_int=str, parse_float=str)  # a bare number is read as it was written
_OBJECT = re.compile(r'\{\s*"')
_ONE_STRING = re.compile(r'\[\s*("(?:[^"\\]|\\.)*")\s*\]')
MAX_BROKEN_OBJECTS = 1000
"""After so many openings of a JSON object that are none, a reply is given up: each may cost a deep parse."""


def _json_field(key: str) -> Callable[[str], str | None]:
    """Reader of the text under ``key`` in the last JSON object that has it; nested objects are not looked into."""

    def extract(reply: str) -> str | None:
        found, at, broken = None, _OBJECT.search(reply), 0
        while at and broken < MAX_BROKEN_OBJECTS:
            try:
                value, end = _JSON.raw_decode(reply, at.start())
            except (ValueError, RecursionError):
                end, broken = at.start() + 1, broken + 1
            else:
                found = value[key] if isinstance(value.get(key), str) else found
            at = _OBJECT.search(reply, end)
        return _stripped(found)

    return extract


def _json_list(reply: str) -> str | None:
    """The item of the last JSON list that holds one string and nothing else."""
    for text in reversed(_ONE_STRING.findall(reply)):
        try:
            return _stripped(json.loads(text))
        except ValueError:  # a raw line break or a bad escape: not JSON
            continue
    return None


def _tagged(name: str, opening: str, closing: str, instruction: str) -> AnswerFormat:
    return AnswerFormat(name, instruction, _between(opening, closing), lambda a: f"{opening}{a}{closing}")


def _labelled(name: str, marker: str, instruction: str) -> AnswerFormat:
    return AnswerFormat(name, instruction, _after_line_start(marker), lambda a: f"{marker} {a}")


def _under_key(name: str, key: str, instruction: str) -> AnswerFormat:
    return AnswerFormat(name, instruction, _json_field(key), lambda a: json.dumps({key: a}, ensure_ascii=False))


FORMATS: dict[str, AnswerFormat] = {
    f.name: f
    for f in (
        AnswerFormat("plain", "Reply with the answer only.", _stripped, str),
        _tagged("tag", "<answer>", "</answer>", "Put your final answer between <answer> and </answer>."),
        _under_key(
            "json_field",
            "answer",
            'Reply with a JSON object that has your final answer as a string under the key "answer".',
        ),
        AnswerFormat(
            "last_line",
            "Reply with at least two lines: first your working, then your final answer alone on the last line.",
            _last_line,
            lambda a: f"The result is:\n{a}",
        ),
        _labelled(
            "label",
            "Answer:",
            "End your reply with a new line that starts with 'Answer:' followed by your final answer.",
        ),
        _tagged("result_tag", "<result>", "</result>", "Write the result between <result> and </result>."),
        _tagged("value_tag", "<value>", "</value>", "Your reply must hold <value>your answer</value>."),
        _tagged("bbcode", "[ans]", "[/ans]", "Write your answer as [ans]your answer[/ans]."),
        _tagged("parentheses", "((", "))", "Put the final answer between double parentheses, like ((this))."),
        _tagged("tildes", "~~", "~~", "Write your final answer struck through, like ~~this~~."),
        _tagged("bars", "|", "|", "Put your final answer between two vertical bars, like |this|."),
        _tagged("guillemets", "<<", ">>", "Your final answer goes between << and >>."),
        _tagged("begin_end", "BEGIN\n", "\nEND", "Write a line BEGIN, then your final answer, then a line END."),
        _tagged("braces", "{{", "}}", "Fill your final answer into a template, like {{this}}."),
        _labelled("result_label", "Result:", "The last line of your reply is 'Result:' and your final answer."),
        _labelled("arrow", "->", "Write '->', a space and your final answer on a line of their own."),
        _labelled("equals", "ANSWER =", "End with a line that starts with 'ANSWER =' and gives your final answer."),
        _under_key("json_result", "result", 'Reply with a JSON object whose key "result" has your answer as a string.'),
        _under_key("json_value", "value", 'Give a JSON object with the text of your final answer under "value".'),
        AnswerFormat(
            "boxed",
            r"Put your final answer inside \boxed{}.",
            _balanced(r"\boxed{", "{", "}"),
            lambda a: rf"\boxed{{{a}}}",
        ),
        AnswerFormat(
            "double_bracket",
            "Put your final answer between double square brackets, like [[this]].",
            _balanced("[[", "[", "]"),
            lambda a: f"[[{a}]]",
        ),
        AnswerFormat(
            "code_fence",
            "Put your final answer in a fenced code block, between a line ``` and another line ```.",
            _code_fence,
            lambda a: f"```\n{a}\n```",
        ),
        _tagged("final_tag", "<final>", "</final>", "Write your final answer as <final>your answer</final>."),
        _labelled(
            "hash_line",
            "####",
            "End your reply with a new line that starts with '####' and a space, followed by your final answer.",
        ),
        AnswerFormat(
            "json_list",
            "Reply with a JSON list that has your final answer as a string for its only item.",
            _json_list,
            lambda a: json.dumps([a], ensure_ascii=False),
        ),
    )
}


def get_format(name: str) -> AnswerFormat:
    """The format of that name. Raises UnknownNameError."""
    if name not in FORMATS:
        raise UnknownNameError("format", name, FORMATS)
    return FORMATS[name]


def format_varied(
    task_names: Sequence[str], formats: Iterable[str], seed: int, fits: Callable[[str, str], bool] | None = None
) -> dict[str, str]:
    """A seeded assignment of formats to tasks: ``{task name: format name}``.

    Each task's format depends on the seed, the task's own name and the set of formats, not on the other tasks, so
    that adding a task moves no other. ``fits(task, format)`` says whether the format can hold the task's answers
    (for Reasoning Gym: `reharness.envs.audit_rows.format_fits`); without it every format fits every task.
    """
    names = sorted({get_format(name).name for name in formats})
    assigned = {}
    for task in task_names:
        offered = [name for name in names if fits is None or fits(task, name)]
        if not offered:
            raise ConfigError(f"no format of {names} can hold the answers of task {task!r}; offer more formats")
        assigned[task] = random.Random(f"{seed}/{task}").choice(offered)
    return assigned
