"""The report: what the proposer is told about how its parent harness just ran (paper 2609.35738, interfaces).

Pure. Scores, a chosen few failed and solved cases with traces, earlier edits and what they did, within a token budget.
Gold answers appear only of the feedback questions that the report was built from.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reharness.envs.types import Question, Task
from reharness.solver.outcomes import Answered, Event, Failed, Infra, Scorecard, worth

CountTokens = Callable[[str], int]


@dataclass(frozen=True)
class EditRecord:
    """An earlier edit of the chain and what it did, e.g. ``ran, score 0.25 -> 0.50, accepted``."""

    round: int
    description: str
    effect: str


@dataclass(frozen=True)
class Case:
    """One feedback question as the report shows it. ``gold`` is None where the task reveals none."""

    question: str
    answer: str | None
    failure: str | None
    score: float
    gold: str | None
    trace: tuple[Event, ...]


@dataclass(frozen=True)
class Report:
    """The facts; ``render`` words them."""

    score: float
    n: int
    completed_share: float
    failures: tuple[tuple[str, int], ...]
    cases: tuple[Case, ...]
    history: tuple[EditRecord, ...]

    def render(self, budget: int, count_tokens: CountTokens) -> str:
        """The report in at most ``budget`` tokens: detail is given up in steps (lengths first, then cases, then older
        edits); the last step is only the score line, cut to fit if it must be."""
        for chars, cases, edits in _DETAIL:
            text = self._render(chars, cases, edits)
            if count_tokens(text) <= budget:
                return text
        text = self._head()
        while count_tokens(text) > budget and text:
            text = text[: len(text) * 3 // 4]
        return text

    def _head(self) -> str:
        lines = [f"Score {self.score:.3f} over {self.n} questions; {self.completed_share:.0%} of the runs completed."]
        if self.failures:
            lines.append("Failed runs: " + ", ".join(f"{count} {kind}" for kind, count in self.failures) + ".")
        return "\n".join(lines)

    def _render(self, chars: int, cases: int, edits: int) -> str:
        parts = [self._head()]
        parts += [_case(i, case, chars) for i, case in enumerate(self.cases[:cases], 1)]
        if edits and self.history:
            rows = [f"- {_cut(e.description, 100)}: {_cut(e.effect, chars)}" for e in self.history[-edits:]]
            parts.append("Earlier edits:\n" + "\n".join(rows))
        return "\n\n".join(parts)


# (characters per text, cases, earlier edits), from the fullest to the barest
_DETAIL = ((1200, 5, 16), (600, 4, 12), (400, 4, 8), (240, 3, 8), (160, 3, 5), (100, 2, 4), (60, 2, 2), (40, 1, 1))


def _case(number: int, case: Case, chars: int) -> str:
    verdict = "failed" if case.failure else f"score {case.score:.2f}"
    lines = [f"Case {number} ({verdict})", f"question: {_cut(case.question, chars)}"]
    for event in case.trace[:3]:
        lines.append(_event(event, chars))
    if case.failure:
        lines.append(f"error: {_cut(case.failure, chars, keep_end=True)}")
    else:
        lines.append(f"returned: {_quote(case.answer or '', chars)}")
    if case.gold is not None:
        lines.append(f"right answer: {_quote(case.gold, chars)}")
    return "\n".join(lines)


def _event(event: Event, chars: int) -> str:
    data = event.data
    if event.kind == "llm":
        cut_off = ", cut off" if data["finish"] == "length" else ""
        sampling = f"{data['max_tokens']} tokens, temperature {data['temperature']:g}{cut_off}"
        return f"llm({sampling}): {_quote(data['reply'], chars)}"
    if event.kind == "python":
        return f"python: {_quote(data['error'] or data['stdout'], chars)}"
    return f"note: {_quote(data['text'], chars)}"


def _quote(text: str, chars: int) -> str:
    """As a JSON string, so that quotes, blanks and line ends are seen for what they are."""
    return json.dumps(_cut(text, chars), ensure_ascii=False)


def _cut(text: str, chars: int, keep_end: bool = False) -> str:
    if len(text) <= chars:
        return text
    head = 0 if keep_end else chars * 2 // 3
    return f"{text[:head]} ... {text[-(chars - head):]}".strip()


def build_report(
    task: Task,
    feedback: Sequence[Question],
    card: Scorecard,
    history: Sequence[EditRecord] = (),
    *,
    failed: int = 4,
    solved: int = 1,
) -> Report:
    """The report on ``card``, which holds the outcomes of the feedback questions (Q_fb), and may hold others, which
    are not shown. Up to ``failed`` cases are chosen by variety: each failure kind and each distinct answer once
    before any comes twice, the lowest score first; then ``solved`` solved ones (score over .98). With repeats a
    question's case is its worst run; the score is over all runs."""
    by_key = {q.key: q for q in feedback}
    runs: dict[str, list[Answered | Failed]] = {}
    for key, outcome in zip(card.questions, card.outcomes, strict=True):
        if key in by_key and not isinstance(outcome, Infra):
            runs.setdefault(key, []).append(outcome)
    pairs = [(by_key[key], min(outcomes, key=worth)) for key, outcomes in runs.items()]
    wrong = sorted((p for p in pairs if worth(p[1]) <= 0.98), key=lambda p: worth(p[1]))
    right = [p for p in pairs if worth(p[1]) > 0.98]
    chosen = _varied(wrong)[:failed] + right[:solved]
    measured = [o for outcomes in runs.values() for o in outcomes]
    shown = card.by_question
    return Report(
        score=math.fsum(shown[key] for key in runs) / len(runs) if runs else math.nan,
        n=len(runs),
        completed_share=sum(isinstance(o, Answered) for o in measured) / len(measured) if measured else math.nan,
        failures=tuple(sorted(Counter(o.kind for o in measured if isinstance(o, Failed)).items())),
        cases=tuple(
            Case(
                question=q.text,
                answer=o.answer if isinstance(o, Answered) else None,
                failure=f"{o.kind}: {o.detail}" if isinstance(o, Failed) else None,
                score=worth(o),
                gold=task.reveal(q),
                trace=o.trace,
            )
            for q, o in chosen
        ),
        history=tuple(history),
    )


def _varied(pairs: list[tuple[Question, Answered | Failed]]) -> list[tuple[Question, Answered | Failed]]:
    """The same pairs, each failure kind and each distinct answer once before any comes again; otherwise in order."""
    seen: Counter[str] = Counter()
    ranked = []
    for position, (question, outcome) in enumerate(pairs):
        look = f"answer {outcome.answer}" if isinstance(outcome, Answered) else f"failed {outcome.kind}"
        ranked.append((seen[look], position, (question, outcome)))
        seen[look] += 1
    return [pair for _, _, pair in sorted(ranked, key=lambda row: row[:2])]
