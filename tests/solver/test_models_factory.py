"""Engines from configuration."""

import asyncio
import subprocess
import sys

import pytest

from reharness.envs.errors import ConfigError, UnknownNameError
from reharness.solver.models.base import Engine, Sampling
from reharness.solver.models.factory import KINDS, EndpointConfig, engine_config, make_engine


def test_every_kind_that_needs_no_gpu_is_made(tmp_path):
    recorded = tmp_path / "r.jsonl"
    recorded.write_text('{"identity": {"engine": "e", "weights": "w"}}\n')
    for spec in (
        "embedded", "embedded?exact=true&batch=4", "transformers", {"kind": "scripted", "replies": ["a"]},
        f"replay?path={recorded}", "endpoint?url=http://localhost:1/v1&model=m",
        "endpoint?url=http://localhost:1/v1&model=m&mode=templated&tokenizer=embedded",
    ):  # fmt: skip
        engine = make_engine(spec)
        assert isinstance(engine, Engine), spec
        asyncio.run(engine.aclose())


def test_a_string_is_a_configuration():
    assert engine_config("endpoint?url=http://a:1/v1&model=m&concurrency=4&timeout_s=1.5") == EndpointConfig(
        url="http://a:1/v1", model="m", concurrency=4, timeout_s=1.5
    )
    assert set(KINDS) == {config.model_fields["kind"].default for config in KINDS.values()}


def test_scripted_by_configuration_answers():
    engine = make_engine({"kind": "scripted", "replies": {"q": "a"}})
    assert asyncio.run(engine.generate([{"role": "user", "content": "q"}], Sampling())).text == "a"


@pytest.mark.parametrize(
    ("spec", "error", "text"),
    [
        ("embeded", UnknownNameError, "unknown engine kind 'embeded'.*'embedded'"),
        ("embedded?exat=true", UnknownNameError, "'exat'.*'exact'"),
        ("embedded?batch=zero", ConfigError, "batch"),
        ("embedded?batch=0", ConfigError, "batch = .*greater than or equal to 1"),
        ("embedded?exact", ConfigError, "kind\\?key=value"),
        ("endpoint?url=http://a:1", ConfigError, "model"),
        ("endpoint?url=http://a:1&model=m&mode=templated", ConfigError, "needs tokenizer"),
        ("endpoint?url=http://a:1&model=m&tokenizer=embedded", ConfigError, "is for mode"),
        ("endpoint?url=http://a:1&model=m&mode=templated&tokenizer=/nowhere", ConfigError, "/nowhere.*tokenizer.json"),
        ("transformers?model=/nowhere", ConfigError, "/nowhere"),
    ],
)
def test_bad_configurations_are_named(spec, error, text):
    with pytest.raises(error, match=text):
        make_engine(spec)


def test_importing_the_engines_loads_nothing_heavy():
    code = (
        "import sys, importlib\n"
        "for m in 'base chat embedded endpoint factory hf local openvino replay scripted vllm worker'.split():\n"
        "    importlib.import_module('reharness.solver.models.' + m)\n"
        "heavy = 'torch transformers openvino openvino_genai openai vllm gguf peft tokenizers'.split()\n"
        "print(sorted(set(heavy) & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
