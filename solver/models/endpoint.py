"""Any OpenAI-compatible endpoint: vLLM server, llama-server, a hosted service."""

from __future__ import annotations

import asyncio
import difflib
import ipaddress
import json
import os
import re
from collections.abc import Awaitable, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from reharness.envs.errors import ConfigError, EngineError
from reharness.solver.models.base import (
    Completion,
    EngineIdentity,
    Message,
    PromptRejected,
    PromptTooLong,
    Sampling,
    cut_at_stop,
)
from reharness.solver.models.chat import ChatTokenizer

TOO_LONG = re.compile(r"context[ _](length|window|size)|too many tokens|prompt is too long", re.IGNORECASE)
"""How servers say, in a 400, that a prompt does not fit (vLLM, llama-server, hosted services)."""
PLAIN = "Say yes."
"""With `EVERY_FIELD`, what tells a server that refuses a prompt from one that refuses our kind of request."""
EVERY_FIELD = Sampling(max_tokens=1, temperature=1.0, seed=1, stop=("\n\n",))


class _Refused(EngineError):
    """HTTP 400, 413 or 422: the server will not have this request; ``said`` is why, in its words."""

    def __init__(self, where: str, status: int, said: str) -> None:
        super().__init__(f"{where}: refused the request (HTTP {status}): {said}")
        self.said = said


