"""The frozen model under an adapter: found, described and counted without weights, and loaded for training."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reharness.envs.errors import ConfigError
from reharness.proposer.train_config import LoraSettings, TrainConfig
from reharness.solver.models.chat import ChatTokenizer
from reharness.solver.models.embedded import gguf_path, model_folder, tokenizer_folder
from reharness.solver.models.factory import EMBEDDED
from reharness.solver.models.weights import check_folders, weights_hash

EMBEDDED_HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")

GIB = 1 << 30

SHAPES: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-4B": {
        "model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936,
        "max_position_embeddings": 40_960, "tie_word_embeddings": True,
    },
}  # fmt: skip
"""Of the hub models that recipes name, from their public config.json: enough to plan a run before the download."""


@dataclass(frozen=True)
class BaseModel:
    """The model that stays frozen under the adapter. ``folder`` is None for the embedded one, and for a hub model that
    is not on this machine (``here`` is False)."""

    name: str
    folder: Path | None
    here: bool = True

    @property
    def label(self) -> str:
        """Its name for other people: no path of this machine."""
        if self.name == EMBEDDED:
            return EMBEDDED_HUB_NAME
        return Path(self.name).resolve().name if Path(self.name).is_dir() else self.name

    @property
    def described(self) -> bool:
        """Whether ``architecture`` can tell its shape."""
        return self.here or self.name in SHAPES

    @cached_property
    def weights(self) -> str:
        """The id of its weights, as engines report it."""
        return weights_hash(self.folder, None)

    def weights_with(self, adapter: Path) -> str:
        return weights_hash(self.folder, adapter)

    @property
    def tokenizer(self) -> ChatTokenizer:
        return ChatTokenizer(self.folder or tokenizer_folder())

    def loadable(self) -> Path:
        """A folder that transformers can load (the embedded model is converted once, in half a minute)."""
        return self.folder or model_folder()

    def architecture(self) -> Any:
        """Its transformers configuration."""
        from transformers import AutoConfig

        if not self.here:
            return AutoConfig.for_model(**SHAPES[self.name])
        if self.folder is None:
            path = gguf_path()
            return AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
        return AutoConfig.from_pretrained(self.folder, local_files_only=True)


def find_base(name: str, fetch: bool) -> BaseModel:
    """The base model called ``name``: ``embedded``, a folder, or a name on the hub, downloaded if ``fetch``.

    Raises ``ConfigError`` for what is none of these.
    """
    if name == EMBEDDED:
        return BaseModel(name, None)
    if (folder := Path(name)).is_dir():
        check_folders(folder, None)
        return BaseModel(name, folder)
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ConfigError(f"model = {name!r}: is no folder here, nor a hub name such as 'Qwen/Qwen3-4B'")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    wanted = ["*.json", "*.safetensors", "*.jinja", "*.txt"]
    try:
        return BaseModel(name, Path(snapshot_download(name, allow_patterns=wanted, local_files_only=not fetch)))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        if not fetch:
            return BaseModel(name, None, here=False)
        raise ConfigError(
            f"model = {name!r}: could not be fetched from the hub ({type(error).__name__}); give the path of a folder,"
            " or download it where there is a network and give that"
        ) from error


def load_base(base: BaseModel, adapter: Path | None, precision: str) -> tuple[Any, Any]:
    """The model (with ``adapter`` to go on from, if there is one) and its tokenizer. Raises ``ConfigError``."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = base.loadable()
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return PeftModel.from_pretrained(model, adapter, is_trainable=True) if adapter else model, tokenizer
    except (OSError, ValueError) as error:
        raise ConfigError(f"model = {base.name!r}: cannot be loaded from {folder}: {error}") from error


def parameters(base: BaseModel, lora: LoraSettings) -> tuple[str, int, int]:
    """The model's class, and the parameters of base and adapter, counted on a model without weights.

    Raises ``ConfigError`` when the targets name no layer of the model.
    """
    import torch
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_config(base.architecture())
        total = sum(p.numel() for p in model.parameters())
        try:
            adapted = get_peft_model(model, lora_config(lora))
        except ValueError as error:
            raise ConfigError(f"lora.targets = {lora.targets!r}: {error}") from None
    return type(model).__name__, total, sum(p.numel() for p in adapted.parameters() if p.requires_grad)


def lora_of(adapter: Path) -> LoraSettings:
    """The settings of an adapter's folder. Raises ``ConfigError`` for one that cannot be read."""
    path = adapter / "adapter_config.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        named = data["target_modules"]
        targets = named if isinstance(named, str) else tuple(sorted(named))
        return LoraSettings(r=data["r"], alpha=data["lora_alpha"], dropout=data["lora_dropout"], targets=targets)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: is no LoRA configuration ({type(error).__name__}: {error})") from None


def lora_config(lora: LoraSettings) -> Any:
    from peft import LoraConfig

    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    return LoraConfig(
        r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=targets, task_type="CAUSAL_LM"
    )


def pick_device(wanted: str, strict: bool) -> str:
    """``cpu`` or ``cuda``. Raises ``ConfigError`` when ``strict`` and there is no GPU where one is asked for."""
    import torch

    there = torch.cuda.is_available()
    if wanted == "cuda" and not there and strict:
        raise ConfigError("device = 'cuda': torch sees no GPU here; use device = 'cpu', or a machine with a GPU")
    return ("cuda" if there else "cpu") if wanted == "auto" else wanted


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions() -> dict[str, str]:
    return {name: version(name) for name in PACKAGES}


def training_memory(base: BaseModel, config: TrainConfig, precision: str, tokens: int) -> dict[str, Any]:
    """About how many bytes training takes on its device: weights, adapter (weight, gradient and two Adam moments in
    fp32: 16 bytes each), and the activations kept for the backward pass over ``tokens``.

    Per token and layer these are the inputs and outputs of norms, projections and the gated MLP, as in Korthikanti et
    al. (2205.05198) without the attention matrix, which fused attention does not keep; with gradient checkpointing a
    layer keeps its input, and one layer at a time is whole.
    """
    lora = lora_of(config.adapter) if config.adapter else config.lora
    c = base.architecture()
    c = getattr(c, "text_config", None) or c
    name, total, trained = parameters(base, lora)
    width = 2 if precision == "bf16" else 4
    head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    keys = getattr(c, "num_key_value_heads", None) or c.num_attention_heads
    layer = 6 * c.hidden_size + 2 * head * (c.num_attention_heads + keys) + 4 * c.intermediate_size
    if lora.dropout:
        layer += 5 * c.hidden_size + head * c.num_attention_heads + c.intermediate_size  # each projection's own input
    kept = layer + c.num_hidden_layers * c.hidden_size if config.gradient_checkpointing else (
        layer * c.num_hidden_layers
    )  # fmt: skip
    return {
        "class": name,
        "parameters": total,
        "trained": trained,
        "weights": width * total,
        "adapter": 16 * trained,
        "activations": width * kept * tokens,
    }
