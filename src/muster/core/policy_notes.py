"""How each rule is written in a policy file: its form, what is expected, an example, and its meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from muster.core.rules import (
    CHECKS,
    WORK_CLASSES,
    EfficiencyNeed,
    Escalation,
    GuardRule,
    Keep,
    Maintenance,
    MetricNeed,
    PoolRules,
    Preemption,
    PreflightRule,
    ProjectRules,
    QueueRules,
    Rules,
    StageRules,
    Target,
    Window,
)

Form = Literal[
    "text", "integer", "number", "flag", "choice", "order", "priority", "duration", "clock", "moment", "amounts",
    "size", "section",
]  # fmt: skip
Model = type[BaseModel]


@dataclass(frozen=True, slots=True)
class Note:
    form: Form  # of the value, or of each item
    expected: str
    example: str
    meaning: str
    many: Literal["", "list", "mapping"] = ""
    key: str = ""  # the key in a file, if it differs from the field's name
    absent: str = ""  # the text for None: `unlimited`, `never`
    model: Model | None = None  # of a section
    shorthand: str = ""  # of a section: the field that a bare value sets


_DURATION: Final = "a duration such as `90s`, `5m` or `1h30m`"
_LIMIT: Final = "a whole number from 1, or `unlimited`"
_COUNT: Final = "a whole number from 0, or `unlimited`"
_WEIGHT: Final = "a number above 0"
_FLAG: Final = "`true` or `false`"
_CLASSES: Final = ", ".join(f"`{name}`" for name in WORK_CLASSES)

_WHOLE: Final = {
    "version": Note("integer", "`1`", "1", "Of this format."),
    "between": Note("choice", "`rank` or `fair`", "fair", "Which queue goes first: the one whose best job ranks "
        "highest (`rank`), or the one that has had the least for its weight (`fair`)."),
    "half_life": Note("duration", f"{_DURATION}, above 0", "7d", "Under fair share, the time after which past use "
        "counts half."),
    "reclaim": Note("duration", _DURATION, "5m", "The time within which quota that was lent comes back to its queue."),
    "estimates": Note("choice", "`learnt` or `declared`", "declared", "How long a job is expected to run: learnt "
        "from work that finished, or what the job declares as `max_duration`."),
    "round": Note("duration", _DURATION, "6m", "Decide only at multiples of this; `0s` is at every change."),
    "reselect": Note("flag", _FLAG, "true", "Whether each round chooses anew who runs, by counting accelerators, and "
        "stops the others. Needs `round`."),
    "overdue_share": Note("number", "a number from 0 to 1", "0.125", "The part of a pool that overdue jobs may hold "
        "ahead of the others, so that an overloaded pool does not serve by age alone."),
    "depth": Note("integer", "a whole number from 1 to 100000", "100", "How many waiting jobs conservative backfill "
        "reserves for."),
    "preemption": Note("section", "a mapping such as `{grace: 2m}`, or `false` for none", "{grace: 2m}",
        "When running work makes place for other work. `preemption: false` is short for `{enabled: false}`.",
        model=Preemption, shorthand="enabled"),
    "targets": Note("section", f"a mapping of classes of work ({_CLASSES}) to waits", "{evaluation: 10m}",
        "The longest wait that each class of work should see. `single: 30m` is short for `single: {wait: 30m}`.",
        many="mapping", model=Target, shorthand="wait"),
    "defaults": Note("section", "a mapping of what a queue may say", "{order: predicted}", "What holds for every "
        "queue, unless the queue says otherwise.", model=QueueRules),
    "queues": Note("section", "a mapping of queues to what differs from `defaults`", "{research: {weight: 2}}",
        "What differs from `defaults`, queue by queue.", many="mapping", model=QueueRules),
    "pools": Note("section", "a mapping of pools to their rules", "{a100: {slices: 7}}", "What holds for a pool.",
        many="mapping", model=PoolRules),
    "projects": Note("section", "a mapping of projects to their rules", "{language: {max_accelerators: 64}}",
        "What holds for a project, over all of its queues.", many="mapping", model=ProjectRules),
    "preflight": Note("section", "a list of mappings such as `{require: [canary], cost: 500 USD}`",
        "{require: [canary], devices: 16}", "Which jobs need which rungs of preflight, rule by rule; `[]` is none.",
        many="list", model=PreflightRule),
    "guards": Note("section", "a list of mappings with `check` and `action`", "[{check: secrets, action: refuse}]",
        "What the checks of jobs, code and artifacts do about what they find. For each check the first rule that fits "
        "a job applies, and if none does, what the check does without a rule.", many="list", model=GuardRule),
    "promotion": Note("section", "a mapping of stages to what must hold", "{large: {devices: 64, reviewer: admin}}",
        "What a run must show before `muster promote RUN --to STAGE` makes the next job from it. The stages `staging` "
        "and `production` are those of models' versions.", many="mapping", model=StageRules),
}  # fmt: skip
_PREEMPTION: Final = {
    "enabled": Note("flag", _FLAG, "true", "Whether running work ever makes place."),
    "grace": Note("duration", _DURATION, "2m", "Time to save in."),
    "min_run": Note("duration", _DURATION, "10m", "An attempt is left alone for so long after it began to "
        "run, except by a queue that takes back what is its own."),
    "restart_cost": Note("duration", _DURATION, "60s", "What stopping a worker and starting it again takes, beside "
        "the work that is lost."),
    "save_every": Note("duration", _DURATION, "30m", "Work older than this counts as if it had been saved, so that "
        "saving rarely makes nobody safe."),
    "margin": Note("number", "a number from 1 to 1000", "2", "By how many times the one must rank above the other."),
}  # fmt: skip
_TARGET: Final = {
    "wait": Note("duration", _DURATION, "30m", "The longest wait."),
    "high": Note("duration", _DURATION, "5m", "The longest wait from priority 75 on; never more than `wait` unless "
        "given."),
}  # fmt: skip
_QUEUE: Final = {
    "parent": Note("text", "the name of a queue of this file, or `none`", "research", "The queue above it, of the "
        "same project: its quota comes out of the parent's, and its share too.", absent="none"),
    "weight": Note("number", _WEIGHT, "2", "Its share next to the queues beside it, under fair share."),
    "users": Note("number", "a mapping of users to weights above 0", "{ada: 2}", "Weights of users within the queue; "
        "1 for who is not named.", many="mapping"),
    "order": Note("order", "the name of an order", "predicted", "In which order its jobs "
        "start."),
    "ageing": Note("duration", f"{_DURATION}, or `never`", "1d", "The wait that makes up for 25 points of priority.",
        absent="never"),
    "levels": Note("duration", "a list of durations above 0, each longer than the one before", "[5h, 20h]", "For the "
        "order `attained`: the times, counted on one accelerator, at which a job falls to the next level.",
        many="list"),
    "overdue": Note("duration", f"{_DURATION}, or `never`", "4h", "The wait, in all, after which a job goes first and "
        "gives way to nobody.", absent="never"),
    "backfill": Note("choice", "`none`, `easy`, `conservative` or `greedy`", "easy", "Who may pass a job that waits "
        "for place: nobody; whoever does not delay the first in line (`easy`), or anybody ahead (`conservative`); or "
        "whoever fits (`greedy`)."),
    "quota": Note("amounts", "a mapping of pools to accelerators such as `{a100: 16}`", "{a100: 16}", "Accelerators "
        "that are its own. A bare number is of the one pool that the queue's `pools`, or else the file's, name.",
        many="mapping"),
    "borrow": Note("amounts", "`all`, `none`, or a mapping of pools to accelerators such as `{a100: 8}`", "{a100: 8}",
        "The most that it may use beyond its quota: what is idle (`all`), nothing, or so many of each pool and "
        "nothing of those not named.", many="mapping", absent="all"),
    "lend": Note("flag", _FLAG, "false", "Whether others may use what it leaves idle of its quota."),
    "max_running": Note("integer", _LIMIT, "20", "Jobs of it that run at once.", absent="unlimited"),
    "max_per_user": Note("integer", _LIMIT, "4", "Jobs of one user that run at once.", absent="unlimited"),
    "max_accelerators_per_user": Note("integer", _COUNT, "16", "Accelerators that one user has at once.",
        absent="unlimited"),
    "pools": Note("text", "a list of pools such as `[a100]`", "[a100]", "Where its jobs may run; `[]` is everywhere.",
        many="list"),
    "preempts": Note("flag", _FLAG, "false", "Whether its jobs may take the place of others."),
    "preemptible": Note("flag", _FLAG, "false", "Whether its jobs may be asked to make place."),
    "slice": Note("duration", f"{_DURATION}, or `never`", "30m", "Sessions and single-node jobs take turns of this "
        "length when others wait.", absent="never"),
    "escalation": Note("section", "a mapping such as `{after: 4h, to: high}`, or `never`", "{after: 4h, to: high}",
        "After which wait a job is treated as one of a higher priority.", absent="never", model=Escalation),
}  # fmt: skip
_ESCALATION: Final = {
    "after": Note("duration", _DURATION, "4h", "The wait."),
    "to": Note("priority", "`low`, `normal`, `high`, `urgent`, or a whole number from 0 to 100", "high",
        "The priority that it is treated as."),
}  # fmt: skip
_POOL: Final = {
    "levels": Note("text", "a list of node labels, widest first", "[zone, rack, link]", "What is near to what: nodes "
        "with the same value of a label, the widest label first.", many="list"),
    "slices": Note("integer", "a whole number from 1 to 1000", "7", "Equal parts that one accelerator can be given "
        "away in; `1` is only whole."),
    "kinds": Note("choice", "a list of `train`, `eval`, `data`, `sweep` and `session`", "[eval, session]", "Kinds of "
        "work that it is for; `[]` is any.", many="list"),
    "off_peak": Note("section", "a list of hours such as `mon-fri 20:00-06:00`", "mon-fri 20:00-06:00", "Quiet hours, "
        "in UTC, when jobs with `off_peak: true` may start; `[]` is none.", many="list", model=Window),
    "maintenance": Note("section", "a list of mappings with at least `from` and `to`",
        "{from: 2026-11-20T08:00Z, to: 2026-11-20T12:00Z}", "Times in which nodes are away: nothing is started there "
        "that would not be done before.", many="list", model=Maintenance),
    "spot": Note("flag", "`true`, `false`, or `auto`", "true", "Whether its nodes can be taken away; `auto` is as the "
        "engine says.", absent="auto"),
    "price": Note("number", "a number from 0 on", "2.5", "What one accelerator costs for an hour, or one node where "
        "there are none, in your currency: a run's cost follows from it, and of pools that are open to a job the "
        "cheapest is taken first."),
    "burst": Note("duration", f"{_DURATION}, or `never`", "10m", "Makes it a pool for bursts: a job that names no pool "
        "comes here only when no other pool has room and it has waited so long; `0s` is at once, and `never` makes it "
        "a pool like the others.", absent="never"),
    "spares": Note("integer", "a whole number from 0 on", "2", "So many healthy nodes are kept free of ordinary work. "
        "Only a job that restarts because it lost a node may use them, so that it need not wait in the queue."),
    "stragglers": Note("choice", "`report` or `move`", "move", "What is done about a node on which ranks are slower "
        "than their peers: `report` only says so; `move` has a job leave it right after a checkpoint, if several "
        "programs are slow there and nowhere else, and the node is checked."),
}  # fmt: skip
_WINDOW: Final = {
    "days": Note("choice", "a list of `mon`, `tue`, `wed`, `thu`, `fri`, `sat` and `sun`", "[sat, sun]", "Days on "
        "which it starts; every day unless given.", many="list"),
    "start": Note("clock", "a time of day such as `20:00`", "20:00", "When it starts, in UTC.", key="from"),
    "end": Note("clock", "a time of day such as `06:00`", "06:00", "When it ends: on the next day if that is before "
        "`from`.", key="to"),
}  # fmt: skip
_MAINTENANCE: Final = {
    "start": Note("moment", "a time with its zone such as `2026-11-20T08:00Z`", "2026-11-20T08:00Z", "When it begins.",
        key="from"),
    "end": Note("moment", "a time with its zone such as `2026-11-20T12:00Z`", "2026-11-20T12:00Z", "When it is over.",
        key="to"),
    "nodes": Note("text", "a list of nodes such as `[n1, n2]`", "[n1, n2]", "Which nodes; `[]` is all of the pool.",
        many="list"),
    "why": Note("text", "text", "new switches", "What for."),
}  # fmt: skip
_PROJECT: Final = {
    "weight": Note("number", _WEIGHT, "2", "Its share next to other projects, under fair share."),
    "max_running": Note("integer", _LIMIT, "50", "Jobs of it that run at once.", absent="unlimited"),
    "max_accelerators": Note("integer", _COUNT, "64", "Accelerators that it has at once.", absent="unlimited"),
    "require": Note("text", "a list of `owner`, `purpose`, `data`, `code`, `seed` and names of tags", "[purpose, task]",
        "What every run must have: `seed` as a parameter, any other name as a tag or parameter; `tags.NAME` is a tag "
        "for certain.", many="list"),
    "missing": Note("choice", "`refuse` or `mark`", "refuse", "A job that lacks a required field is refused when it "
        "is submitted, or its run is marked as invalid. What only the run itself can bring is always marked."),
    "keep": Note("section", "a section such as `{media: 90d, failed: 30d}`", "{media: 90d, failed: 30d}", "How long "
        "artifacts stay after their run has ended. What a registered model, or what it was made from, refers to always "
        "stays.", key="artifacts", model=Keep),
    "baseline": Note("text", "the id of a run, or `none`", "gpt-12", "The run that others must beat where a stage of "
        "`promotion` says `better_than: baseline`.", absent="none"),
}  # fmt: skip
_PREFLIGHT: Final = {
    "require": Note("choice", "a list of `unit`, `resume`, `smoke`, `failure` and `canary`", "[unit, canary]",
        "The rungs that the job needs a certificate of.", many="list"),
    "action": Note("choice", "`refuse` or `warn`", "warn", "What happens to a job without: it is refused, or accepted "
        "with a warning."),
    "cost": Note("text", "an amount such as `500 USD`", "500 USD", "It applies to jobs that are projected to cost as "
        "much or more."),
    "devices": Note("integer", "a whole number from 1", "16", "It applies to jobs with as many accelerators or more."),
    "projects": Note("text", "a list of projects", "[language]", "It applies to these; `[]` is all.", many="list"),
    "environments": Note("text", "a list such as `[production]`", "[production]", "It applies to jobs of these "
        "environments (the tag `environment`, or what the price book says); `[]` is all.", many="list"),
    "pools": Note("text", "a list of pools", "[h100]", "It applies to jobs that may run there; `[]` is all.",
        many="list"),
    "valid": Note("duration", f"{_DURATION}, above 0", "30d", "For how long a certificate counts."),
}  # fmt: skip
_FOR: Final = "a duration such as `90d`, or `forever`"
_KEEP: Final = {
    "file": Note("duration", _FOR, "180d", "Plain files.", absent="forever"),
    "media": Note("duration", _FOR, "90d", "Images, audio and the like.", absent="forever"),
    "checkpoint": Note("duration", _FOR, "30d", "Checkpoints that were uploaded.", absent="forever"),
    "code": Note("duration", _FOR, "730d", "Snapshots of code, which a run is reproduced from.", absent="forever"),
    "model": Note("duration", _FOR, "365d", "Models, if `keep_models` is `false`.", absent="forever"),
    "failed": Note("duration", _FOR, "30d", "Everything of a run that failed or was stopped.", absent="forever"),
    "keep_models": Note("flag", _FLAG, "false", "Whether models stay whatever else is said here."),
}  # fmt: skip
_GUARD: Final = {
    "check": Note("choice", f"one of {', '.join(f'`{name}`' for name in CHECKS)}", "secrets", "Which check. Without a "
        "rule, `secrets` and `artifacts` refuse, `large_files` and `notebooks` warn, and the others are off."),
    "action": Note("choice", "`off`, `warn` or `refuse`", "refuse", "What a finding does: nothing, a warning to who "
        "submits, or a refusal. An artifact that is refused is quarantined."),
    "projects": Note("text", "a list of projects such as `[sandbox]`", "[sandbox]", "Whose jobs the rule is for; `[]` "
        "is all.", many="list"),
    "environments": Note("text", "a list of environments such as `[production]`", "[production]", "For jobs of which "
        "environment: their tag `environment`, or what the price book says; `[]` is all.", many="list"),
    "approved": Note("text", "a list of patterns such as `[registry.example/acme/*@sha256:*]`",
        '["registry.example/acme/*@sha256:*"]', "What is approved, of `images` and `environments`: `*` is any text.",
        many="list"),
    "limit": Note("size", "a size such as `100MB`, or `default`", "2GB", "The largest file (`large_files`: 100MB "
        "unless given) or image (`images`: any unless given).", absent="default"),
    "severity": Note("choice", "`low`, `medium`, `high`, `critical`, or `default`", "critical", "The lowest severity "
        "of `advisories` that counts; `high` unless given.", absent="default"),
}  # fmt: skip

_STAGE: Final = {
    "after": Note("text", "the name of another stage, or `none`", "medium", "The stage that it must have reached "
        "before.", absent="none"),
    "devices": Note("integer", _LIMIT, "64", "Devices of a job of this stage: the scale that it is made with, and the "
        "most that may be asked for.", absent="unlimited"),
    "certificate": Note("choice", "`unit`, `resume`, `smoke`, `failure`, `canary`, or `none`", "canary", "The "
        "certificate of preflight that the next job must have.", absent="none"),
    "metric": Note("section", "a mapping such as `{name: val_loss, seeds: 3}`, or `none`",
        "{name: val_loss, goal: min, seeds: 3}", "A metric that must be better than the baseline's, by a test with "
        "95 % confidence. `metric: val_loss` is short for `{name: val_loss}`.", absent="none", model=MetricNeed,
        shorthand="name"),
    "cost_at_most": Note("number", "a number from 0 on, or `unlimited`", "200", "What the run and its repetitions with "
        "other seeds may have cost so far, in the currency of the price book.", absent="unlimited"),
    "efficiency": Note("section", "a mapping such as `{devices: 2, at_least: 0.8}`, or `none`",
        "{devices: 2, at_least: 0.8}", "How well the same job must have scaled, measured with runs at several numbers "
        "of devices.", absent="none", model=EfficiencyNeed),
    "reviewer": Note("choice", "`member`, `admin`, or `none`", "admin", "The role of somebody other than the run's "
        "author, who must have approved it.", absent="none"),
}  # fmt: skip
_METRIC: Final = {
    "name": Note("text", "the name of a metric", "val_loss", "The metric; its last value counts."),
    "goal": Note("choice", "`min` or `max`", "max", "Whether lower or higher is better."),
    "better_than": Note("text", "`baseline`, or the id of a run", "baseline", "What it is compared with: the "
        "project's `baseline`, or this run."),
    "seeds": Note("integer", "a whole number from 1 to 100", "3", "How many runs that differ in their seed alone there "
        "must be on each side. Every such run that succeeded counts, not a choice of them."),
}  # fmt: skip
_EFFICIENCY: Final = {
    "devices": Note("integer", "a whole number from 2 on", "2", "The scale, or the next larger one that was measured."),
    "at_least": Note("number", "a number above 0", "0.8", "The throughput of each device there, over that at the "
        "smallest scale that was measured."),
    "metric": Note("text", "the name of a metric, or `usual`", "tokens_per_s", "The throughput of the whole job; by "
        "default `tokens_per_s` and the like.", absent="usual"),
}  # fmt: skip

NOTES: Final[dict[Model, dict[str, Note]]] = {
    Rules: _WHOLE,
    Preemption: _PREEMPTION,
    Target: _TARGET,
    QueueRules: _QUEUE,
    Escalation: _ESCALATION,
    PoolRules: _POOL,
    Window: _WINDOW,
    Maintenance: _MAINTENANCE,
    ProjectRules: _PROJECT,
    Keep: _KEEP,
    PreflightRule: _PREFLIGHT,
    GuardRule: _GUARD,
    StageRules: _STAGE,
    MetricNeed: _METRIC,
    EfficiencyNeed: _EFFICIENCY,
}
# The place of each model's keys in the file, as text for people.
PLACES: Final[dict[Model, str]] = {
    Rules: "at the top level",
    Preemption: "under `preemption`",
    Target: "under `targets`, in a class of work",
    QueueRules: "under `defaults`, or in a queue under `queues`",
    Escalation: "under `escalation`",
    PoolRules: "in a pool under `pools`",
    Window: "in hours under `off_peak`",
    Maintenance: "under `maintenance`",
    ProjectRules: "in a project under `projects`",
    Keep: "under `artifacts`, in a project",
    PreflightRule: "in a rule under `preflight`",
    GuardRule: "in a rule under `guards`",
    StageRules: "in a stage under `promotion`",
    MetricNeed: "under `metric`, in a stage",
    EfficiencyNeed: "under `efficiency`, in a stage",
}
FIELDS: Final = {model: {note.key or name: name for name, note in notes.items()} for model, notes in NOTES.items()}


def choices(info: FieldInfo) -> tuple[str, ...]:
    """The allowed values of a field of choices, or of its items."""
    return tuple(word for word in _words(info.annotation) if isinstance(word, str))


def _words(kind: object) -> tuple[object, ...]:
    parts = get_args(kind)
    return tuple(word for part in parts for word in (_words(part) or (part,)))
