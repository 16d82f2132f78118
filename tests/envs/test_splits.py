"""The committed split, and question sets that share nothing they must not."""

from __future__ import annotations

import random

import pytest

from reharness.envs.audit_rows import format_fits, load_table, require_trainable, trainable_families
from reharness.envs.errors import ConfigError, TaskError, UnknownNameError
from reharness.envs.formats import format_varied
from reharness.envs.reasoning_gym import ReasoningGymTask, catalog
from reharness.envs.splits import load_split, parse_split, question_sets
from reharness.envs.types import ProtocolName, Question, QuestionSets, Seal

SEAL = Seal("chain", "harness")

TOML = """
[families]
train = ["a", "b"]
validation = ["c"]
unseen = ["{unseen}"]
constant_pays = []
[formats]
train = ["{form}"]
validation = []
unseen = []
[defects]
train = []
validation = []
unseen = []
"""


def test_the_committed_split_is_disjoint_and_names_real_families() -> None:
    split = load_split()
    for names in (*split.families.values(), split.constant_pays):
        assert set(names) <= set(catalog())
    assert not set(split.families["train"]) & split.constant_pays


def test_a_bad_split_is_named() -> None:
    with pytest.raises(ConfigError, match="'a' is in both train and unseen"):
        parse_split(TOML.format(unseen="a", form="tag"))
    with pytest.raises(UnknownNameError, match="did you mean 'boxed'"):
        parse_split(TOML.format(unseen="d", form="boxd"))
    with pytest.raises(UnknownNameError, match=r"unknown family 'd' in rg_split\.toml"):
        parse_split(TOML.format(unseen="d", form="tag"), families=["a", "b", "c"])


def test_training_families_pass_the_audit() -> None:
    split = load_split()
    require_trainable(split.families["train"])
    assert set(split.families["train"]) <= set(trainable_families())
    assert set(trainable_families(raw=True)) < set(trainable_families())


def test_families_that_fail_the_audit_are_refused_with_the_reason() -> None:
    with pytest.raises(TaskError, match="coin_flip: constant pays"):
        require_trainable(["chain_sum", "coin_flip"])
    with pytest.raises(UnknownNameError):
        require_trainable(["chain_sun"])
    require_trainable(["word_sorting"])
    with pytest.raises(TaskError, match="word_sorting: partial credit pays"):
        require_trainable(["chain_sum", "word_sorting"], raw=True)


def test_the_table_covers_the_package() -> None:
    assert set(load_table()) == {f"rg/{family}" for family in catalog()}


def test_formats_are_assigned_where_they_fit() -> None:
    split = load_split()
    assert not format_fits("rg/rotate_matrix", "last_line") and format_fits("rotate_matrix", "boxed")
    for seed in range(8):
        assigned = format_varied(split.families["train"], split.formats["train"], seed, format_fits)
        assert set(assigned) == set(split.families["train"])
        assert all(format_fits(task, form) for task, form in assigned.items())


def test_train_protocol() -> None:
    task = ReasoningGymTask("chain_sum")
    sets = question_sets(task, "train", 4, 8, 16, seed=0)
    assert (len(sets.feedback), len(sets.scoring), sets.n_eval) == (4, 8, 16)
    texts = [{q.text for q in qs} for qs in (sets.feedback, sets.scoring, sets.held_out(SEAL))]
    assert len(set.union(*texts)) == 4 + 8 + 16
    again, more = question_sets(task, "train", 4, 8, 16, seed=0), question_sets(task, "train", 4, 12, 20, seed=0)
    assert again == sets
    assert more.feedback == sets.feedback and more.scoring[:8] == sets.scoring
    assert more.held_out(SEAL)[:16] == sets.held_out(SEAL)
    other = question_sets(task, "train", 4, 8, 16, seed=1)
    assert not {q.key for q in other.scoring} & {q.key for q in sets.scoring}


def test_adapt_rg_protocol() -> None:
    sets = question_sets(ReasoningGymTask("gcd", format="boxed"), "adapt_rg", 8, 8, 16, seed=0)
    assert sets.feedback == sets.scoring and len(sets.scoring) == 8 and sets.n_eval == 16
    with pytest.raises(TaskError, match="equal numbers, not 4 and 8"):
        question_sets(ReasoningGymTask("gcd"), "adapt_rg", 4, 8, 16, seed=0)


