"""Model and adapter folders: are they what they should be, and which weights are they?"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from reharness.envs.errors import ConfigError
from reharness.solver.models.embedded import file_hash, gguf_hash


def check_folders(folder: Path | None, adapter: Path | None) -> None:
    """Raises ``ConfigError`` for a model or adapter folder that is none."""
    for path, file, what in ((folder, "config.json", "model"), (adapter, "adapter_config.json", "LoRA adapter")):
        if path is not None and not (path / file).is_file():
            raise ConfigError(f"{path}: holds no {file}; give the folder of a transformers {what}")


def weights_hash(folder: Path | None, adapter: Path | None) -> str:
    """The id of a model: hash of the weights and configuration in ``folder`` (None: of the embedded GGUF, which is
    what the folder is made from), and of those in ``adapter``. Raises ``ConfigError`` when a folder has no weights."""
    parts = [] if folder else [["gguf", gguf_hash()]]
    for path, config in ((folder, "config.json"), (adapter, "adapter_config.json")):
        if path is None:
            continue
        files = sorted(path.glob("*.safetensors")) or sorted(path.glob("*.bin"))
        if not files:
            raise ConfigError(f"{path}: holds no weights (*.safetensors)")
        parts += [[f.name, file_hash(f)] for f in [*files, path / config]]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
