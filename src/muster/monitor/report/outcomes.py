"""Figures of jobs and their ends: waits, time to result, experiments, success, failures and recovery."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.core.period import Period
from muster.monitor.report.facts import Facts, RunFact, Terms
from muster.monitor.report.figure import Figure, percentile, ratio

SUCCESS: Final = 0.95
PLATFORM: Final = ("node", "worker")  # categories of failures that are not the program's
_DAY: Final = 86_400
_WEEK: Final = 7 * _DAY


def wait_figures(facts: Facts, terms: Terms) -> Iterator[Figure]:
    """One for each class of work and priority that had starts."""
    waits: dict[tuple[str, bool], list[float]] = {}
    for _, wait, work, high in facts.waits:
        waits.setdefault((work, high), []).append(wait)
    about = "the 90th percentile of the waits from submission to the first start, of jobs that first started then"
    if not any(key in terms.targets for key in waits):
        yield Figure("wait", "Wait", "seconds", about, unknown="no job started")
    for (work, high), target in terms.targets.items():
        if not (found := sorted(waits.get((work, high), ()))):
            continue
        within = sum(wait <= target for wait in found) / len(found)
        yield Figure(
            f"wait_{work}{'_high' if high else ''}",
            f"Wait p90, {work}{', high priority' if high else ''}",
            "seconds",
            about,
            percentile(found, 90),
            target=target,
            better="lower",
            details={"started": len(found), "p50": percentile(found, 50), "within_target": within},
        )


def run_figures(facts: Facts, terms: Terms, period: Period) -> Iterator[Figure]:
    yield _to_result(facts)
    yield _experiments(facts, terms, period)
    yield _success(facts)


def failure_figures(facts: Facts, terms: Terms) -> Iterator[Figure]:
    yield _recovery(facts)
    yield _failures(facts, terms)


def _is_experiment(run: RunFact) -> bool:
    return run.kind == "train" and run.parent is None


def _to_result(facts: Facts) -> Figure:
    good = (one for one in facts.ended if _is_experiment(one) and one.phase == "succeeded")
    took = sorted((one.ended_at or 0.0) - one.created_at for one in good)
    return Figure(
        "time_to_result",
        "Submit to result",
        "seconds",
        "the median time from submission to the end, of experiments that succeeded then",
        percentile(took, 50),
        "" if took else "no experiment succeeded",
        better="lower",
        details={"experiments": len(took), "p90": percentile(took, 90)} if took else {},
    )


def _experiments(facts: Facts, terms: Terms, period: Period) -> Figure:
    found = [one for one in facts.created if _is_experiment(one)]
    users = len({one.user for one in found})
    passed = period.until(terms.now) - max(period.begin, terms.first)
    return Figure(
        "experiments",
        "Experiments per engineer and week",
        "number",
        "experiments that were submitted, over the users that submitted any, over the weeks that have passed; "
        "an experiment is a run of kind train that is no task of another run",
        len(found) / users / (passed / _WEEK) if users and passed >= _DAY else None,
        "" if users and passed >= _DAY else "less than a day has passed" if users else "no experiment was submitted",
        better="higher",
        details={"experiments": len(found), "engineers": users} if users else {},
    )


def _success(facts: Facts) -> Figure:
    good = bad = code = 0
    for one in facts.ended:
        if not one.attempts or one.kind == "session":
            continue
        if one.phase == "succeeded":
            good += 1
        elif one.phase == "failed":
            tries = facts.attempts.get(one.id, ())
            own = bool(tries) and tries[-1].category == "error"
            code, bad = code + own, bad + (not own)
    return Figure(
        "success",
        "Success rate",
        "share",
        "runs that succeeded, over those that succeeded or failed for another reason than an error of the program; "
        "stopped runs, sessions and runs that never started don't count",
        ratio(good, good + bad),
        "" if good + bad else "no run succeeded or failed, except by errors of programs" if code else "no run ended",
        SUCCESS,
        "higher",
        {"succeeded": good, "failed": bad, "code_errors": code, "with_code_errors": ratio(good, good + bad + code)},
    )


def _recovery(facts: Facts) -> Figure:
    took = [one.recovery for one in facts.failures if one.recovery is not None]
    return Figure(
        "recovery",
        "Mean time to recover",
        "seconds",
        "the mean time from the end of a failed attempt to the moment at which the next one runs",
        ratio(sum(took), len(took)),
        "" if took else "no attempt failed" if not facts.failures else "no job started again after a failure",
        better="lower",
        details={"recovered": len(took), "failed_attempts": len(facts.failures)},
    )


def _failures(facts: Facts, terms: Terms) -> Figure:
    hours = sum(one.hours for one in facts.held if one.unit == terms.unit)
    count = sum(one.category in PLATFORM for one in facts.failures)
    return Figure(
        "failures",
        f"Failures per 1,000 {terms.unit} hours",
        "number",
        f"failed attempts by nodes and workers, without errors of programs, over the {terms.unit} hours that were held",
        count / hours * 1000 if hours else None,
        "" if hours else "no job held any",
        better="lower",
        details={"failures": count, "held_hours": hours} if hours else {},
    )
