"""A study file in canonical form. `study_file` parses one, and a study's event keeps it as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

from muster.tune.expression import Expression, parse_expression
from muster.tune.space import Params, Space

Direction = Literal["minimize", "maximize"]
Take = Literal["last", "best"]
By = Literal["step", "report"]
ParamsAs = Literal["envs", "arguments", "config"]
SEED: Final = "seed"  # the parameter of runs that are repeated with other seeds


@dataclass(frozen=True, slots=True)
class Objective:
    """`take`: which of a trial's values counts: the last that it reported, or the best."""

    metric: str
    direction: Direction = "minimize"
    take: Take = "last"

    @property
    def sign(self) -> float:
        """Values times this are the better the smaller."""
        return 1.0 if self.direction == "minimize" else -1.0


@dataclass(frozen=True, slots=True)
class Plugin:
    """A searcher or a stopping rule by its name, with the options of the file in canonical form."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Confirm:
    """The best `top` configurations are run again with so many other seeds."""

    top: int
    seeds: int


@dataclass(frozen=True)
class StudySpec:
    """Amounts are millionths of the currency of the price book, times seconds. None of a limit is no limit."""

    name: str
    space: Space
    objectives: tuple[Objective, ...]
    constraints: tuple[str, ...] = ()  # expressions over metrics and parameters that must hold
    job: Mapping[str, Any] | None = None  # a job's spec as JSON; None: trials are run by whoever asks for them
    params_as: ParamsAs = "envs"
    template: str = ""  # of one parameter among the arguments, or of the file
    search: tuple[Plugin, ...] = (Plugin("auto"),)  # several: a portfolio, which takes turns
    stop: Plugin = Plugin("fifo")
    trials: int | None = None
    parallel: int = 1
    cost: int | None = None
    until: float | None = None  # seconds after its start
    confirm: Confirm | None = None
    enqueue: tuple[Params, ...] = ()  # tried first
    replicates: int = 1  # how often each point may be tried
    pools: tuple[str, ...] = ()  # of the rungs, the first for the lowest; (): the job's own
    # What a change of the first objective by 1 is worth. The study ends when another trial is expected to gain less
    # than it costs.
    worth: int | None = None
    warm_start: str = ""  # a query of runs, or `study NAME`
    widen: float = 0.0  # times the good region of the study that it is warm started from; 0: the space stays as it is
    seed: int | None = None

    @property
    def objective(self) -> Objective:
        """The first one, which alone counts where one number is needed."""
        return self.objectives[0]

    @cached_property
    def limits(self) -> tuple[Expression, ...]:
        return tuple(parse_expression(text) for text in self.constraints)

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that it reads: objectives first, then those of constraints that are no parameters."""
        own = [one.metric for one in self.objectives]
        read = sorted({name for one in self.limits for name in one.names} - self.space.by_name.keys())
        return tuple(dict.fromkeys([*own, *read]))

    def to_doc(self) -> dict[str, Any]:
        """JSON, without values that are defaults."""
        made = {name: value for name, value in asdict(self).items() if value != _DEFAULTS.get(name, _NONE)}
        return {**made, "space": self.space.to_doc()}

    @staticmethod
    def of(doc: Mapping[str, Any]) -> StudySpec:
        given = {**doc, "space": Space.of(doc["space"])}
        given["objectives"] = tuple(Objective(**one) for one in doc["objectives"])
        if "search" in doc:
            given["search"] = tuple(Plugin(**one) for one in doc["search"])
        if "stop" in doc:
            given["stop"] = Plugin(**doc["stop"])
        if "confirm" in doc:
            given["confirm"] = Confirm(**doc["confirm"])
        for name in ("constraints", "enqueue", "pools"):
            if name in doc:
                given[name] = tuple(doc[name])
        return StudySpec(**{name: value for name, value in given.items() if name in StudySpec.__dataclass_fields__})


_NONE: Final = object()
_DEFAULTS: Final[Mapping[str, Any]] = {
    name: value
    for name, value in asdict(StudySpec("", Space(()), ())).items()
    if name not in ("name", "space", "objectives")
}
