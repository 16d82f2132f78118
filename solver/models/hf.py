"""Any local transformers model, with a LoRA adapter if one is given: the proposer's engine, on CPU or GPU."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reharness.solver.models.base import EngineIdentity
from reharness.solver.models.chat import ChatTokenizer
from reharness.solver.models.decode import DecodingBatch
from reharness.solver.models.embedded import model_folder, tokenizer_folder
from reharness.solver.models.local import LocalEngine
from reharness.solver.models.weights import check_folders, weights_hash

BATCH_TOKENS = 65_536
"""Bound on rows x (longest prompt + completion) of one batch: what the key-value cache may hold."""
GATHER_S = 0.02
"""How long the first request of a batch waits for company."""


class TransformersEngine(LocalEngine):
    """The model in ``folder`` (None: the embedded one), fp32 on a CPU and bf16 on a GPU, with the LoRA ``adapter``
    folder if one is given. Sampling is temperature and top-p only; the model's own generation defaults are not used.

    Up to ``batch`` requests are decoded together, each with its own sampling and seed; equal prompts are prefilled
    once. In fp32 what a row gets hardly depends on the batch; with ``batch`` 1 it cannot.

    Raises ``ConfigError`` for a folder that holds no model or adapter.
    """

    backend = "reharness.solver.models.hf:TransformersBackend"

    def __init__(
        self, folder: Path | None = None, *, adapter: Path | None = None, batch: int = 16, device: str = "auto",
        threads: int | None = None,
    ) -> None:  # fmt: skip
        check_folders(folder, adapter)
        self._folder, self._adapter = folder, adapter
        self.device = _device() if device == "auto" else device
        paths = {"folder": str(folder) if folder else None, "adapter": str(adapter) if adapter else None}
        super().__init__({**paths, "batch": batch, "device": self.device}, threads)

    @cached_property
    def identity(self) -> EngineIdentity:
        engine = f"transformers {version('transformers')}"
        precision = "bf16" if self.device == "cuda" else "fp32"
        return EngineIdentity(engine, weights_hash(self._folder, self._adapter), precision, self.chat.template_hash)

    @cached_property
    def chat(self) -> ChatTokenizer:
        return ChatTokenizer(self._folder or tokenizer_folder())


def _device() -> str:
    """``cuda`` where there is an NVIDIA driver and a torch that is not the CPU build; torch itself stays unloaded."""
    has_driver = Path("/proc/driver/nvidia/version").exists()
    return "cuda" if has_driver and not version("torch").endswith("+cpu") else "cpu"


class TransformersBackend:
    """Runs in the worker: one batch at a time, token by token; the next batch is whoever waits when it ends."""

    def __init__(self, folder: str | None, adapter: str | None, batch: int, device: str, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.batch_size = batch
        base, lora = Path(folder) if folder else None, Path(adapter) if adapter else None
        self.info = {"weights": weights_hash(base, lora)}
        self.model = load_model(base or model_folder(), lora, device)
        self.tokenizer = ChatTokenizer(base or tokenizer_folder())
        self.pad = self.model.config.pad_token_id or 0
        self.waiting: deque[tuple[int, dict[str, Any]]] = deque()
        self.batch: DecodingBatch | None = None
        self.since = 0.0

    def submit(self, request: int, payload: dict[str, Any]) -> None:
        if not self.waiting:
            self.since = time.monotonic()
        self.waiting.append((request, payload))

    def cancel(self, request: int) -> None:
        self.waiting = deque(entry for entry in self.waiting if entry[0] != request)
        if self.batch:
            self.batch.drop(request)

    def busy(self) -> bool:
        return bool(self.waiting or (self.batch and self.batch.rows))

    def step(self) -> Iterator[tuple[int, dict[str, Any]]]:
        if not self.batch or not self.batch.rows:
            self.batch = None
            gathering = len(self.waiting) < self.batch_size and time.monotonic() - self.since < GATHER_S
            if gathering or not self.waiting:
                time.sleep(GATHER_S / 10)
                return
            self.batch = DecodingBatch(self.model, self.tokenizer, self.pad, self._next())
        for row, finish in self.batch.step():
            yield row.request, {"ids": row.ids, "finish": finish, **self.info}

    def _next(self) -> list[tuple[int, dict[str, Any]]]:
        """Who goes next, in order of arrival, as many as fit."""
        chosen: list[tuple[int, dict[str, Any]]] = []
        longest = 0
        while self.waiting and len(chosen) < self.batch_size:
            payload = self.waiting[0][1]
            longest = max(longest, len(payload["ids"]) + payload["max_tokens"])
            if chosen and longest * (len(chosen) + 1) > BATCH_TOKENS:
                break
            chosen.append(self.waiting.popleft())
        return chosen


def load_model(folder: Path, adapter: Path | None, device: str) -> Any:
    """The model in evaluation mode on ``device``. In fp32 the adapter is merged into the weights, which is faster; in
    bf16 a merge would round the adapter away."""
    import warnings

    import torch
    from transformers import AutoModelForCausalLM

    fp32 = device == "cpu"
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32 if fp32 else torch.bfloat16, local_files_only=True
    )
    if adapter is not None:
        from peft import PeftModel

        with warnings.catch_warnings():
            # An adapter made for another model would otherwise be loaded in part, and quietly do less or nothing.
            warnings.filterwarnings("error", message=".*missing adapter keys.*")
            model = PeftModel.from_pretrained(model, adapter)
        if fp32:
            model = model.merge_and_unload()
    return model.to(device).eval()
