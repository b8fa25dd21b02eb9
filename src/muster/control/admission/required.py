"""Refuses a job that lacks what its project requires of every run, if the policy says to refuse."""

from __future__ import annotations

from typing import Final

from muster.control.admission.base import Context
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec
from muster.track.facts import command_params
from muster.track.fields import given_by_spec, hint_of, lacking

# What the run may report later: the code is captured at submission, the seed is reported while the job runs.
_LATER: Final = ("code", "seed")


def check(spec: JobSpec, context: Context) -> Reason | None:
    rules = context.state.rules.project(spec.project)
    if not rules.require or rules.missing != "refuse":
        return None
    has = given_by_spec(context.user, spec.purpose, spec.data, spec.tags, command_params(spec.run, spec.envs))
    lacks = [name for name in lacking(rules.require, has) if name not in _LATER]
    if not lacks:
        return None
    hint = "; ".join(hint_of(name) for name in lacks)
    message = f"project {spec.project!r} requires {', '.join(lacks)} of every job"
    return reason("required_missing", message, f"{hint[0].upper()}{hint[1:]}.", missing=lacks)
