"""Checkpoints that are whole or not there, and adapter folders that say what they belong to.

A checkpoint is written aside by the trainer, then sealed: flushed, given a COMPLETE file with the hash of every other
file, and renamed into place; only then are older ones removed (reliability.md, promise 8).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from reharness.envs.cache import write_atomically
from reharness.envs.errors import ConfigError, LedgerError
from reharness.solver.models.embedded import file_hash
from reharness.solver.models.weights import check_folders

COMPLETE = "COMPLETE"
METADATA = "reharness.json"
_NAME = re.compile(r"step-(\d{6,})")


class Checkpoints:
    """The checkpoints of one training run, in ``folder`` as step-000050, step-000100, …; the last ``keep_last`` stay,
    and of the older ones those whose step is a multiple of ``keep_every`` (0: none).

    Opening removes what a killed process left half-written. ``aside`` is where the trainer may write.
    """

    def __init__(self, folder: Path, keep_last: int, keep_every: int = 0) -> None:
        self.folder, self.keep_last, self.keep_every = folder, keep_last, keep_every
        self.aside = folder / ".part"
        shutil.rmtree(self.aside, ignore_errors=True)
        self.aside.mkdir(parents=True, exist_ok=True)

    def seal(self, written: Path, step: int) -> Path:
        """Makes the folder ``written`` the checkpoint of ``step``, and removes older ones that are not to stay."""
        files = sorted(p for p in written.rglob("*") if p.is_file() and p.name != COMPLETE)
        hashes = {p.relative_to(written).as_posix(): file_hash(p) for p in files}
        (written / COMPLETE).write_text(json.dumps({"step": step, "files": hashes}, indent=1), encoding="utf-8")
        flush(written)
        target = self.folder / f"step-{step:06d}"
        shutil.rmtree(target, ignore_errors=True)  # one that was found incomplete
        written.rename(target)
        _flush_path(self.folder)
        for old in sorted(self._steps())[: -self.keep_last]:
            if not self.keep_every or old % self.keep_every:
                self._remove(self._path(old))
        return target

    def latest(self) -> Path | None:
        """The newest complete checkpoint. What is newer and incomplete is removed."""
        for step in sorted(self._steps(), reverse=True):
            path = self._path(step)
            if complete(path):
                return path
            self._remove(path)
        return None

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:06d}"

    def _steps(self) -> list[int]:
        return [int(found[1]) for p in self.folder.iterdir() if (found := _NAME.fullmatch(p.name))]

    def _remove(self, path: Path) -> None:
        """Out of sight first: a kill in the middle leaves no half checkpoint under a good name."""
        doomed = self.aside / f"old-{path.name}"
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def complete(path: Path) -> bool:
    """Whether a checkpoint has its COMPLETE file and every file named there, with the same content."""
    try:
        files = json.loads((path / COMPLETE).read_text(encoding="utf-8"))["files"]
        return bool(files) and all(file_hash(path / name) == digest for name, digest in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def flush(folder: Path) -> None:
    """Every file in ``folder``, and the folder, to the disk."""
    for path in [*folder.rglob("*"), folder]:
        _flush_path(path)


def _flush_path(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def need_room(folder: Path, checkpoint_bytes: int) -> None:
    """Raises ``LedgerError`` when the disk lacks room for two checkpoints: the old one stays until the new is whole."""
    if (free := shutil.disk_usage(folder).free) < (need := 2 * checkpoint_bytes + (64 << 20)):
        raise LedgerError(f"{folder}: {free >> 20} MiB are free on its disk; two checkpoints need {need >> 20} MiB")


def write_json(path: Path, value: Any) -> None:
    """Writes ``value`` aside and renames it into place. Raises OSError."""
    write_atomically(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def save_adapter(model: Any, folder: Path, dtype: str, base: str, metadata: dict[str, Any]) -> None:
    """Writes the LoRA adapter of a PEFT ``model`` to ``folder``, in ``dtype``, with ``metadata`` as reharness.json.

    Equal weights give equal bytes: the targets, which PEFT keeps as a set, are sorted, and the base model goes by the
    name ``base``, not by where it lay on this machine.
    """
    import torch
    from safetensors.torch import load_file, save_file

    aside = folder.with_name(folder.name + ".part")
    shutil.rmtree(aside, ignore_errors=True)
    model.save_pretrained(aside)
    (aside / "README.md").unlink(missing_ok=True)  # a form that was not filled in
    weights = aside / "adapter_model.safetensors"
    cast = {name: tensor.to(getattr(torch, dtype)).contiguous() for name, tensor in load_file(weights).items()}
    save_file(cast, weights, metadata={"format": "pt"})
    config = json.loads((aside / "adapter_config.json").read_text(encoding="utf-8"))
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    write_json(aside / "adapter_config.json", {**config, "base_model_name_or_path": base})
    write_json(aside / METADATA, metadata)
    flush(aside)
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
    _flush_path(folder.parent)


def read_metadata(adapter: Path) -> dict[str, Any] | None:
    """What reharness noted when it made the adapter; None for an adapter that was made elsewhere.

    Raises ``ConfigError`` for a folder that holds no adapter, or a note that cannot be read.
    """
    check_folders(None, adapter)
    path = adapter / METADATA
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data["base"]["weights"], str):
            raise TypeError
        return data
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: is no note of reharness ({type(error).__name__}); make the adapter again") from None


def _leaf(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


def check_adapter(adapter: Path, base: str, weights: str) -> None:
    """Raises ``ConfigError`` when ``adapter`` was made for another base model than the one called ``base`` with the id
    ``weights``. One made elsewhere has only its base's name to go by, and passes when it names none."""
    note = read_metadata(adapter)
    if note is not None:
        if note["base"]["weights"] != weights:
            raise ConfigError(
                f"{adapter}: was made for the base weights {note['base']['weights'][:12]} ({note['base'].get('name')}),"
                f" not {weights[:12]} ({base}); give the model that it was made for"
            )
        return
    try:
        named = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"{adapter}/adapter_config.json: cannot be read as JSON: {error}") from None
    if named and _leaf(named) != _leaf(base):  # a hub name, or a folder wherever it lay
        raise ConfigError(f"{adapter}: was made for {named!r}, not {base!r}; give the model that it was made for")
