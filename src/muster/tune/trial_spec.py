"""The job of a trial: the job of its study with the trial's parameters in its environment, its arguments or a file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from muster.core.spec import JobSpec
from muster.tune.space import Params, Value
from muster.tune.spec import SEED, StudySpec
from muster.wire import PARAMS_FILE

_KEPT: Final = ("queue", "priority", "tags", "purpose", "off_peak")


def base_spec(spec: StudySpec) -> JobSpec:
    """The job that each trial varies. Only for a study that has one."""
    return JobSpec.model_validate(spec.job)


def study_spec(spec: StudySpec, project: str, purpose: str | None = None) -> JobSpec:
    """The job of the study itself. Its kind tells it and its trials from other work, for rules and prices; it has no
    nodes, and runs until the study is over."""
    base: dict[str, Any] = dict(spec.job or {})
    kept: dict[str, Any] = {name: base[name] for name in _KEPT if name in base}
    made = JobSpec(name=spec.name, run="", num_nodes=0, kind="sweep", project=project)
    return made.model_copy(update={**kept, "purpose": purpose or kept.get("purpose")})


def trial_spec(
    spec: StudySpec, base: JobSpec, study: str, params: Params, *, seed: int | None = None, start_from: str = ""
) -> JobSpec:
    """`start_from`: the run and the step of a checkpoint that it goes on from."""
    given = with_seed(params, seed)
    envs = {**base.envs, **{env_name(name): text_of(value) for name, value in given.items()}}
    changes: dict[str, Any] = {
        "name": spec.name, "kind": "sweep", "parent": study, "purpose": None, "needs": {}, "envs": envs,
    }  # fmt: skip
    if spec.params_as == "arguments":
        changes["run"] = f"{base.run.rstrip()} {_arguments(spec.template, given)}"
    elif spec.params_as == "config":
        file = spec.template.replace("{file}", f'"${PARAMS_FILE}"')
        changes["run"] = f"{base.run.rstrip()} {file}"
    if start_from:
        changes["start_from"] = start_from
    return base.model_copy(update=changes)


def with_seed(params: Params, seed: int | None) -> dict[str, Value]:
    return {**params, SEED: seed} if seed is not None else dict(params)


def env_name(name: str) -> str:
    """The variable in which a program finds a parameter: `LR` for `lr`, `MODEL_DEPTH` for `model.depth`."""
    return re.sub(r"[^A-Z0-9_]", "_", name.upper())


def text_of(value: Value) -> str:
    """A value as a program reads it: `0.0003`, `64`, `true`, `relu`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _arguments(template: str, params: Mapping[str, Value]) -> str:
    words = []
    for name, value in params.items():
        for word in shlex.split(template.replace("{name}", name)):
            words.append(word.replace("{value}", text_of(value)))
    return shlex.join(words)
