"""What may come out of the cage: strict JSON lines, and the tools with their checked parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reharness.solver.sandbox.types import ToolError

MAX_DEPTH = 32
MAX_DIGITS = 400


class ProtocolError(ValueError):
    """A line from the cage is not what the child side of reharness would send: the harness tampered with it."""


def _constant(text: str) -> float:
    raise ProtocolError(f"{text} is not JSON")


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ProtocolError(f"a number of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    if len(text) > MAX_DIGITS or not math.isfinite(value := float(text)):
        raise ProtocolError("a number out of range")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ProtocolError("a key twice in one object")
    return found


def _check_plain(value: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise ProtocolError("nested too deep")
    if isinstance(value, str):
        value.encode()  # lone surrogates raise UnicodeEncodeError, a ValueError
    elif isinstance(value, list):
        for item in value:
            _check_plain(item, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            key.encode()
            _check_plain(item, depth + 1)


_decode = json.JSONDecoder(
    parse_constant=_constant, parse_int=_integer, parse_float=_float, object_pairs_hook=_object
).decode


def parse_line(line: bytes | bytearray) -> dict[str, Any]:
    """One JSON object of finite numbers, proper text and unique keys, at most MAX_DEPTH deep; else ProtocolError."""
    try:
        value = _decode(line.decode())
        _check_plain(value)
    except ProtocolError:
        raise
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a JSON line: {type(error).__name__}") from None
    if not isinstance(value, dict):
        raise ProtocolError(f"a JSON {type(value).__name__}, not an object")
    return value


_REQUIRED = object()


@dataclass(frozen=True)
class Method:
    """A tool: its parameters in order with their defaults, the check of what arrived, whether the caller waits."""

    params: Mapping[str, Any]
    check: Callable[[dict[str, Any]], dict[str, Any]]
    waits: bool = True

    def spec(self, name: str) -> dict[str, Any]:
        """What the child builds its stub from."""
        params = [{"name": n} | ({} if d is _REQUIRED else {"default": d}) for n, d in self.params.items()]
        return {"name": name, "params": params, "waits": self.waits}


def _number(params: dict[str, Any], name: str, low: float, high: float, kinds: tuple[type, ...], what: str) -> None:
    value: Any = params[name]
    if type(value) not in kinds or not low <= value <= high:  # exact types: a bool is no number
        raise ToolError(f"{name} must be {what} from {low:g} to {high:g}, not {str(value)[:40]!r}")


def _check_llm(params: dict[str, Any]) -> dict[str, Any]:
    messages = params["messages_or_prompt"]
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list) or not messages:
        raise ToolError("messages_or_prompt must be a string or a non-empty list of messages")
    for message in messages:
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise ToolError("a message has the keys 'role' and 'content'")
        if message["role"] not in ("system", "user", "assistant") or not isinstance(message["content"], str):
            raise ToolError("a message's role is system, user or assistant, and its content is a string")
    _number(params, "max_tokens", 1, 1 << 20, (int,), "an int")
    _number(params, "temperature", 0.0, 2.0, (int, float), "a number")
    return {"messages": messages, "max_tokens": params["max_tokens"], "temperature": float(params["temperature"])}


def _check_python(params: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(params["code"], str):
        raise ToolError("code must be a string")
    _number(params, "timeout", 0.01, 3600.0, (int, float), "a number of seconds")
    return {"code": params["code"], "timeout": float(params["timeout"])}


def _check_note(params: dict[str, Any]) -> dict[str, Any]:
    text = params["text"]
    return {"text": text if isinstance(text, str) else json.dumps(text)}


METHODS: dict[str, Method] = {
    "llm": Method({"messages_or_prompt": _REQUIRED, "max_tokens": 512, "temperature": 0.0}, _check_llm),
    "python": Method({"code": _REQUIRED, "timeout": 5.0}, _check_python),
    "note": Method({"text": _REQUIRED}, _check_note, waits=False),
}


@dataclass(frozen=True)
class Request:
    """A checked request. ``id`` is None where no reply is awaited; ``refusal`` says why its parameters are bad."""

    method: str
    params: dict[str, Any]
    id: int | None
    refusal: str | None = None


def parse_request(message: dict[str, Any], allowed: frozenset[str]) -> Request:
    """The request in `message`; ProtocolError if the child's stubs could not have sent it."""
    name = message.get("call")
    if not isinstance(name, str) or name not in allowed or name not in METHODS:
        raise ProtocolError(f"no tool is named {str(name)[:40]!r}")
    method, params, request_id = METHODS[name], message.get("params"), message.get("id")
    if set(message) != ({"call", "params", "id"} if method.waits else {"call", "params"}):
        raise ProtocolError("a request with missing or unknown fields")
    if method.waits and type(request_id) is not int:
        raise ProtocolError("a request id that is not an integer")
    if not isinstance(params, dict) or set(params) != set(method.params):
        raise ProtocolError(f"parameters that {name} does not have")
    try:
        return Request(name, method.check(params), request_id)
    except ToolError as error:
        return Request(name, {}, request_id, str(error))
