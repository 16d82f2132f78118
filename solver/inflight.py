"""Work that is under way, by key: whoever asks for the same joins it instead of paying again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class InFlight(Generic[T]):
    """``await inflight(key, start)`` runs ``start()`` unless it runs already. A caller that is cancelled leaves the
    work going: what is being paid for is finished and written down, whoever stops waiting for it."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def __call__(self, key: str, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(start())
            task.add_done_callback(lambda done: self._settle(key, done))
        return await asyncio.shield(task)

    async def stop(self) -> None:
        """Cancels what is under way and waits for it to end."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _settle(self, key: str, done: asyncio.Task[T]) -> None:
        self._tasks.pop(key, None)
        if not done.cancelled():
            done.exception()  # marks it as seen: every caller may have gone away
