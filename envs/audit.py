"""The audit of scorers: does gold score 1, and is anything paid that should not be?

Policies have been trained on scorers that pay nonsense; here a family that failed, or could not be audited, stays out
of training sets. The committed result is read by `audit_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reharness.envs.audit_panel import NONSENSE, constants, crowds, echoes, shotguns
from reharness.envs.audit_rows import AuditRow, write_table
from reharness.envs.audit_solutions import CONSTRUCTORS
from reharness.envs.errors import ConfigError, TaskError
from reharness.envs.formats import FORMATS
from reharness.envs.reasoning_gym import EXACT_ABOVE, FrozenItems, ReasoningGymTask, catalog, family_of
from reharness.envs.registry import get_task, third_party, validate
from reharness.envs.rg_host import Worker
from reharness.envs.rg_worker import decode
from reharness.envs.scoring import score_many
from reharness.envs.types import Question

if TYPE_CHECKING:
    from rich.console import Console

KINDS = ("nonsense", "constant", "echo", "shotgun")
"""Junk that must not be paid. (A fifth kind, "crowd", is reported only: see `audit_panel.crowds`.)"""
ITEMS = 40
"""Items of each family that are looked at."""
NONSENSE_LIMIT = 0.05
"""Share of items on which one nonsense answer may score (exactly) before the family fails."""
PAYS_LIMIT = 0.15
"""The same for a constant, an echo and a shotgun; with partial credit, also the limit of their mean score."""
REMADE = 6
"""Items that are made again, to see whether they come out the same."""
SEED = 0

def audit(
    names: Iterable[str] | None = None, on_row: Callable[[AuditRow], None] | None = None, items: int = ITEMS
) -> list[AuditRow]:
    """One row per task, in the order given (default: every family of the installed reasoning-gym). ``on_row`` is
    called as each is done. An unknown name is refused before any work."""
    checked = [name if name in third_party() else family_of(name) for name in (names or catalog())]
    rows = []
    try:
        for name in checked:
            rows.append(audit_task(name, items))
            if on_row:
                on_row(rows[-1])
    finally:
        _same_hash_seed.close()
        _other_hash_seed.close()
    return rows


def audit_task(name: str, items: int = ITEMS) -> AuditRow:
    """The row of one family or third-party task (for those: the contract, `registry.validate`)."""
    if name in third_party():
        wrong = validate(get_task(name))
        status: Literal["ok", "fails"] = "fails" if wrong else "ok"
        return AuditRow(name, status, not wrong, not wrong, "; ".join(wrong))
    family = family_of(name)
    try:
        task = ReasoningGymTask(family)
        return _row(task, task.questions(items, SEED))
    except TaskError as e:
        return AuditRow(f"rg/{family}", "not audited", False, False, str(e))


def _makes_again(task: ReasoningGymTask, worker: Worker) -> bool:
    """Whether that worker makes the first items as they were frozen."""
    frozen = FrozenItems(task.family, task.params_json, SEED)
    return worker.ask(frozen.request(0, REMADE), 120.0) == frozen.entries(0, REMADE)


_same_hash_seed, _other_hash_seed = Worker(scoring=False, hash_seed=0), Worker(scoring=False, hash_seed=1)


def _row(task: ReasoningGymTask, questions: Sequence[Question]) -> AuditRow:
    panel = _Panel(task, questions)
    why = []
    if panel.gold is None:
        why.append("no answer is stored and none could be constructed")
    elif panel.gold <= EXACT_ABOVE:
        why.append(f"a gold answer scores {panel.gold:.2f}")
    bests = {kind: panel.best(kind) for kind in (*KINDS, "crowd")}
    for kind in KINDS:
        share, answer = bests[kind]
        if share > NONSENSE_LIMIT if kind == "nonsense" else share >= PAYS_LIMIT:
            why.append(f"{kind} pays: {answer} scores on {share:.0%}")
    if panel.errors:
        why.append(f"the scorer failed: {panel.errors[0]}")
    # Three times: an item that draws from the system's randomness may come out the same by chance.
    repeats = all(_makes_again(task, _same_hash_seed) for _ in range(3))
    hash_stable = repeats and _makes_again(task, _other_hash_seed)
    if not repeats:
        why.append("the same seed does not make the same items again")
    raw, raw_answer = panel.best_raw()
    ok = not why
    shares: dict[str, Any] = {kind: round(share, 3) for kind, (share, _) in bests.items()}
    shares |= {f"{kind}_answer": answer for kind, (_, answer) in bests.items()}
    return AuditRow(
        task=task.name,
        status="not audited" if panel.gold is None and len(why) == 1 else "ok" if ok else "fails",
        trainable=ok,
        trainable_raw=ok and raw < PAYS_LIMIT,
        why="; ".join(why),
        items=len(questions),
        gold=None if panel.gold is None else round(panel.gold, 3),
        gold_from=panel.gold_from,
        **shares,
        raw=round(raw, 3),
        raw_answer=raw_answer,
        raises=panel.raises,
        hash_stable=hash_stable,
        repeats=repeats,
        unfit_formats=tuple(
            name for name, form in FORMATS.items() if not all(form.carries(g) for g in panel.golds if g.strip())
        ),
    )


class _Panel:
    """All scores of one family: ``{(kind, label): scores of the items}``."""

    def __init__(self, task: ReasoningGymTask, questions: Sequence[Question]) -> None:
        self._task, self._questions = task, questions
        self.errors: list[str] = []
        self._scores: dict[tuple[str, str], list[float]] = {}
        stored = [q.gold["answer"] for q in questions]
        self.gold_from: Literal["stored", "constructed", "none"] = "none" if None in stored else "stored"
        answers: list[str | None] = stored
        if None in stored and task.family in CONSTRUCTORS:
            self.gold_from = "constructed"
            answers = [CONSTRUCTORS[task.family](decode(q.gold)) for q in questions]
        self.golds = [a for a in answers if a is not None]
        if len(self.golds) < len(questions):
            self.gold_from = "none"
        self._run(answers)
        gold_scores = self._scores.pop(("gold", "gold"), [])
        self.gold = min(gold_scores) if self.gold_from != "none" and gold_scores else None
        strict = [(q.gold, text) for q in questions[:4] for text in NONSENSE.values()]
        labels = [label for _ in questions[:4] for label in NONSENSE]
        found = score_many(task.family, "{}", strict, strict=True)
        self.raises = tuple(dict.fromkeys(a for a, s in zip(labels, found, strict=True) if isinstance(s, TaskError)))

    def _run(self, answers: Sequence[str | None]) -> None:
        jobs: list[tuple[str, str, int, str]] = []
        commonest = constants(self.golds)
        for i, (question, gold) in enumerate(zip(self._questions, answers, strict=True)):
            kinds: dict[str, Mapping[str, str]] = {
                "gold": {} if gold is None else {"gold": gold},
                "nonsense": NONSENSE,
                "constant": {repr(c[:40]): c for c in commonest},
                "echo": echoes(question.gold["question"]),
                "shotgun": shotguns(gold or "", self.golds),
                "crowd": self._crowds(i, answers),
            }
            jobs += [(kind, label, i, answer) for kind, entries in kinds.items() for label, answer in entries.items()]
        scores = score_many(self._task.family, "{}", [(self._questions[i].gold, answer) for _, _, i, answer in jobs])
        for (kind, label, _, _), score in zip(jobs, scores, strict=True):
            if isinstance(score, TaskError):
                self.errors.append(f"{label}: {score}"[:200])
            else:
                self._scores.setdefault((kind, label), []).append(score)

    def _crowds(self, i: int, answers: Sequence[str | None]) -> Mapping[str, str]:
        gold = answers[i]
        others = [a for a in (*answers[i + 1 :], *answers[:i]) if a is not None and a != gold]
        return crowds(gold, others[0]) if gold and others else {}

    def best(self, kind: str) -> tuple[float, str]:
        """Largest share of items on which one answer of the kind scores exactly, and that answer."""
        return self._largest(kind, lambda score: float(score > EXACT_ABOVE))

    def best_raw(self) -> tuple[float, str]:
        """Largest mean partial credit of one answer of any of `KINDS`, and that answer."""
        return max((self._largest(kind, float) for kind in KINDS), key=lambda pair: pair[0])

    def _largest(self, kind: str, value: Callable[[float], float]) -> tuple[float, str]:
        n = len(self._questions)
        sums = {label: sum(map(value, s)) / n for (k, label), s in self._scores.items() if k == kind}
        label = max(sums, key=lambda name: sums[name], default="")
        return (sums[label], label) if label and sums[label] > 0 else (0.0, "")


def audit_table(names: Sequence[str] | None, console: Console, write: bool = False) -> list[AuditRow]:
    """Audit and print row by row; with ``write`` (all families only) renew the committed table and docs/audit.md."""
    if write and names:
        raise ConfigError("--write renews the whole table; call it without task names")

    def show(row: AuditRow) -> None:
        trains = "trains" if row.trainable else "does not train"
        console.print(f"{row.task:<30} {row.status:<12} {trains:<15} {row.why}", soft_wrap=True, markup=False)

    rows = audit(names, show)
    counts = {status: sum(r.status == status for r in rows) for status in ("ok", "fails", "not audited")}
    console.print(", ".join(f"{n} {status}" for status, n in counts.items()))
    if write:
        here = Path(__file__).parent
        write_table(rows, here / "data" / "rg_audit.json", here.parent / "docs" / "audit.md")
    return rows
