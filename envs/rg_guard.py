"""What keeps an answer from being run as code inside a Reasoning Gym scorer (worker process only).

In reasoning-gym 0.1.25 string_insertion, spiral_matrix, binary_matrix and n_queens call ``eval`` on the answer, and
countdown, puzzle24, polynomial_multiplication and both integration families ``sympy.parse_expr``, which ends in
``eval``. Both names are replaced in every module of the package, so that a later version is covered too: literals
are read by ``ast.literal_eval``, expressions must first pass `check_expression`. What does not pass looks to the
scorer like an answer it cannot parse. Text that comes from the entry itself is trusted.
"""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

MAX_EVALUATED_CHARS = 4000
MAX_BITS = 20_000
"""Size allowed for any number inside an expression (``9**9**9`` would fill the memory)."""

FUNCTIONS = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "acot", "sinh", "cosh", "tanh", "coth", "asinh",
    "acosh", "atanh", "exp", "log", "ln", "sqrt", "cbrt", "root", "Abs", "sign", "Rational", "erf", "erfi", "Si", "Ci",
    "Ei", "li",
})  # fmt: skip
"""Functions an expression may call. Not ``Integral``: "the integral of the question" would score 1. Not ``gamma`` or
``factorial``: of a large number they never end."""

_trusted: set[str] = set()


@contextlib.contextmanager
def trusting(entry: dict[str, Any]) -> Iterator[None]:
    """While one answer is scored, the entry's own texts (gold, integrand, …) may be evaluated as they stand."""
    metadata = entry.get("metadata") or {}
    _trusted.update(v for v in (entry["answer"], *metadata.values()) if isinstance(v, str))
    try:
        yield
    finally:
        _trusted.clear()


def _literal(text: Any, *_scopes: Any) -> Any:
    """Stands in for ``eval``: literals only, or the entry's own text (bitwise_arithmetic evaluates its problem)."""
    if text in _trusted:
        return eval(text, {"__builtins__": {}})
    if not isinstance(text, str) or len(text) > MAX_EVALUATED_CHARS:
        raise ValueError("not evaluated: too long or not text")
    return ast.literal_eval(text)


def _refuse(*_args: Any, **_kwargs: Any) -> None:
    raise ValueError("not run: a scorer may not execute code")


def _checked(parse: Callable[..., Any]) -> Callable[..., Any]:
    """``sympy.parse_expr`` that first checks texts which are not the entry's own."""

    def parse_expr(text: Any, *args: Any, **kwargs: Any) -> Any:
        if text not in _trusted:
            check_expression(text)
        return parse(text, *args, **kwargs)

    return parse_expr


def check_expression(text: str) -> None:
    """Raise ValueError unless ``text`` is arithmetic: numbers, names, + - * / % **, and calls of `FUNCTIONS`."""
    if not isinstance(text, str) or len(text) > MAX_EVALUATED_CHARS:
        raise ValueError("not an expression: too long or not text")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, RecursionError, MemoryError, OverflowError) as e:
        raise ValueError(f"not an expression: {type(e).__name__}") from None
    _bits(tree.body)


def _bits(node: ast.expr) -> float:
    """An upper bound on the bits of the value's numbers; raises ValueError on whatever is not arithmetic."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            bits = float(max(1, abs(int(number)).bit_length()))
        case ast.Name(id=name) if "__" not in name and name.isascii():
            bits = 1.0
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
            bits = _bits(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            bits = _bits(left) * 2.0 ** min(_bits(right), 64.0)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.Mod(), right=right):
            bits = _bits(left) + _bits(right)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS and 0 < len(args) <= 2:
            bits = sum(_bits(a) for a in args)
        case _:
            raise ValueError(f"not arithmetic: {type(node).__name__}")
    if bits > MAX_BITS:
        raise ValueError("not evaluated: the numbers grow too large")
    return bits


def lock_evaluation() -> None:
    """Replace ``eval``, ``exec`` and ``parse_expr`` in every loaded module of reasoning_gym, and SymPy's own name."""
    import sympy
    from sympy.parsing import sympy_parser

    parse, checked = sympy_parser.parse_expr, _checked(sympy_parser.parse_expr)
    sympy.parse_expr = checked
    for name, module in list(sys.modules.items()):
        if name.startswith("reasoning_gym."):
            names = vars(module)
            names["eval"], names["exec"] = _literal, _refuse
            for key in [k for k, v in names.items() if v is parse]:
                names[key] = checked


_REFUSED = (
    "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.kill", "os.remove", "os.rename",
    "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate", "os.putenv",
    "subprocess.", "socket.", "shutil.", "ctypes.", "pty.", "urllib.", "ftplib.", "http.", "smtplib.",
)  # fmt: skip


def arm_audit_hook() -> None:
    """From now on refuse what no scorer does: start programs, open sockets, write files. Cannot be taken off again."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            mode, flags = (args[1] if len(args) > 1 else None), (args[2] if len(args) > 2 else 0)
            writes = set(mode) & set("wax+") if isinstance(mode, str) else (flags or 0) & 0o3
            if writes:
                raise PermissionError("a scorer may not write files")
        elif event.startswith(_REFUSED):
            raise PermissionError(f"a scorer may not do {event}")

    sys.addaudithook(hook)
