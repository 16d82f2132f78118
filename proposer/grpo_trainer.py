"""TRL's GRPOTrainer as GRPO of a proposer uses it: groups given, one pass per group, dead groups out of the loss."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reharness.envs.errors import ConfigError, EngineError, LedgerError
from reharness.proposer.base_model import load_base, lora_config
from reharness.proposer.checkpoints import Checkpoints, need_room
from reharness.proposer.grpo_plan import GrpoPlan
from reharness.proposer.grpo_update import Experience, Group
from reharness.proposer.rollout import weights_id
from reharness.proposer.shared_prompt import group_logps
from reharness.proposer.training import Watch, recorder

STATE = "experience.json"
MAX_LOGP_GAP = 0.1
"""Mean difference between the log-probabilities of sampler and trainer, in nats a token, above which a run stops: the
sampler then has other weights (trl#5312, verl#7495). Two precisions of one model differ by some hundredths."""


def trl_config(plan: GrpoPlan, folder: Path) -> Any:
    """TRL's configuration of the run: a micro-batch is a group, an optimiser step has ``groups`` of them, and the
    samples of an update serve ``iterations`` steps. Raises ``ValueError`` for settings that do not go together."""
    from trl.trainer.grpo_config import GRPOConfig

    c, constant = plan.config, "constant_with_warmup" if plan.config.warmup else "constant"
    return GRPOConfig(
        output_dir=str(folder), seed=c.seed, use_cpu=plan.device == "cpu", bf16=plan.precision == "bf16",
        dataloader_pin_memory=plan.device != "cpu", learning_rate=c.lr, warmup_steps=c.warmup,
        lr_scheduler_type=constant if c.schedule == "constant" else c.schedule, weight_decay=c.weight_decay,
        max_grad_norm=c.max_grad_norm, max_steps=plan.steps, num_generations=c.group_size,
        per_device_train_batch_size=c.group_size, gradient_accumulation_steps=c.groups, steps_per_generation=c.groups,
        num_iterations=c.iterations, max_completion_length=c.max_tokens, temperature=c.temperature, top_p=c.top_p,
        top_k=0, beta=c.beta, epsilon=c.epsilon, epsilon_high=c.epsilon_high, loss_type=c.loss_type,
        scale_rewards=c.scale_rewards, importance_sampling_level=c.importance_sampling_level,
        mask_truncated_completions=c.mask_truncated, shuffle_dataset=False, ignore_data_skip=True,
        gradient_checkpointing=c.gradient_checkpointing, use_vllm=c.vllm, vllm_mode="colocate",
        vllm_gpu_memory_utilization=c.vllm_memory, save_strategy="steps", save_steps=c.save_every * c.iterations,
        save_total_limit=None, logging_steps=1, logging_nan_inf_filter=False, report_to=list(c.report_to),
        disable_tqdm=True, disable_dropout=True,
    )  # fmt: skip


def make_trainer(plan: GrpoPlan, checkpoints: Checkpoints) -> Any:
    """The trainer; its ``experience`` must be set before it trains. Raises ``ConfigError`` when it cannot be built."""
    from datasets import Dataset
    from trl.trainer.grpo_trainer import GRPOTrainer

    class GroupTrainer(GRPOTrainer):
        """A micro-batch is a group, so that its completions can share the pass over their prompt."""

        experience: Experience
        _buffered_inputs: Any
        preparing = passing = 0.0
        """Seconds so far in `_prepare_inputs`, and in passes of the model and steps back through it."""

        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            started, before = time.monotonic(), self.preparing
            loss = super().training_step(*args, **kwargs)
            self.passing += time.monotonic() - started - (self.preparing - before)
            return loss

        def groups(self) -> list[Group]:
            """The groups of the update that begins, by the weights as they are now."""
            update = self.state.global_step // self.num_iterations
            return self.experience(update, weights_id(plan.base.weights, self.model))

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            # TRL's shuffles the completions before it splits them, which would tear groups apart.
            from trl.trainer.utils import split_tensor_dict

            started, parts = time.monotonic(), plan.config.groups
            if self._step % (parts * self.num_iterations) == 0 or self._buffered_inputs is None:
                batch = self._generate_and_score_completions(generation_batch)
                self._buffered_inputs = split_tensor_dict(batch, parts)
            self.preparing += time.monotonic() - started
            return self._buffered_inputs[self._step % parts]

        def _get_per_token_logps_and_entropies(
            self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: Any, batch_size: Any = None,
            compute_entropy: bool = False, compute_aux_loss: bool = False, **inputs: Any,
        ) -> Any:  # fmt: skip
            import torch

            started = time.monotonic()
            if not plan.config.share_prompt or compute_aux_loss or any(v is not None for v in inputs.values()):
                found = super()._get_per_token_logps_and_entropies(
                    model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy, compute_aux_loss,
                    **inputs,
                )  # fmt: skip
            else:
                size = batch_size or len(input_ids)
                groups = zip(input_ids.split(size), attention_mask.split(size), strict=True)
                with self.accelerator.autocast():
                    pairs = [group_logps(model, *group, logits_to_keep, plan.config.pack_tokens) for group in groups]
                logps, entropies = (torch.cat(values) for values in zip(*pairs, strict=True))
                found = logps, entropies if compute_entropy else None, None
            self._last_logps = found[0].detach()
            if not torch.is_grad_enabled():  # before the steps: what the policy or the reference thought of the samples
                self.passing += time.monotonic() - started
            return found

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            mask = inputs["completion_mask"] * inputs["tool_mask"]
            if not mask.any():  # a group that is not trained on: no pass over it
                return sum(p.sum() * 0.0 for p in model.parameters() if p.requires_grad)
            loss = super()._compute_loss(model, inputs)
            if self._step % (plan.config.groups * self.num_iterations) < plan.config.groups:  # weights as sampled
                gap = (self._last_logps - inputs["sampling_per_token_logps"]).abs()[mask.bool()].mean().item()
                self._metrics["train"]["sampling/sampling_logp_difference/mean"].append(gap)
                if plan.config.top_p == 1 and not gap <= MAX_LOGP_GAP:
                    raise EngineError(
                        f"update {self.state.global_step // self.num_iterations + 1}: sampler and trainer differ by"
                        f" {gap:.3f} nats a token: they have not got the same weights; nothing was learnt from it"
                    )
            return loss

    c = plan.config
    model, tokenizer = load_base(plan.base, c.adapter, plan.precision)
    try:
        trainer = GroupTrainer(
            model=model, args=trl_config(plan, checkpoints.aside), processing_class=tokenizer, reward_funcs=paid,
            rollout_func=rolled_out,
            train_dataset=Dataset.from_dict({"prompt": ["drawn by the stream"] * c.groups}),
            peft_config=None if c.adapter else lora_config(c.lora),
        )  # fmt: skip
    except ValueError as error:  # PEFT: targets that name no layer; TRL: settings that do not go together
        raise ConfigError(f"the trainer cannot be built: {error}") from error
    if trainer.accelerator.num_processes > 1:
        raise ConfigError("GRPO of a proposer runs in one process (one GPU); start it without torchrun or accelerate")
    return trainer


def paid(reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """The reward function that TRL asks for: `judge` has paid every completion already."""
    return list(reward)


def rolled_out(prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
    """TRL's ``rollout_func``: the groups of an update, row by row. A completion that left its group, or whose group is
    not trained on, has no reward and no token in the loss."""
    rows = [(g, s, r) for g in trainer.groups() for s, r in zip(g.samples, g.rewards, strict=True)]
    if len(rows) != len(prompts):
        raise ConfigError(f"{len(rows)} completions for the {len(prompts)} of an update; make more contexts")
    rewards = [r if g.trains else None for g, _, r in rows]
    return {
        "prompt_ids": [trainer.experience.rollout.prompt(g.drawn) for g, _, _ in rows],
        "completion_ids": [list(s.ids) for _, s, _ in rows],
        "logprobs": [list(s.logps) for _, s, _ in rows],
        "env_mask": [[int(r is not None)] * len(s.ids) for (_, s, _), r in zip(rows, rewards, strict=True)],
        "reward": rewards,
    }


def train(
    plan: GrpoPlan, trainer: Any, out: Path, checkpoints: Checkpoints, watch: Watch | None, last: Path | None
) -> None:
    """Trains from the checkpoint ``last``, or from the start, to the last step.

    Raises ``ConfigError`` for a loss that is no number, ``LedgerError`` when the disk has no room for the checkpoints,
    and what `Experience` raises.
    """
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    need_room(out, 12 * trainer.model.num_parameters(only_trainable=True))  # the adapter and two Adam moments, fp32
    experience: Experience = trainer.experience
    if last:
        try:
            experience.restore(json.loads((last / STATE).read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LedgerError(f"{last / STATE}: cannot be read ({error}); remove that checkpoint") from error

    def save(written: Path) -> None:
        (written / STATE).write_text(json.dumps(experience.state(), sort_keys=True), encoding="utf-8")

    def line(step: int, logs: dict[str, Any], seconds: float) -> dict[str, Any]:
        passing, trainer.passing = trainer.passing, 0.0
        times = {"seconds/update": round(passing, 3), "seconds": round(seconds, 3)}
        return {**_metrics(plan, experience, step, logs), **times}

    trainer.add_callback(recorder(out, checkpoints, last, line, watch, plan.steps, save))
    trainer.train(resume_from_checkpoint=str(last) if last else None)


_LOGGED = ("kl", "entropy", "clip_ratio/region_mean", "sampling/sampling_logp_difference/mean")


def _metrics(plan: GrpoPlan, experience: Experience, step: int, logs: dict[str, Any]) -> dict[str, Any]:
    """One line of metrics.jsonl: the optimiser step, and with the first step of an update what it was made of."""
    if not (math.isfinite(logs["loss"]) and math.isfinite(logs["grad_norm"])):
        raise ConfigError(
            f"step {step}: loss {logs['loss']}, gradient norm {logs['grad_norm']}: the training has diverged;"
            " lower `lr`, in a new run folder"
        )
    update, inner = divmod(step - 1, plan.config.iterations)
    made = {} if inner else experience.metrics
    return {
        "step": step, "update": update + 1, "loss": logs["loss"], "lr": logs["learning_rate"],
        "grad_norm": logs["grad_norm"], **{k: logs[k] for k in _LOGGED if logs.get(k) is not None}, **made,
    }  # fmt: skip
