"""Every move is an edit that applies; the candidate runs; algorithms solve the families they were written for."""

import json
import random
import tomllib
import warnings
from collections.abc import Callable
from importlib import resources
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from solving import with_solver

from reharness.envs.formats import FORMATS
from reharness.envs.registry import get_task
from reharness.envs.splits import load_split
from reharness.proposer import moves_snippets
from reharness.proposer.defects import planted
from reharness.proposer.edits import apply_edit, check_harness
from reharness.proposer.moves import MOVES, moves_for
from reharness.solver.evaluate import Solver, evaluate
from reharness.solver.harness import Harness, seed_harness
from reharness.solver.models.scripted import ScriptedEngine
from reharness.solver.outcomes import Scorecard

SEED = seed_harness().source
SPLIT = tomllib.loads(resources.files("reharness.envs").joinpath("data/rg_split.toml").read_text(encoding="utf-8"))


class Tools:
    """A solver that says what it is told to, and a Python that prints "ran"."""

    def __init__(self, *replies: str) -> None:
        self.replies, self.calls = list(replies), []  # type: ignore[var-annotated]

    def llm(self, prompt: str, max_tokens: int = 512, temperature: float = 0.0) -> str:
        self.calls.append((prompt, max_tokens, temperature))
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def python(self, code: str, timeout: float = 5.0) -> SimpleNamespace:
        self.calls.append(code)
        return SimpleNamespace(stdout="ran\n", error=None)


def moved(source: str, *names: str) -> str:
    """The source after these moves, each through the public way of an edit."""
    for name in names:
        completion = MOVES[name].propose(source)
        assert completion is not None, f"{name} does not fit"
        result = check_harness(apply_edit(source, completion))
        assert result.error is None, f"{name}: {result.error}"
        assert result.description == MOVES[name].describe and result.source is not None
        source = result.source
    return source


def loaded(source: str) -> Callable[[str, Any], str]:
    namespace: dict[str, Any] = {}
    exec(Harness.from_source(source).source, namespace)
    run: Callable[[str, Any], str] = namespace["run"]
    return run


def answer(source: str, *replies: str, question: str = "What is it?") -> str:
    return loaded(source)(question, Tools(*replies))


# A harness that already holds the right Python, and its defects: what the repairs are for.
COMPETENT = "def solve(question):\n    return question.split(': ')[1].upper()\n\n\n"
COMPETENT_RUN = COMPETENT + "def run(question, tools):\n    return solve(question)\n"


@pytest.mark.parametrize("name", MOVES)
def test_every_move_is_an_edit_whose_candidate_runs(name: str) -> None:
    parents = [SEED, COMPETENT_RUN, SEED.replace("0.0", "0.5"), COMPETENT_RUN.replace("(question)\n", "(question)[:1]\n")]
    parents.append(COMPETENT_RUN.replace("return solve(question)", 'return solve(question.rsplit("\\n", 1)[0])'))
    parents += [planted(COMPETENT_RUN, defect, 0) for defect in load_split().defects["train"]]
    fitting = [parent for parent in parents if MOVES[name].propose(parent)]
    assert fitting
    for parent in fitting:
        candidate = moved(parent, name)
        assert candidate != parent and isinstance(answer(candidate, "reply", question="Say: yes\nBriefly."), str)


def test_descriptions_tell_moves_apart() -> None:
    assert len({move.describe for move in MOVES.values()}) == len(MOVES) == len({move.name for move in MOVES.values()})


def test_moves_fit_by_the_source_alone() -> None:
    names = {move.name for move, _ in moves_for(SEED)}
    assert names == {name for name in MOVES if name != "greedy" and not name.startswith("undo_")}
    kinds = {move.kind for move, _ in moves_for(COMPETENT_RUN)}
    assert kinds == {"algorithm", "format", "repair"}  # nothing to ask differently where no solver is asked
    assert moves_for("def run(:\n") == []
    assert {move.kind for move, _ in moves_for("def run(*args):\n    return ''\n")} == set()


@pytest.mark.parametrize("seed", range(25))
def test_moves_stack_in_any_order(seed: int) -> None:
    rng, source = random.Random(seed), SEED
    for _ in range(8):
        move, _ = rng.choice(moves_for(source))
        source = moved(source, move.name)
    assert isinstance(answer(source, "The answer is 3."), str)


