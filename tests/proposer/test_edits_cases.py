"""The edit cases shared by everyone who builds an applier, where they lie beside the checkout."""

import json
from pathlib import Path

import pytest

from reharness.proposer.edits import apply_edit

CASES = Path(__file__).parents[3] / "shared" / "cases" / "edits.jsonl"
INTERFACES = {"edit": "search_replace", "fenced": "code_block"}


def test_shared_cases() -> None:
    if not CASES.is_file():
        pytest.skip("no ../shared/cases/edits.jsonl beside this checkout")
    rows = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    wrong = []
    for row in rows:
        result = apply_edit(
            row["original"],
            row["response"],
            interface=INTERFACES[row["kind"]],
            require_description=False,
            think_prefilled=row["think_prefilled"],
            python_checks=row["python_checks"],
        )
        got = result.source if result.error is None else f"error:{result.error.kind}"
        if got != row["expected"]:
            wrong.append((row["id"], got, row["expected"]))
    assert len(rows) >= 70
    assert not wrong
