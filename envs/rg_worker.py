"""The child process in which all of Reasoning Gym runs: generators, and scorers that read hostile answers.

Started by `reharness.envs.rg_host` as ``python -P -m reharness.envs.rg_worker`` with PYTHONHASHSEED=0 (some families
depend on it). One JSON line in, one JSON line out per item. A process of its own because several scorers of the
package evaluate the answer they are given (``eval``, ``sympy.parse_expr``); here those calls are replaced
(`lock_evaluation`), an audit hook refuses files, sockets and programs, and the host can kill what stalls.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import inspect
import json
import math
import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from reharness.envs.rg_guard import arm_audit_hook, lock_evaluation, trusting

SCORE_CPU_S = 5.0
"""CPU seconds one score may take; an answer that needs more scores 0, if the gold needs less."""
HARD_CPU_S = 30.0
"""CPU seconds after which the kernel ends the worker, even inside C code that holds the interpreter."""
MEMORY_BYTES = 4 << 30
ROUNDING = 1e-9
"""How far outside [0, 1] a sum of shares may end (spell_backward gives 1.0000000000000002)."""
BLOCK = 64
"""Items per generator: item ``i`` is item ``i % 64`` of the generator seeded for block ``i // 64``. Fixed, because
some families (acre) depend on the ``size`` they are built with."""


class _TooDear(BaseException):
    """The CPU limit of one score; not an Exception, so that a scorer's own handlers let it through."""


class Failure:
    """One item that could not be made or scored."""

    def __init__(self, error: BaseException) -> None:
        self.text = f"{type(error).__name__}: {error}"[:2000]


def _on_cpu_limit(signum: int, frame: object) -> None:
    raise _TooDear


# -- entries as JSON: tuples and non-text keys keep their type, so a scorer sees what the generator made --------------


def encode(value: Any) -> Any:
    """``value`` as plain JSON data; raises TypeError for a type that could not be restored."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (str, int, float)):  # NumPy's scalars of these kinds become Python's
        return str(value) if isinstance(value, str) else int(value) if isinstance(value, int) else float(value)
    if isinstance(value, list):
        return [encode(v) for v in value]
    if isinstance(value, tuple):
        return {"$tuple": [encode(v) for v in value]}
    if isinstance(value, dict):
        if all(type(k) is str and not k.startswith("$") for k in value):
            return {k: encode(v) for k, v in value.items()}
        return {"$dict": [[encode(k), encode(v)] for k, v in value.items()]}
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist())
    raise TypeError(f"cannot freeze a value of type {type(value).__name__}")


def decode(value: Any) -> Any:
    """The inverse of `encode`."""
    if isinstance(value, list):
        return [decode(v) for v in value]
    if isinstance(value, dict):
        if value.keys() == {"$tuple"}:
            return tuple(decode(v) for v in value["$tuple"])
        if value.keys() == {"$dict"}:
            return {decode(k): decode(v) for k, v in value["$dict"]}
        return {k: decode(v) for k, v in value.items()}
    return value


# -- operations ------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def _dataset(family: str, params_json: str, seed: int) -> Any:
    import reasoning_gym

    params = json.loads(params_json)
    if family == "composite" and params.get("datasets"):
        from reasoning_gym.composite import DatasetSpec

        params["datasets"] = [DatasetSpec(**{"weight": 1.0, "config": {}, **spec}) for spec in params["datasets"]]
    return reasoning_gym.create_dataset(family, **params, size=BLOCK, seed=seed)


def describe(request: dict) -> Iterator[Any]:
    """One item: every family of the installed package with its category, first doc line and parameters."""
    import reasoning_gym  # noqa: F401  (fills the registry)
    from reasoning_gym.factory import DATASETS

    families = {}
    for name, (cls, config) in sorted(DATASETS.items()):
        defaults = {}
        for f in dataclasses.fields(config):
            default = f.default_factory() if callable(f.default_factory) else f.default
            try:
                defaults[f.name] = encode(default)
            except TypeError:
                defaults[f.name] = str(default)
        doc = inspect.cleandoc(cls.__dict__.get("__doc__") or "").partition("\n")[0].rstrip(".:")
        families[name] = {
            "category": cls.__module__.split(".")[1],
            "doc": doc,
            "params": {k: v for k, v in defaults.items() if k not in ("size", "seed")},
        }
    yield {"version": importlib.metadata.version("reasoning-gym"), "families": families}


def check(request: dict) -> Iterator[Any]:
    """One item: whether the family's own configuration accepts the parameters."""
    _dataset(request["family"], request["params"], 0)
    yield True


