"""Where reharness keeps what it can make again: generated questions, converted models."""

from __future__ import annotations

import os
from pathlib import Path

from reharness.envs.errors import ConfigError


def cache_dir(*parts: str) -> Path:
    """The user cache folder of reharness (or the folder below it named by ``parts``), made when missing.

    ``REHARNESS_CACHE`` in the environment overrides the platform's own place. Raises ConfigError when the folder
    cannot be made.
    """
    root = os.environ.get("REHARNESS_CACHE")
    if root:
        base = Path(root).expanduser()
    else:
        from platformdirs import user_cache_path

        base = user_cache_path("reharness", appauthor=False)
    folder = base.joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigError(f"cannot make the cache folder {folder}: {e}; set REHARNESS_CACHE to another place") from e
    return folder


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` (UTF-8) so that a reader sees the old file or the whole new one, never a part. Raises OSError."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with aside.open("w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
