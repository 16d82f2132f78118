from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from reharness.envs.errors import EngineError, LedgerError
from reharness.solver.ledger import Ledger
from reharness.solver.models.base import Completion, EngineIdentity, Message, Sampling
from reharness.solver.recorded import RecordedEngine


def test_a_record_is_found_again_after_reopening_and_the_first_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "run" / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.put("outcome", "k", {"score": 0.5, "text": "ü\u2028"})
    ledger.put("outcome", "k", {"score": 0.9})
    ledger.close()
    ledger.close()
    again = Ledger(path)
    assert again.get("outcome", "k") == {"score": 0.5, "text": "ü\u2028"}
    assert again.get("call", "k") is None
    assert again.count("outcome") == 1
    again.close()


def test_records_come_in_the_order_of_writing_across_pages() -> None:
    ledger = Ledger()
    for i in range(1203):
        ledger.put("call", f"{i * 7919 % 1203}", {"i": i})
    ledger.put("outcome", "other", {})
    assert [r["i"] for _, r in ledger.records("call")] == list(range(1203))


def test_one_folder_serves_one_run_at_a_time(tmp_path: Path) -> None:
    first = Ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(LedgerError, match="another run is using"):
        Ledger(tmp_path / "ledger.sqlite")
    first.close()
    Ledger(tmp_path / "ledger.sqlite").close()


def test_another_configuration_is_refused_and_the_difference_shown(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    ledger.bind("config", json.dumps({"rounds": 3, "n": 8}))
    ledger.bind("config", json.dumps({"rounds": 3, "n": 8}))
    with pytest.raises(LedgerError, match="rounds was 3, is 5"):
        ledger.bind("config", json.dumps({"rounds": 5, "n": 8}))
    ledger.close()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "l.sqlite").write_bytes(b"this is no database at all" * 100)
    with pytest.raises(LedgerError, match=r"l\.sqlite.*damaged"):
        Ledger(tmp_path / "l.sqlite")


def test_what_was_put_survives_kill_9(tmp_path: Path) -> None:
    program = (
        "import sys, os, signal, pathlib\n"
        "from reharness.solver.ledger import Ledger\n"
        "l = Ledger(pathlib.Path(sys.argv[1]))\n"
        "for i in range(50): l.put('call', str(i), {'i': i})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "l.sqlite"
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False, cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    ledger = Ledger(path)
    assert ledger.count("call") == 50
    ledger.close()
    mode = sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone()[0]
    assert mode == "wal"


class Counting:
    """A real engine for the purpose: it counts what it was asked and answers with it."""

    identity = EngineIdentity("counting", "w1")

    def __init__(self, broken: bool = False) -> None:
        self.calls = 0
        self.broken = broken

    async def probe(self) -> None: ...

    async def generate(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.calls += 1
        await asyncio.sleep(0.01)
        if self.broken:
            raise EngineError("down; start it")
        return Completion(f"{messages[-1]['content']} {sampling.seed}", 3, 2, "stop", "w1")

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def aclose(self) -> None: ...


def ask(engine: RecordedEngine, text: str, sampling: Sampling) -> asyncio.Future[Completion]:
    return asyncio.ensure_future(engine.generate([{"role": "user", "content": text}], sampling))


def test_equal_calls_are_paid_once_even_at_the_same_time() -> None:
    async def go() -> None:
        inner = Counting()
        engine = RecordedEngine(inner, Ledger())
        greedy = [ask(engine, "a", Sampling(seed=i)) for i in range(5)]
        assert len({c.text for c in await asyncio.gather(*greedy)}) == 1
        assert inner.calls == engine.paid_calls == 1  # greedy decoding does not depend on the seed
        sampled = [ask(engine, "a", Sampling(temperature=1.0, seed=i % 3)) for i in range(6)]
        assert len({c.text for c in await asyncio.gather(*sampled)}) == 3
        assert inner.calls == engine.paid_calls == 4
        assert (engine.paid_prompt_tokens, engine.paid_completion_tokens) == (12, 8)

    asyncio.run(go())


def test_a_caller_that_goes_away_does_not_lose_the_answer() -> None:
    async def go() -> None:
        inner, ledger = Counting(), Ledger()
        engine = RecordedEngine(inner, ledger)
        first, second = ask(engine, "a", Sampling()), ask(engine, "a", Sampling())
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).text == "a 0"
        lone = ask(engine, "b", Sampling())
        await asyncio.sleep(0.001)
        lone.cancel()
        await asyncio.sleep(0.05)
        assert ledger.count("call") == 2

    asyncio.run(go())


def test_a_failed_call_is_not_recorded_and_is_asked_again() -> None:
    async def go() -> None:
        inner = Counting(broken=True)
        engine = RecordedEngine(inner, Ledger())
        for _ in range(2):
            with pytest.raises(EngineError):
                await ask(engine, "a", Sampling())
        assert inner.calls == 2
        assert engine.ledger.count("call") == 0

    asyncio.run(go())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(LedgerError, match="check that the folder exists and can be written"):
        Ledger(tmp_path / "x" / "l.sqlite")