def test_training_needs_a_family_that_the_audit_clears_for_its_scoring() -> None:
    with pytest.raises(TaskError, match="rg/gcd: constant pays: '1'"):
        question_sets(ReasoningGymTask("gcd", exact=True), "train", 2, 2, 2, seed=0)
    with pytest.raises(TaskError, match=r"rg/word_sorting: partial credit pays .*use exact=true"):
        question_sets(ReasoningGymTask("word_sorting"), "train", 2, 2, 2, seed=0)
    assert len(question_sets(ReasoningGymTask("word_sorting", exact=True), "train", 2, 2, 2, seed=0).scoring) == 2
    assert len(question_sets(ReasoningGymTask("gcd"), "train", 2, 2, 2, seed=0, allow_untrainable=True).scoring) == 2
    assert len(question_sets(ReasoningGymTask("gcd"), "adapt_rg", 2, 2, 2, seed=0).scoring) == 2


class Pool:
    """A third party's task with ``size`` different questions; with ``cycle`` it gives them again and again."""

    name, interface, description, scorer_version = "pool", "search_replace", "d", "1"

    def __init__(self, size: int, cycle: bool = False) -> None:
        self.size, self.cycle = size, cycle

    def questions(self, n: int, seed: int) -> list[Question]:
        order = random.Random(seed).sample(range(self.size), self.size)
        return [Question(self.name, str(order[i % self.size]), "") for i in range(n if self.cycle else min(n, self.size))]

    def score(self, question: Question, answer: str) -> float:
        return 0.0

    def reveal(self, question: Question) -> None:
        return None


@pytest.mark.parametrize("cycle", [False, True])
def test_a_task_with_too_few_questions_is_named(cycle: bool) -> None:
    enough = question_sets(Pool(12, cycle), "train", 2, 4, 6, seed=0)
    assert len({q.text for q in (*enough.feedback, *enough.scoring, *enough.held_out(SEAL))}) == 12
    with pytest.raises(TaskError, match=r"pool: gave 11 different.* of 12 .*for 6 held-out questions beside 6 dev ones"):
        question_sets(Pool(11, cycle), "train", 2, 4, 6, seed=0)
    with pytest.raises(TaskError, match=r"pool: gave 5 different.* of 6 .*for 2 feedback and 4 scoring"):
        question_sets(Pool(5, cycle), "train", 2, 4, 1, seed=0)
    with pytest.raises(TaskError, match=r"pool: gave 5 different.* of 6 .*for 6 dev questions"):
        question_sets(Pool(5, cycle), "adapt_rg", 6, 6, 1, seed=0)
    assert question_sets(Pool(6, cycle), "adapt_rg", 6, 6, 0, seed=0).n_eval == 0


@pytest.mark.parametrize("protocol", ["train", "adapt_qa"])
def test_feedback_and_scoring_share_nothing_where_the_protocol_says_so(protocol: ProtocolName) -> None:
    a, b, c = Pool(3).questions(3, 0)
    assert QuestionSets(protocol, (a,), (b,), (c,)).n_eval == 1
    with pytest.raises(TaskError, match=f"'{protocol}' needs Q_fb and Q_score disjoint; 1 are in both"):
        QuestionSets(protocol, (a, b), (b, c))


def test_held_out_questions_avoid_the_dev_ones_even_where_few_exist() -> None:
    task = ReasoningGymTask("count_bits", min_n=1, max_n=12)
    sets = question_sets(task, "train", 2, 4, 6, seed=0, allow_untrainable=True)
    dev, held = {q.text for q in (*sets.feedback, *sets.scoring)}, {q.text for q in sets.held_out(SEAL)}
    assert len(dev) == 6 and len(held) == 6 and not dev & held
    with pytest.raises(TaskError, match="only 12 different questions"):
        question_sets(task, "train", 2, 4, 7, seed=0, allow_untrainable=True)


def test_protocols_that_do_not_apply() -> None:
    with pytest.raises(TaskError, match="adapt_qa"):
        question_sets(ReasoningGymTask("gcd"), "adapt_qa", 6, 64, 0, seed=0)
    with pytest.raises(TaskError, match="cannot draw"):
        question_sets(ReasoningGymTask("gcd"), "train", 4, 0, 0, seed=0)
