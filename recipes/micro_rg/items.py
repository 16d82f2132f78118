"""The items of the experiment, frozen before any demonstration: every family of the split with what it can gain.

Headroom is the competent parent's exact score minus that of the harness a chain starts from (the seed harness, the
competent parent under another format, the parent with a defect), on questions that are never Q_eval. An item needs
.10 of it. Per family one format and one defect are drawn, among those with headroom, for tracks F and R.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reharness.envs.audit_rows import format_fits
from reharness.envs.cache import write_atomically
from reharness.envs.config import Config, parse_config
from reharness.envs.errors import ConfigError, InfraLimitError
from reharness.envs.formats import FORMATS, format_varied
from reharness.envs.registry import get_task
from reharness.envs.splits import Part, load_split, question_sets, stream_seed
from reharness.envs.types import Question, QuestionSets, Task, content_hash
from reharness.proposer.tracks import Parents, Start, TrackName, defective, from_seed, load_parents, shifted
from reharness.solver.evaluate import Solver, evaluate, gather_all
from reharness.solver.harness import Harness
from reharness.solver.outcomes import Scorecard

HERE = Path(__file__).parent
PARENTS = HERE / "parents"
ITEMS = HERE / "items.json"
DEV, SEED = 8, 0
HELD_OUT = {"S": 8, "F": 16, "R": 16}
"""Questions of an item: fewer where each costs a long reply of the solver. SEED draws them."""
NEEDED = 0.10
RESTORE = "give the folder back its files, or make the items and all results anew: `reharness micro-rg items`"
N = HELD_OUT
"""Questions that headroom is measured on."""


class Item(Config):
    """One frozen item: what `start` makes of it, the digest of its questions, and what was measured."""

    part: Part
    track: TrackName
    family: str
    format: str
    defect: str | None
    constant_pays: bool
    parent: str
    """Fingerprint of the harness that a chain starts from."""
    questions: str
    """Digest of its question sets."""
    competent: float
    start_score: float
    n: int

    @property
    def headroom(self) -> float:
        return self.competent - self.start_score


@dataclass(frozen=True)
class Opened:
    """An item made ready: its start, task and questions."""

    item: Item
    start: Start
    task: Task
    sets: QuestionSets
    competent: Harness


def load_items(part: Part = "unseen", path: Path = ITEMS) -> list[Opened]:
    """The committed items of a part, each checked against what it was frozen as. Raises ``ConfigError`` when the file
    is absent or not the one that was written, or a parent or a family's questions are others than those measured."""
    frozen = _frozen_file(path)
    parents = load_parents(PARENTS, part)
    opened = []
    for data in frozen["items"]:
        if data["part"] == part:
            item = parse_config(Item, data, f"{path}: {data.get('track')} {data.get('family')}")
            start = _start(item.track, item.family, parents, item.format, item.defect)
            made = _open(item, start, parents)
            if (made.start.parent.fingerprint, made.sets.digest()) != (item.parent, item.questions):
                what = "parent" if made.start.parent.fingerprint != item.parent else "questions"
                raise ConfigError(
                    f"{path}: the {what} of {item.track} {item.family} is not the one that was frozen; {RESTORE}"
                )
            opened.append(made)
    return opened


def _frozen_file(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        digest = data.pop("digest")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); {RESTORE}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{path}: is no file of frozen items; {RESTORE}") from None
    if digest != content_hash(data):
        raise ConfigError(f"{path}: was changed after it was frozen: its digest is of other content; {RESTORE}")
    return dict(data)


def _open(item: Item, start: Start, parents: Parents) -> Opened:
    task = get_task(start.task)
    return Opened(item, start, task, _sets(task, item.track), Harness.from_source(parents[item.family][0]))


def _sets(task: Task, track: TrackName) -> QuestionSets:
    return question_sets(task, "adapt_rg", DEV, DEV, HELD_OUT[track], SEED)


def _start(track: TrackName, family: str, parents: Parents, form: str, defect: str | None) -> Start:
    source = parents[family][0]
    if track == "S":
        return from_seed(family, SEED)
    if track == "F":
        return shifted(family, source, form, SEED)
    harmless = int(content_hash("harmless", family)[:1], 16) % 2 == 1
    return defective(family, source, str(defect), SEED, harmless=harmless)


@dataclass(frozen=True)
class Measured:
    """The headroom of one start: exact scores of the competent parent in its own form and of the start, on ``n``."""

    part: Part
    track: TrackName
    family: str
    format: str
    defect: str | None
    competent: float
    start_score: float
    n: int


