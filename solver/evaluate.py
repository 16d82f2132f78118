"""`evaluate`: a harness on questions, many sandboxed runs in flight, every outcome in the ledger before it is used."""

from __future__ import annotations

import asyncio
import contextlib
import numbers
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from reharness.envs.errors import InfraLimitError, LedgerError
from reharness.envs.types import Question, Task, content_hash
from reharness.solver.harness import CONTRACT_VERSION, Harness
from reharness.solver.inflight import InFlight
from reharness.solver.ledger import Ledger
from reharness.solver.models.base import Engine
from reharness.solver.outcomes import (
    Answered,
    Failed,
    Infra,
    Outcome,
    Scorecard,
    Usage,
    from_record,
    to_record,
)
from reharness.solver.recorded import RecordedEngine
from reharness.solver.sandbox import Sandbox
from reharness.solver.sandbox.types import Limits, Returned, RunFailed
from reharness.solver.tools import TOOL_PROFILE, Budgets, ToolHost

T = TypeVar("T")


async def gather_all(awaitables: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; when one raises, the others are stopped and that error is raised."""
    tasks = [asyncio.create_task(a) for a in awaitables]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _in_thread(work: Callable[..., T], *args: Any) -> T:
    """``work(*args)`` in a daemon thread of its own: one that never ends (a third party's scorer) must not keep the
    process from ending, as a thread of the common pool would."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: Any) -> None:
        if not result.done():
            set_it(value)

    def run() -> None:
        try:
            outcome = (result.set_result, work(*args))
        except BaseException as error:  # noqa: BLE001 - handed on to whoever waits
            outcome = (result.set_exception, error)  # type: ignore[assignment]
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, daemon=True).start()
    return await result


@dataclass
class Solver:
    """The frozen model and all that a harness runs in: engine, sandbox, ledger, limits and budgets.

    ``concurrency`` bounds the sandboxed runs in flight; it does not change results (calls are seeded by what they are,
    not by when they come). An infra outcome is tried again ``infra_retries`` times; when more than
    ``infra_limit`` of the last 100 outcomes (of at least 20) stayed infra, ``evaluate`` raises ``InfraLimitError``.
    """

    engine: Engine
    sandbox: Sandbox
    ledger: Ledger = field(default_factory=Ledger)
    limits: Limits = Limits()
    budgets: Budgets = Budgets()
    concurrency: int = 32
    infra_retries: int = 2
    infra_limit: float = 0.2

    def __post_init__(self) -> None:
        self.recorded = RecordedEngine(self.engine, self.ledger)
        self._slots = asyncio.Semaphore(self.concurrency)
        self._running = InFlight[Outcome]()
        self.measured = self.infra = 0
        self._recent: deque[bool] = deque(maxlen=100)

    def runtime_fingerprint(self, harness: Harness) -> str:
        """phi (CoTrace): the harness + chat template, tool bindings and observation limits."""
        template = self.engine.identity.template
        return content_hash("phi", harness.fingerprint, template, TOOL_PROFILE, self.budgets.observation_chars)

    def outcome_key(self, harness: Harness, task: Task, question: Question, repeat: int) -> str:
        """All that determines an outcome (architecture.md, Ledger)."""
        return content_hash(
            "outcome", CONTRACT_VERSION, harness.fingerprint, question.key, task.scorer_version,
            asdict(self.engine.identity), asdict(self.limits), asdict(self.budgets), TOOL_PROFILE, repeat,
        )  # fmt: skip

    async def outcome(self, harness: Harness, task: Task, question: Question, repeat: int = 0) -> Outcome:
        """One outcome: from the ledger, from a run that is under way, or from a new run."""
        key = self.outcome_key(harness, task, question, repeat)
        if (record := self.ledger.get("outcome", key)) is not None:
            try:
                return from_record(record)
            except (KeyError, TypeError, ValueError) as error:
                what = f"outcome {key[:12]} is damaged ({error!r})"
                raise LedgerError(f"{self.ledger.path}: {what}; start a new run folder") from error
        return await self._running(key, lambda: self._pay(key, harness, task, question, repeat))

    async def _pay(self, key: str, harness: Harness, task: Task, question: Question, repeat: int) -> Outcome:
        attempt = 0
        while True:
            async with self._slots:
                outcome = await self._run(key, harness, task, question, repeat)
            if not isinstance(outcome, Infra):
                self.measured += 1
                self._recent.append(False)
                self.ledger.put("outcome", key, to_record(outcome))
                return outcome
            self.ledger.put("infra", f"{key}#{self.ledger.count('infra')}", to_record(outcome))
            attempt += 1
            if attempt > self.infra_retries:
                break
            await asyncio.sleep(0.2 * 2**attempt)
        self.infra += 1
        self._recent.append(True)
        failed, seen = sum(self._recent), len(self._recent)
        if seen >= 20 and failed > self.infra_limit * seen:
            raise InfraLimitError(
                f"{failed} of the last {seen} outcomes are infrastructure failures, over the limit of"
                f" {self.infra_limit:.0%}; the last was {outcome.kind}: {outcome.detail}. Nothing is lost: mend it and"
                " give the same command again"
            )
        return outcome

    async def _run(self, key: str, harness: Harness, task: Task, question: Question, repeat: int) -> Outcome:
        host = ToolHost(self.recorded, self.sandbox, self.budgets, seed=key)
        seed = content_hash(harness.fingerprint, question.key, repeat)
        result = await self.sandbox.run(harness.source, question.text, host, self.limits, seed=seed)
        usage = Usage(host.llm_calls, host.prompt_tokens, host.completion_tokens, host.python_calls,
                      round(result.cpu_s, 4), round(result.wall_s, 4))  # fmt: skip
        trace, rung, end = host.trace, self.sandbox.rung.name, result.end
        if isinstance(end, RunFailed):
            return Failed(end.kind, end.detail, trace, usage, rung)
        if not isinstance(end, Returned):
            return Infra(end.kind, end.detail)
        try:
            score = await asyncio.wait_for(_in_thread(task.score, question, end.answer), self.limits.wait_s)
            if not isinstance(score, numbers.Real) or isinstance(score, bool):
                raise TypeError(f"a score is a number, not {score!r}")
            return Answered(end.answer, float(score), trace, usage, rung)
        except Exception as error:  # noqa: BLE001 - any scorer fault is a typed infra outcome
            return Infra("scorer_error", f"{task.name}: {type(error).__name__}: {error}"[:500])

    async def stop(self) -> None:
        """Stops what still runs, before engine, sandbox and ledger are closed by whoever opened them."""
        await self._running.stop()
        await self.recorded.stop()


async def evaluate(
    harness: Harness, questions: Sequence[Question], solver: Solver, *, task: Task, repeats: int = 1
) -> Scorecard:
    """Runs ``harness`` on every question, ``repeats`` times each, and returns its scorecard: one outcome per
    (question, repeat), question-major. Raises ``InfraLimitError`` when the infrastructure fails too often."""
    pairs = [(q, r) for q in questions for r in range(repeats)]
    outcomes = await gather_all(solver.outcome(harness, task, q, r) for q, r in pairs)
    return Scorecard(
        harness=harness.fingerprint,
        task=task.name,
        questions=tuple(q.key for q, _ in pairs),
        repeats=tuple(r for _, r in pairs),
        outcomes=tuple(outcomes),
    )
