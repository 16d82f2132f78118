"""The harness as a value: source text that was checked once, and its fingerprint."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

from reharness.envs.errors import HarnessError
from reharness.envs.types import content_hash

CONTRACT_VERSION = "1"
"""Version of what a harness may rely on (`run(question, tools)` and the tools). Part of every fingerprint."""

MARKER_LINE = re.compile(r"^(?:<<<<<<< SEARCH|=======|>>>>>>> REPLACE)[ \t]*$", re.MULTILINE)
"""The lines of the edit grammar; a harness that holds one could not be edited."""

MAX_BYTES = 32 << 10
MAX_LINES = {"search_replace": 400, "code_block": 200}


def defines_run(tree: ast.Module) -> bool:
    """Whether the module's last word on `run` at top level is a plain `def` with room for (question, tools)."""
    last: ast.stmt | None = None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = {node.name}
        else:
            names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store | ast.Del)}
        if "run" in names:
            last = node
    if not isinstance(last, ast.FunctionDef):
        return False
    a = last.args
    positional = len(a.posonlyargs) + len(a.args)
    keyword_only = any(default is None for default in a.kw_defaults)
    return positional - len(a.defaults) <= 2 and not keyword_only and (positional >= 2 or a.vararg is not None)


def check_source(source: str, where: str = "harness", interface: str = "search_replace") -> None:
    """Static checks of a harness as *loaded*: a fault here is ours or the user's, not a model's.

    Raises ``HarnessError`` naming what is wrong, in which line, and the cure.
    """

    def fail(what: str, cure: str) -> None:
        raise HarnessError(f"{where}: {what}; {cure}")

    if not source.strip():
        fail("is empty", "write a `def run(question, tools):`")
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        raise HarnessError(f"{where}: holds a lone surrogate; save it as UTF-8") from None
    if source.startswith("\ufeff"):
        fail("starts with a byte-order mark", "save it as UTF-8 without one")
    if "\r" in source or "\0" in source:
        line = source[: min(i for i in (source.find("\r"), source.find("\0")) if i >= 0)].count("\n") + 1
        fail(f"line {line} holds a carriage return or NUL", "save it with LF line ends")
    if not source.endswith("\n") or source.endswith("\n\n"):
        fail("must end in exactly one line feed", "add or remove line feeds at the end")
    if found := MARKER_LINE.search(source):
        line = source[: found.start()].count("\n") + 1
        fail(f"line {line} is an edit marker ({found.group().strip()!r})", "indent it or build the text at run time")
    if size > MAX_BYTES:
        fail(f"{size} bytes, over the cap of {MAX_BYTES}", "shorten it")
    if (lines := source.count("\n")) > (cap := MAX_LINES[interface]):
        fail(f"{lines} lines, over the cap of {cap}", "shorten it")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        what = getattr(error, "msg", "") or f"cannot be parsed ({type(error).__name__})"
        raise HarnessError(f"{where}: line {getattr(error, 'lineno', '?')}: {what}; mend the syntax") from None
    if not defines_run(tree):
        fail("does not define the entry point", "write a plain `def run(question, tools):` at top level (not async)")


@dataclass(frozen=True)
class Harness:
    """A checked harness source. Two harnesses with equal fingerprints are the same harness."""

    source: str

    @cached_property
    def fingerprint(self) -> str:
        """Hash of source + contract version."""
        return content_hash("harness", CONTRACT_VERSION, self.source)

    @classmethod
    def from_source(cls, source: str, where: str = "harness", interface: str = "search_replace") -> Harness:
        """Raises ``HarnessError`` if the source is unusable (see ``check_source``)."""
        check_source(source, where, interface)
        return cls(source)

    @classmethod
    def load(cls, path: str | Path, interface: str = "search_replace") -> Harness:
        """Reads a harness file. Raises ``HarnessError`` if there is none or it is unusable."""
        try:
            if not Path(path).is_file() and Path(path).exists():
                raise HarnessError(f"{path}: is no file; give the path of a harness file")
            with Path(path).open("rb") as file:
                source = file.read(2 * MAX_BYTES).decode("utf-8")
        except OSError as error:
            raise HarnessError(f"{path}: cannot be read ({error.strerror}); give the path of a harness file") from None
        except UnicodeDecodeError as error:
            raise HarnessError(f"{path}: byte {error.start} is not UTF-8; save it as UTF-8") from None
        return cls.from_source(source, str(path), interface)


def seed_harness(interface: str = "search_replace") -> Harness:
    """The seed harness of an interface, as shipped in ``solver/seeds``. Raises ``HarnessError`` if there is none."""
    if interface != "search_replace":
        raise HarnessError(f"there is no seed harness for interface {interface!r}; give the path of one")
    name = "rg.py"
    source = resources.files("reharness.solver.seeds").joinpath(name).read_text(encoding="utf-8")
    return Harness.from_source(source, f"seed {name}", interface)
