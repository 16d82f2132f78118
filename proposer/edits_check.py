"""Checks of the source that an edit made: of its text, of its Python, and of its use as a harness."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import replace

from reharness.proposer.edits_types import DEFAULT_CAPS, Caps, EditRefused, EditResult, Interface
from reharness.solver.harness import MARKER_LINE, defines_run

_FROZEN = re.compile(r"^[ \t]*# reharness: frozen[ \t]*\n(?:.*\n)*?(?:[ \t]*# reharness: end[ \t]*\n|\Z)", re.MULTILINE)


def check_text(parent: str, source: str) -> None:
    """Raises ``EditRefused``: marker_in_result, frozen_region, empty_result, noop_result, in this order.

    Frozen lines stand between ``# reharness: frozen`` and ``# reharness: end`` (or the end of the text); neither they
    nor their number and order may change, and none may be added.
    """
    _check_markers(source)
    check_frozen(parent, source)
    if not source.strip():
        raise EditRefused("empty_result", "nothing is left of the source")
    if source == parent:
        raise EditRefused("noop_result", "the blocks undo each other: the source is what it was")


def check_frozen(parent: str, source: str) -> None:
    """Raises ``EditRefused`` (frozen_region) unless the frozen lines of ``parent`` are those of ``source``."""
    if "# reharness: frozen" not in parent and "# reharness: frozen" not in source:
        return
    before, after = _FROZEN.findall(parent), _FROZEN.findall(source)
    if before != after:
        raise EditRefused("frozen_region", "lines between '# reharness: frozen' and '# reharness: end' must stay")


def check_python(parent: str, source: str) -> None:
    """Raises ``EditRefused``: syntax_error, then noop_ast (the trees are equal once docstrings are left out)."""
    tree = _parse(source)
    try:
        before = _parse(parent, compiled=False)
    except EditRefused:
        return  # a parent that is no Python is changed by any source that is
    if _same_code(before, tree):
        raise EditRefused("noop_ast", "only comments, blank space or docstrings differ: no code was changed")


def check_harness(edit: EditResult, interface: Interface = "search_replace", caps: Caps = DEFAULT_CAPS) -> EditResult:
    """The result as a harness that loads: ``source`` ends in exactly one LF (an edit may leave blank lines there).

    New errors: marker_in_result, syntax_error (if the Python checks were off), no_entry_point, too_long, in this order.
    ``apply_edit`` leaves these to whoever means to run the result. A result that has an error is returned as it is.
    """
    if edit.source is None:
        return edit
    source = edit.source.rstrip("\n") + "\n"
    try:
        _check_markers(source)
        if not defines_run(_parse(source)):
            raise EditRefused("no_entry_point", "no top-level `def run(question, tools):`")
        if (lines := source.count("\n")) > (most := caps.lines(interface)):
            raise EditRefused("too_long", f"{lines} lines, over the cap of {most}", line=most + 1)
        if (size := len(source.encode())) > caps.harness_bytes:
            raise EditRefused("too_long", f"{size} bytes, over the cap of {caps.harness_bytes}")
    except EditRefused as refused:
        return replace(edit, source=None, error=refused.error)
    return replace(edit, source=source)


def _check_markers(source: str) -> None:
    if found := MARKER_LINE.search(source):
        line = source[: found.start()].count("\n") + 1
        raise EditRefused("marker_in_result", f"{found.group().strip()!r} is left in the source", line=line)


def _parse(source: str, *, compiled: bool = True) -> ast.Module:
    # Warnings about a candidate's code (a bad escape, `is` with a literal) would only litter the terminal.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
            # What only the compiler sees (`return` outside a function). It copies a `finally` body to every way out of
            # its `try`, which a few kilobytes can turn into gigabytes: then the sandbox finds out, within its limits.
            if compiled and "finally" not in source:
                compile(tree, "<harness>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            why = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
            raise EditRefused("syntax_error", why, line=getattr(error, "lineno", None)) from None
    return tree


_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _same_code(a: ast.AST, b: ast.AST) -> bool:
    """Equality of two trees without positions and docstrings; a loop, for a long chain of operators is a deep tree."""
    todo: list[tuple[object, object]] = [(a, b)]
    while todo:
        x, y = todo.pop()
        if x is y:
            continue
        if type(x) is not type(y):
            return False
        if isinstance(x, ast.AST):
            todo += [(_field(x, name), _field(y, name)) for name in x._fields]
        elif isinstance(x, list):
            assert isinstance(y, list)
            if len(x) != len(y):
                return False
            todo += zip(x, y, strict=True)
        elif x != y:
            return False
    return True


def _field(node: object, name: str) -> object:
    value = getattr(node, name, None)
    if name == "body" and isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        assert isinstance(value, list)
        return value[1:]
    return value