class EndpointEngine:
    """``model`` at ``url`` (with or without ``/v1``), asked by ``/v1/chat/completions``; or, with a ``tokenizer``, by
    ``/v1/completions`` with prompts that we put through its chat template: the same text, token for token, that an
    in-process engine would see.

    At most ``concurrency`` requests are in flight. 408, 409, 429, 5xx, time-outs and lost connections are tried again
    ``retries`` times, with growing waits or as ``Retry-After`` says. The key is read from the environment variable
    ``key_env``; only an endpoint on this machine or in a private network may do without one.

    Raises ``ConfigError`` for a URL or key that cannot be used; ``EngineError`` when the endpoint cannot answer,
    another model than ``model`` did, or another snapshot of it than the one that answered first; ``PromptTooLong``
    when it says that the prompt does not fit; ``PromptRejected`` when it refuses the prompt (400, 413, 422) and yet
    answers a plain one.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key_env: str = "OPENAI_API_KEY",
        tokenizer: ChatTokenizer | None = None,
        concurrency: int = 32,
        timeout_s: float = 120.0,
        retries: int = 5,
    ) -> None:
        self.url, host = _normal(url)
        self.model, self.tokenizer = model, tokenizer
        self.concurrency, self.timeout_s, self.retries = concurrency, timeout_s, retries
        self._key = os.environ.get(key_env, "")
        if not self._key and not _is_private(host):
            raise ConfigError(f"endpoint {self.url}: the environment variable {key_env} holds no API key; set it")
        self._key_env = key_env
        self._served: str | None = None
        self._client: tuple[asyncio.AbstractEventLoop, Any, asyncio.Semaphore] | None = None

    @cached_property
    def identity(self) -> EngineIdentity:
        """With the URL: two servers may serve different weights under one model name."""
        template = self.tokenizer.template_hash if self.tokenizer else ""
        return EngineIdentity(f"endpoint {self.url}", self.model, "", template)

    async def probe(self) -> None:
        """Is the endpoint up, is the key valid, does it have the model? Each is an ``EngineError`` of its own."""
        client, _ = self._connect()
        listing = await self._ask(client.with_options(max_retries=1, timeout=20).models.list())
        if not isinstance(getattr(listing, "data", None), list):
            raise EngineError(f"endpoint {self.url}: /models did not answer with a list of models; check the url")
        names = [str(m.id) for m in listing.data]
        if self.model not in names:
            near = difflib.get_close_matches(self.model, names, n=3, cutoff=0.3) or sorted(names)[:8]
            raise EngineError(
                f"endpoint {self.url}: has no model {self.model!r}; it has {', '.join(map(repr, near)) or 'none'}"
            )

    async def generate(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        if self.tokenizer:
            return await self.generate_text(self.tokenizer.render(messages), sampling)
        reply = await self._answer(messages, sampling)
        return self._completion(reply, "".join(m["content"] for m in messages), sampling)

    async def generate_text(self, prompt: str, sampling: Sampling) -> Completion:
        """Completes ``prompt`` as it is."""
        if self.tokenizer:
            _, max_tokens = self.tokenizer.fit(prompt, sampling)
            sampling = Sampling(max_tokens, sampling.temperature, sampling.top_p, sampling.seed, sampling.stop)
        return self._completion(await self._answer(prompt, sampling), prompt, sampling)

    def count_tokens(self, text: str) -> int:
        """Exact with a tokenizer; otherwise estimated at four bytes a token."""
        return len(self.tokenizer.encode(text)) if self.tokenizer else len(text.encode()) // 4 + 1

    async def aclose(self) -> None:
        if self._client is not None:
            loop, client, _ = self._client
            self._client = None
            if loop is asyncio.get_running_loop():  # the connections of a loop that is gone went with it
                await client.close()

    def _connect(self) -> tuple[Any, asyncio.Semaphore]:
        """The client of the running event loop: connections cannot be shared between loops."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._client[0] is not loop:
            from openai import AsyncOpenAI

            client = AsyncOpenAI(
                base_url=self.url, api_key=self._key or "none", timeout=self.timeout_s, max_retries=self.retries
            )
            self._client = (loop, client, asyncio.Semaphore(self.concurrency))
        return self._client[1], self._client[2]

    async def _answer(self, prompt: str | Sequence[Message], sampling: Sampling) -> Any:
        """The reply to a text or to messages. A refusal is laid on the prompt, and so on the harness that wrote it,
        only when the server answers a plain prompt with every field that we ever send: else it may refuse them all.
        """
        try:
            return await self._send(prompt, sampling)
        except _Refused as error:
            said = error.said
        if TOO_LONG.search(said):
            raise PromptTooLong(f"the prompt does not fit the model's window: {said}")
        await self._send(PLAIN if isinstance(prompt, str) else [{"role": "user", "content": PLAIN}], EVERY_FIELD)
        raise PromptRejected(f"the model's server refused the prompt: {said}")

    async def _send(self, prompt: str | Sequence[Message], sampling: Sampling) -> Any:
        client, slots = self._connect()
        request = self._request(sampling)
        async with slots:
            if isinstance(prompt, str):
                extra = {"add_special_tokens": False}  # the template has put them in
                return await self._ask(client.completions.create(prompt=prompt, extra_body=extra, **request))
            return await self._ask(client.chat.completions.create(messages=[dict(m) for m in prompt], **request))

    def _request(self, sampling: Sampling) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self.model, "max_tokens": sampling.max_tokens, "temperature": sampling.temperature
        }  # fmt: skip
        if sampling.temperature > 0:
            request |= {"top_p": sampling.top_p, "seed": sampling.seed}
        if sampling.stop:
            request["stop"] = list(sampling.stop)
        return request

    async def _ask(self, request: Awaitable[Any]) -> Any:
        """Awaits one call of the client; every way in which it can fail becomes an ``EngineError`` that says which."""
        import openai

        where = f"endpoint {self.url}"
        try:
            return await request
        except openai.APITimeoutError as error:
            raise EngineError(f"{where}: no answer within {self.timeout_s:g} s, {self.retries + 1} times") from error
        except openai.APIConnectionError as error:
            raise EngineError(
                f"{where}: cannot be reached ({error.__cause__ or error}); is the server up, is the url right?"
            ) from error
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise EngineError(
                f"{where}: refused the API key (HTTP {error.status_code}); set {self._key_env} to a valid one"
            ) from None  # the server's text may repeat the key
        except openai.NotFoundError as error:
            raise EngineError(
                f"{where}: knows no such path or model (HTTP 404) for model {self.model!r}: {_said(error)}"
            ) from error
        except openai.APIStatusError as error:
            if error.status_code in (400, 413, 422):
                raise _Refused(where, error.status_code, _said(error)) from error
            raise EngineError(f"{where}: HTTP {error.status_code} after retries: {_said(error)}") from error
        # The client trips over an answer of another shape (a proxy's page, say) with whatever error comes first.
        except (openai.OpenAIError, AttributeError, TypeError, ValueError) as error:
            raise EngineError(f"{where}: its answer is not what the protocol says: {error!r:.300}") from error

    def _completion(self, reply: Any, prompt: str, sampling: Sampling) -> Completion:
        """What the endpoint answered, checked: the client hands on whatever JSON came."""
        if isinstance(reply, str):
            raise EngineError(f"endpoint {self.url}: answered with something else than JSON: {reply!r:.120}")
        try:
            if not reply.choices:
                raise EngineError(f"endpoint {self.url}: its answer holds no choices")
            choice = reply.choices[0]
            # The content is None when a reasoning model spent every token before its answer.
            text = (choice.message.content if hasattr(choice, "message") else choice.text) or ""
            text, stopped = cut_at_stop(text, sampling.stop)
            usage = getattr(reply, "usage", None)
            prompt_tokens = int(usage.prompt_tokens) if usage else self.count_tokens(prompt)
            completion_tokens = int(usage.completion_tokens) if usage else self.count_tokens(text)
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise EngineError(f"endpoint {self.url}: its answer is not what the protocol says: {error!r}") from error
        served = str(getattr(reply, "model", None) or self.model)
        # A hosted service answers for "name" with its dated snapshot "name-2026-01-31".
        if not re.fullmatch(re.escape(self.model) + r"(-\d[\d-]*)?", served):
            raise EngineError(f"endpoint {self.url}: was asked for model {self.model!r} and answered with {served!r}")
        self._served = self._served or served
        if served != self._served:
            raise EngineError(
                f"endpoint {self.url}: answered with {served!r}, before that with {self._served!r}: the weights behind"
                f" {self.model!r} changed; ask for the snapshot by its full name"
            )
        if choice.finish_reason == "content_filter":
            raise PromptRejected(f"endpoint {self.url}: its content filter stopped the answer")
        cut = choice.finish_reason == "length" and not stopped
        return Completion(text, prompt_tokens, completion_tokens, "length" if cut else "stop", served)


def _normal(url: str) -> tuple[str, str]:
    """The URL in one form (lower-case host, no needless port or slash, ``/v1`` where there is no path), and its host.
    Raises ConfigError for what is no URL of an endpoint, or would bring a secret into the ledger."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:  # a port that is no number
        raise ConfigError(f"endpoint url {url!r}: {error}; give it as http://host:port/v1") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"endpoint url {url!r}: give it as http://host:port/v1")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(f"endpoint url of {host}: leave out name, password, ? and #; give the key by key_env")
    place = f"[{host}]" if ":" in host else host
    if port not in (None, 80 if parts.scheme == "http" else 443):
        place += f":{port}"
    return f"{parts.scheme}://{place}/{parts.path.strip('/') or 'v1'}", host


def _said(error: Any) -> str:
    """The server's own words, on one line."""
    body = error.body if isinstance(error.body, str) else json.dumps(error.body, default=str)
    return " ".join((body if error.body else str(error)).split())[:300]


def _is_private(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or "." not in host or host.endswith((".local", ".internal"))
    return address.is_private or address.is_loopback
