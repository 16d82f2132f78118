"""Demonstrations: a teacher's edits, run for real; those that raise the score are kept (paper 2609.35738, SFT).

The best candidate of a start becomes a row if it beats its parent on Q_score by the margin.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reharness.proposer.demo_rows import DemoRow
from reharness.proposer.moves import moves_for
from reharness.proposer.policy import Context
from reharness.proposer.revise import Judged
from reharness.proposer.rows import check_writable, write_rows
from reharness.proposer.search import Search, SearchConfig, Searched, WatchSearch, at_work
from reharness.proposer.tracks import Start


class DemosConfig(SearchConfig):
    """A search for demonstrations. Of a context's edits that rise the best is kept; a perfect one ends the search."""


async def run_demos(
    config: DemosConfig, out: Path, rows_file: Path, watch: WatchSearch | None = None
) -> dict[str, Any]:
    """Runs (or goes on with) a search in the folder ``out`` and writes the rows to ``rows_file``. Returns the summary,
    which is also written to ``out/summary.json``. Raises what `search.at_work` raises, and ``InfraLimitError``."""
    check_writable(rows_file)
    async with at_work(config, out) as work:
        results = await work.each(DemoSearch(config, work.solver, work.teacher, work.count_tokens), watch)
        rows = list({r.row.id: r.row for r in results if r.row}.values())
        write_rows(rows_file, rows)
        summary = work.summary(results, rows, ("track", "family", "format", "defect", "move"))
        (out / "summary.json").write_text(json.dumps(summary, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return summary


class DemoSearch(Search):
    """The search for the best edit from one start."""

    async def search(self, start: Start) -> Searched:
        opened = await self.open(start, highest=1 - self.config.margin)
        if opened is None:
            return Searched(start, "ceiling")
        best = await self._best(opened.context)
        if best is None:
            return Searched(start, "no_gain")
        return Searched(start, "kept", self._row(start, opened.context, best))

    async def _best(self, context: Context) -> Judged | None:
        """The best candidate that rises; of equals the one with the shortest edit, then the first."""
        risen: list[Judged] = []
        async for chunk in self.risen(context):
            risen += chunk
            if any(j.card and j.card.mean == 1 for j in risen):
                break
        if not risen:
            return None
        return min(risen, key=lambda j: (-(j.card.mean if j.card else 0), len(j.proposal.text), j.proposal.index))

    def _row(self, start: Start, context: Context, best: Judged) -> DemoRow:
        assert best.candidate is not None and best.card is not None
        moves = {completion: move.name for move, completion in moves_for(start.parent.source)}
        return DemoRow.make(
            task=start.task, family=start.family, format=start.format, track=start.track, defect=start.defect,
            messages=[dict(m) for m in context.messages], completion=best.proposal.text,
            parent_source=start.parent.source, parent=start.parent.fingerprint, candidate=best.candidate.fingerprint,
            parent_score=context.parent_card.mean, candidate_score=best.card.mean, n=len(context.scoring),
            repeats=self.config.repeats, context=context.key, teacher=self.teacher.name,
            move=moves.get(best.proposal.text),
        )  # fmt: skip
