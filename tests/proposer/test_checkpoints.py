"""Checkpoints are whole or not there; an adapter knows its base."""

import json
import shutil
from pathlib import Path

import pytest

from reharness.envs.errors import ConfigError, LedgerError
from reharness.proposer import checkpoints
from reharness.proposer.checkpoints import COMPLETE, METADATA, Checkpoints, check_adapter, complete, read_metadata


def written(store: Checkpoints, step: int) -> Path:
    folder = store.aside / f"checkpoint-{step}"
    (folder / "deep").mkdir(parents=True)
    (folder / "weights").write_bytes(bytes([step % 256]) * 100)
    (folder / "deep" / "state").write_text(f"state {step}")
    return folder


def names(store: Checkpoints) -> list[str]:
    return sorted(p.name for p in store.folder.iterdir() if p != store.aside)


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path / "c", keep_last=2)
    assert store.latest() is None
    for step in (5, 10, 15, 1_000_000):
        path = store.seal(written(store, step), step)
        assert complete(path) and store.latest() == path
    assert names(store) == ["step-000015", "step-1000000"]


def cut(path: Path) -> None:
    (path / "weights").write_bytes(b"\x0a" * 99)


def change(path: Path) -> None:
    (path / "weights").write_bytes(b"\x0b" * 100)


def lose(path: Path) -> None:
    (path / "deep" / "state").unlink()


def unmark(path: Path) -> None:
    (path / COMPLETE).unlink()


def garble(path: Path) -> None:
    (path / COMPLETE).write_text('{"files": [')


def empty(path: Path) -> None:
    (path / COMPLETE).write_text('{"files": {}}')


def strange(path: Path) -> None:
    (path / COMPLETE).write_text("[1]")


@pytest.mark.parametrize("damage", [cut, change, lose, unmark, garble, empty, strange])
def test_a_damaged_checkpoint_is_passed_over_and_removed(tmp_path: Path, damage) -> None:
    store = Checkpoints(tmp_path, keep_last=3)
    good, bad = (store.seal(written(store, step), step) for step in (5, 10))
    damage(bad)
    assert not complete(bad)
    assert Checkpoints(tmp_path, 3).latest() == good
    assert names(store) == ["step-000005"]
    damage(good)
    assert store.latest() is None and names(store) == []


def test_what_a_killed_process_left_aside_is_removed(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep_last=1)
    written(store, 5)
    again = Checkpoints(tmp_path, keep_last=1)
    assert list(again.aside.iterdir()) == [] and again.latest() is None


def test_a_step_can_be_sealed_again(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep_last=1)
    store.seal(written(store, 5), 5)
    assert complete(store.seal(written(store, 5), 5)) and names(store) == ["step-000005"]


def test_there_must_be_room_for_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=300 << 20)
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda _: usage)
    checkpoints.need_room(tmp_path, 100 << 20)
    with pytest.raises(LedgerError, match="300 MiB are free on its disk; two checkpoints need 304 MiB"):
        checkpoints.need_room(tmp_path, 120 << 20)


def adapter(folder: Path, config: str = "{}", note: str | None = None) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(config)
    if note is not None:
        (folder / METADATA).write_text(note)
    return folder


def test_an_adapter_of_ours_goes_by_the_weights_of_its_base(tmp_path: Path) -> None:
    note = json.dumps({"base": {"name": "small", "weights": "a" * 64}})
    folder = adapter(tmp_path / "a", json.dumps({"base_model_name_or_path": "whatever"}), note)
    check_adapter(folder, "other name", "a" * 64)
    with pytest.raises(ConfigError, match=r"made for the base weights a{12} \(small\), not b{12} \(large\); give"):
        check_adapter(folder, "large", "b" * 64)


def test_an_adapter_made_elsewhere_goes_by_the_name_of_its_base(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a", json.dumps({"base_model_name_or_path": "org/small"}))
    assert read_metadata(folder) is None
    check_adapter(folder, "org/small", "a" * 64)
    with pytest.raises(ConfigError, match="was made for 'org/small', not 'org/large'"):
        check_adapter(folder, "org/large", "a" * 64)
    check_adapter(adapter(tmp_path / "nameless"), "org/large", "a" * 64)


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"base": {}}', '{"base": {"weights": 3}}', '{"base": 1}'])
def test_a_note_that_cannot_be_read_is_named(tmp_path: Path, note: str) -> None:
    folder = adapter(tmp_path / "a", note=note)
    with pytest.raises(ConfigError, match=r"reharness.json: is no note of reharness"):
        check_adapter(folder, "x", "a" * 64)


def test_a_folder_that_is_no_adapter_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no adapter_config.json"):
        check_adapter(tmp_path, "x", "a" * 64)
    with pytest.raises(ConfigError, match=r"adapter_config.json: cannot be read as JSON"):
        check_adapter(adapter(tmp_path / "a", "{"), "x", "a" * 64)
