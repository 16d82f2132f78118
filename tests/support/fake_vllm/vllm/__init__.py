"""A fake of the part of vLLM 0.31 that the engine uses, with its names and signatures: it "decodes" by echoing the
prompt's tokens. It shows that the engine asks rightly, not that vLLM answers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from vllm.sampling_params import SamplingParams as SamplingParams


@dataclass
class EngineArgs:
    model: str
    max_model_len: int
    gpu_memory_utilization: float
    generation_config: str
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16


class TokensPrompt(dict):
    pass


class LLMEngine:
    def __init__(self, args):
        assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
        self.args, self.requests = args, {}

    @classmethod
    def from_engine_args(cls, engine_args):
        return cls(engine_args)

    def add_request(self, request_id, prompt, params, arrival_time=None, lora_request=None):
        if not isinstance(request_id, str):
            raise TypeError("request_id must be a string")
        if params.stop == ["REFUSE"]:
            raise ValueError("these parameters are refused")
        self.requests[request_id] = (list(prompt["prompt_token_ids"]), params, lora_request)
        return request_id

    def abort_request(self, request_ids, internal=False):
        for request in request_ids:
            self.requests.pop(request, None)

    def has_unfinished_requests(self):
        return bool(self.requests)

    def step(self):
        outputs = []
        for request, (ids, params, lora) in self.requests.items():
            if lora is not None:
                assert self.args.enable_lora and lora.lora_int_id > 0 and Path(lora.lora_path).is_dir()
                ids = [ids[0]] * len(ids)  # an adapter changes the output
            if params.temperature > 0:
                ids = ids[params.seed % len(ids) :]
            finish = "length" if len(ids) > params.max_tokens else "stop"
            result = SimpleNamespace(token_ids=ids[: params.max_tokens], finish_reason=finish)
            outputs.append(SimpleNamespace(request_id=request, finished=True, outputs=[result]))
        self.requests.clear()
        return outputs
