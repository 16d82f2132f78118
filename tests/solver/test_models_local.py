"""The engines that run a model in a worker process, on the embedded model; and its tokenizer, template and cache."""

import asyncio
import json
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from endpoint import EndpointServer

from reharness.envs.errors import ConfigError, EngineError
from reharness.solver.models import embedded
from reharness.solver.models.base import PromptRejected, PromptTooLong, Sampling, TextEngine
from reharness.solver.models.chat import ChatTokenizer
from reharness.solver.models.endpoint import EndpointEngine
from reharness.solver.models.hf import TransformersEngine
from reharness.solver.models.openvino import OpenVinoEngine
from reharness.solver.models.weights import weights_hash

WORDS = ["cats", "rivers", "the number 7", "bread", "chess", "the moon", "France", "a list"]


def messages(text):
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def chat():
    return ChatTokenizer(embedded.tokenizer_folder())


def test_the_template_is_rendered_as_the_model_was_trained(chat):
    assert chat.render(messages("hi")) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    system = [{"role": "system", "content": "Be brief."}, *messages("hi")]
    assert chat.render(system).startswith("<|im_start|>system\nBe brief.<|im_end|>\n")


TEXTS = ["", "Hello world", "12345 + 67", "  two\n\n lines\t", "naïve 日本語 🙂 ½", "don't WE'LL", "a_b->c[0] {x: 'y'}"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_its_tokens(chat, text):
    ids = chat.encode(text)
    assert chat.decode(ids) == text
    assert len(chat.encode(f"<|im_start|>{text}<|im_end|>")) == len(ids) + 2
    assert all(len(chat.decode([i]).strip()) == 1 for i in ids if any(c.isdigit() for c in chat.decode([i])))


@pytest.mark.model
def test_tokens_are_those_of_openvino(chat):
    import openvino_genai

    theirs = openvino_genai.Tokenizer(str(embedded.gguf_path()))
    rng = random.Random(0)
    letters = list("abc ABC 0123456789 \n\t.,;:!?'\"()[]{}<>|_-+*/=日本🙂éñ")
    noise = ["".join(rng.choices(letters, k=rng.randint(1, 80))) for _ in range(100)]
    for text in [*TEXTS[1:], *noise, Path(__file__).read_text(encoding="utf-8")]:
        ids = theirs.encode(text, add_special_tokens=False).input_ids.data.reshape(-1).tolist()
        assert chat.encode(text) == ids, text


def test_window_and_end(chat):
    assert chat.window == 8192
    assert [chat.decode([i]) for i in chat.eos_ids] == [""] and chat.encode("<|im_end|>") == chat.eos_ids
    ids, room = chat.fit("hello " * 8000, Sampling(max_tokens=512))
    assert room == 8192 - len(ids) < 512
    with pytest.raises(PromptTooLong, match="holds 8192"):
        chat.fit("hello " * 9000, Sampling())


def test_a_template_that_refuses_the_messages_is_the_harness_s_error(chat, tmp_path):
    folder = shutil.copytree(chat.folder, tmp_path / "m")
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no system role') }}")
    with pytest.raises(PromptRejected, match="no system role"):
        ChatTokenizer(folder).render(messages("x"))
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="has no chat template"):
        ChatTokenizer(folder).render(messages("x"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = [{"name": "default", "template": "{{ messages[0].content }}{{ eos_token }}"}]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert ChatTokenizer(folder).render(messages("x")) == "x<|im_end|>"


def test_a_missing_embedded_model_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineError, match="make setup"):
        embedded.gguf_path()


def test_what_is_derived_is_whole_or_absent(monkeypatch, tmp_path):
    monkeypatch.setenv("REHARNESS_CACHE", str(tmp_path))
    real = embedded._write_tokenizer

    def killed(folder):
        (folder / "tokenizer.json").write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(embedded, "_write_tokenizer", killed)
    with pytest.raises(KeyboardInterrupt):
        embedded.tokenizer_folder()
    monkeypatch.setattr(embedded, "_write_tokenizer", real)
    assert ChatTokenizer(embedded.tokenizer_folder()).encode("hi")
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("REHARNESS_CACHE", str(blocked))
    with pytest.raises(ConfigError, match="REHARNESS_CACHE"):
        embedded.tokenizer_folder()
    full = OSError(28, "No space left on device")
    monkeypatch.setenv("REHARNESS_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(embedded, "_write_tokenizer", lambda folder: (_ for _ in ()).throw(full))
    with pytest.raises(EngineError, match=r"No space left.*free some space"):
        embedded.tokenizer_folder()


def test_the_weights_id_is_of_base_and_adapter(tmp_path):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    for folder, config in ((base, "config.json"), (adapter, "adapter_config.json")):
        folder.mkdir()
        (folder / config).write_text("{}")
        with pytest.raises(ConfigError, match="holds no weights"):
            weights_hash(folder, None) if folder is base else weights_hash(None, folder)
        (folder / "model.safetensors").write_text("1")
    seen = [weights_hash(base, None), weights_hash(base, adapter), weights_hash(None, None), weights_hash(None, adapter)]
    (adapter / "model.safetensors").write_text("2")
    seen += [weights_hash(base, adapter), weights_hash(None, adapter)]
    assert len(set(seen)) == 6


def test_folders_without_model_or_adapter_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no config\.json"):
        TransformersEngine(tmp_path)
    with pytest.raises(ConfigError, match=r"holds no adapter_config\.json"):
        TransformersEngine(adapter=tmp_path)


async def many(engine, texts, **sampling):
    return await asyncio.gather(
        *(engine.generate(messages(t), Sampling(**{"seed": i, **sampling})) for i, t in enumerate(texts))
    )


@pytest.mark.model
def test_openvino_answers_alike_alone_and_in_a_batch_when_exact():
    async def test():
        engine = OpenVinoEngine(exact=True)
        assert isinstance(engine, TextEngine)
        try:
            start = time.monotonic()
            await engine.probe()
            assert time.monotonic() - start < 60
            batch = await many(engine, WORDS, max_tokens=16)
            assert batch[:3] == [(await many(engine, [w], max_tokens=16))[0] for w in WORDS[:3]]
            sampled = await many(engine, WORDS[:1] * 4, max_tokens=16, temperature=1.0)
            assert len({c.text for c in sampled}) > 1
            assert sampled == await many(engine, WORDS[:1] * 4, max_tokens=16, temperature=1.0)
            first = batch[0]
            word = first.text.split()[3]
            (stopped,) = await many(engine, WORDS[:1], max_tokens=16, stop=(word,))
            assert stopped.finish_reason == "stop" and stopped.text == first.text[: first.text.index(word)]
            assert (first.finish_reason, first.completion_tokens) == ("length", 16)
            assert first.prompt_tokens == engine.count_tokens(engine.chat.render(messages(WORDS[0])))
            assert first.weights == engine.identity.weights
            with EndpointServer(engine, "m") as server:
                remote = EndpointEngine(server.url, "m", tokenizer=engine.chat)
                over_http = await many(remote, WORDS, max_tokens=16)
                await remote.aclose()
            assert [replace(c, weights=first.weights) for c in over_http] == batch
            with pytest.raises(PromptTooLong):
                await many(engine, ["hello " * 9000])
        finally:
            await engine.aclose()

    asyncio.run(test())


@pytest.mark.model
def test_transformers_seeds_batches_and_adapters(tmp_path):
    adapter = make_adapter(tmp_path / "adapter")

    async def test():
        plain, adapted = TransformersEngine(), TransformersEngine(adapter=adapter)
        try:
            batch = await many(plain, WORDS[:4], max_tokens=12, temperature=0.8, top_p=0.9)
            assert batch[1] == await plain.generate(
                messages(WORDS[1]), Sampling(max_tokens=12, temperature=0.8, top_p=0.9, seed=1)
            )
            # Equal prompts share a prefill, and are still sampled apart, each by its seed.
            shared = await many(plain, WORDS[:1] * 3, max_tokens=12, temperature=0.8, top_p=0.9)
            assert shared[0] == batch[0] and len({c.text for c in shared}) == 3
            greedy = (await many(plain, WORDS[:1], max_tokens=12))[0]
            word = greedy.text.split()[3]
            (stopped,) = await many(plain, WORDS[:1], max_tokens=12, stop=(word,))
            assert stopped.finish_reason == "stop" and stopped.completion_tokens < 12
            assert stopped.text == greedy.text[: greedy.text.index(word)]
            await plain.aclose()
            changed = (await many(adapted, WORDS[:1], max_tokens=12))[0]
            assert changed.text != greedy.text
            assert changed.weights == adapted.identity.weights != plain.identity.weights
            for file in adapter.glob("*.safetensors"):
                file.write_bytes(file.read_bytes() + b" ")
            rewritten = TransformersEngine(adapter=adapter)
            assert rewritten.identity.weights != adapted.identity.weights
        finally:
            await plain.aclose()
            await adapted.aclose()

    asyncio.run(test())


def make_adapter(folder):
    """A random LoRA adapter of the embedded model, as `peft` saves it."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(embedded.model_folder())
    model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.5)
    model.save_pretrained(folder)
    return folder
