"""Groups runs that differ only in their seed, and tests whether groups differ significantly in a metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, Literal, cast

from muster.api.compare import DifferenceView, GroupView, MetricFigures, MetricRow, SignificanceView
from muster.api.runs import RunView
from muster.api.words import is_measurement
from muster.core.errors import Invalid
from muster.core.significance import FEW, Difference, compare_groups, estimate
from muster.track.facts import number_of
from muster.track.query.fields import PARTS
from muster.track.query.nodes import Field
from muster.track.query.parse import parse_field
from muster.track.search import Search

SEEDS: Final = ("seed", "random_seed", "random_state", "rng_seed", "global_seed", "manual_seed", "data_seed")
MOST_GROUPS: Final = 50
_GUESSES: Final = ("val_loss", "eval_loss", "valid_loss", "test_loss", "val/loss", "eval/loss", "loss", "train_loss")
# A metric is better when higher if its name contains one of these.
_HIGHER: Final = (
    "acc", "f1", "auc", "bleu", "rouge", "reward", "score", "iou", "precision", "recall", "r2", "throughput", "per_sec",
)  # fmt: skip


def significance(
    search: Search,
    views: Sequence[RunView],
    metrics: Sequence[MetricRow],
    metric: str | None,
    mode: str | None,
    group: str | None,
    by: Sequence[str],
) -> SignificanceView | None:
    """The test's result; None if there is no metric to compare. See `compare`."""
    name = metric or _guess(metrics, len(views))
    if name is None:
        return None
    field = _metric_field(name)
    values = [_number(summary, field) for summary in _summaries(metrics, field, metric is not None, len(views))]
    groups = _groups(search, views, group, by)
    if mode not in (None, "min", "max"):
        raise Invalid(f"The better direction was given as {mode!r}.", "Give min or max.")
    higher = any(word in field.name.lower() for word in _HIGHER) if mode is None else mode == "max"
    better: Literal["min", "max"] = "max" if higher else "min"
    many = len(groups) if len(groups) > MOST_GROUPS else 0
    groups = [] if many else groups
    sides = [[value for i in places if (value := values[i]) is not None] for _, places in groups]
    best = _best(sides, better)
    differences = compare_groups(sides, best or 0) if len(groups) > 1 else []
    return {
        "metric": str(field).removeprefix("metrics."),
        "name": field.name,
        "mode": better,
        "by": list(by),
        "groups": [
            _group(label, [views[i]["id"] for i in places], side, i_group == best)
            for i_group, ((label, places), side) in enumerate(zip(groups, sides, strict=True))
        ],
        "differences": [_difference_view(one, groups) for one in differences],
        "left_out": [views[i]["id"] for i, value in enumerate(values) if value is None],
        "notes": [_many(many)] if many else _notes(groups, sides, by),
    }


def _metric_field(name: str) -> Field:
    """Parses `val_loss` or `val_loss.min`; special characters in the name need no quotes here."""
    if not any(letter in name for letter in " `'\"()<>=!~,"):
        return parse_field(f"metrics.{name}")
    base, _, part = name.rpartition(".")
    return Field("metric", base, part) if part in PARTS and base else Field("metric", name)


def _guess(metrics: Sequence[MetricRow], count: int) -> str | None:
    """A metric that every run has, preferably one of the usual names."""
    shared = [row["name"] for row in metrics if all(row["runs"]) and is_measurement(row["name"])]
    return next((name for name in _GUESSES if name in shared), shared[0] if shared and count else None)


def _summaries(metrics: Sequence[MetricRow], field: Field, given: bool, count: int) -> list[MetricFigures | None]:
    for row in metrics:
        if row["name"] == field.name:
            return row["runs"]
    if given:
        names = ", ".join(row["name"] for row in metrics[:8]) or "none"
        raise Invalid(f"None of these runs has a metric {field.name!r}.", f"They have {names}.")
    return [None] * count


def _number(summary: MetricFigures | None, field: Field) -> float | None:
    value = summary[field.part] if summary else None
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _groups(
    search: Search, views: Sequence[RunView], group: str | None, by: Sequence[str]
) -> list[tuple[str, list[int]]]:
    """Label and indexes of the runs of each group, in order of appearance."""
    if group is not None:
        field = parse_field(group)
        cells = search.cells([view["id"] for view in views], [field])
        keys: list[Any] = [view["cells"][str(field)] for view in cells]
        labels = {key: f"{field} = {key}" if key is not None else f"without {field}" for key in keys}
    else:
        sides = [_without(view["params"], by) for view in views]
        keys = [tuple(sorted((name, _value(text)) for name, text in side.items())) for side in sides]
        known = [dict(key) for key in keys]
        differ = [name for name in sorted(set().union(*sides)) if len({one.get(name) for one in known}) > 1]
        labels = {key: _label(side, differ) for key, side in zip(reversed(keys), reversed(sides), strict=True)}
    places: dict[Any, list[int]] = {}
    for i, key in enumerate(keys):
        places.setdefault(key, []).append(i)
    return [(labels[key], found) for key, found in places.items()]


def _value(text: str) -> tuple[float, str]:
    """A sort key, so that 3e-4 and 0.0003 are in one group."""
    number = number_of(text)
    return (0.0, text) if number is None else (number, "")


def _without(params: Mapping[str, str], by: Sequence[str]) -> dict[str, str]:
    """The parameters without seeds; `trainer.seed` is a seed too."""
    seeds = {name.lower() for name in by}
    return {k: v for k, v in params.items() if k.lower() not in seeds and k.lower().rpartition(".")[2] not in seeds}


def _label(params: Mapping[str, str], differ: Sequence[str]) -> str:
    parts = [f"{name}={params[name]}" if name in params else f"no {name}" for name in differ]
    return ", ".join(parts[:4]) + (f" and {len(parts) - 4} more" if len(parts) > 4 else "") if parts else "all"


def _best(sides: Sequence[Sequence[float]], better: str) -> int | None:
    means = [(mean, i) for i, side in enumerate(sides) if (mean := estimate(side).mean) is not None]
    return (min(means) if better == "min" else max(means))[1] if means else None


def _group(label: str, runs: list[str], side: Sequence[float], best: bool) -> GroupView:
    return cast(GroupView, {"label": label, "runs": runs, "best": best, **asdict(estimate(side))})


def _difference_view(one: Difference, groups: Sequence[tuple[str, list[int]]]) -> DifferenceView:
    return cast(DifferenceView, {**asdict(one), "labels": [groups[one.first][0], groups[one.second][0]]})


def _many(groups: int) -> str:
    """Runs of a search differ in all of their parameters: nothing to test, and all else can be compared."""
    return f"The runs fall into {groups} groups. At most {MOST_GROUPS} are tested: group them by one parameter."


def _notes(groups: Sequence[tuple[str, list[int]]], sides: Sequence[Sequence[float]], by: Sequence[str]) -> list[str]:
    """Reasons why the result means little."""
    if len(groups) < 2:
        return [
            f"All runs are one group: they differ in nothing but {' or '.join(by[:2])}, so there is nothing to test."
        ]
    if all(len(side) < 2 for side in sides):
        return ["Every group has one run: run each with several seeds to tell a difference from chance."]
    few = [label for (label, _), side in zip(groups, sides, strict=True) if len(side) < FEW]
    return [f"{len(few)} of {len(groups)} groups have fewer than {FEW} runs with a value."] if few else []
