"""A GRPO run, killed again and again: `killed_grpo.py CONFIG.json OUT SEED`.

A child of this process is killed with SIGKILL at one moment after the other; the next child goes on in the same folder,
and the last one finishes. Five of the moments are drawn by SEED: right after some record of the ledger was committed.
Prints how each child ended.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import datasets  # noqa: F401 - imported here, once for all children
import grpo_room
import peft  # noqa: F401
import trl.trainer.grpo_trainer  # noqa: F401

from reharness.proposer import checkpoints, grpo, grpo_update
from reharness.proposer.grpo import GrpoConfig, run_grpo
from reharness.solver.ledger import Ledger


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after_record(number: int) -> Any:
    def moment() -> None:
        put, seen = Ledger.put, []

        def counted(self: Ledger, kind: Any, key: str, record: dict[str, Any]) -> None:
            put(self, kind, key, record)
            seen.append(key)
            if len(seen) == number:
                die()

        Ledger.put = counted  # type: ignore[method-assign]

    return moment


def before_the_name() -> None:
    """Dies when a checkpoint is whole but has not got its name."""
    checkpoints.flush = die  # type: ignore[assignment]


def while_pruning() -> None:
    checkpoints.Checkpoints._remove = die  # type: ignore[assignment,method-assign]


def before_the_summary() -> None:
    write = grpo.write_json
    grpo.write_json = lambda path, value: die() if path.name == "summary.json" else write(path, value)


if __name__ == "__main__":
    grpo_update.judge = grpo_room.paid_by_letters  # type: ignore[assignment]
    config = GrpoConfig.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rng = random.Random(int(sys.argv[3]))
    moments: list[Any] = [after_record(rng.randint(1, 6)) for _ in range(5)]
    moments[2:2] = [before_the_name]
    moments += [while_pruning, before_the_summary, None]
    ends = []
    for moment in moments:
        if (pid := os.fork()) == 0:
            try:
                if moment:
                    moment()
                run_grpo(config, Path(sys.argv[2]))
                os._exit(0)
            finally:
                os._exit(1)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(json.dumps(ends))
