"""The report of a month, a week or some days: figures, targets, changes, and causes of waste."""

from typing import Literal

from muster.api.typed import TypedDict


class PeriodView(TypedDict):
    """From `begin` up to `end`; `until` is the end of what has passed. In seconds since 1970."""

    name: str
    begin: float
    end: float
    until: float
    hours: float
    over: bool


class FigureView(TypedDict):
    """`value` is null where it is not known, and `unknown` says why. `before`: its values in the periods before."""

    name: str
    label: str
    measure: Literal["share", "seconds", "amount", "number"]
    definition: str
    value: float | None
    unknown: str | None
    target: float | None
    met: bool | None  # null: it has no target, or no value
    better: Literal["higher", "lower"] | None
    details: dict[str, float | None]
    before: list[float | None]
    change: float | None  # against the period before


class WasteView(TypedDict):
    """A cause and its unit-hours; each hour is in one cause."""

    cause: str
    hours: float


class ReportView(TypedDict):
    """`projects`: those that are covered; null: all, and the use of the pools as well."""

    now: float
    zone: str
    period: PeriodView
    before: list[PeriodView]
    projects: list[str] | None
    unit: Literal["accelerator", "cpu"]
    figures: list[FigureView]
    waste: list[WasteView]  # the largest first
    notes: list[str]  # what limits the figures
