"""vLLM in-process (extra ``gpu``): the solver and the proposer at full size, on a GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from reharness.envs.errors import EngineError
from reharness.solver.models.base import EngineIdentity
from reharness.solver.models.chat import ChatTokenizer
from reharness.solver.models.local import LocalEngine
from reharness.solver.models.weights import check_folders, weights_hash


class VllmEngine(LocalEngine):
    """The model in ``folder``, with the LoRA ``adapter`` folder if one is given. vLLM batches continuously and caches
    shared prefixes; logits vary with the batch, so a greedy completion may too.

    Raises ``EngineError`` when vLLM is not installed, ``ConfigError`` for a folder that holds no model or adapter.
    """

    backend = "reharness.solver.models.vllm:VllmBackend"

    def __init__(
        self, folder: Path, *, adapter: Path | None = None, max_model_len: int | None = None,
        gpu_memory_utilization: float = 0.9,
    ) -> None:  # fmt: skip
        try:
            self._version = version("vllm")
        except PackageNotFoundError:
            raise EngineError(
                "vllm is not installed; on a machine with a GPU: pip install 'reharness[gpu]'. Without one use the"
                " engine kinds embedded, transformers or endpoint"
            ) from None
        check_folders(folder, adapter)
        self._folder, self._adapter, self._max_model_len = folder, adapter, max_model_len
        super().__init__({
            "folder": str(folder), "adapter": str(adapter) if adapter else None, "window": self.chat.window,
            "gpu_memory_utilization": gpu_memory_utilization,
        })  # fmt: skip

    @cached_property
    def identity(self) -> EngineIdentity:
        weights = weights_hash(self._folder, self._adapter)
        return EngineIdentity(f"vllm {self._version}", weights, "", self.chat.template_hash)

    @cached_property
    def chat(self) -> ChatTokenizer:
        return ChatTokenizer(self._folder, self._max_model_len)


class VllmBackend:
    """Runs in the worker: vLLM's own step loop, with its engine core in this same process, so that nothing outlives
    the worker."""

    def __init__(
        self, folder: str, adapter: str | None, window: int, gpu_memory_utilization: float, threads: int
    ) -> None:
        import os

        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm import EngineArgs, LLMEngine
        from vllm.lora.request import LoRARequest

        lora: dict[str, Any] = {}
        self.lora = None
        if adapter:
            rank = json.loads((Path(adapter) / "adapter_config.json").read_text(encoding="utf-8"))["r"]
            # vLLM takes powers of two from 8 up
            lora = {"enable_lora": True, "max_loras": 1, "max_lora_rank": max(8, 1 << (rank - 1).bit_length())}
            self.lora = LoRARequest("adapter", 1, adapter)
        self.info = {"weights": weights_hash(Path(folder), Path(adapter) if adapter else None)}
        self.eos = ChatTokenizer(Path(folder)).eos_ids
        self.engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=folder, max_model_len=window, gpu_memory_utilization=gpu_memory_utilization,
                generation_config="vllm",  # sampling is ours alone, not the model's defaults
                **lora,
            )
        )  # fmt: skip
        self.refused: list[tuple[int, dict[str, Any]]] = []

    def submit(self, request: int, payload: dict[str, Any]) -> None:
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        sampled = payload["temperature"] > 0
        params = SamplingParams(
            max_tokens=payload["max_tokens"], temperature=payload["temperature"],
            top_p=payload["top_p"] if sampled else 1.0, seed=payload["seed"] if sampled else None,
            stop=payload["stop"], stop_token_ids=self.eos, output_kind=RequestOutputKind.FINAL_ONLY,
        )  # fmt: skip
        try:
            prompt = TokensPrompt(prompt_token_ids=payload["ids"])
            self.engine.add_request(str(request), prompt, params, lora_request=self.lora)
        except ValueError as error:  # one request that vLLM will not take must not end the others
            self.refused.append((request, {"error": str(error)}))

    def cancel(self, request: int) -> None:
        self.engine.abort_request([str(request)])

    def busy(self) -> bool:
        return bool(self.refused) or self.engine.has_unfinished_requests()

    def step(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield from self.refused
        self.refused.clear()
        if not self.engine.has_unfinished_requests():
            return
        for output in self.engine.step():
            if output.finished:
                result = output.outputs[0]
                finish = "length" if result.finish_reason == "length" else "stop"
                yield int(output.request_id), {"ids": list(result.token_ids), "finish": finish, **self.info}
