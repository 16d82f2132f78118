"""What training runs of every kind need around the training itself."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reharness.envs.errors import ConfigError, LedgerError
from reharness.proposer.base_model import BaseModel


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
    verbosity = log.get_verbosity()
    torch.set_num_threads(threads)
    log.set_verbosity_error()
    log.disable_progress_bar()
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(before)
        log.set_verbosity(verbosity)
        log.enable_progress_bar()
        if not bars:
            datasets.enable_progress_bars()
