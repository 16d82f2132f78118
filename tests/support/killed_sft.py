"""Fine-tuning, killed again and again: `killed_sft.py CONFIG.json OUT`.

A child of this process is killed with SIGKILL at one moment after the other; the next child goes on in the same folder,
and the last one finishes. Forked, so that the heavy libraries are imported once. Prints how each child ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets  # noqa: F401 - imported here, once for all children
import peft  # noqa: F401
import torch
import trl.trainer.sft_trainer  # noqa: F401

from reharness.proposer import checkpoints, sft
from reharness.proposer.sft import SftConfig, run_sft


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_step(number: int) -> Callable[[dict[str, Any], int], None]:
    return lambda row, _: die() if row["step"] == number else None


def half_saved() -> None:
    """Dies with half a file of optimiser state on the disk."""

    def save(_: Any, path: str) -> None:
        Path(path).write_bytes(b"PK\x03\x04")
        die()

    torch.save = save  # type: ignore[assignment]


def before_the_name() -> None:
    """Dies when a checkpoint is whole but has not got its name."""
    checkpoints.flush = die  # type: ignore[assignment]


def while_pruning() -> None:
    """Dies when the new checkpoint has its name and the old one is about to go."""
    checkpoints.Checkpoints._remove = die  # type: ignore[assignment,method-assign]


def before_the_note() -> None:
    """Dies in the middle of the adapter folder."""
    write = checkpoints.write_json
    checkpoints.write_json = lambda path, value: die() if path.name == "reharness.json" else write(path, value)


def before_the_summary() -> None:
    write = sft.write_json
    sft.write_json = lambda path, value: die() if path.name == "summary.json" else write(path, value)


MOMENTS: list[Any] = [
    at_step(2), half_saved, at_step(5), before_the_name, while_pruning, at_step(7), before_the_note, before_the_summary, None,
]  # fmt: skip


def child(config: SftConfig, out: Path, moment: Any) -> None:
    watch = moment if moment and moment.__name__ == "<lambda>" else None
    if moment and not watch:
        moment()
    run_sft(config, out, watch)


if __name__ == "__main__":
    config = SftConfig.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    out = Path(sys.argv[2])
    ends = []
    for moment in MOMENTS:
        pid = os.fork()
        if pid == 0:
            try:
                child(config, out, moment)
                os._exit(0)
            finally:
                os._exit(1)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(json.dumps(ends))
