"""A search for demonstrations with other teachers than the library of moves: what they are told, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from demo_search import EXACT, HALF, PLAIN, Script, asking, reply, searched, settings
from endpoint import EndpointServer
from solving import edit, with_solver

from reharness.envs.errors import ConfigError, EngineError, UnknownNameError
from reharness.proposer.demos import DemosConfig, DemoSearch
from reharness.proposer.factory import ProposerConfig, make_proposer
from reharness.proposer.policy import ScriptedProposer
from reharness.proposer.search import Searched
from reharness.proposer.tracks import from_seed
from reharness.solver.evaluate import Solver, gather_all
from reharness.solver.models.base import Message, Sampling
from reharness.solver.models.scripted import ScriptedEngine


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def server(script: Script) -> Iterator[EndpointServer]:
    with EndpointServer(ScriptedEngine(script), "m") as server:
        yield server


def test_q_fb_is_told_and_q_score_judges(server: EndpointServer, script: Script, tmp_path: Path) -> None:
    script.edit = asking(EXACT)
    summary, (row,) = searched(settings(server, repeats=2), tmp_path)
    asked = [b["messages"][-1]["content"] for b in server.bodies if b["messages"][0]["role"] != "system"]
    scoring = {text.removeprefix(EXACT) for text in asked if text.startswith(EXACT)}
    feedback = {text for text in asked if not text.startswith(EXACT)} - scoring
    assert (len(feedback), len(scoring), len(asked)) == (2, 3, 2 + 3 + 3)  # one in both would leave fewer
    told = row.messages[-1].content
    assert any(text in told for text in feedback) and not any(text in told for text in scoring)
    assert (row.teacher, row.move, row.completion) == ("model", None, script.edit)
    assert (row.parent_score, row.candidate_score, row.n, row.repeats) == (0.0, 1.0, 3, 2) and summary["starts"]["S"] == {"kept": 1}
    server.bodies.clear()
    assert searched(settings(server, repeats=2), tmp_path)[1] == [row] and server.bodies == []  # the teacher is not asked again


@pytest.mark.parametrize("completion", ["NO CHANGE\n", "I would rather not.", asking(PLAIN), edit("nowhere", "x")])
def test_an_edit_that_does_not_help_is_no_row(server: EndpointServer, script: Script, tmp_path: Path, completion: str) -> None:
    script.edit = completion
    summary, rows = searched(settings(server, proposals=2), tmp_path)
    assert rows == [] and summary["starts"]["S"] == {"no_gain": 1}
    assert summary["not_kept"] == ["chain_sum?exact=true S: no_gain"]


def test_a_teacher_that_cannot_work_is_named_before_anything_is_paid(server: EndpointServer, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="'move_serch'; did you mean 'move_search'"):
        searched(settings(server, teacher={"name": "move_serch"}), tmp_path)
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:9"):
        searched(settings(server, teacher="endpoint?url=http://127.0.0.1:9/v1&model=m"), tmp_path / "absent")
    with pytest.raises(ConfigError, match="'lcm' is no train family"):
        searched(settings(server, families=("lcm",)), tmp_path)
    with pytest.raises(ConfigError, match="'model' needs an engine"):
        make_proposer(ProposerConfig(name="model"), None)
    assert server.bodies == []


def test_a_parent_that_could_not_be_measured_is_no_row_until_it_can(server: EndpointServer, script: Script, tmp_path: Path) -> None:
    def down(messages: Sequence[Message], sampling: Sampling) -> str:
        if not messages[-1]["content"].startswith(EXACT):
            raise EngineError("the lights went out")
        return reply(messages, sampling)

    script.edit, script.solver = asking(EXACT), down
    summary, rows = searched(settings(server), tmp_path / "run")
    assert rows == [] and summary["starts"]["S"] == {"infra": 1} and summary["rows"] == 0
    script.solver = reply
    summary, rows = searched(settings(server), tmp_path / "run")
    assert summary["starts"]["S"] == {"kept": 1} and rows == searched(settings(server), tmp_path / "other")[1]


@pytest.mark.parametrize("broken", [1, 3])
def test_a_candidate_that_was_not_wholly_measured_is_no_row_and_no_verdict(
    server: EndpointServer, script: Script, tmp_path: Path, broken: int
) -> None:
    lost: list[str] = []

    def flaky(messages: Sequence[Message], sampling: Sampling) -> str:
        text = messages[-1]["content"]
        if text.startswith(EXACT) and (text in lost or len(lost) < broken):
            lost.append(text)
            raise EngineError("the lights went out")
        return reply(messages, sampling)

    script.edit, script.solver = asking(EXACT), flaky
    summary, rows = searched(settings(server), tmp_path / "run")
    assert len(set(lost)) == broken and rows == [] and summary["starts"]["S"] == {"infra": 1}
    script.solver = reply
    summary, rows = searched(settings(server), tmp_path / "run")
    assert summary["starts"]["S"] == {"kept": 1} and rows == searched(settings(server), tmp_path / "other")[1]


def test_rows_that_could_not_be_written_are_named_before_anything_is_paid(server: EndpointServer, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").mkdir()
    with pytest.raises(ConfigError, match=r"rows.jsonl: is a folder"):
        searched(settings(server), tmp_path)
    with pytest.raises(ConfigError, match="the plan has no starts; raise per_family"):
        searched(settings(server, per_family=0), tmp_path / "none")
    assert server.bodies == []


def test_a_teacher_that_is_a_model_is_in_what_was_paid(server: EndpointServer, script: Script, tmp_path: Path) -> None:
    script.edit = asking(EXACT)
    paid = searched(settings(server), tmp_path)[0]["paid"]
    assert (paid["teacher_calls"], paid["solver_calls"]) == (1, 8) and paid["teacher_completion_tokens"] > 0
    again = searched(settings(server), tmp_path)[0]["paid"]
    assert (again["teacher_calls"], again["solver_calls"], again["teacher_prompt_tokens"]) == (0, 0, 0)


def test_what_a_teacher_was_paid_for_is_kept_when_it_fails(server: EndpointServer, script: Script, tmp_path: Path) -> None:
    edits = iter([asking(PLAIN), EngineError("no more today"), asking(EXACT), asking(HALF)])

    def teach(messages: Sequence[Message], sampling: Sampling) -> str:
        if messages[0]["role"] != "system":
            return reply(messages, sampling)
        if isinstance(said := next(edits), EngineError):
            raise said
        return said

    server.engine = ScriptedEngine(teach)
    one_by_one = settings(server, proposals=2, teacher=f"endpoint?url={server.url}&model=m&key_env=NONE&retries=0&concurrency=1")
    with pytest.raises(EngineError, match="no more today"):
        searched(one_by_one, tmp_path)
    assert not (tmp_path / "rows.jsonl").exists()
    server.bodies.clear()
    _, (row,) = searched(one_by_one, tmp_path)
    assert row.completion == asking(EXACT) and sum(b["messages"][0]["role"] == "system" for b in server.bodies) == 1


def test_earlier_edits_are_told_only_where_they_did_not_help() -> None:
    def wake(messages: Sequence[Message], sampling: Sampling) -> str:
        """The solver knows sums, but not as the seed harness asks."""
        text = messages[-1]["content"]
        return reply([{"role": "user", "content": EXACT + text if (text[:5], sampling.max_tokens) != ("State", 512) else text}], sampling)

    engine = ScriptedEngine(wake)
    config = DemosConfig(feedback=1, score=2, repeats=1, proposals=1, with_history=1)

    async def search(solver: Solver) -> list[Searched]:
        teacher = ScriptedProposer([asking(EXACT)])
        find = DemoSearch(config, solver, teacher, engine.count_tokens)
        return await gather_all(find(from_seed("chain_sum", seed)) for seed in range(12))

    told = [made.row.messages[-1].content for made in with_solver(engine, search) if made.row]
    histories = [text.partition("Earlier edits:\n")[2] for text in told]
    assert len(told) == 12 and all("-> 0.000, rejected" in line for text in histories for line in text.splitlines())
    assert 0 < sum(map(bool, histories)) < 12


LONG, SHORT = asking(EXACT, "Ask for the exact value of the expression."), asking(EXACT, "Be exact.")


@pytest.mark.parametrize(
    ("completions", "chunk", "margin", "kept"),
    [
        ([asking(PLAIN), LONG, SHORT], 3, 0.15, SHORT),  # of equals the shortest
        ([asking(PLAIN), LONG, SHORT], 2, 0.15, LONG),  # a perfect one ends the search
        ([asking(HALF), "NO CHANGE\n", SHORT], 3, 0.15, SHORT),  # the better one, though it comes later
        ([asking(HALF), asking(PLAIN)], 1, 0.5, asking(HALF)),
        ([asking(HALF), asking(PLAIN)], 1, 0.51, None),
    ],
)  # fmt: skip
def test_the_best_edit_is_kept(completions: list[str], chunk: int, margin: float, kept: str | None) -> None:
    halves: list[str] = []

    def half(messages: Sequence[Message], sampling: Sampling) -> str:
        text = messages[-1]["content"]
        halves.extend([text] * text.startswith(HALF))
        right = text.replace(HALF, EXACT) if text in halves[:1] else text  # the first of two questions
        return reply([{"role": "user", "content": right}], sampling)

    engine = ScriptedEngine(half)
    config = DemosConfig(
        feedback=1, score=2, repeats=1, proposals=len(completions), chunk=chunk, margin=margin, with_history=0
    )

    async def search(solver: Solver) -> Searched:
        teacher = ScriptedProposer(completions)
        return await DemoSearch(config, solver, teacher, engine.count_tokens)(from_seed("chain_sum", 5))

    made = with_solver(engine, search)
    assert (made.row.completion if made.row else None, made.why) == (kept, "kept" if kept else "no_gain")
