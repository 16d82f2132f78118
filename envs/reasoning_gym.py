"""Every family of the installed reasoning-gym as a task.

Items are made once, in a worker with PYTHONHASHSEED=0, and frozen to a file of the cache folder; scoring runs in
another worker (`scoring`). The package itself is never imported in the host's process.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import logging
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from reharness.envs.cache import cache_dir, write_atomically
from reharness.envs.errors import TaskError, UnknownNameError
from reharness.envs.formats import get_format
from reharness.envs.rg_host import GENERATOR
from reharness.envs.rg_worker import BLOCK
from reharness.envs.scoring import score_many
from reharness.envs.types import Question, content_hash

EXACT_ABOVE = 0.98
"""With ``exact`` a score counts 1 above this and 0 otherwise."""
ITEM_WALL_S = 120.0
"""Longest wait for one generated item (the slowest family takes about 2 s)."""
MAX_QUESTIONS = 100_000
"""Most questions of one draw: all their items are made, and held in memory, before the first is frozen."""
_SCORES_DECIDED_BY = ("formats.py", "reasoning_gym.py", "rg_guard.py", "rg_worker.py", "scoring.py")
_ITEMS_PER_QUESTION = 20
"""How many items may be looked at, per distinct question asked for, before a family counts as exhausted."""

log = logging.getLogger(__name__)


def rg_version() -> str:
    """Version of the installed reasoning-gym package (its metadata; ``reasoning_gym.__version__`` is out of date)."""
    return importlib.metadata.version("reasoning-gym")


@functools.cache
def _scoring_code() -> str:
    """Hash of the source text (line ends as \\n) of every module of ours that has a part in a score."""
    room = resources.files("reharness.envs")
    return content_hash([room.joinpath(name).read_text(encoding="utf-8") for name in _SCORES_DECIDED_BY])


@functools.cache
def catalog() -> dict[str, dict[str, Any]]:
    """``{family: {"category", "doc", "params": {name: default}}}`` of the installed package, read once per version."""
    path = cache_dir("rg") / f"families-{rg_version()}.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        families = _one({"op": "describe"})["families"]
        write_atomically(path, json.dumps(families, indent=1))
        return families


def family_of(name: str) -> str:
    """The family behind ``chain_sum`` or ``rg/chain_sum``. Raises UnknownNameError."""
    family = name.removeprefix("rg/")
    if family not in catalog():
        raise UnknownNameError("Reasoning Gym family", family, catalog())
    return family


def _one(request: dict[str, Any]) -> Any:
    items = GENERATOR.ask(request, ITEM_WALL_S)
    if isinstance(items[-1], TaskError):
        raise items[-1]
    return items[-1]


class ReasoningGymTask:
    """One family (a `Task`).

    ``format`` names the form of the reply (see `formats`); ``exact`` scores 1 above .98 and 0 otherwise, instead of
    the family's own partial credit; ``params`` are the fields of the family's configuration. Raises UnknownNameError
    for a family, format or parameter that does not exist, TaskError for a value that the family's own check refuses.
    """

    interface: Literal["search_replace", "code_block"] = "search_replace"

    def __init__(self, family: str, *, format: str = "plain", exact: bool = False, **params: Any) -> None:
        self.family = family_of(family)
        self.name = f"rg/{self.family}"
        self.format = get_format(format)
        if not isinstance(exact, bool):
            raise TaskError(f"{self.name}: exact is true or false, not {exact!r}")
        self.exact = exact
        facts = catalog()[self.family]
        for key in params:
            if key in ("seed", "size"):
                raise TaskError(f"{self.name}: {key!r} is not a parameter of a task; it is given to questions(n, seed)")
            if key not in facts["params"]:
                raise UnknownNameError("parameter", key, [*facts["params"], "format", "exact"], self.name)
        self.params = dict(params)
        try:
            self.params_json = json.dumps(params, sort_keys=True)
        except TypeError as e:
            raise TaskError(f"{self.name}: parameters must be plain data: {e}") from None
        if params or self.family == "composite":
            try:
                _one({"op": "check", "family": self.family, "params": self.params_json})
            except TaskError as e:
                raise TaskError(f"{self.name}: the family refuses {params or 'its defaults'}: {e}") from None
        doc = f": {facts['doc']}" if facts["doc"] else ""
        self.description = f"{self.family.replace('_', ' ')} ({facts['category']}){doc}"
        self.spec: dict[str, Any] = {
            "source": f"reasoning-gym {rg_version()}",
            "family": self.family,
            "params": self.params,
            "format": self.format.name,
            "exact": self.exact,
        }
        self.scorer_version = f"rg-{rg_version()}-{content_hash('rg-scorer', _scoring_code(), self.spec)[:16]}"

    def __repr__(self) -> str:
        shown = {"format": self.format.name, "exact": self.exact, **self.params}
        return f"ReasoningGymTask({self.family!r}, {', '.join(f'{k}={v!r}' for k, v in shown.items())})"

    # -- questions --

    def questions(self, n: int, seed: int) -> Sequence[Question]:
        """``n`` questions with different texts, the first of them the same for every ``n``. The same seed gives the
        same questions in every format. Raises TaskError when the family has too few, for more than `MAX_QUESTIONS`,
        or when the answer format cannot hold one of the answers (several lines under `last_line`).
        """
        if n > MAX_QUESTIONS:
            raise TaskError(f"{self.name}: {n} questions are too many; ask for at most {MAX_QUESTIONS}")
        frozen = FrozenItems(self.family, self.params_json, seed)
        questions: dict[str, Question] = {}
        seen = 0
        while len(questions) < n:
            if seen >= _ITEMS_PER_QUESTION * n + BLOCK:
                raise TaskError(
                    f"{self.name}: only {len(questions)} different questions among {seen} items, {n} asked for; "
                    "ask for fewer or raise the difficulty"
                )
            entries = frozen.entries(seen, seen + n - len(questions))
            seen += len(entries)
            for entry in entries:
                questions.setdefault(entry["question"], self._question(entry))
        return list(questions.values())

    def _question(self, entry: dict[str, Any]) -> Question:
        gold = entry["answer"]
        if gold is not None and not self.format.carries(gold) and gold.strip():
            raise TaskError(
                f"{self.name}: format {self.format.name!r} cannot hold the answer {gold[:60]!r}; use another format"
            )
        text = f"{entry['question']}\n\n{self.format.instruction}"
        return Question(self.name, text, entry, content_hash(self.name, text, gold))

    # -- scores --

    def score(self, question: Question, answer: str) -> float:
        """Score of a reply (in the required form) in [0, 1]; 0 without the form. Raises TaskError (infra)."""
        (result,) = self.score_many([(question, answer)])
        if isinstance(result, TaskError):
            raise result
        return result

    def score_many(self, pairs: Sequence[tuple[Question, str]]) -> list[float | TaskError]:
        """Scores of many (question, reply) in one message to the worker; a failed one is its TaskError, in place."""
        found = [self.format.extract(reply) for _, reply in pairs]
        asked = [i for i, answer in enumerate(found) if answer is not None]
        scores = score_many(self.family, self.params_json, [(pairs[i][0].gold, found[i] or "") for i in asked])
        results: list[float | TaskError] = [0.0] * len(pairs)
        for i, score in zip(asked, scores, strict=True):
            results[i] = float(score > EXACT_ABOVE) if self.exact and not isinstance(score, TaskError) else score
        return results

    def reveal(self, question: Question) -> str | None:
        """The gold answer in the required form, or None for the families that store none."""
        gold = question.gold["answer"]
        return None if gold is None else self.format.render(gold)


class FrozenItems:
    """The items of one family, parameters and seed, in order, in one file: a line per item with its own hash."""

    def __init__(self, family: str, params_json: str, seed: int) -> None:
        self.family, self.params_json, self.seed = family, params_json, seed
        key = content_hash("rg-items", 1, rg_version(), family, params_json, seed, BLOCK)
        self.path: Path = cache_dir("rg", "items") / f"{family}-{key[:24]}.jsonl"

    def entries(self, start: int, stop: int) -> list[dict[str, Any]]:
        """Items ``start`` to ``stop``, made if the file does not have them."""
        have = self._read()
        if len(have) < stop:
            while len(have) < stop:
                have += self._make(len(have), min(stop, (len(have) // BLOCK + 1) * BLOCK))
            lines = (json.dumps({"hash": content_hash(e), "entry": e}, ensure_ascii=True) for e in have)
            try:
                write_atomically(self.path, "".join(f"{line}\n" for line in lines))
            except OSError as e:
                raise TaskError(f"cannot freeze the items of rg/{self.family} in {self.path}: {e}") from e
        return have[start:stop]

    def _read(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        if not self.path.exists():
            return entries
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                row = json.loads(line)
                if row["hash"] != content_hash(row["entry"]):
                    raise ValueError("hash differs")
            except (ValueError, KeyError, TypeError) as e:
                log.warning("%s line %d is damaged (%s); its items are made again", self.path, number, e)
                break
            entries.append(row["entry"])
        return entries

    def request(self, start: int, stop: int) -> dict[str, Any]:
        """What to ask a generating worker for items of one block."""
        block = start // BLOCK
        return {
            "op": "generate",
            "family": self.family,
            "params": self.params_json,
            "seed": int(content_hash("rg-block", self.seed, block)[:7], 16),
            "start": start % BLOCK,
            "stop": start % BLOCK + stop - start,
        }

    def _make(self, start: int, stop: int) -> list[dict[str, Any]]:
        entries = GENERATOR.ask(self.request(start, stop), ITEM_WALL_S)
        for entry in entries:
            if isinstance(entry, TaskError):
                raise TaskError(f"rg/{self.family}: the generator failed with {self.params_json}: {entry}")
        return entries
