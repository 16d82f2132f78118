"""From a configuration to an engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from pydantic import BeforeValidator, Field

from reharness.envs.config import Config, parse_config
from reharness.envs.errors import ConfigError, UnknownNameError
from reharness.solver.models.base import Engine
from reharness.solver.models.chat import ChatTokenizer

EMBEDDED = "embedded"
"""As the name of a model folder: the embedded model's own."""


class EmbeddedConfig(Config):
    """The embedded model on the CPU, by openvino-genai."""

    kind: Literal["embedded"] = "embedded"
    batch: int = Field(32, ge=1, le=256)
    exact: bool = False
    threads: int | None = Field(None, ge=1)


class TransformersConfig(Config):
    """A local transformers model folder, with a LoRA adapter folder if one is given."""

    kind: Literal["transformers"] = "transformers"
    model: str = EMBEDDED
    adapter: Path | None = None
    batch: int = Field(16, ge=1, le=256)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = Field(None, ge=1)


class EndpointConfig(Config):
    """An OpenAI-compatible endpoint. Mode ``templated`` sends text put through the chat template of ``tokenizer``."""

    kind: Literal["endpoint"] = "endpoint"
    url: str
    model: str
    mode: Literal["chat", "templated"] = "chat"
    tokenizer: str | None = None
    key_env: str = "OPENAI_API_KEY"
    concurrency: int = Field(32, ge=1)
    timeout_s: float = Field(120.0, gt=0)
    retries: int = Field(5, ge=0, le=20)


class VllmConfig(Config):
    """A local transformers model folder in vLLM, on a GPU (extra ``gpu``)."""

    kind: Literal["vllm"] = "vllm"
    model: Path
    adapter: Path | None = None
    max_model_len: int | None = Field(None, ge=1)
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)


class ScriptedConfig(Config):
    """Fixed replies: a list in order of arrival, or a mapping from prompt to reply."""

    kind: Literal["scripted"] = "scripted"
    replies: list[str] | dict[str, str]
    latency_s: float = Field(0.0, ge=0)


class ReplayConfig(Config):
    """Completions that a ``RecordingEngine`` wrote."""

    kind: Literal["replay"] = "replay"
    path: Path


EngineConfig = EmbeddedConfig | TransformersConfig | EndpointConfig | VllmConfig | ScriptedConfig | ReplayConfig

KINDS: dict[str, type[Config]] = {
    "embedded": EmbeddedConfig, "transformers": TransformersConfig, "endpoint": EndpointConfig,
    "vllm": VllmConfig, "scripted": ScriptedConfig, "replay": ReplayConfig,
}  # fmt: skip


def engine_config(spec: str | Mapping[str, Any] | EngineConfig, where: str = "engine") -> EngineConfig:
    """The checked configuration of ``spec``: one already, its plain data, or a string such as ``"embedded"`` or
    ``"endpoint?url=http://localhost:8000/v1&model=name"``.

    Raises ``UnknownNameError`` for an unknown kind or key, ``ConfigError`` for a value that cannot be used.
    """
    if isinstance(spec, Config):
        return spec
    if isinstance(spec, str):
        kind, _, query = spec.partition("?")
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        except ValueError:
            raise ConfigError(f"{where} {spec!r}: write it as kind?key=value&key=value") from None
        spec = {**dict(pairs), "kind": kind}
    if not isinstance(spec, Mapping):
        raise ConfigError(f"{where} = {spec!r}: write a table with `kind`, or a string such as \"embedded\"")
    kind = str(spec.get("kind", "embedded"))
    if kind not in KINDS:
        raise UnknownNameError("engine kind", kind, KINDS, where)
    return parse_config(KINDS[kind], spec, where)  # type: ignore[return-value]


EngineField = Annotated[EngineConfig, BeforeValidator(engine_config)]
"""An engine as a field of another configuration: a table with ``kind``, or the string form."""


def make_engine(spec: str | Mapping[str, Any] | EngineConfig, where: str = "engine") -> Engine:
    """The engine of ``spec`` (see ``engine_config``). Nothing is loaded or connected before it is first used, or
    probed."""
    config = engine_config(spec, where)
    match config:
        case EmbeddedConfig():
            from reharness.solver.models.openvino import OpenVinoEngine

            return OpenVinoEngine(batch=config.batch, exact=config.exact, threads=config.threads)
        case TransformersConfig():
            from reharness.solver.models.hf import TransformersEngine

            return TransformersEngine(
                None if config.model == EMBEDDED else Path(config.model), adapter=config.adapter,
                batch=config.batch, device=config.device, threads=config.threads,
            )  # fmt: skip
        case EndpointConfig():
            from reharness.solver.models.endpoint import EndpointEngine

            return EndpointEngine(
                config.url, config.model, tokenizer=_tokenizer(config, where), key_env=config.key_env,
                concurrency=config.concurrency, timeout_s=config.timeout_s, retries=config.retries,
            )  # fmt: skip
        case VllmConfig():
            from reharness.solver.models.vllm import VllmEngine

            return VllmEngine(
                config.model, adapter=config.adapter, max_model_len=config.max_model_len,
                gpu_memory_utilization=config.gpu_memory_utilization,
            )  # fmt: skip
        case ScriptedConfig():
            from reharness.solver.models.scripted import ScriptedEngine

            return ScriptedEngine(config.replies, latency_s=config.latency_s)
        case ReplayConfig():
            from reharness.solver.models.replay import ReplayEngine

            return ReplayEngine.load(config.path)


def _tokenizer(config: EndpointConfig, where: str) -> ChatTokenizer | None:
    if config.mode == "chat":
        if config.tokenizer:
            raise ConfigError(f"{where}: tokenizer is for mode = 'templated'; in mode 'chat' the endpoint templates")
        return None
    if not config.tokenizer:
        raise ConfigError(f"{where}: mode = 'templated' needs tokenizer, a model folder or {EMBEDDED!r}")
    if config.tokenizer == EMBEDDED:
        from reharness.solver.models.embedded import tokenizer_folder

        return ChatTokenizer(tokenizer_folder())
    return ChatTokenizer(Path(config.tokenizer))
