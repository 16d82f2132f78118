"""`reharness demo`, the real thing on fewer questions: live demonstrations, SFT, adaptation of one task per track."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from reharness.envs.splits import load_split
from reharness.recipes import demo
from reharness.recipes.micro_rg.items import load_items


def test_its_tasks_are_committed_items_of_unseen_families() -> None:
    chosen = {o.item.track: o for o in load_items("unseen") if demo.TASKS[o.item.track] == o.item.family}
    assert set(chosen) == {"S", "F", "R"} and len({o.item.family for o in chosen.values()}) == 3
    split = load_split()
    for o in chosen.values():
        assert o.item.family in split.families["unseen"]
    assert chosen["F"].item.format in split.formats["unseen"] and chosen["R"].item.defect in split.defects["unseen"]
    assert set(demo.live_config().families or ()) <= set(split.families["train"])


@pytest.mark.model
def test_a_small_demo_ends_with_its_table_and_is_not_paid_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, adapt = demo.live_config(), demo.adapt_config
    monkeypatch.setattr(demo, "STEPS", 1)
    monkeypatch.setattr(demo, "REPLAYED", 3)
    monkeypatch.setattr(demo, "live_config", lambda: live.model_copy(update={"per_format": 0, "proposals": 20}))

    def few(starts: Path, adapter: Path) -> object:
        config = adapt(starts, adapter)
        kept = tuple(p.model_copy(update={"max_tokens": 96}) for p in config.proposers)
        return config.model_copy(update={"rounds": 1, "proposals": 2, "dev": 2, "held_out": 2, "proposers": kept})

    monkeypatch.setattr(demo, "adapt_config", few)
    console = Console(width=140, record=True, force_terminal=False)
    path = demo.run_demo(tmp_path, console)
    text = console.export_text()
    summary = json.loads(path.read_text())
    assert [row["track"] for row in summary["tasks"]] == ["S", "F", "R"]
    for row in summary["tasks"]:
        assert row["parent"]["n"] == 2 and row["task"] in text.replace("\n", "")
        for label in ("untrained", "trained"):
            arm = row[label]
            assert arm["held_out"]["n"] == 2 and arm["proposals"] == 2
            assert arm["parsed"] >= arm["applied"] >= arm["ran"] >= arm["valid"]
    trained = [row["trained"]["applied"] for row in summary["tasks"]]
    assert sum(trained) > sum(row["untrained"]["applied"] for row in summary["tasks"])
    assert set(summary["seconds"]) == {"demonstrations", "sft", "adaptation", "total"}
    assert "from the committed adapter" in text and "no significance" in text
    assert (tmp_path / "adapt" / "report.html").is_file()
    again = json.loads(demo.run_demo(tmp_path, console).read_text())
    assert again["tasks"] == summary["tasks"] and again["weights"] == summary["weights"]
    paid = json.loads((tmp_path / "adapt" / "summary.json").read_text())["paid"]
    assert all(record["calls"] == 0 for record in paid.values())
