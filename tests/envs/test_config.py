from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from reharness.envs.config import Config, load_config
from reharness.envs.errors import ConfigError, UnknownNameError


class Inner(Config):
    llm_calls: int = 3


class Outer(Config):
    rounds: int = Field(3, ge=1)
    name: str = "a"
    inner: Inner = Inner()


def test_file_then_values_then_overrides(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('rounds = 5\nname = "file"\n[inner]\nllm_calls = 7\n')
    config = load_config(Outer, tmp_path / "c.toml", ["inner.llm_calls=9", "name=plain word"], rounds=6, inner=None)
    assert (config.rounds, config.name, config.inner.llm_calls) == (6, "plain word", 9)
    assert config.digest() == Outer(rounds=6, name="plain word", inner=Inner(llm_calls=9)).digest() != Outer().digest()


@pytest.mark.parametrize(
    ("override", "names"),
    [
        ("round=4", ["'round'", "rounds"]),
        ("inner.llm_call=4", ["'inner.llm_call'", "inner.llm_calls"]),
        ("inner.nothing.deep=4", ["inner.nothing"]),
        ("rounds=0", ["rounds", "0"]),
        ("rounds=many", ["rounds", "many"]),
        ("rounds", ["key=value"]),
        ("name.x=1", ["name"]),
    ],
)
def test_a_bad_override_names_the_key_and_the_nearest(override: str, names: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(Outer, None, [override], name="n") if "name.x" in override else load_config(Outer, None, [override])
    assert all(n in str(caught.value) for n in names), str(caught.value)


def test_an_unknown_key_in_a_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("roundz = 5\n")
    with pytest.raises(UnknownNameError, match=r"roundz.*c\.toml.*rounds"):
        load_config(Outer, tmp_path / "c.toml")
    (tmp_path / "c.toml").write_text("rounds = \n")
    with pytest.raises(ConfigError, match=r"c\.toml: is not TOML"):
        load_config(Outer, tmp_path / "c.toml")
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        load_config(Outer, tmp_path / "none.toml")
