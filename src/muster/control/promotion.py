"""Gathers what is known of a run for a promotion, and makes the job of the next stage from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from muster.api.words import STAGES, Role
from muster.control.stage_certificate import certificate
from muster.core.dump import written_values
from muster.core.entities.price_book import book_of
from muster.core.errors import Invalid, NotFound
from muster.core.job import Job
from muster.core.parse import Overrides, parse_job
from muster.core.preflight import THROUGHPUT
from muster.core.promotion import Approval, Evidence, Need, SeedValue, judge
from muster.core.rules import BASELINE, Rules, StageRules
from muster.core.scaling import Scaling, scaling
from muster.core.spec import JobSpec
from muster.core.state import State
from muster.track.cost_reads import read_runs_cost
from muster.track.lineage import run_in
from muster.track.model_rows import Version, source_ref
from muster.track.provenance.facts import Facts
from muster.track.rows import Run
from muster.track.same_job import devices_of
from muster.track.tracking import Tracking

# What may be asked for beside the scale: where and when it runs, for how long, and variables of the program.
_CHANGES: Final = frozenset({
    "num_nodes", "resources", "nproc", "pool", "queue", "priority", "max_duration", "use_spot", "budget", "envs",
    "placement", "purpose", "checkpoint",
})  # fmt: skip


def stage_rules(rules: Rules, stage: str) -> StageRules:
    found = rules.promotion.get(stage)
    if found is None:
        known = ", ".join(rules.promotion) or "none"
        hint = f"There are: {known}. Name it in the policy: `promotion: {{{stage[:63]}: {{reviewer: admin}}}}`."
        raise NotFound(f"The policy has no stage {stage[:63]!r}.", hint)
    return found


class Promoter:
    """Reads the record; `state` is passed in."""

    def __init__(self, track: Tracking) -> None:
        self._track = track

    def needs(
        self, state: State, run: Run, stage: str, next_job: JobSpec | None, reached: frozenset[str] = frozenset()
    ) -> tuple[list[Need], Scaling | None]:
        """`next_job`: the one that would be made; None for a version of a model, which has `reached` stages itself."""
        rules = stage_rules(state.rules, stage)
        evidence = self._evidence(state, run, stage, rules, next_job)
        evidence = replace(evidence, stages=evidence.stages | reached)
        return judge(stage, rules, evidence), evidence.scaling

    def _evidence(self, state: State, run: Run, stage: str, rules: StageRules, next_job: JobSpec | None) -> Evidence:
        baseline, against = self._baseline(state, run, rules)
        mine = self._track.same_job.replicates(run)
        name = rules.metric.name if rules.metric is not None else ""
        with self._track.db.reading() as connection:
            costs, priced = read_runs_cost(connection, [one.id for one in mine])
        code = str((run.doc.get("code") or {}).get("tree") or "")
        held = (False, "none")
        if rules.certificate is not None:
            spec = next_job if next_job is not None else _spec_of(run)
            held = certificate(state, spec, code, rules.certificate) if spec is not None else (False, "it is no job")
        return Evidence(
            run.id, run.user, run.phase, run.valid, self._track.run_stages.reached(run.id), held, baseline,
            self._values(mine, name), self._values(against, name), _failed(mine) + _failed(against), costs, priced,
            book_of(state).currency, self._scaling(run, rules), self._approvals(state, run, stage),
        )  # fmt: skip

    def _baseline(self, state: State, run: Run, rules: StageRules) -> tuple[str, list[Run]]:
        if rules.metric is None:
            return "", []
        named = rules.metric.better_than
        if named == BASELINE:
            named = state.rules.project(run.project).baseline or ""
        found = self._track.runs.get(named) if named else None
        # A run of another project is none of this project's: its values would tell what that one reached.
        if found is None or found.project != run.project:
            return "", []
        return found.id, self._track.same_job.replicates(found)

    def _values(self, runs: Sequence[Run], name: str) -> tuple[SeedValue, ...]:
        counted = [one.id for one in runs if one.phase == "succeeded"]
        found = self._track.metrics.summaries(counted) if name and counted else {}
        return tuple(
            SeedValue(run, summary.last if (summary := found.get(run, {}).get(name)) is not None else None)
            for run in counted
        )

    def _scaling(self, run: Run, rules: StageRules) -> Scaling | None:
        alike = [one for one in self._track.same_job.of(run) if one.phase == "succeeded"]
        found = self._track.metrics.summaries([one.id for one in alike])
        asked = rules.efficiency.metric if rules.efficiency is not None else None
        name = asked or next((one for one in THROUGHPUT if one in found.get(run.id, {})), None)
        measured: dict[int, list[float]] = {}
        for one in alike:
            summary = found[one.id].get(name) if name is not None else None
            if summary is not None and math.isfinite(summary.last):
                measured.setdefault(devices_of(one), []).append(summary.last)
        return scaling(measured)

    def _approvals(self, state: State, run: Run, stage: str) -> tuple[Approval, ...]:
        entries = [one for one in self._track.run_stages.entries(run.id) if one.run == run.id and one.stage == stage]
        return tuple(
            Approval(one.actor, role_of(state, run.project, one.actor), one.time)
            for one in entries
            if one.action == "approved"
        )


def role_of(state: State, project: str, user: str) -> Role | None:
    """The role that the user has in the project now, as a member or as an administrator of the server."""
    known = state.projects.get(project)
    if known is not None and user in known.members:
        return known.members[user]
    mine = [one for one in state.tokens.values() if one.user == user and one.superuser and one.revoked_at is None]
    live = [one.role for one in mine if one.expires_at is None or one.expires_at > state.time]
    return max(live, key=("viewer", "member", "admin").index, default=None)


def next_job(
    job: Job, stage: str, rules: StageRules, changes: Mapping[str, Any], devices: int | None = None
) -> JobSpec:
    """The job of the stage: the same but for its scale. Raises Invalid for one that is larger than the stage allows."""
    if stage in STAGES:
        raise Invalid(f"{stage} is a stage of models.", f"Write `muster models promote MODEL/VERSION {stage}`.")
    unknown = sorted(set(changes) - _CHANGES)
    if unknown:
        hint = f"What was tested is promoted. These may change: {', '.join(sorted(_CHANGES))}."
        raise Invalid(f"{unknown[0]} can't be changed in a promotion.", hint)
    spec = job.spec_again()
    told = spec.purpose or f"{spec.name} at the scale of {stage}"
    kept: dict[str, Any] = {"array": None, "parent": None, "needs": {}, "start_from": None, "purpose": told}
    base = spec.model_copy(update={**kept, "tags": {**spec.tags, "stage": stage, "promoted_from": job.id}})
    wanted = devices if devices is not None else rules.devices
    sized = {} if wanted is None or changes.keys() & {"num_nodes", "resources", "nproc"} else _scale(spec, wanted)
    made = parse_job(
        written_values(base), source="the next job", overrides=Overrides({**sized, **changes}, "The promotion")
    )
    count = devices_in(made)
    if rules.devices is not None and count > rules.devices:
        hint = f"Give at most {rules.devices}, or have the policy changed."
        raise Invalid(f"The job would have {count} devices; {stage} allows {rules.devices}.", hint)
    return made


def version_needs(track: Tracking, now: Callable[[], State]) -> Callable[[Version, str], list[Need] | None]:
    """What a stage of models asks of a version, by what its run has shown; None if the policy has no such stage."""

    def judged(version: Version, stage: str) -> list[Need] | None:
        state = now()
        if stage not in state.rules.promotion:
            return None
        run = track.runs.get(version.run) if version.run else None
        if run is None:
            found = "no run made it" if not version.run else f"run {version.run} is gone"
            return [Need("run", False, "a run that made it", found, f"muster models register {version.name} RUN")]
        files = _files_need(track, version)
        before = {one.new for one in track.models.promotions.promotions(version.name, version.version)}
        return [*Promoter(track).needs(state, run, stage, None, frozenset(before))[0], files]

    return judged


def _files_need(track: Tracking, version: Version) -> Need:
    """What the run has shown says nothing of files that came from elsewhere."""
    expected, ref = "files that an attempt of the run saved", source_ref(version.source)
    command = f"muster models register {version.name} {version.run} --artifact PATH"
    if ref is None or run_in(ref) != version.run:
        return Need("files", False, expected, f"they are of {ref or version.source[:100]}", command)
    stored = Facts(track.artifacts, track.runs, track.home, track.models.version).stored(version)
    put = sorted(name for name, one in stored.items() if not one.attempt)
    if put or not (stored or ref.startswith("checkpoint:")):
        return Need("files", False, expected, f"{put[0]} was uploaded by a person" if put else "none", command)
    return Need("files", True, expected, ref)


def batch_text(spec: JobSpec, made: JobSpec, params: Mapping[str, str]) -> str:
    """What becomes of the batch, which only the program decides."""
    before, after = devices_in(spec), devices_in(made)
    known = next((f"{name} {params[name]}" for name in _BATCHES if name in params), "")
    said = f" It reported {known}." if known else ""
    if before == after:
        return f"{after} devices as before: the batch stays as it is.{said}"
    return (
        f"From {before} to {after} devices. Nothing of the batch is changed: a program with a global batch keeps it "
        f"and gives each device {before}/{after} of what it had; one with a batch for each device trains with "
        f"{after / before:g} times the global batch, and may need another learning rate (`-o envs.NAME=VALUE`).{said}"
    )


def _scale(spec: JobSpec, devices: int) -> dict[str, Any]:
    """The same nodes, more of them; a part of one node if that is enough."""
    each = spec.resources.accelerators or spec.nproc or 1
    if devices <= each and spec.resources.accelerators:
        kind = spec.resources.accelerator
        return {"num_nodes": 1, "resources": {"accelerators": f"{kind}:{devices}" if kind else devices}}
    if devices % each:
        hint = f"Give a multiple of {each} with --devices, or both parts: `-o num_nodes=2 -o resources.accelerators=8`."
        raise Invalid(f"{devices} devices can't be divided into nodes of {each}.", hint)
    return {"num_nodes": devices // each}


def devices_in(spec: JobSpec) -> int:
    """Accelerators of the whole job; processes, of one that has none."""
    return spec.num_nodes * (spec.resources.accelerators or spec.nproc or 1)


def _failed(runs: Sequence[Run]) -> int:
    return sum(one.phase in ("failed", "stopped") for one in runs)


def _spec_of(run: Run) -> JobSpec | None:
    doc = run.doc.get("spec")
    return JobSpec.model_validate(doc) if isinstance(doc, Mapping) else None


_BATCHES: Final = ("global_batch_size", "global_batch", "batch_size", "batch", "train_batch_size")