def test_a_move_is_not_made_twice() -> None:
    for move, _ in moves_for(SEED):
        again = MOVES[move.name].propose(moved(SEED, move.name))
        assert again is None, move.name


SOLVED_BY = {
    "basic_arithmetic": "exact_value",
    "chain_sum": "exact_value",
    "decimal_arithmetic": "exact_value",
    "fraction_simplification": "lowest_terms",
    "count_primes": "primes_between",
    "word_sorting": "sorted_words",
    "number_sorting": "sorted_numbers",
    "spell_backward": "spelled_backward",
    "rotate_matrix": "rotated_matrix",
    "base_conversion": "converted_base",
    "caesar_cipher": "caesar_plain",
    "group_anagrams": "grouped_anagrams",
}


@pytest.fixture(scope="module")
def create_dataset() -> Callable[..., Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from reasoning_gym import create_dataset
    made: Callable[..., Any] = create_dataset
    return made


@pytest.mark.parametrize("family", SPLIT["families"]["train"])
def test_an_algorithm_solves_its_train_family(family: str, create_dataset: Callable[..., Any]) -> None:
    data = create_dataset(family, size=25, seed=11)
    run = loaded(moved(SEED, SOLVED_BY[family]))
    for name in SPLIT["formats"]["train"]:
        exact = 0
        for item in data:
            tools = Tools("no idea")
            reply = run(f"{item['question']}\n\n{FORMATS[name].instruction}", tools)
            exact += data.score_answer(answer=reply, entry=item) > 0.98 and not tools.calls
        assert exact >= 0.8 * 25, (family, name, exact)


def test_an_algorithm_leaves_other_questions_to_the_solver() -> None:
    for name in set(SOLVED_BY.values()):
        assert answer(moved(SEED, name), "asked", question="Who wrote the play?") == "asked"


@given(st.text() | st.sampled_from(["1/0", "((1+", "between 9 and 3", "text: A", "[[1]]", "the base-1 number 1 to base-1"]))
def test_an_algorithm_raises_on_no_text(question: str) -> None:
    for name in set(SOLVED_BY.values()):
        found = getattr(moves_snippets, name)(question)
        assert found is None or isinstance(found, str)


@pytest.mark.parametrize(
    ("name", "form"), [("as_tag", "tag"), ("as_json", "json_field"), ("as_json_field", "json_field"), ("as_last_line", "last_line"), ("as_label", "label")]
)
@pytest.mark.parametrize("order", [1, -1])
def test_a_format_move_gives_the_form_before_or_after_an_algorithm(name: str, form: str, order: int) -> None:
    source = moved(SEED, *[name, "exact_value"][::order])
    reply = answer(source, "no idea", question="What is 12 / 8 - 1?")
    assert FORMATS[form].extract(reply) == "0.5" and reply != "0.5"
    assert FORMATS[form].extract(answer(source, "Paris")) == "Paris"


DEFECTS = [
    ("strip_prefix", 'return "The answer is " + solve(question)'),
    ("strip_prefix", 'return f"Answer: {solve(question)}"'),
    ("unwrap_dict", 'return str({"answer": solve(question)})'),
    ("unquote", "return repr(solve(question))"),
    ("unquote", "return '\"' + solve(question) + '\"'"),
    ("undo_first_char", "return solve(question)[:1]"),
    ("undo_first_char", "return solve(question)[0]"),
    ("undo_first_char", "answer = solve(question)\n    answer = answer[:1]\n    return answer"),
    ("undo_first_char", "return solve(question).strip()[0]"),
    ("undo_drop_last_line", 'return solve(question.rsplit("\\n", 1)[0])'),
    ("undo_drop_last_line", 'return solve("\\n".join(question.splitlines()[:-1]))'),
    ("undo_drop_last_line", 'question = question.rpartition("\\n")[0]\n    return solve(question)'),
    ("undo_drop_last_line", 'lines = question.split("\\n")[:-1]\n    return solve("\\n".join(lines))'),
]


@pytest.mark.parametrize(("name", "line"), DEFECTS)
def test_a_repair_cures_its_defect(name: str, line: str) -> None:
    source = f"{COMPETENT}def run(question, tools):\n    {line}\n"
    question = "Say it loud\n: yes, it is" if name == "undo_drop_last_line" else "Say it loud: yes, it is"
    try:
        broken = answer(source, "", question=question)
    except IndexError:
        broken = ""
    assert broken != "YES, IT IS"
    assert answer(moved(source, name), "", question=question) == "YES, IT IS"


@pytest.mark.parametrize("name", ["strip_prefix", "unwrap_dict", "unquote"])
def test_a_repair_leaves_a_sound_answer_alone(name: str) -> None:
    for reply in ("-3", "the end", "{'a': 1, 'b': 2}", "'", "it's", '[["a"]]'):
        assert answer(moved(SEED, name), reply) == reply


def test_a_cut_within_a_cut_gives_sound_python() -> None:
    line = 'return question.rsplit("\\n", 1)[0].rsplit("\\n", 1)[0]'
    once = moved(f"def run(question, tools):\n    {line}\n", "undo_drop_last_line")
    assert answer(once, "", question="a\nb\nc") == "a\nb"


def test_undo_first_char_does_not_take_a_list_for_a_text() -> None:
    for line in ("return question.split()[0]", "return Counter(question).most_common(1)[0][0]", "first = question[0]"):
        assert MOVES["undo_first_char"].propose(f"def run(question, tools):\n    {line}\n") is None


EXTRACTED = [
    ("last_number", "It is 1,200 or so, no: -3.5 in all.", "-3.5"),
    ("last_number", "a half is 1/2", "1/2"),
    ("last_number", "none", "none"),
    ("first_line", " 42 \nbecause", "42"),
    ("last_line", "because\n 42 \n", "42"),
    ("tag_content", "so <answer>4</answer>, no: <answer>\n5\n</answer>", "5"),
    ("tag_content", "so 5", "so 5"),
    ("after_answer_is", "I think.\nThe answer is: **Rome**.\nBye", "Rome"),
    ("after_answer_is", "Rome", "Rome"),
    ("write_code", "```python\nprint(1)\n```", "ran"),
]


@pytest.mark.parametrize(("name", "reply", "expected"), EXTRACTED)
def test_what_is_taken_out_of_a_reply(name: str, reply: str, expected: str) -> None:
    assert answer(moved(SEED, name), reply) == expected


def test_how_the_solver_is_asked() -> None:
    def calls(*names: str, replies: tuple[str, ...] = ("x",)) -> list[Any]:
        tools = Tools(*replies)
        loaded(moved(SEED, *names))("Why?", tools)
        return tools.calls

    assert calls("fewer_tokens") == [("Why?", 32, 0.0)] and calls("more_tokens") == [("Why?", 1024, 0.0)]
    assert calls("warmer") == [("Why?", 512, 0.7)] and calls("warmer", "greedy") == [("Why?", 512, 0.0)]
    assert calls("answer_cue") == [("Why?\nThe answer is:", 512, 0.0)]
    assert [prompt for prompt, *_ in calls("retry_empty", replies=(" ", "x"))] == ["Why?", "Why?\n\nAnswer:"]
    assert len(calls("retry_empty")) == 1
    assert calls("vote") == [("Why?", 512, 0.7)] * 5
    assert answer(moved(SEED, "vote"), "a", "b", "b", "c", "d") == "b"
    prompt, code = calls("write_code", replies=("```python\nprint(json)\n```",))
    assert prompt[0].startswith("Why?\n\nWrite a short Python program") and code == "\nprint(json)\n"


def test_json_form_survives_quotes() -> None:
    assert json.loads(answer(moved(SEED, "as_json"), 'say "hi"\n'))["answer"] == 'say "hi"\n'


def test_candidates_run_in_the_sandbox_on_real_questions() -> None:
    task = get_task("chain_sum", exact=True)
    questions = task.questions(3, 5)
    candidates = {move.name: moved(SEED, move.name) for move, _ in moves_for(SEED)}

    async def body(solver: Solver) -> dict[str, Scorecard]:
        return {
            name: await evaluate(Harness.from_source(source), questions, solver, task=task)
            for name, source in candidates.items()
        }

    engine = ScriptedEngine(lambda messages, sampling: "```python\nprint(0.5)\n```")
    cards = with_solver(engine, body)
    assert {name: card.failures for name, card in cards.items() if card.failures or card.infra} == {}
    assert [name for name, card in cards.items() if card.mean == 1.0] == ["exact_value"]
