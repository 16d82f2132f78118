"""A tiny Llama with random weights and the embedded model's tokenizer: real TRL and PEFT in seconds."""

from __future__ import annotations

import shutil
from pathlib import Path


def tiny_model(folder: Path, seed: int = 0) -> Path:
    """A transformers model folder (2 layers of 64, 3.3 M weights, nearly all of them embeddings)."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from reharness.solver.models.embedded import tokenizer_folder

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=49152, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
        pad_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    for file in tokenizer_folder().iterdir():
        shutil.copy(file, folder / file.name)
    return folder
