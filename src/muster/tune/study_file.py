"""Parses a study file into a `StudySpec`, or into one error with every mistake in it.

study: lr-and-decay
job: train.yaml
space: {lr: {log: [1e-5, 1e-2]}, wd: {log: [1e-6, 1e-1]}, batch: [64, 128, 256]}
objective: {minimize: val_loss}
search: tpe
stop: asha
budget: {trials: 200, parallel: 16, cost: 300 USD, until: 2 days}
confirm: {top: 3, seeds: 5}
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, cast

from muster.core.document import Sort
from muster.core.field_reader import FieldReader, parse_file
from muster.core.fields import as_text
from muster.core.money import MICRO, Amount, parse_amount
from muster.core.policy_units import parse_moment
from muster.core.report import At, Report, is_null, shown
from muster.core.spec import RESERVED, RESERVED_PREFIX, JobSpec
from muster.core.units import InvalidValue, mended_name, parse_duration, parse_integer, parse_number
from muster.tune.expression import parse_expression
from muster.tune.plugin import with_defaults
from muster.tune.plugin_file import read_plugin, read_searchers
from muster.tune.space import Params, Space
from muster.tune.space_file import read_point, read_space
from muster.tune.spec import Confirm, Objective, ParamsAs, StudySpec, Take
from muster.tune.stopping import STOPPING
from muster.tune.trial_spec import env_name

FILE: Final = Sort("study", "a mapping with at least `job`, `space`, `objective` and `budget`", "study: lr")
HINT: Final = "Correct each and give the file again."
KEYS: Final = (
    "study", "job", "space", "objective", "constraints", "params", "search", "stop", "budget", "confirm", "enqueue",
    "replicates", "pools", "worth", "warm_start", "widen", "seed",
)  # fmt: skip
TRIALS_MAX: Final = 100_000
PARALLEL_MAX: Final = 10_000
CONFIRM_MAX: Final = 1_000  # runs
_TEMPLATES: Final = {"envs": "", "arguments": "--{name} {value}", "config": "--config {file}"}
_METRIC: Final = re.compile(r"[^\x00-\x1f]{1,250}")
_NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,58}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Site:
    """What the server knows. `job`: the parsed job, if the file names one; `pools`: those that there are."""

    currency: str = "USD"
    now: float = 0.0
    job: JobSpec | None = None
    pools: Sequence[str] | None = None


def parse_study(
    text: str | bytes | Mapping[str, Any],
    site: Site,
    *,
    source: str = "The study",
    limits: Mapping[str, Any] = MappingProxyType({}),
) -> StudySpec:
    """Raises SpecError with all problems at once. The `job` of the file is not read: it is in `site`. `limits` replace
    those of its `budget`."""

    def read(raw: Mapping[str, Any], report: Report) -> StudySpec:
        budget = raw.get("budget")
        if limits and (is_null(budget) or isinstance(budget, Mapping)):
            raw = {**raw, "budget": {**(budget or {}), **limits}}
        return _Reader(report, site=site).study(raw)

    return parse_file(text, FILE, source, HINT, read)


@dataclass(slots=True)
class _Reader(FieldReader):
    site: Site = Site()

    def study(self, raw: Mapping[str, Any]) -> StudySpec:
        self.refuse(raw, KEYS, ())
        space = read_space(self, raw.get("space"), ("space",))
        objectives = self.objectives(raw)
        made = StudySpec(self.name(raw), space, objectives, job=self.job(raw))
        made = self.params(raw, made)
        search = read_searchers(self, raw.get("search"), len(objectives))
        made = replace(made, search=search, stop=read_plugin(self, raw.get("stop"), ("stop",), STOPPING, "fifo"))
        made = self.budget(raw, made)
        made = replace(
            made,
            constraints=self.constraints(raw, space),
            confirm=self.confirm(raw, space),
            enqueue=self.enqueue(raw, space),
            replicates=self.number_of(raw, "replicates", 1, 1, 1_000),
            pools=self.pools(raw),
            worth=self.worth(raw),
            warm_start=self.warm_start(raw),
            widen=self.value(raw, "widen", (), _factor, "a factor such as `2`, or 0 for none", 0.0),
            seed=self.number_of(raw, "seed", None, 0, 2**31 - 1),
        )
        self.check_names(made)
        self.check_stop(made)
        return made

    def check_stop(self, made: StudySpec) -> None:
        """What options must keep together, each rule knows itself."""
        rule, options = STOPPING.get(made.stop.name), made.stop.options
        if any(at[:1] == ("stop",) for at in self.wrong):
            return
        try:
            rule(made, with_defaults(rule, options))
        except InvalidValue as unfit:
            given = ", ".join(f"{name}: {value}" for name, value in options.items()) or "no options"
            self.add(("stop", made.stop.name), given, "options that fit together", unfit.hint)

    def name(self, raw: Mapping[str, Any]) -> str:
        given = raw.get("study")
        usual = f"{self.site.job.name[:50]}-study" if self.site.job is not None else "study"
        name = usual if is_null(given) else as_text(given).strip()
        if not _NAME.fullmatch(name):
            expected = "a name of at most 60 lower-case letters, digits and hyphens that begins with a letter"
            self.add(("study",), shown(given), expected, f"Write, for example, `study: {mended_name(name) or 'lr'}`.")
        return name

    def job(self, raw: Mapping[str, Any]) -> Mapping[str, Any] | None:
        spec = self.site.job
        if spec is None:
            if not is_null(raw.get("job")):
                self.add(("job",), shown(raw["job"]), "a job that the client has read", "Use `muster tune FILE`.")
            return None
        if spec.array is not None or not spec.num_nodes:
            what = "an array" if spec.array is not None else "a job without nodes"
            self.add(("job",), what, "a job that a trial can run", "Leave `array` out: each trial is a job of its own.")
        return spec.model_dump(mode="json", exclude_defaults=True)

    def objectives(self, raw: Mapping[str, Any]) -> tuple[Objective, ...]:
        given = raw.get("objective")
        several = given if isinstance(given, list | tuple) else [given]
        found = []
        for index, one in enumerate(several):
            at: At = ("objective", index) if len(several) > 1 else ("objective",)
            named = self.mapping(one, at) if not is_null(one) else {}
            self.refuse(named, ("minimize", "maximize", "take"), at)
            ways = [way for way in ("minimize", "maximize") if way in named]
            if len(ways) != 1:
                if at not in self.wrong:
                    told = shown(one) if not named else "both" if ways else "neither `minimize` nor `maximize`"
                    hint = "Write, for example, `objective: {minimize: val_loss}`."
                    self.add(at, told, "a metric that is minimized or maximized", hint)
                continue
            metric = "" if isinstance(named[ways[0]], Mapping | list) else as_text(named[ways[0]]).strip()
            if not _METRIC.fullmatch(metric):
                hint = "Write the name under which the program reports it."
                self.add((*at, ways[0]), shown(named[ways[0]]), "the name of a metric", hint)
            take = self.choice(named, "take", at, ("last", "best"), "last")
            found.append(Objective(metric, cast("Any", ways[0]), cast("Take", take)))
        if len({one.metric for one in found}) < len(found):
            self.add(("objective",), "one metric twice", "each metric once", "Leave one out.")
        return tuple(found) or (Objective("loss"),)

    def constraints(self, raw: Mapping[str, Any], space: Space) -> tuple[str, ...]:
        given = raw.get("constraints")
        texts = [] if is_null(given) else given if isinstance(given, list | tuple) else [given]
        found = []
        for index, one in enumerate(texts):
            at: At = ("constraints", index)
            expected = "what must hold of metrics and parameters, such as `memory < 70GB`"
            try:
                expression = parse_expression(as_text(one))
            except InvalidValue as unfit:
                self.add(at, shown(one), expected, unfit.hint or "Compare a metric with a number.")
                continue
            if not expression.names:
                self.add(at, shown(one), expected, "It names no metric.")
            found.append(expression.text)
        return tuple(found)

    def params(self, raw: Mapping[str, Any], made: StudySpec) -> StudySpec:
        """`envs`, `arguments`, `config`, `{arguments: "{name}={value}"}` or `{config: "--config {file}"}`."""
        given = raw.get("params")
        if not isinstance(given, Mapping):
            how = self.choice(raw, "params", (), tuple(_TEMPLATES), "envs")
            return replace(made, params_as=cast("ParamsAs", how), template=_TEMPLATES.get(how, ""))
        one = self.mapping(given, ("params",))
        self.refuse(one, ("arguments", "config"), ("params",))
        if len(one) != 1:
            self.add(("params",), shown(given), "`arguments` or `config`", "Write one of the two.")
            return made
        ((how, _),) = one.items()
        usual = _TEMPLATES.get(how, "")
        template = self.text(one, how, ("params",), "how it stands in the command", usual)
        needed = ("{name}", "{value}") if how == "arguments" else ("{file}",)
        if template and (any(part not in template for part in needed) or not _splits(template)):
            words = " and ".join(f"`{part}`" for part in needed)
            self.add(("params", how), shown(template), f"a text with {words}", f"Write, for example, `{usual}`.")
        return replace(made, params_as=cast("ParamsAs", how), template=template)

    def budget(self, raw: Mapping[str, Any], made: StudySpec) -> StudySpec:
        at: At = ("budget",)
        given = self.mapping(raw.get("budget"), at)
        self.refuse(given, ("trials", "parallel", "cost", "until"), at)
        trials = self.number_of(given, "trials", None, 1, TRIALS_MAX, at)
        parallel = self.number_of(given, "parallel", 1, 1, PARALLEL_MAX, at)
        cost = self.money(given, "cost", at)
        until = self.value(given, "until", at, self._until, "a time such as `2 days` or `2026-11-20T08:00Z`", None)
        if (trials, cost, until) == (None, None, None) and made.space.size is None and at not in self.wrong:
            hint = "Write, for example, `budget: {trials: 100, parallel: 8}`."
            self.add(at, "no end", "`trials`, `cost` or `until`, since the space has no last point", hint)
        return replace(made, trials=trials, parallel=parallel, cost=cost, until=until)

    def confirm(self, raw: Mapping[str, Any], space: Space) -> Confirm | None:
        if is_null(raw.get("confirm")):
            return None
        at: At = ("confirm",)
        given = self.mapping(raw["confirm"], at)
        self.refuse(given, ("top", "seeds"), at)
        top = self.number_of(given, "top", 1, 1, 100, at)
        seeds = self.number_of(given, "seeds", 3, 1, 100, at)
        if (top or 1) * (seeds or 1) > CONFIRM_MAX:
            self.add(at, f"{top} × {seeds} runs", f"at most {CONFIRM_MAX:,}", "Confirm fewer, or with fewer seeds.")
        return Confirm(top or 1, seeds or 3)

    def enqueue(self, raw: Mapping[str, Any], space: Space) -> tuple[Params, ...]:
        given = raw.get("enqueue")
        if is_null(given):
            return ()
        if not isinstance(given, list | tuple) or len(given) > 1_000:
            hint = "Write, for example, `enqueue: [{lr: 3e-4}]`."
            self.add(("enqueue",), shown(given), "a list of at most 1,000 points that are tried first", hint)
            return ()
        return tuple(read_point(self, space, one, ("enqueue", index)) for index, one in enumerate(given))

    def pools(self, raw: Mapping[str, Any]) -> tuple[str, ...]:
        names = self.names(raw, "pools", ())
        if self.site.pools is not None:
            self.known(names, self.site.pools, ("pools",), "a pool (`muster nodes`)")
        return names

    def worth(self, raw: Mapping[str, Any]) -> int | None:
        """`worth: {0.01: 100 USD}`: what a change of the objective by so much is worth."""
        if is_null(raw.get("worth")):
            return None
        at: At = ("worth",)
        given = self.mapping(raw["worth"], at)
        hint = "Write, for example, `worth: {0.01: 100 USD}`: a hundredth of the objective is worth 100 USD."
        if len(given) != 1:
            self.add(at, shown(raw["worth"]), "a change of the objective, and what it is worth", hint)
            return None
        ((change, _),) = given.items()
        amount = self.money(given, change, at)
        try:
            step = parse_number(change)
        except InvalidValue:
            step = 0.0
        if not 0 < step < 1e300:
            self.add((*at, change), shown(change), "a number above 0", hint)
            return None
        return round(amount / step) if amount is not None else None

    def money(self, raw: Mapping[str, Any], key: str, at: At) -> int | None:
        words = "an amount above 0 such as `300 USD`"
        amount = self.value(raw, key, at, parse_amount, words, None)
        if amount is None:
            return None
        assert isinstance(amount, Amount)
        if amount.currency not in ("", self.site.currency):
            hint = f"Write the amount in {self.site.currency}."
            self.add((*at, key), f"an amount in {amount.currency}", f"the price book's {self.site.currency}", hint)
        if not amount.micros:
            self.add((*at, key), shown(raw.get(key)), words, "Leave it out if there is no limit.")
        return min(amount.micros, 10**9 * MICRO)

    def warm_start(self, raw: Mapping[str, Any]) -> str:
        given = raw.get("warm_start")
        if is_null(given):
            return ""
        text = "" if isinstance(given, Mapping | list) else as_text(given).strip()
        if not re.fullmatch(r"(runs where .+|study \S+)", text, re.DOTALL) or len(text) > 2_000:
            hint = 'Write, for example, `warm_start: runs where tags.task = "pretrain"`, or `warm_start: study lr-12`.'
            self.add(("warm_start",), shown(given), "`runs where ...` or `study NAME`", hint)
        return text

    def number_of(self, raw: Mapping[str, Any], key: str, usual: int | None, least: int, most: int, at: At = ()) -> Any:
        words = f"a whole number from {least} to {most:,}"
        value = self.value(raw, key, at, parse_integer, words, usual)
        if value is not None and not least <= value <= most:
            self.add((*at, key), shown(raw.get(key)), words, "Write such a number.")
            return usual
        return value

    def check_names(self, made: StudySpec) -> None:
        """Parameters become variables of the job's environment: two must not be the same one, nor one that is set."""
        seen: dict[str, str] = {}
        for one in made.space.parameters:
            variable = env_name(one.name)
            if variable in RESERVED or variable.startswith(RESERVED_PREFIX):
                self.add(("space", one.name), f"the variable {variable}", "one that is not Muster's", "Rename it.")
            if variable in seen:
                hint = "Rename one of them."
                given = f"{one.name} and {seen[variable]}, which are both {variable} in the environment"
                self.add(("space", one.name), given, "a variable for each parameter", hint)
            seen[variable] = one.name

    def _until(self, text: str) -> float:
        try:
            seconds = parse_duration(text)
        except InvalidValue:
            seconds = parse_moment(text) - self.site.now
        if seconds <= 0:
            raise InvalidValue("Write a time that is still to come.")
        return seconds


def _splits(text: str) -> bool:
    try:
        return bool(shlex.split(text))
    except ValueError:
        return False


def _factor(text: str) -> float:
    number = parse_number(text)
    if not 0 <= number <= 100:
        raise InvalidValue("Write a factor from 0 to 100.")
    return number