def generate(request: dict) -> Iterator[Any]:
    """Items ``start`` to ``stop`` of the block with that seed, each as an encoded entry."""
    import numpy

    dataset = _dataset(request["family"], request["params"], request["seed"])
    for index in range(request["start"], request["stop"]):
        # codeio and list_functions draw from the global generators, which the family's seed does not reach.
        random.seed(request["seed"] + index)
        numpy.random.seed(request["seed"] + index)
        yield encode(dataset[index])


def score(request: dict) -> Iterator[Any]:
    """For each ``[entry, answer]`` a score, or a `Failure` where the scorer itself failed."""
    dataset = _dataset(request["family"], request["params"], 0)
    for entry, answer in request["items"]:
        signal.setitimer(signal.ITIMER_PROF, HARD_CPU_S)
        try:
            yield _score_one(dataset, decode(entry), answer, request["strict"])
        except (_TooDear, Exception) as e:  # noqa: BLE001  (recorded: a TaskError in the place of this score)
            yield Failure(e)
    signal.setitimer(signal.ITIMER_PROF, 0)


def _score_one(dataset: Any, entry: dict, answer: str, strict: bool) -> float:
    try:
        value = _limited(dataset, entry, answer)
    except (_TooDear, Exception):
        # Whose fault? If the same scorer with the same entry pays its own gold (where none is stored: reads an empty
        # answer), only the answer can have caused it, and an unreadable answer is a wrong one. Otherwise the scorer
        # is broken here, and the host must hear of it.
        gold = entry["answer"]
        if strict or answer == gold or _limited(dataset, entry, gold or "") < (0.5 if gold else 0):
            raise
        return 0.0
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"the scorer gave {value!r}, which is not a number")
    if not math.isfinite(value) or not -ROUNDING <= value <= 1 + ROUNDING:
        raise ValueError(f"the scorer gave {value!r}, which is not in [0, 1]")
    return min(1.0, max(0.0, float(value)))


def _limited(dataset: Any, entry: dict, answer: str) -> Any:
    signal.setitimer(signal.ITIMER_VIRTUAL, SCORE_CPU_S, 1.0)  # again each second: some scorers catch everything
    try:
        with trusting(entry):
            return dataset.score_answer(answer, entry)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


OPERATIONS: dict[str, Callable[[dict], Iterator[Any]]] = {
    "describe": describe,
    "check": check,
    "generate": generate,
    "score": score,
}


# -- the loop --------------------------------------------------------------------------------------------------------


def _end_with_parent(parent: int) -> None:
    """End this process soon after the host is gone, even when the main thread is busy."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def main() -> None:
    """Serve requests from stdin until it closes."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    quiet = os.open(os.devnull, os.O_RDWR)  # some families print, and none has anything to read
    os.dup2(quiet, 0)
    os.dup2(quiet, 1)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGVTALRM, _on_cpu_limit)

    def send(reply: dict[str, Any]) -> None:
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()

    if "--score" in sys.argv:
        import reasoning_gym  # noqa: F401

        lock_evaluation()
        arm_audit_hook()
    send({"ready": True})
    for line in requests:
        request = json.loads(line)
        end = None
        try:
            for item in OPERATIONS[request["op"]](request):
                send({"e": item.text} if isinstance(item, Failure) else {"v": item})
        except Exception as e:  # noqa: BLE001  (recorded: the host raises it as a TaskError)
            end = Failure(e).text
        send({"end": end})


if __name__ == "__main__":
    main()
