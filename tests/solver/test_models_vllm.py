"""The vLLM engine against a fake `vllm` package (tests/support/fake_vllm): what it asks, not what vLLM answers."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from reharness.envs.errors import ConfigError, EngineError
from reharness.solver.models.base import PromptTooLong, Sampling, TextEngine
from reharness.solver.models.embedded import tokenizer_folder
from reharness.solver.models.factory import make_engine
from reharness.solver.models.vllm import VllmEngine

FAKE = Path(__file__).parents[1] / "support" / "fake_vllm"


@pytest.fixture
def model(tmp_path):
    folder = shutil.copytree(tokenizer_folder(), tmp_path / "model")
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 2048, "eos_token_id": 2}))
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def adapter(tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": 24}))
    (folder / "adapter_model.safetensors").write_bytes(b"adapter")
    return folder


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.syspath_prepend(str(FAKE))
    monkeypatch.setenv("PYTHONPATH", str(FAKE))


def run(engine, *samplings, prompt="one two three"):
    async def go():
        try:
            await engine.probe()
            asked = (engine.generate_text(prompt, s) for s in samplings)
            return await asyncio.gather(*asked, return_exceptions=True)
        finally:
            await engine.aclose()

    return asyncio.run(go())


def test_without_vllm_the_error_says_how_to_install_it(model):
    with pytest.raises(EngineError, match=r"reharness\[gpu\]"):
        make_engine({"kind": "vllm", "model": str(model)})


def test_requests_are_put_as_vllm_wants_them(fake, model):
    engine = make_engine({"kind": "vllm", "model": str(model)})
    assert isinstance(engine, TextEngine)
    whole, cut, sampled, refused = run(
        engine, Sampling(), Sampling(max_tokens=2), Sampling(temperature=1.0, seed=1), Sampling(stop=("REFUSE",))
    )
    assert (whole.text, whole.prompt_tokens, whole.completion_tokens, whole.finish_reason) == (
        "one two three", 3, 3, "stop")  # fmt: skip
    assert (cut.text, cut.completion_tokens, cut.finish_reason) == ("one two", 2, "length")
    assert sampled.text == " two three"
    assert isinstance(refused, EngineError) and "parameters are refused" in str(refused)
    assert whole.weights == engine.identity.weights and engine.identity.engine == "vllm 0.31.0+fake"


def test_an_adapter_is_asked_for_and_is_part_of_the_identity(fake, model, adapter):
    engine = VllmEngine(model, adapter=adapter)
    (got,) = run(engine, Sampling())
    assert got.text == "oneoneone"
    assert got.weights == engine.identity.weights != VllmEngine(model).identity.weights


def test_the_window_can_be_lowered(fake, model):
    engine = VllmEngine(model, max_model_len=16)
    assert VllmEngine(model).chat.window == 2048
    (got,) = run(engine, Sampling(), prompt="hello " * 20)
    assert isinstance(got, PromptTooLong) and "holds 16" in str(got)


def test_folders_are_checked(fake, model, tmp_path):
    with pytest.raises(ConfigError, match=r"holds no config\.json"):
        VllmEngine(tmp_path)
    with pytest.raises(ConfigError, match=r"holds no adapter_config\.json"):
        VllmEngine(model, adapter=tmp_path)
