"""Tokens and chat template of a local model, without torch: rendering, encoding and counting on the host."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from reharness.envs.errors import ConfigError
from reharness.envs.types import content_hash
from reharness.solver.models.base import Message, PromptRejected, PromptTooLong, Sampling


class ChatTokenizer:
    """The tokenizer of a model folder (tokenizer.json, tokenizer_config.json, a chat template). Prompts are rendered
    as Hugging Face renders them, and encoded with no special token added beyond those of the template. ``window``
    lowers the context window below the model's own.

    Raises ``ConfigError`` when a file is missing or unusable.
    """

    def __init__(self, folder: Path, window: int | None = None) -> None:
        from tokenizers import Tokenizer

        self.folder, self._lowered = folder, window
        if not (folder / "tokenizer.json").is_file():
            raise ConfigError(f"{folder}: has no tokenizer.json; give the folder of a transformers model")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._config = _read_json(folder / "tokenizer_config.json")

    @cached_property
    def template(self) -> str:
        """The source of the chat template."""
        file = self.folder / "chat_template.jinja"
        template = file.read_text(encoding="utf-8") if file.is_file() else self._config.get("chat_template")
        if isinstance(template, list):  # named templates: [{"name": ..., "template": ...}]
            template = {entry["name"]: entry["template"] for entry in template}.get("default")
        if not isinstance(template, str):
            raise ConfigError(f"{self.folder}: has no chat template; add chat_template.jinja, or use a chat model")
        return template

    @property
    def template_hash(self) -> str:
        return content_hash(self.template)[:16]

    @cached_property
    def window(self) -> int:
        """The context window in tokens: the smallest of what the model, its tokenizer and the caller say."""
        config = _read_json(self.folder / "config.json")
        config = config.get("text_config", config)
        known = [config.get("max_position_embeddings"), self._config.get("model_max_length"), self._lowered]
        return int(min((n for n in known if n and n < 1e9), default=1 << 30))

    @cached_property
    def eos_ids(self) -> list[int]:
        """The tokens that end a completion."""
        for file in ("generation_config.json", "config.json"):
            ids = _read_json(self.folder / file).get("eos_token_id")
            if ids is not None:
                return [ids] if isinstance(ids, int) else list(ids)
        token = self._config.get("eos_token")
        token = token["content"] if isinstance(token, dict) else token
        found = self._tokenizer.token_to_id(token) if token else None
        return [] if found is None else [found]

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt text up to and with the opening of the assistant's turn. Raises ``PromptRejected`` when the
        template refuses the messages (some know no system role)."""
        from jinja2 import TemplateError

        tokens = {k: v for k, v in self._config.items() if k.endswith("_token")}
        special = {k: v["content"] if isinstance(v, dict) else v for k, v in tokens.items()}
        try:
            return self._compiled.render(messages=list(messages), add_generation_prompt=True, **special)
        except TemplateError as error:
            raise PromptRejected(f"the model's chat template refuses these messages: {error}") from error

    @cached_property
    def _compiled(self) -> Any:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def raise_exception(text: str) -> None:
            raise TemplateError(text)

        # The options and helpers that chat templates are written for.
        env = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        env.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
        env.globals["raise_exception"] = raise_exception
        try:
            return env.from_string(self.template)
        except TemplateError as error:
            raise ConfigError(f"{self.folder}: its chat template cannot be compiled: {error}") from error

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids`` without special tokens."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def fit(self, prompt: str, sampling: Sampling) -> tuple[list[int], int]:
        """The prompt's tokens, and ``max_tokens`` lowered to what the window still holds. Raises ``PromptTooLong``."""
        ids = self.encode(prompt)
        if len(ids) >= self.window:
            raise PromptTooLong(f"the prompt has {len(ids)} tokens; the model's context window holds {self.window}")
        return ids, min(sampling.max_tokens, self.window - len(ids))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON: {error}") from error
