"""Proposers by name: the built-in ones and those that other packages register by entry point."""

from __future__ import annotations

import inspect
from importlib.metadata import entry_points
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from reharness.envs.config import Config
from reharness.envs.errors import ConfigError, UnknownNameError
from reharness.proposer.move_search import MoveSearch, RandomMove
from reharness.proposer.policy import ModelProposer, Proposer
from reharness.solver.models.base import Engine, Sampling
from reharness.solver.models.factory import KINDS, EmbeddedConfig, EngineField, engine_config

GROUP = "reharness.proposers"
BUILT_IN = ("model", "move_search", "random_move")


class ProposerConfig(Config):
    """``name`` is a built-in proposer or an entry point; ``params`` go to an entry point's callable. ``engine``,
    ``temperature``, ``top_p``, ``max_tokens`` and ``think`` (the chat template opens `<think>`) are for ``model``."""

    name: str = "model"
    label: str = ""
    """What tables call it; the name when empty."""
    engine: EngineField = EmbeddedConfig()
    temperature: float = Field(0.8, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int = Field(512, ge=1)
    think: bool = False
    seed: int = 0
    params: dict[str, Any] = {}

    @property
    def title(self) -> str:
        return self.label or self.name


def proposer_config(spec: Any) -> Any:
    """What a string means where a proposer is configured: a proposer's name, or the engine of a ``model`` proposer,
    such as ``"transformers?adapter=runs/sft/adapter"``. Anything else is left as it is.

    Raises ``UnknownNameError`` for a string that is neither.
    """
    if not isinstance(spec, str):
        return spec
    if spec in proposer_names():
        return ProposerConfig(name=spec)
    if spec.partition("?")[0] in KINDS:
        return ProposerConfig(name="model", label=spec, engine=engine_config(spec, "proposer"))
    raise UnknownNameError("proposer", spec, [*proposer_names(), *KINDS])


ProposerField = Annotated[ProposerConfig, BeforeValidator(proposer_config)]
"""A proposer as a field of another configuration: a table, or the string form."""


def proposer_names() -> list[str]:
    return sorted({*BUILT_IN, *(e.name for e in entry_points(group=GROUP))})


def check_proposer(config: ProposerConfig) -> None:
    """Raises ``UnknownNameError`` (naming the nearest) if there is no such proposer."""
    if config.name not in proposer_names():
        raise UnknownNameError("proposer", config.name, proposer_names())


def make_proposer(config: ProposerConfig, engine: Engine | None) -> Proposer:
    """The proposer of a configuration; ``engine`` is the (recorded) engine of a ``model`` proposer.

    Raises ``UnknownNameError`` for an unknown name, ``ConfigError`` when an entry point fails or gives no Proposer.
    """
    check_proposer(config)
    if config.name == "move_search":
        return MoveSearch()
    if config.name == "random_move":
        return RandomMove(config.seed)
    if config.name == "model":
        if engine is None:
            raise ConfigError("proposer 'model' needs an engine")
        sampling = Sampling(config.max_tokens, config.temperature, config.top_p)
        return ModelProposer(engine, sampling, config.seed, config.think)
    (point,) = (e for e in entry_points(group=GROUP) if e.name == config.name)
    try:
        factory = point.load()
        proposer = factory(**config.params)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ConfigError(f"proposer {config.name!r} ({point.value}) cannot be made: {why}") from error
    if not isinstance(proposer, Proposer) or not inspect.iscoroutinefunction(proposer.propose):
        raise ConfigError(f"proposer {config.name!r} ({point.value}) lacks name, identity, async propose or aclose")
    return proposer
