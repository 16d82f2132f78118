"""Words and numbers as the page shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MISSING = "not measured"


def visible(text: str) -> str:
    """The text with every character that cannot be seen or that reorders what is seen (controls, bidi and format
    characters, odd blanks, lone surrogates) written as an escape: a diff must show what a harness really holds."""
    return "".join(c if c.isprintable() or c in "\n\t" else _escape(c) for c in text)


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def score(value: float | None) -> str:
    """Three decimals, or ``not measured`` for None and NaN."""
    return MISSING if value is None or math.isnan(value) else f"{value:.3f}"


def cell(value: float | None) -> str:
    """``score`` for a narrow column: a dash where nothing was measured."""
    return "–" if value is None or math.isnan(value) else f"{value:.3f}"


def signed(value: float | None) -> str:
    """``score`` with its sign, a true minus."""
    return MISSING if value is None or math.isnan(value) else f"{value:+.3f}".replace("-", "−")


def interval(mean: Mapping[str, Any], sign: bool = False) -> str:
    """``[low, high]`` of a ``Mean.record()``; empty when nothing was measured."""
    if not mean["n"]:
        return ""
    show = signed if sign else score
    return f"[{show(mean['low'])}, {show(mean['high'])}]"


def share(value: float) -> str:
    return f"{value:.0%}"


def count(number: int, noun: str) -> str:
    """``1 round``, ``2 rounds``, ``12,345 tokens``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """``4.2 s``, ``1 min 05 s``, ``2 h 03 min``."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def listed(items: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))
