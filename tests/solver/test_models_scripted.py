"""Scripted and replay engines."""

import asyncio
import time

import pytest

from reharness.envs.errors import ConfigError, EngineError
from reharness.solver.models.base import Engine, Sampling, TextEngine, cut_at_stop
from reharness.solver.models.replay import RecordingEngine, ReplayEngine
from reharness.solver.models.scripted import ScriptedEngine


def ask(engine, text, **sampling):
    return asyncio.run(engine.generate([{"role": "user", "content": text}], Sampling(**sampling)))


def test_replies_by_function_mapping_and_order():
    assert ask(ScriptedEngine(lambda m, s: m[-1]["content"].upper()), "abc").text == "ABC"
    mapped = ScriptedEngine({"a": "1", "b": "2"})
    assert ask(mapped, "b").text == "2"
    with pytest.raises(EngineError, match="no reply to 'c'"):
        ask(mapped, "c")
    listed = ScriptedEngine(["x", "y"])
    assert [ask(listed, "?").text, ask(listed, "?").text] == ["x", "y"]
    with pytest.raises(EngineError, match="2 replies, and was asked 3 times"):
        ask(listed, "?")
    assert [m[0]["content"] for m, _ in mapped.calls] == ["b", "c"]


def test_scripted_keeps_to_the_contract():
    engine = ScriptedEngine(lambda m, s: "one two  three STOP four")
    assert isinstance(engine, Engine) and isinstance(engine, TextEngine)
    whole = ask(engine, "hello there", max_tokens=5)
    assert (whole.text, whole.completion_tokens, whole.prompt_tokens, whole.finish_reason) == (
        "one two  three STOP four", 5, 2, "stop")  # fmt: skip
    cut = ask(engine, "x", max_tokens=2)
    assert (cut.text, cut.completion_tokens, cut.finish_reason) == ("one two", 2, "length")
    stopped = ask(engine, "x", stop=("STOP",))
    assert (stopped.text, stopped.finish_reason) == ("one two  three ", "stop")
    assert whole.weights == engine.identity.weights


def test_two_scripts_do_not_share_an_identity():
    assert ScriptedEngine(["a"]).identity != ScriptedEngine(["b"]).identity
    assert ScriptedEngine(["a"]).identity == ScriptedEngine(["a"]).identity


def test_latency_is_not_serial():
    engine = ScriptedEngine(lambda m, s: "x", latency_s=0.2)

    async def many():
        await asyncio.gather(*(engine.generate([{"role": "user", "content": "q"}], Sampling()) for _ in range(50)))

    start = time.perf_counter()
    asyncio.run(many())
    assert 0.2 <= time.perf_counter() - start < 1.0


def test_cut_at_the_first_stop_string():
    assert cut_at_stop("a b c", ("c", "b")) == ("a ", True)
    assert cut_at_stop("abc", ("", "z")) == ("abc", False)


def test_what_was_recorded_is_replayed(tmp_path):
    file = tmp_path / "calls.jsonl"
    engine = RecordingEngine(ScriptedEngine(lambda m, s: f"{m[-1]['content']} {s.seed}"), file)
    greedy, sampled = ask(engine, "q", stop=("Z",)), ask(engine, "q", temperature=0.7, seed=3)
    replay = ReplayEngine.load(file)
    assert replay.identity == engine.identity
    assert ask(replay, "q", stop=("Z",), seed=99) == greedy  # greedy: the seed has no part
    assert ask(replay, "q", temperature=0.7, seed=3) == sampled
    with pytest.raises(EngineError, match="was not recorded"):
        ask(replay, "q", temperature=0.7, seed=4)


def test_a_bad_recording_is_named_with_its_line(tmp_path):
    file = tmp_path / "calls.jsonl"
    with pytest.raises(ConfigError, match=r"calls\.jsonl: cannot be read"):
        ReplayEngine.load(file)
    file.write_text("")
    with pytest.raises(ConfigError, match="is empty"):
        ReplayEngine.load(file)
    file.write_text('{"identity": {"engine": "e", "weights": "w"}}\n{"messages": [')
    with pytest.raises(ConfigError, match="line 2"):
        ReplayEngine.load(file)
    file.write_text('{"identity": {"engine": "e", "weights": "w"}}\n')
    with pytest.raises(EngineError, match="nothing is recorded"):
        asyncio.run(ReplayEngine.load(file).probe())
