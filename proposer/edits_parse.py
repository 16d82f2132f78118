"""From a completion to an edit: the two grammars in which a proposer answers. Pure text, no Python is looked at.

Both are strict on purpose: a reward is paid for parsing and applying, so every leniency would be a place to cheat, or
to change a line nobody meant to change. Text is split at LF only, and nothing is normalised but CRLF.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from reharness.proposer.edits_types import DEFAULT_CAPS, Caps, EditRefused

_HEAD = re.compile(r"<<<<<<< SEARCH[ \t]*")
_DIVIDER = re.compile(r"=======[ \t]*")
_TAIL = re.compile(r">>>>>>> REPLACE[ \t]*")
_NEAR = re.compile(r"[ \t]*(?:<{3,}|>{3,})")
# Spelt out: IGNORECASE would fold U+017F to "s", and Unicode is never folded here.
_NEAR_NAMED = re.compile(_NEAR.pattern + r"\s*(?:[sS][eE][aA][rR][cC][hH]|[rR][eE][pP][lL][aA][cC][eE])\b")
_NO_CHANGE = re.compile(r"NO CHANGE[ \t]*")
_FENCE = re.compile(r"(`{3,})(.*)", re.DOTALL)
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True)
class Block:
    """One SEARCH/REPLACE block: whole lines without their LF. ``line``: where it starts in the answer, from 1."""

    search: tuple[str, ...]
    replace: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class SearchReplace:
    """A parsed answer. No blocks: the answer says ``NO CHANGE``."""

    description: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class CodeBlock:
    """A parsed answer: a diagnosis and the whole new source, ending in LF."""

    diagnosis: str
    code: str


def answer_of(completion: str, *, think_prefilled: bool = False) -> str:
    """The completion without its reasoning, with LF line ends.

    Reasoning is there if the chat template opened it (``think_prefilled``) or the completion starts with ``<think>``;
    it ends at the first ``</think>``. Raises ``EditRefused`` (bad_char, think_unclosed).
    """
    text = completion.replace("\r\n", "\n")
    for char, name in (("\r", "a carriage return"), ("\0", "a NUL")):
        if char in text:
            raise EditRefused("bad_char", f"the answer holds {name}", line=text[: text.index(char)].count("\n") + 1)
    if found := _SURROGATE.search(text):
        line = text[: found.start()].count("\n") + 1
        raise EditRefused("bad_char", "the answer holds a lone surrogate, which is no UTF-8 text", line=line)
    if think_prefilled or text.lstrip().startswith("<think>"):
        _, closed, text = text.partition("</think>")
        if not closed:
            raise EditRefused("think_unclosed", "the reasoning never ends: no </think>")
    return text


def parse_search_replace(answer: str, caps: Caps = DEFAULT_CAPS) -> SearchReplace:
    """Parses a description and SEARCH/REPLACE blocks, or a description and the line ``NO CHANGE``.

    The description is the text before the first block, without fence lines. Whether there must be one is checked by
    ``check_description``. Raises ``EditRefused`` with the first fault in text order.
    """
    _check_size(answer, caps)
    lines = answer.split("\n")
    blocks: list[Block] = []
    start = divider = 0  # lines (from 1) of the open block's markers; 0: none seen
    for n, line in enumerate(lines, 1):
        # The first characters settle nearly every line; the patterns then decide.
        if "<<<" not in line and ">>>" not in line and not line.startswith("======="):
            continue
        at = len(blocks) + 1
        if _HEAD.fullmatch(line):
            if start:
                raise EditRefused("nested_search", f"a block begins inside the block of line {start}", at, n)
            if len(blocks) == caps.blocks:
                raise EditRefused("too_large", f"more than {caps.blocks} blocks", at, n)
            start, divider = n, 0
        elif _TAIL.fullmatch(line):
            if not start:
                raise EditRefused("stray_marker", f"{line!r} closes no block", None, n)
            if not divider:
                raise EditRefused("missing_divider", f"no line '=======' since the block began in line {start}", at, n)
            blocks.append(Block(tuple(lines[start : divider - 1]), tuple(lines[divider : n - 1]), start))
            start = 0
        elif start and _DIVIDER.fullmatch(line):
            if divider:
                raise EditRefused("unexpected_divider", f"a second '=======' (the first: line {divider})", at, n)
            if not any(text.strip() for text in lines[start : n - 1]):
                raise EditRefused("empty_search", "SEARCH holds no text: copy the lines to be changed", at, n)
            divider = n
        elif (_NEAR_NAMED if start else _NEAR).match(line):
            cure = "the markers are '<<<<<<< SEARCH', '=======' and '>>>>>>> REPLACE' at column 0"
            raise EditRefused("marker_malformed", f"{line[:60]!r} is none; {cure}", at if start else None, n)
    if start:
        if divider:
            raise EditRefused("unterminated_block", "the answer ends before '>>>>>>> REPLACE'", len(blocks) + 1, start)
        raise EditRefused("missing_divider", "the answer ends before '======='", len(blocks) + 1, start)
    if blocks:
        return SearchReplace(_prose(lines[: blocks[0].line - 1]), tuple(blocks))
    for n, line in enumerate(lines):
        if _NO_CHANGE.fullmatch(line):
            return SearchReplace(_prose(lines[:n]), ())
    raise EditRefused("no_block", "no SEARCH/REPLACE block, and no line NO CHANGE")


def parse_code_block(answer: str, caps: Caps = DEFAULT_CAPS) -> CodeBlock:
    """Parses a diagnosis and exactly one fenced ``python`` block: the whole new source, taken as it stands.

    Whether there must be a diagnosis is checked by ``check_description``. Raises ``EditRefused``.
    """
    _check_size(answer, caps)
    lines = answer.split("\n")
    opened: list[tuple[int, str]] = []  # index of the line and info string of every opening fence
    code: list[str] | None = None  # of the first block, once closed
    width = 0  # of the open fence
    for n, line in enumerate(lines):
        if not (fence := _FENCE.fullmatch(line)):
            continue
        ticks, info = len(fence[1]), fence[2].strip(" \t")
        if not width:
            opened.append((n, info))
            width = ticks
        elif ticks >= width and not info:
            code = code if code is not None else lines[opened[0][0] + 1 : n]
            width = 0
    if not opened:
        raise EditRefused("no_code_block", "no fenced block: put the whole new source between ```python and ```")
    if len(opened) > 1:
        many = f"{len(opened)} fenced blocks; give exactly one"
        raise EditRefused("multiple_code_blocks", many, 2, opened[1][0] + 1)
    first, info = opened[0]
    if info.lower() != "python":
        raise EditRefused("wrong_language", f"the block is marked {info[:40]!r}, not 'python'", 1, first + 1)
    if code is None:
        raise EditRefused("fence_unclosed", "the block is never closed", 1, first + 1)
    if not any(text.strip() for text in code):
        raise EditRefused("empty_code", "the block holds no code", 1, first + 1)
    return CodeBlock("\n".join(lines[:first]).strip(), "\n".join(code) + "\n")


def check_description(text: str, *, required: bool, code_block: bool = False, caps: Caps = DEFAULT_CAPS) -> None:
    """Raises ``EditRefused``: description_missing (diagnosis_missing for a code block), or too_large over the cap."""
    if required and not text:
        if code_block:
            raise EditRefused("diagnosis_missing", "say first, in prose, what is wrong")
        raise EditRefused("description_missing", "say first, in prose, what is changed and why")
    if len(text) > (most := caps.description_chars):
        raise EditRefused("too_large", f"{len(text)} characters of description, over the cap of {most}")


def count_near_markers(answer: str) -> int:
    """How many lines look like a marker and are none, over the whole answer: format drift shows here first."""
    count, inside = 0, False
    for line in answer.split("\n"):
        if "<<<" not in line and ">>>" not in line:
            continue
        if _HEAD.fullmatch(line) or _TAIL.fullmatch(line):
            inside = line.startswith("<")
        elif (_NEAR_NAMED if inside else _NEAR).match(line):
            count += 1
    return count


def _check_size(answer: str, caps: Caps) -> None:
    if (size := len(answer.encode("utf-8", "surrogatepass"))) > caps.answer_bytes:
        raise EditRefused("too_large", f"the answer has {size} bytes, over the cap of {caps.answer_bytes}")


def _prose(lines: list[str]) -> str:
    """Fence lines are the wrapping of a block, so that alone they describe nothing."""
    return "\n".join(line for line in lines if not line.lstrip().startswith("```")).strip()
