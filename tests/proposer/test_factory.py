"""A proposer by a string, as a command line or a configuration names it."""

from pathlib import Path

import pytest

from reharness.envs.config import load_config
from reharness.envs.errors import ConfigError, UnknownNameError
from reharness.eval.experiment import AdaptConfig
from reharness.proposer.demos import DemosConfig
from reharness.proposer.factory import ProposerConfig
from reharness.solver.models.factory import EndpointConfig, TransformersConfig


def test_a_string_is_a_proposer_or_the_engine_of_a_model(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('tasks = ["chain_sum"]\nproposers = ["random_move", "transformers?adapter=a&batch=4", {name = "model", temperature = 0.5}]\n')
    move, trained, table = load_config(AdaptConfig, file).proposers
    assert move == ProposerConfig(name="random_move")
    assert trained.name == "model" and trained.title == "transformers?adapter=a&batch=4"
    assert trained.engine == TransformersConfig(adapter=Path("a"), batch=4)
    assert (table.name, table.temperature) == ("model", 0.5)
    teacher = load_config(DemosConfig, None, ["teacher=endpoint?url=http://localhost:1/v1&model=m"]).teacher
    assert (teacher.name, teacher.engine) == ("model", EndpointConfig(url="http://localhost:1/v1", model="m"))
    assert load_config(DemosConfig, None, ["teacher=move_search"]) == DemosConfig()


@pytest.mark.parametrize(
    ("teacher", "words"),
    [("move_serch", "'move_search'"), ("transformer?adapter=a", "'transformers'"), ("transformers?adaptor=a", "'adapter'"),
     ("endpoint?url", "kind\\?key=value")],
)  # fmt: skip
def test_a_string_that_is_neither_is_named(teacher: str, words: str) -> None:
    with pytest.raises((UnknownNameError, ConfigError), match=words):
        load_config(DemosConfig, None, [f"teacher={teacher}"])
