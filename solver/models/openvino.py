"""The embedded model through openvino-genai: continuous batching straight from the GGUF, the solver on a CPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reharness.solver.models.base import EngineIdentity
from reharness.solver.models.chat import ChatTokenizer
from reharness.solver.models.embedded import file_hash, gguf_hash, gguf_path, tokenizer_folder
from reharness.solver.models.local import LocalEngine


class OpenVinoEngine(LocalEngine):
    """SmolLM2-135M-Instruct (Q4_1) on the CPU; window 8,192 tokens, of prompt and completion together.

    ``batch`` is how many requests are decoded together. ``exact`` computes in fp32 without quantised activations: a
    greedy completion then does not depend on what else is in the batch (measured on 40 completions of 32 tokens: none
    differed), where otherwise about half of them do; it costs about half the speed. A seeded sample can still differ
    now and then: openvino-genai inverts a cumulative sum, whose last bits vary. With ``batch`` 1 nothing depends on
    anything else.
    """

    backend = "reharness.solver.models.openvino:OpenVinoBackend"

    def __init__(self, *, batch: int = 32, exact: bool = False, threads: int | None = None) -> None:
        self.batch, self.exact = batch, exact
        super().__init__({"model": str(gguf_path()), "batch": batch, "exact": exact}, threads)

    @cached_property
    def identity(self) -> EngineIdentity:
        engine = f"openvino-genai {version('openvino-genai')}" + (" exact" if self.exact else "")
        return EngineIdentity(engine, gguf_hash(), "Q4_1", self.chat.template_hash)

    @cached_property
    def chat(self) -> ChatTokenizer:
        return ChatTokenizer(tokenizer_folder())


class OpenVinoBackend:
    """Runs in the worker. Requests join the batch between two steps, in order of arrival."""

    def __init__(self, model: str, batch: int, exact: bool, threads: int) -> None:
        import openvino_genai as genai

        self.genai, self.batch = genai, batch
        scheduler = genai.SchedulerConfig()
        scheduler.max_num_seqs = batch
        scheduler.cache_size = 2  # GB: room for the whole window, in fp32, several times
        properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads}
        if exact:
            # Each of the three alone still lets the batch change a greedy choice.
            properties |= {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32",
                           "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}  # fmt: skip
        self.pipeline = genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)
        self.eos = self.pipeline.get_config().stop_token_ids
        self.info = {"weights": file_hash(Path(model))}
        self.waiting: deque[tuple[int, dict[str, Any]]] = deque()
        self.running: dict[int, Any] = {}

    def submit(self, request: int, payload: dict[str, Any]) -> None:
        self.waiting.append((request, payload))

    def cancel(self, request: int) -> None:
        self.waiting = deque(entry for entry in self.waiting if entry[0] != request)
        if handle := self.running.pop(request, None):
            handle.cancel()

    def busy(self) -> bool:
        return bool(self.waiting or self.running)

    def step(self) -> Iterator[tuple[int, dict[str, Any]]]:
        while self.waiting and len(self.running) < self.batch:
            request, payload = self.waiting.popleft()
            self.running[request] = self._start(request, payload)
        if self.pipeline.has_non_finished_requests():
            self.pipeline.step()
        status = self.genai.GenerationStatus
        for request, handle in list(self.running.items()):
            if (now := handle.get_status()) == status.RUNNING:
                continue
            del self.running[request]
            if now != status.FINISHED:
                yield request, {"error": f"openvino-genai dropped the request ({now.name}): its cache is full"}
                continue
            output = handle.read_all()[0]
            stopped = output.finish_reason == self.genai.GenerationFinishReason.STOP
            yield request, {"ids": list(output.generated_ids), "finish": "stop" if stopped else "length", **self.info}

    def _start(self, request: int, payload: dict[str, Any]) -> Any:
        import numpy as np
        from openvino import Tensor

        config = self.genai.GenerationConfig()
        config.apply_chat_template = False
        config.max_new_tokens = payload["max_tokens"]
        config.stop_token_ids = self.eos
        config.stop_strings = set(payload["stop"])
        config.include_stop_str_in_output = True  # the host cuts; here a cut would take the whole token
        if payload["temperature"] > 0:
            config.do_sample = True
            config.temperature, config.top_p = payload["temperature"], payload["top_p"]
            config.rng_seed = payload["seed"]
        return self.pipeline.add_request(request, Tensor(np.array([payload["ids"]], dtype=np.int64)), config)
