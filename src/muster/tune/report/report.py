"""Joins the parts of the report of a study. Each is computed once, from all trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from muster.api.studies import ImportanceView, ParameterView, StudyReport, StudyStatus
from muster.core.entities.study import Trial
from muster.tune.report.confirmed import confirmed, verdict
from muster.tune.report.curves import curves
from muster.tune.report.facts import Importance, StudyFacts
from muster.tune.report.fronts import cheapest, pareto
from muster.tune.report.head import head
from muster.tune.report.parameters import axes, binned, grid, parameters
from muster.tune.report.progress import best_so_far, over_in_turn
from muster.tune.report.ranking import Ranking, ranking
from muster.tune.report.rows import row, rows
from muster.tune.report.rungs import rungs
from muster.tune.report.tallies import sources, states
from muster.tune.view import StudyView


def study_status(view: StudyView, facts: StudyFacts, importance: Importance) -> StudyStatus:
    """How the study stands now."""
    return _status(view, facts, ranking(view), over_in_turn(view), importance(view))


def study_report(view: StudyView, facts: StudyFacts, importance: Importance) -> StudyReport:
    """The report of a study; all that is computed costs in proportion to its trials, or to sort them."""
    ranks, shares, over = ranking(view), importance(view), over_in_turn(view)
    drawn = axes(view, shares)
    parts = [binned(view, axis) for axis in drawn]
    told = parameters(view, ranks, drawn, parts, shares)
    front = pareto(view, ranks)
    measure, cheap = cheapest(view, facts, ranks)
    shown, sample = rows(view, facts, ranks, drawn, over, (front, cheap))
    status = _status(view, facts, ranks, over, shares)
    return {
        **status,
        "notes": [*status["notes"], *_edges(view, told)],
        "sources": sources(view, ranks),
        "parameters": told,
        "rows": shown,
        "sample": sample,
        "grid": grid(ranks, drawn, parts),
        "front": front,
        "measure": measure,
        "cheapest": cheap,
        "curves": curves(view, facts, ranks),
        "confirmed": confirmed(view, facts.study.summary),
        "verdict": verdict(facts.study.summary),
    }


def _status(
    view: StudyView, facts: StudyFacts, ranks: Ranking, over: Sequence[Trial], shares: Mapping[str, float]
) -> StudyStatus:
    return {
        "study": head(view, facts, ranks),
        "trials": len(view.trials),
        "states": states(view, facts),
        "best": row(ranks.order[0], facts, ranks) if ranks.sound else None,
        "progress": best_so_far(view, facts, ranks, over),
        "importance": _importance(shares),
        "rungs": rungs(view, facts),
        "notes": _notes(ranks),
    }


def _importance(shares: Mapping[str, float]) -> list[ImportanceView]:
    ordered = sorted(shares.items(), key=lambda one: -one[1])
    return [{"name": name, "share": share} for name, share in ordered]


def _notes(ranks: Ranking) -> list[str]:
    """What a reader of the figures should know."""
    notes = []
    if ranks.order and not ranks.complete:
        notes.append(
            "No trial has run to its end and kept the constraints. The best is that of the values so far, of the "
            "trials that came farthest."
            if ranks.sound
            else "Every trial that has a value breaks a constraint."
        )
    return notes


def _edges(view: StudyView, told: Sequence[ParameterView]) -> Iterator[str]:
    for one in told:
        if one["edge"] is not None:
            space = view.spec.space.by_name[one["name"]]
            end = space.low if one["edge"] == "low" else space.high
            yield (
                f"Most of the best trials have {one['name']} at the {one['edge']} end of its range, {end:.4g}. "
                "A wider range may have better ones."
            )
