"""TRL's SFTTrainer as fine-tuning uses it: tokens and order given, a line of metrics per step, sealed checkpoints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from reharness.envs.errors import ConfigError
from reharness.proposer.base_model import load_base, lora_config
from reharness.proposer.checkpoints import Checkpoints, need_room
from reharness.proposer.sft_data import IGNORED
from reharness.proposer.sft_plan import SftPlan
from reharness.proposer.training import Watch, recorder


def train(plan: SftPlan, out: Path, checkpoints: Checkpoints, watch: Watch | None) -> Any:
    """Trains from the last whole checkpoint, or from the start, to the last step; returns the PEFT model.

    Raises ``ConfigError`` for a model that cannot be loaded, targets that name no layer, or a loss that is no number;
    ``LedgerError`` when the disk has no room for the checkpoints.
    """
    from transformers import PrinterCallback, set_seed

    set_seed(plan.config.seed)  # the adapter's first weights are random
    trainer = _trainer(plan, checkpoints)
    trainer.remove_callback(PrinterCallback)
    model = trainer.model
    need_room(out, 12 * model.num_parameters(only_trainable=True))  # the adapter and two Adam moments, fp32
    last = checkpoints.latest()
    trainer.add_callback(recorder(out, checkpoints, last, lambda *done: _metrics(plan, *done), watch, plan.steps))
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    return model


def _trainer(plan: SftPlan, checkpoints: Checkpoints) -> Any:
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig as TrlConfig
    from trl.trainer.sft_trainer import SFTTrainer

    class CompletionTrainer(SFTTrainer):
        """TRL's, but off the GPU too the output head is spared the prompt. Without Triton TRL puts every position
        through it and drops the prompt's: nearly half the time of a step, for a small model with a large vocabulary."""

        def compute_loss(
            self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            if plan.device != "cpu" or return_outputs:
                return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
            loss, right = completion_loss(model, inputs, num_items_in_batch)
            self._metrics["train"]["mean_token_accuracy"].append(right)
            return loss

    config = plan.config
    assert plan.encoded is not None
    rows = Dataset.from_dict({
        "input_ids": [e.input_ids for e in plan.encoded], "labels": [e.labels for e in plan.encoded]
    })  # fmt: skip
    constant = "constant_with_warmup" if config.warmup else "constant"
    args = TrlConfig(
        output_dir=str(checkpoints.aside), seed=config.seed, use_cpu=plan.device == "cpu",
        bf16=plan.precision == "bf16", dataloader_pin_memory=plan.device != "cpu",
        learning_rate=config.lr, lr_scheduler_type=constant if config.schedule == "constant" else config.schedule,
        warmup_steps=config.warmup, weight_decay=config.weight_decay, max_grad_norm=config.max_grad_norm,
        num_train_epochs=1, train_sampling_strategy="sequential",  # `plan.order` holds all epochs, shuffled
        per_device_train_batch_size=config.batch, gradient_accumulation_steps=config.accumulation, max_length=None,
        gradient_checkpointing=config.gradient_checkpointing,
        save_strategy="steps", save_steps=config.save_every, save_total_limit=None,
        logging_steps=1, logging_nan_inf_filter=False, report_to=list(config.report_to), disable_tqdm=True,
    )  # fmt: skip
    model, tokenizer = load_base(plan.base, config.adapter, plan.precision)
    try:
        return CompletionTrainer(
            model=model, args=args, train_dataset=rows.select(plan.order), processing_class=tokenizer,
            peft_config=None if config.adapter else lora_config(config.lora),
        )  # fmt: skip
    except ValueError as error:  # PEFT: targets that name no layer; TRL: settings that do not go together
        raise ConfigError(f"the trainer cannot be built: {error}") from error


def completion_loss(model: Any, inputs: dict[str, Any], count: Any = None) -> tuple[Any, float]:
    """Negative log-likelihood of the labelled tokens of a batch, summed and divided by ``count`` (those of the whole
    optimiser step; None: those of this batch), and the share of them that the model would have chosen itself.

    ``inputs``: input_ids, attention_mask and labels, [rows, tokens] each. Only positions before a label reach the head.
    """
    from torch.nn.functional import cross_entropy

    following = inputs["labels"][:, 1:]
    positions = (following != IGNORED).any(dim=0).nonzero().squeeze(1)
    rest = {name: value for name, value in inputs.items() if name != "labels"}
    logits = model(**rest, use_cache=False, logits_to_keep=positions).logits.float()
    labels = following[:, positions]
    labelled = labels != IGNORED
    loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
    right = (logits.detach().argmax(-1) == labels)[labelled].float().mean().item()
    return loss / (labelled.sum() if count is None else count), right


def _metrics(plan: SftPlan, step: int, logs: dict[str, Any], seconds: float) -> dict[str, Any]:
    """One line of metrics.jsonl. ``tokens`` are those of all steps so far; ``seconds`` are this step's. Raises
    ``ConfigError`` for a loss or gradient that is no number."""
    if not (math.isfinite(logs["loss"]) and math.isfinite(logs["grad_norm"])):
        raise ConfigError(
            f"step {step}: loss {logs['loss']}, gradient norm {logs['grad_norm']}: the training has diverged;"
            " lower `lr` or raise `warmup`, in a new run folder"
        )
    before, after = plan.tokens_after[step - 1 : step + 1]
    return {
        "step": step,
        "epoch": plan.epochs_after(step),
        "loss": logs["loss"],
        "lr": logs["learning_rate"],
        "grad_norm": logs["grad_norm"],
        "mean_token_accuracy": logs["mean_token_accuracy"],
        "tokens": after,
        "tokens_per_second": round((after - before) / seconds, 1),
        "seconds": round(seconds, 3),
    }
