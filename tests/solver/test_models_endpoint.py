"""The endpoint engine against a real HTTP server, well and ill."""

import asyncio
import socket
import time

import pytest
from endpoint import EndpointServer, Faults

from reharness.envs.errors import ConfigError, EngineError
from reharness.solver.models.base import Completion, PromptRejected, PromptTooLong, Sampling
from reharness.solver.models.chat import ChatTokenizer
from reharness.solver.models.embedded import tokenizer_folder
from reharness.solver.models.endpoint import EndpointEngine
from reharness.solver.models.scripted import ScriptedEngine


def echo():
    return ScriptedEngine(lambda m, s: f"{m[-1]['content']}|{s.seed}")


def messages(text):
    return [{"role": "user", "content": text}]


def ask(engine, text="hi", **sampling):
    async def go():
        try:
            return await engine.generate(messages(text), Sampling(**sampling))
        finally:
            await engine.aclose()

    return asyncio.run(go())


def probe(engine):
    async def go():
        try:
            await engine.probe()
        finally:
            await engine.aclose()

    asyncio.run(go())


def test_chat_passes_everything_on_and_counts_tokens():
    with EndpointServer(echo(), "m") as server:
        engine = EndpointEngine(server.url, "m")
        probe(engine)
        got = ask(engine, "one two", max_tokens=9, temperature=0.5, top_p=0.9, seed=7, stop=("END",))
        assert got == Completion("one two|7", 2, 2, "stop", "m")
        sent = {k: server.bodies[0][k] for k in ("model", "max_tokens", "temperature", "top_p", "seed", "stop")}
        assert sent == {"model": "m", "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["END"]}
        assert ask(engine, "a b c d", max_tokens=2).finish_reason == "length"
        assert "seed" not in server.bodies[1]  # greedy: the seed has no part


def test_templated_sends_the_text_that_an_in_process_engine_sees():
    tokenizer = ChatTokenizer(tokenizer_folder())
    with EndpointServer(ScriptedEngine(lambda m, s: "ok"), "m") as server:
        engine = EndpointEngine(server.url, "m", tokenizer=tokenizer)
        assert ask(engine, "hi").text == "ok"
        assert server.bodies[0]["prompt"] == tokenizer.render(messages("hi"))
        assert server.requests["/v1/completions"] == 1
        assert engine.count_tokens("hello world") == 2
        with pytest.raises(PromptTooLong, match="window holds 8192"):
            ask(engine, "hello " * 9000)
        assert server.requests["/v1/completions"] == 1


def test_transient_faults_are_waited_out():
    faults = Faults(statuses=[429, 500, 503], dropped=1)
    with EndpointServer(echo(), "m", faults) as server:
        assert ask(EndpointEngine(server.url, "m"), "hi").text == "hi|0"
        assert server.requests["/v1/chat/completions"] == 5


def test_retries_are_bounded():
    with EndpointServer(echo(), "m", Faults(statuses=[429] * 50)) as server:
        with pytest.raises(EngineError, match=r"HTTP 429 after retries: .*injected"):
            ask(EndpointEngine(server.url, "m", retries=3))
        assert server.requests["/v1/chat/completions"] == 4


def test_a_stalled_server_is_given_up():
    with (
        EndpointServer(echo(), "m", Faults(slow=9, slow_s=3)) as server,
        pytest.raises(EngineError, match=r"no answer within 0\.2 s, 2 times"),
    ):
        ask(EndpointEngine(server.url, "m", timeout_s=0.2, retries=1))


@pytest.mark.parametrize(
    ("faults", "text"),
    [
        (Faults(html=9), "something else than JSON"),
        (Faults(truncated=9), "not what the protocol says"),
        (Faults(empty_choices=9), "holds no choices"),
        (Faults(raw="[1]"), "not what the protocol says"),
        (Faults(raw='{"choices": {"a": 1}}'), "not what the protocol says"),
        (Faults(raw='{"choices": [{"message": null}]}'), "not what the protocol says"),
        (Faults(raw='{"choices": [{"message": {"content": 5}}]}'), "not what the protocol says"),
        (Faults(raw='{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": "y"}}'), "protocol says"),
        (Faults(served_model="other"), "asked for model 'm' and answered with 'other'"),
    ],
)
def test_answers_that_are_no_answers_are_named(faults, text):
    with EndpointServer(echo(), "m", faults) as server, pytest.raises(EngineError, match=text):
        ask(EndpointEngine(server.url, "m", retries=0))


def test_without_usage_tokens_are_estimated_and_no_content_is_an_empty_answer():
    raw = '{"model": "m", "choices": [{"message": {"content": null}, "finish_reason": "length"}]}'
    with EndpointServer(echo(), "m", Faults(raw=raw)) as server:
        assert ask(EndpointEngine(server.url, "m"), "12345678") == Completion("", 3, 1, "length", "m")


def test_a_dated_snapshot_is_the_model_asked_for():
    with EndpointServer(echo(), "m", Faults(served_model="m-2026-01-31")) as server:
        assert ask(EndpointEngine(server.url, "m")).weights == "m-2026-01-31"


def test_probe_tells_down_wrong_key_wrong_model_and_wrong_path_apart(monkeypatch):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with pytest.raises(EngineError, match="cannot be reached"):
        probe(EndpointEngine(f"http://127.0.0.1:{port}/v1", "m"))
    monkeypatch.setenv("SOME_KEY", "sk-wrong-secret")
    with EndpointServer(echo(), "qwen3-4b-instruct", Faults(key="sk-right")) as server:
        with pytest.raises(EngineError, match=r"refused the API key.*SOME_KEY") as caught:
            probe(EndpointEngine(server.url, "qwen3-4b-instruct", key_env="SOME_KEY"))
        assert "sk-wrong-secret" not in str(caught.value)
        monkeypatch.setenv("SOME_KEY", "sk-right")
        with pytest.raises(EngineError, match="has no model 'qwen3-4b'; it has 'qwen3-4b-instruct'"):
            probe(EndpointEngine(server.url, "qwen3-4b", key_env="SOME_KEY"))
        with pytest.raises(EngineError, match="404"):
            probe(EndpointEngine(server.url.replace("/v1", "/v2"), "qwen3-4b-instruct", key_env="SOME_KEY"))
        probe(EndpointEngine(server.url.removesuffix("/v1"), "qwen3-4b-instruct", key_env="SOME_KEY"))


def test_a_missing_key_and_a_bad_url_are_found_at_once(monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"api\.example\.com.*SOME_KEY holds no API key"):
        EndpointEngine("https://api.example.com/v1", "m", key_env="SOME_KEY")
    with pytest.raises(ConfigError, match="localhost:8000"):
        EndpointEngine("localhost:8000", "m")
    for private in ("http://localhost:1/v1", "http://10.0.0.8:1/v1", "http://gpu-box:1/v1", "http://[::1]:1/v1"):
        EndpointEngine(private, "m", key_env="SOME_KEY")


def test_a_prompt_that_does_not_fit_is_the_harness_s_error():
    def refuse(messages, sampling):
        raise PromptRejected("9000 tokens")

    with EndpointServer(ScriptedEngine(refuse), "m") as server, pytest.raises(PromptTooLong, match="does not fit"):
        ask(EndpointEngine(server.url, "m"))


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("templated", [False, True])
def test_a_refused_prompt_is_the_harness_s_error_when_a_plain_one_is_answered(status, templated):
    faults = Faults()
    with EndpointServer(ScriptedEngine(lambda m, s: "ok"), "m", faults) as server:
        engine = EndpointEngine(server.url, "m", tokenizer=ChatTokenizer(tokenizer_folder()) if templated else None)
        probe(engine)
        faults.statuses = [status]
        with pytest.raises(PromptRejected, match=r"refused the prompt: .*injected") as caught:
            ask(engine)
        assert not isinstance(caught.value, PromptTooLong) and "127.0.0.1" not in str(caught.value)
        assert {"temperature", "seed", "top_p", "stop", "max_tokens"} <= set(server.bodies[0])
        assert ask(engine).text == "ok"
        faults.statuses = [status] * 2  # whatever we ask is refused: no prompt's fault
        with pytest.raises(EngineError, match=rf"refused the request \(HTTP {status}\)"):
            ask(engine)
        faults.statuses = [status, *[500] * 9]
        with pytest.raises(EngineError, match="HTTP 500"):
            ask(EndpointEngine(server.url, "m", retries=0))


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_path_is_never_the_harness_s_error(status):
    with EndpointServer(echo(), "m", Faults(statuses=[status])) as server, pytest.raises(EngineError):
        ask(EndpointEngine(server.url, "m"))


def test_servers_do_not_share_an_identity_and_ways_to_write_a_url_do():
    def named(url):
        return EndpointEngine(url, "m").identity

    assert named("http://localhost:8000").engine == "endpoint http://localhost:8000/v1"
    assert named("http://LOCALHOST:8000/v1/") == named("http://localhost:8000/") == named("http://localhost:8000/v1")
    assert named("http://localhost:80/v1") == named("http://localhost/v1") != named("https://localhost/v1")
    assert named("http://localhost:8000/v1") != named("http://localhost:8001/v1")
    assert named("http://[::1]:8000").engine == "endpoint http://[::1]:8000/v1"
    for bad in ("http://u:secret@localhost:1/v1", "http://localhost:1/v1?key=secret", "http://localhost:x/v1"):
        with pytest.raises(ConfigError) as caught:
            EndpointEngine(bad, "m")
        assert "secret" not in str(caught.value)


def test_another_snapshot_than_the_first_is_an_error():
    faults = Faults(served_model="m-2026-01-31")
    with EndpointServer(echo(), "m", faults) as server:
        engine = EndpointEngine(server.url, "m")
        assert ask(engine).weights == ask(engine).weights == "m-2026-01-31"
        faults.served_model = "m-2026-05-01"
        with pytest.raises(EngineError, match=r"answered with 'm-2026-05-01', before that with 'm-2026-01-31'"):
            ask(engine)
        assert ask(EndpointEngine(server.url, "m")).weights == "m-2026-05-01"


def test_the_test_server_ends_open_connections_quietly(caplog):
    with EndpointServer(echo(), "m", Faults(slow=1, slow_s=60)) as server:
        host, port = server.url.removeprefix("http://").removesuffix("/v1").split(":")
        idle, busy = (socket.create_connection((host, int(port)), timeout=10) for _ in range(2))
        busy.sendall(b"GET /v1/models HTTP/1.1\r\n\r\n")
        while not server.requests:
            time.sleep(0.01)
    with idle, busy:
        assert idle.recv(1) == busy.recv(1) == b""
    assert not caplog.records


def test_concurrency_is_bounded_and_used():
    with EndpointServer(echo(), "m", Faults(latency_s=0.05)) as server:
        engine = EndpointEngine(server.url, "m", concurrency=8)

        async def go():
            got = await asyncio.gather(*(engine.generate(messages(str(i)), Sampling()) for i in range(40)))
            await engine.aclose()
            return [c.text for c in got]

        assert asyncio.run(go()) == [f"{i}|0" for i in range(40)]
        assert server.peak == 8


def test_one_engine_serves_several_event_loops_and_closes_twice():
    with EndpointServer(echo(), "m") as server:
        engine = EndpointEngine(server.url, "m")
        for i in range(3):
            assert asyncio.run(engine.generate(messages(str(i)), Sampling())).text == f"{i}|0"
        asyncio.run(engine.aclose())
        asyncio.run(engine.aclose())
