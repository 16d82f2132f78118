"""Samples of an update: G proposals for each context by the weights that are being trained, written to the ledger
before they are used."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from reharness.envs.types import content_hash
from reharness.proposer.base_model import BaseModel, load_base
from reharness.proposer.grpo_config import GrpoConfig
from reharness.proposer.policy import Proposal
from reharness.proposer.stream import Drawn
from reharness.solver.ledger import Ledger
from reharness.solver.models.chat import ChatTokenizer

ROWS = 64
"""Completions that are decoded together."""


@dataclass(frozen=True)
class Sample:
    """One completion: its tokens (with the one that ended it), their log-probabilities when they were drawn, and
    ``"stop"`` or ``"length"``."""

    ids: tuple[int, ...]
    logps: tuple[float, ...]
    finish: str


class Sampler(Protocol):
    def __call__(self, prompts: Sequence[Sequence[int]], seeds: Sequence[Sequence[int]]) -> list[list[Sample]]:
        """One sample of ``prompts[i]`` per seed in ``seeds[i]``."""
        ...


class DecodingSampler:
    """Samples in this process. In fp32 a copy of the base takes the adapter into its weights before every update, which
    decodes faster; in bf16 that would round the adapter away, so the model in training is asked itself."""

    def __init__(self, config: GrpoConfig, base: BaseModel, model: Any, precision: str) -> None:
        self.config, self.model, self.chat = config, model, base.tokenizer
        self.copy = load_base(base, None, precision)[0].to(model.device).eval() if precision == "fp32" else None

    def __call__(self, prompts: Sequence[Sequence[int]], seeds: Sequence[Sequence[int]]) -> list[list[Sample]]:
        if self.copy is not None:
            merge_into(self.copy, self.model)
            return self._decoded(self.copy, prompts, seeds)
        training = self.model.training
        self.model.eval()
        try:
            return self._decoded(self.model, prompts, seeds)
        finally:
            self.model.train(training)

    def _decoded(self, model: Any, prompts: Sequence[Sequence[int]], seeds: Any) -> list[list[Sample]]:
        from reharness.solver.models.decode import DecodingBatch

        c = self.config
        done: dict[int, Sample] = {}
        payload = {"max_tokens": c.max_tokens, "temperature": c.temperature, "top_p": c.top_p, "stop": []}
        asked = [{**payload, "ids": list(ids), "seed": s} for ids, own in zip(prompts, seeds, strict=True) for s in own]
        for start in range(0, len(asked), ROWS):
            batch = DecodingBatch(model, self.chat, 0, list(enumerate(asked))[start : start + ROWS])
            while batch.rows:
                for row, finish in batch.step():
                    done[row.request] = Sample(tuple(row.ids), tuple(row.logps), finish)
        flat = iter(done[i] for i in range(len(asked)))
        return [[next(flat) for _ in own] for own in seeds]


class VllmSampler:
    """Samples with TRL's vLLM engine on the training GPU, whose prefix cache computes a group's prompt once."""

    def __init__(self, trainer: Any, eos: Sequence[int]) -> None:
        self.trainer, self.eos = trainer, frozenset(eos)

    def __call__(self, prompts: Sequence[Sequence[int]], seeds: Sequence[Sequence[int]]) -> list[list[Sample]]:
        n = len(seeds[0])
        repeated = [list(ids) for ids in prompts for _ in range(n)]
        ids, logps = self.trainer._generate_single_turn(repeated, None, {}, n)
        flat = [
            Sample(tuple(i), tuple(float(x) for x in p), "stop" if i and i[-1] in self.eos else "length")
            for i, p in zip(ids, logps, strict=True)
        ]
        return [flat[k * n : (k + 1) * n] for k in range(len(prompts))]


def merge_into(copy: Any, model: Any) -> None:
    """Gives ``copy``, a model without adapter, the weights of ``model``'s base with its adapter ``default`` added."""
    import torch
    from peft.tuners.lora import LoraLayer

    with torch.no_grad():
        for name, module in model.get_base_model().named_modules():
            if isinstance(module, LoraLayer):
                base: Any = module.get_base_layer()
                added = module.get_delta_weight("default")  # type: ignore[attr-defined]
                copy.get_submodule(name).weight.copy_(base.weight + added)


def weights_id(base: str, model: Any) -> str:
    """The id of the weights that are being trained: base weights and every trained tensor, by content."""
    digest = hashlib.sha256(base.encode())
    for name, tensor in sorted((n, p) for n, p in model.named_parameters() if p.requires_grad):
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()


@dataclass
class Rollout:
    """Proposals for the contexts of an update: asked of ``sampler``, or found in the ledger."""

    config: GrpoConfig
    chat: ChatTokenizer
    ledger: Ledger
    sampler: Sampler
    seconds: float = 0.0

    def prompt(self, drawn: Drawn) -> list[int]:
        return self.chat.encode(self.chat.render(drawn.context.messages))

    def __call__(
        self, drawn: Sequence[Drawn], weights: str, update: int, attempt: int
    ) -> tuple[list[list[Proposal]], list[list[Sample]]]:
        """The proposals and their samples, aligned with ``drawn``. They are one record, keyed by all that determines
        it: an update that is done again after a kill reads what it had sampled, or samples all of it as before."""
        c = self.config
        sampling = [c.temperature, c.top_p, c.max_tokens, c.group_size, c.seed, c.vllm]
        key = content_hash("grpo", weights, [d.context.key for d in drawn], update, attempt, sampling)
        if (record := self.ledger.get("proposal", key)) is None:
            started = time.monotonic()
            prompts = [self.prompt(d) for d in drawn]
            seeds = [
                [int(content_hash(key, i, k)[:8], 16) >> 1 for k in range(c.group_size)] for i in range(len(drawn))
            ]
            found = self.sampler(prompts, seeds)
            self.seconds += time.monotonic() - started
            record = {"groups": [
                self._group(d, weights, len(ids), own) for d, ids, own in zip(drawn, prompts, found, strict=True)
            ]}  # fmt: skip
            self.ledger.put("proposal", key, record)
        return (
            [[Proposal(**row) for row in group["proposals"]] for group in record["groups"]],
            [[Sample(tuple(s["ids"]), tuple(s["logps"]), s["finish"]) for s in g["samples"]] for g in record["groups"]],
        )

    def _group(self, drawn: Drawn, weights: str, prompt: int, samples: Sequence[Sample]) -> dict[str, Any]:
        proposals = [
            Proposal(drawn.context.key, k, self.chat.decode(s.ids), weights, prompt, len(s.ids), s.finish)
            for k, s in enumerate(samples)
        ]
        return {"proposals": [asdict(p) for p in proposals], "samples": [asdict(s) for s in samples]}
