"""An OpenAI-compatible HTTP server around any engine, with faults on demand: for tests and benchmarks."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from reharness.envs.errors import EngineError
from reharness.solver.models.base import Completion, Engine, PromptRejected, Sampling, TextEngine


@dataclass
class Faults:
    """What goes wrong. Counters count down; ``statuses`` are answered one after the other before anything else."""

    statuses: list[int] = field(default_factory=list)
    html: int = 0
    truncated: int = 0
    empty_choices: int = 0
    raw: str = ""
    """A body that completions are answered with."""
    dropped: int = 0
    """Connections closed without an answer."""
    latency_s: float = 0.0
    slow: int = 0
    """Requests that hang for ``slow_s``."""
    slow_s: float = 5.0
    served_model: str = ""
    """The model that completions claim to come from."""
    key: str = ""
    """The API key that is required."""

    def take(self, name: str) -> bool:
        left = getattr(self, name)
        setattr(self, name, max(0, left - 1))
        return left > 0


class EndpointServer:
    """Serves ``engine`` as ``model`` on a free port of 127.0.0.1, in a thread with a loop of its own.

    ``with EndpointServer(engine, "name") as server: server.url``. ``server.requests`` counts by path; ``server.peak``
    is the largest number of completions in flight.
    """

    def __init__(self, engine: Engine, model: str = "test-model", faults: Faults | None = None) -> None:
        self.engine, self.model, self.faults = engine, model, faults or Faults()
        self.requests: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.in_flight = self.peak = 0
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self) -> EndpointServer:
        self._thread.start()
        start = asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        self._server = asyncio.run_coroutine_threadsafe(start, self.loop).result(10)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    async def _stop(self) -> None:
        self._server.close()
        others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                path = head[0].split(" ")[1]
                self.requests[path] += 1
                status, kind, payload = await self._answer(path, headers, body)
                if status == 0:
                    return
                writer.write(
                    f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(payload)}\r\n"
                    f"retry-after-ms: 20\r\n\r\n".encode() + payload
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return  # `_stop` cancels: to a client it is a connection that ends, to asyncio it must be no failure
        finally:
            writer.close()

    async def _answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        faults, js = self.faults, "application/json"
        if faults.statuses:
            return faults.statuses.pop(0), js, _error("injected")
        if faults.take("dropped"):
            return 0, "", b""
        if faults.take("slow"):
            await asyncio.sleep(faults.slow_s)
        if faults.key and headers.get("authorization") != f"Bearer {faults.key}":
            return 401, js, _error(f"bad key {headers.get('authorization')}")
        if faults.take("html"):
            return 200, "text/html", b"<html><body>Welcome to the proxy</body></html>"
        if path == "/v1/models":
            return 200, js, json.dumps({"object": "list", "data": [{"id": self.model, "object": "model"}]}).encode()
        if path not in ("/v1/chat/completions", "/v1/completions"):
            return 404, js, _error("no such path")
        request = json.loads(body)
        self.bodies.append(request)
        if request["model"] != self.model:
            return 404, js, _error(f"no model {request['model']}")
        try:
            completion = await self._complete(path, request)
        except PromptRejected as error:
            return 400, js, _error(f"context length exceeded: {error}")
        except EngineError as error:
            return 500, js, _error(str(error))
        if faults.raw:
            return 200, js, faults.raw.encode()
        answer = self._reply(path, completion)
        if faults.take("empty_choices"):
            answer["choices"] = []
        payload = json.dumps(answer).encode()
        return 200, js, payload[: len(payload) // 2] if faults.take("truncated") else payload

    async def _complete(self, path: str, request: dict[str, Any]) -> Completion:
        sampling = Sampling(
            max_tokens=request["max_tokens"],
            temperature=request["temperature"],
            top_p=request.get("top_p", 1.0),
            seed=request.get("seed", 0),
            stop=tuple(request.get("stop", ())),
        )
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            if self.faults.latency_s:
                await asyncio.sleep(self.faults.latency_s)
            if path == "/v1/chat/completions":
                return await self.engine.generate(request["messages"], sampling)
            assert isinstance(self.engine, TextEngine)
            return await self.engine.generate_text(request["prompt"], sampling)
        finally:
            self.in_flight -= 1

    def _reply(self, path: str, completion: Completion) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": completion.finish_reason}
        if path == "/v1/completions":
            choice["text"] = completion.text
        else:
            choice["message"] = {"role": "assistant", "content": completion.text}
        return {
            "id": "x",
            "object": "text_completion" if path == "/v1/completions" else "chat.completion",
            "created": 0,
            "model": self.faults.served_model or self.model,
            "choices": [choice],
            "usage": {
                "prompt_tokens": completion.prompt_tokens,
                "completion_tokens": completion.completion_tokens,
                "total_tokens": completion.prompt_tokens + completion.completion_tokens,
            },
        }


def _error(text: str) -> bytes:
    return json.dumps({"error": {"message": text, "type": "injected", "code": None}}).encode()
