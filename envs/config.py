"""Configuration: TOML -> pydantic models that allow no unknown key; `--set a.b=c` on top."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from reharness.envs.errors import ConfigError, UnknownNameError
from reharness.envs.types import content_hash


class Config(BaseModel):
    """Base of every configuration model: frozen, unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def resolved(self) -> dict[str, Any]:
        """Every key with its value, defaults included, as plain JSON."""
        return self.model_dump(mode="json")

    def digest(self) -> str:
        """Hash of the resolved configuration."""
        return content_hash("config", self.resolved())


C = TypeVar("C", bound=Config)


def load_config(model: type[C], path: Path | None = None, overrides: Sequence[str] = (), **values: Any) -> C:
    """The configuration from a TOML file, then ``values`` (those that are not None), then ``overrides`` such as
    ``"budgets.llm_calls=8"`` (the value is TOML, or a bare word).

    Raises ``ConfigError`` naming file and key; for an unknown key ``UnknownNameError`` with the nearest valid one.
    """
    data: dict[str, Any] = {}
    where = f"{path} and the command line" if path else "configuration"
    if path is not None:
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a TOML file") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: is not TOML: {error}") from None
    data.update({k: v for k, v in values.items() if v is not None})
    for override in overrides:
        _apply(data, override)
    return parse_config(model, data, where)


def parse_config(model: type[C], data: Mapping[str, Any], where: str) -> C:
    """``model`` from plain data, with the errors of ``load_config``."""
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        raise _explain(model, error, where) from None


def _apply(data: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--set {override!r}: write it as key=value, for example rounds=5 or budgets.llm_calls=8")
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    *folders, last = key.strip().split(".")
    for folder in folders:
        inner = data.setdefault(folder, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {override!r}: {folder!r} is not a table")
        data = inner
    data[last] = value


def _explain(model: type[BaseModel], error: ValidationError, where: str) -> ConfigError:
    first = error.errors()[0]
    path = [str(p) for p in first["loc"]]
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        valid = _fields(model, path[:-1])
        return UnknownNameError("key", ".".join(path), [".".join([*path[:-1], f]) for f in valid], where)
    shown = json.dumps(first["input"], default=str)
    return ConfigError(f"{where}: {'.'.join(path) or 'value'} = {shown[:80]}: {first['msg']}")


def _fields(model: Any, path: list[str]) -> list[str]:
    """The field names of the (nested) model or dataclass at ``path``."""
    for name in path:
        field = getattr(model, "model_fields", {}).get(name)
        if field is not None:
            options = [field.annotation, *get_args(field.annotation)]
            model = next((o for o in options if hasattr(o, "model_fields") or is_dataclass(o)), model)
    return [f.name for f in fields(model)] if is_dataclass(model) else list(getattr(model, "model_fields", {}))
