"""Edits: a proposer's completion, applied to a parent harness. Exact, all or nothing, and total: never an exception.

    completion -> answer_of -> parse_search_replace -> check_description -> apply_blocks -> check_text -> check_python
                            -> parse_code_block                                          -> check_frozen

Each step can be called alone. The harness-level checks (entry point, length) are not part of ``apply_edit``: whoever
runs the result calls ``check_harness``.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from reharness.envs.errors import UnknownNameError
from reharness.proposer.edits_check import check_frozen, check_harness, check_python, check_text
from reharness.proposer.edits_parse import (
    Block,
    CodeBlock,
    SearchReplace,
    answer_of,
    check_description,
    count_near_markers,
    parse_code_block,
    parse_search_replace,
)
from reharness.proposer.edits_types import (
    DEFAULT_CAPS,
    Caps,
    EditError,
    EditErrorKind,
    EditRefused,
    EditResult,
    Interface,
    Stage,
    reward_stage,
)

__all__ = [
    "DEFAULT_CAPS",
    "Block",
    "Caps",
    "CodeBlock",
    "EditError",
    "EditErrorKind",
    "EditRefused",
    "EditResult",
    "Interface",
    "SearchReplace",
    "Stage",
    "answer_of",
    "apply_blocks",
    "apply_edit",
    "check_description",
    "check_frozen",
    "check_harness",
    "check_python",
    "check_text",
    "count_near_markers",
    "parse_code_block",
    "parse_search_replace",
    "reward_stage",
]

_NEAREST = 5
_COMPARED_CHARS = 200  # of a line, when near lines are looked for: keeps a refusal cheap on any input


def apply_edit(
    parent: str,
    completion: str,
    *,
    interface: Interface = "search_replace",
    require_description: bool = True,
    think_prefilled: bool = False,
    python_checks: bool = True,
    caps: Caps = DEFAULT_CAPS,
) -> EditResult:
    """Applies a completion to ``parent``. The parent is not validated; it only gets a missing final LF.

    ``require_description``: a description (or diagnosis) must stand before the first block. ``think_prefilled``: the
    chat template had opened ``<think>``. ``python_checks=False`` leaves out syntax_error and noop_ast, and nothing
    else. Raises only ``UnknownNameError``, for an unknown ``interface``; a completion never makes it raise.
    """
    if interface not in ("search_replace", "code_block"):
        raise UnknownNameError("interface", interface, ("search_replace", "code_block"))
    if parent and not parent.endswith("\n"):
        parent += "\n"
    description: str | None = None
    near = 0
    try:
        answer = answer_of(completion, think_prefilled=think_prefilled)
        if interface == "code_block":
            whole = parse_code_block(answer, caps)
            description, source = whole.diagnosis, whole.code
            check_description(description, required=require_description, code_block=True, caps=caps)
            check_frozen(parent, source)
        else:
            near = count_near_markers(answer)
            edit = parse_search_replace(answer, caps)
            description = edit.description
            check_description(description, required=require_description, caps=caps)
            source = apply_blocks(parent, edit.blocks)
            check_text(parent, source)
        if python_checks:
            check_python(parent, source)
    except EditRefused as refused:
        return EditResult(None, description, refused.error, near)
    return EditResult(source, description, None, near)


def apply_blocks(parent: str, blocks: Sequence[Block]) -> str:
    """Applies the blocks in order, each to what the one before it left; bytes outside a match are never touched.

    A SEARCH must stand in the text exactly once, as whole lines. ``parent`` ends in LF (or is empty). Raises
    ``EditRefused``: no_change (no blocks), no_match, ambiguous, identical_block.
    """
    if not blocks:
        raise EditRefused("no_change", "the answer changes nothing on purpose")
    text = "\n" + parent  # so that every line, the first too, stands between two LF
    for n, block in enumerate(blocks, 1):
        if block.search == block.replace:
            raise EditRefused("identical_block", "SEARCH and REPLACE are the same", n, block.line)
        wanted = "\n" + "\n".join(block.search) + "\n"
        at = text.find(wanted)
        if at < 0:
            raise EditRefused(
                "no_match",
                "SEARCH is not in the source; copy whole lines exactly, with their indentation",
                n,
                block.line,
                _nearest(block.search, text.split("\n"), parent.split("\n")),
            )
        if text.find(wanted, at + 1) >= 0:
            raise EditRefused("ambiguous", "SEARCH is in the source more than once; add lines around it", n, block.line)
        text = text[:at] + "\n" + "".join(line + "\n" for line in block.replace) + text[at + len(wanted) :]
    return text[1:]


def _nearest(search: Sequence[str], text: Sequence[str], parent: Sequence[str]) -> tuple[str, ...]:
    """Lines of the parent most like the first SEARCH line that the text lacks (or, if it has all, like the first)."""
    present = set(text)
    texts = [line for line in search if line.strip()]
    target = next((line for line in texts if line not in present), texts[0])
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(target.strip()[:_COMPARED_CHARS])
    scored = []
    for n, line in enumerate(dict.fromkeys(line for line in parent if line.strip())):
        matcher.set_seq1(line.strip()[:_COMPARED_CHARS])
        if matcher.real_quick_ratio() > 0.3 and matcher.quick_ratio() > 0.3:
            scored.append((-matcher.ratio(), n, line))
    return tuple(line for _, _, line in sorted(scored)[:_NEAREST])
