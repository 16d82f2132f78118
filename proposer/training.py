"""What training runs of every kind need around the training itself."""

from __future__ import annotations

import json
import logging
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reharness.envs.errors import ConfigError, LedgerError
from reharness.proposer.base_model import BaseModel
from reharness.proposer.checkpoints import Checkpoints

Watch = Callable[[dict[str, Any], int], None]
"""Called after every step with its line of metrics.jsonl and the number of steps in all."""


Line = Callable[[int, dict[str, Any], float], dict[str, Any]]


def recorder(
    out: Path, checkpoints: Checkpoints, resumed: Path | None, row: Line, watch: Watch | None, steps: int,
    save: Callable[[Path], None] = lambda _: None,
) -> Any:
    """The callback that writes a line of metrics per step and seals every checkpoint, the metrics so far inside it.

    ``row`` makes the line of a step's number, what the trainer logged of it and its seconds; ``save`` may put more into
    a checkpoint before it is sealed.
    """
    from transformers import TrainerCallback

    path = out / "metrics.jsonl"
    if resumed:
        shutil.copyfile(resumed / path.name, path)
    else:
        path.unlink(missing_ok=True)

    class Recorder(TrainerCallback):
        start = 0.0

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.start = time.monotonic()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if logs and "loss" in logs:
                line = row(state.global_step, logs, time.monotonic() - self.start)
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line, sort_keys=True, allow_nan=False) + "\n")
                if watch:
                    watch(line, steps)

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            written = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            shutil.copyfile(path, written / path.name)
            save(written)
            checkpoints.seal(written, state.global_step)

    return Recorder()


def finished(out: Path, base: BaseModel) -> dict[str, Any] | None:
    """The summary of a finished run, if its adapter is still the one that it tells of."""
    path = out / "summary.json"
    if not path.is_file():
        return None
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        if summary["weights"] == base.weights_with(out / "adapter"):
            return summary
    except (ConfigError, OSError, ValueError, KeyError, TypeError):
        pass
    raise LedgerError(
        f"{out}: is finished, but adapter/ is not the one that summary.json tells of; remove summary.json to make it"
        " again from the last checkpoint"
    )


@contextmanager
def named_errors(out: Path) -> Iterator[None]:
    """What goes wrong while the folder is written, as a named error."""
    try:
        yield
    except OSError as error:
        raise LedgerError(
            f"{out}: cannot be written ({error.strerror or error}); make room or mend the folder's rights and give the"
            " same command again: it goes on from the last checkpoint"
        ) from error


@contextmanager
def quiet(threads: int) -> Iterator[None]:
    """Torch on ``threads`` threads, and the libraries silent but for errors; all as before afterwards."""
    import datasets
    import torch
    import transformers

    log, bars, before = transformers.logging, datasets.are_progress_bars_disabled(), torch.get_num_threads()
    verbosity, of_trl = log.get_verbosity(), logging.getLogger("trl")
    level = of_trl.level
    torch.set_num_threads(threads)
    log.set_verbosity_error()
    of_trl.setLevel(logging.ERROR)
    log.disable_progress_bar()
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(before)
        log.set_verbosity(verbosity)
        of_trl.setLevel(level)
        log.enable_progress_bar()
        if not bars:
            datasets.enable_progress_bars()