def whole(card: Scorecard, what: str) -> Scorecard:
    """The card. Raises ``InfraLimitError`` when a run in it could not be measured: means over other questions are not
    to be compared."""
    if card.infra:
        raise InfraLimitError(f"{what}: {card.infra} runs could not be measured; give the same command again")
    return card


async def build_items(solver: Solver, path: Path = ITEMS) -> dict[str, Any]:
    """Measures every family of the split with every format and defect of its part, draws the items and writes them.
    The whole measurement is in the file beside them."""
    split = load_split()
    measured: list[Measured] = []
    items: list[Item] = []
    for part in ("train", "validation", "unseen"):
        parents = load_parents(PARENTS, part)
        families = split.families[part]
        forms = [name for name in split.formats[part] if name != "plain"]
        starts = [_start("S", family, parents, "plain", None) for family in families]
        starts += [_start("F", f, parents, form, None) for f in families for form in forms if format_fits(f, form)]
        starts += [_start("R", f, parents, "plain", d) for f in families for d in split.defects[part]]
        rows = await gather_all(_measure(start, part, parents, solver) for start in starts)
        measured += rows
        items += _draw(part, rows, parents)
    result = {
        "needed": NEEDED,
        "questions": {"dev": DEV, "held_out": HELD_OUT, "seed": SEED, "headroom": N},
        "items": [item.model_dump() for item in items],
        "measured": [asdict(row) for row in measured],
    }
    result = {"digest": content_hash(result), **result}
    body = ",\n".join(
        f' "{key}": [\n  ' + ",\n  ".join(json.dumps(row, sort_keys=True) for row in value) + "\n ]"
        if isinstance(value, list) else f' "{key}": {json.dumps(value)}'
        for key, value in result.items()
    )  # fmt: skip
    write_atomically(path, "{\n" + body + "\n}\n")
    return result


async def _measure(start: Start, part: Part, parents: Parents, solver: Solver) -> Measured:
    task, plain = get_task(start.task), get_task(f"{start.family}?exact=true")
    competent = Harness.from_source(parents[start.family][0])
    best = whole(await evaluate(competent, _apart(plain, start.track), solver, task=plain), plain.name)
    now = whole(await evaluate(start.parent, _apart(task, start.track), solver, task=task), start.task)
    return Measured(part, start.track, start.family, start.format, start.defect, best.mean, now.mean, now.n)


def _apart(task: Task, track: TrackName) -> list[Question]:
    """Questions that share no text with the item's own, Q_eval least of all."""
    sets, n = _sets(task, track), N[track]
    drawn = task.questions(n + DEV + HELD_OUT[track], stream_seed(SEED, "headroom"))
    return [q for q in drawn if not sets.holds(q)][:n]


def _draw(part: Part, rows: list[Measured], parents: Parents) -> list[Item]:
    split = load_split()
    enough = {
        track: {(r.family, r.format, r.defect): r for r in rows if r.track == track and _headroom(r) >= NEEDED}
        for track in ("S", "F", "R")
    }
    families = [f for f in split.families[part] if any(key[0] == f for key in enough["S"])]
    forms = [name for name in split.formats[part] if name in FORMATS and name != "plain"]
    drawn: list[Measured] = [enough["S"][family, "plain", None] for family in families]
    shiftable = [f for f in families if any(key[0] == f for key in enough["F"])]
    assigned = format_varied(shiftable, forms, SEED, lambda family, form: (family, form, None) in enough["F"])
    drawn += [enough["F"][family, form, None] for family, form in assigned.items()]
    used = Counter[str]()
    for family in sorted(families, key=lambda f: sum(key[0] == f for key in enough["R"])):
        # The defect that is rarest so far, so that they come about equally often; ties by the seed.
        fitting = [str(key[2]) for key in enough["R"] if key[0] == family]
        if fitting:
            defect = min(fitting, key=lambda d: (used[d], content_hash("defect of", family, d, SEED)))
            used[defect] += 1
            drawn.append(enough["R"][family, "plain", defect])
    return [_frozen(row, parents) for row in drawn]


def _headroom(row: Measured) -> float:
    return row.competent - row.start_score


def _frozen(row: Measured, parents: Parents) -> Item:
    start = _start(row.track, row.family, parents, row.format, row.defect)
    return Item(
        **asdict(row), constant_pays=row.family in load_split().constant_pays, parent=start.parent.fingerprint,
        questions=_sets(get_task(start.task), row.track).digest(),
    )  # fmt: skip
