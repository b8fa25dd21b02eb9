"""The list of all reasons: a named cause of every wait, refusal, restart and stop, with a hint that says what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:  # the client loads this module, and `typing_extensions` costs more than all of it
    from muster.api.why import ReasonView

# The category that a restart is charged to; `error` is the user's own program, not retried unless the job asks for it.
Category = Literal["wait", "refusal", "worker", "node", "preempted", "error", "end"]
# Who can grant an exception from what a reason says; "": nobody, or the hint of the reason names them itself.
Granter = Literal["", "policy", "settings", "project"]
CONSEQUENCE: Final = "gang_member_died"  # of workers that are told to exit because another one has ended


@dataclass(frozen=True, slots=True)
class ReasonKind:
    code: str
    category: Category
    summary: str
    hint: str = ""
    granted_by: Granter = ""


@dataclass(frozen=True, slots=True)
class Reason:
    """One cause as it applied to one job: `message` states the details for people, `data` holds them for programs."""

    code: str
    message: str
    hint: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Reason:
        """Inverse of `to_dict`. Logs of the first versions call the hint `mend`."""
        return cls(raw["code"], raw["message"], raw.get("hint", raw.get("mend", "")), raw.get("data") or {})

    @property
    def category(self) -> Category:
        return REASONS[self.code].category

    def to_dict(self) -> ReasonView:
        return {"code": self.code, "message": self.message, "hint": self.hint, "data": self.data}


def reason(code: str, message: str = "", hint: str = "", **data: Any) -> Reason:
    """A reason of this code; a message or hint that is not given is taken from its kind."""
    kind = REASONS[code]
    return Reason(code, message or kind.summary, hint or kind.hint, data)


def with_granter(found: Reason, people: Sequence[str] | None = None) -> Reason:
    """The reason with who can grant an exception in its hint. `people`: admins of the project, for a refusal, whose
    data names the role too."""
    by = REASONS[found.code].granted_by
    words = granter_words(by, people or ()) if by else ""
    if not words or words in found.hint:
        return found
    data = found.data
    if people is not None:
        data = data | {"granted_by": {"role": _GRANTERS[by][0], "people": list(people) if by == "project" else []}}
    return Reason(found.code, found.message, f"{found.hint} {words}".lstrip(), data)


def granter_words(by: Granter, people: Sequence[str] = ()) -> str:
    role, how = _GRANTERS[by]
    who = f"{role[0].upper()}{role[1:]}"
    if by == "project" and people:
        named = " or ".join(people[:_PEOPLE])
        who = f"{named} ({'an admin' if len(people) == 1 else 'admins'} of the project)"
    return f"{who} can grant it{how}."


def page_of(code: str) -> str:
    """Where the documentation explains the reason: `docs/generate.py` makes a section of that name for each."""
    return f"docs/troubleshooting.md#{code}"


# The role, and how its holder grants it.
_GRANTERS: Final[Mapping[str, tuple[str, str]]] = {
    "policy": ("an administrator of the server", " in the policy: `muster policy apply`"),
    "settings": ("an administrator of the server", " in its config.toml"),
    "project": ("an admin of the project", ""),
}
_PEOPLE: Final = 3  # people that a hint names

_KINDS = [
    # waits
    ReasonKind(
        "no_capacity",
        "wait",
        "not enough free resources for the whole gang",
        "Wait for a running job to end, ask for less, or add nodes.",
    ),
    ReasonKind("behind_in_queue", "wait", "earlier jobs of the queue go first", "Wait, or raise the job's priority."),
    ReasonKind(
        "backing_off", "wait", "waiting before the next attempt after a failure", "Nothing to do: it starts by itself."
    ),
    ReasonKind(
        "no_nodes_needed",
        "wait",
        "it holds no nodes and runs until it is ended",
        "See its jobs with `muster ls --parent`, or end it with `muster stop`.",
    ),
    ReasonKind(
        "waits_for_jobs",
        "wait",
        "jobs that it needs are not over",
        "Nothing to do: it is queued when they are over. See them with `muster why`.",
    ),
    ReasonKind(
        "array_limit",
        "wait",
        "as many tasks of its array run as the array allows at once",
        "Wait for one of them to end, or submit the array with a higher number after `%`.",
    ),
    ReasonKind(
        "tasks_run",
        "wait",
        "its tasks are not over",
        "See them with `muster ls --parent`, or end them all with `muster stop`.",
    ),
    ReasonKind("about_to_start", "wait", "the scheduler places it in its next round"),
    ReasonKind(
        "nodes_unhealthy", "wait", "the nodes that fit are draining, suspect or quarantined", "See `muster nodes`."
    ),
    ReasonKind(
        "spares_kept",
        "wait",
        "the nodes that it needs are spares, kept free for jobs that lose a node",
        "Wait for a running job to end, or ask for fewer nodes. The number of spares is set in the policy: `muster "
        "queue rules`.",
        granted_by="policy",
    ),
    ReasonKind(
        "limit_reached",
        "wait",
        "as many run as the rules allow",
        "Wait for one of them to end, or ask for a higher limit; see `muster queue rules`.",
        granted_by="policy",
    ),
    ReasonKind(
        "quota_reached",
        "wait",
        "the queue's quota and what it may borrow are in use",
        "Wait, use another queue, or ask for more quota; see `muster queue rules`.",
        granted_by="policy",
    ),
    ReasonKind(
        "kept_by_owner",
        "wait",
        "what is free is kept by a queue that does not lend",
        "Wait, or use a queue with quota of its own; see `muster queue rules`.",
        granted_by="policy",
    ),
    ReasonKind(
        "reserved",
        "wait",
        "what is free is reserved for a job that goes first",
        "Give it a shorter `max_duration`, or ask for less, so that it is done before.",
    ),
    ReasonKind("waits_for_seats", "wait", "its nodes are being cleared for it", "Nothing to do: it starts by itself."),
    ReasonKind("off_peak", "wait", "it may start in the quiet hours only", "Set `off_peak: false` to start it now."),
    ReasonKind(
        "maintenance",
        "wait",
        "it would not be done before maintenance begins",
        "Give it a shorter `max_duration`.",
        granted_by="policy",
    ),
    ReasonKind(
        "no_pool",
        "wait",
        "the rules leave it no pool to run in",
        "See `muster queue rules` and `muster nodes`.",
        granted_by="policy",
    ),
    ReasonKind(
        "too_dear",
        "wait",
        "the pools that it may use cost more than its `max_hourly_cost`",
        "Wait for a lower price, or submit it with a higher `max_hourly_cost`; see `muster queue rules`.",
    ),
    ReasonKind(
        "engine_queue",
        "wait",
        "it waits in the queue of the engine",
        "See what the engine says; it starts the job as soon as that is no longer so.",
    ),
    ReasonKind(
        "engine_away", "wait", "the engine of its pool can't be reached", "See `muster engines` and `muster doctor`."
    ),
    ReasonKind(
        "opens_later",
        "wait",
        "a pool for bursts is not open to it yet",
        "Wait, or name the pool to go there now; see `muster queue rules`.",
        granted_by="policy",
    ),
    ReasonKind(
        "checkpoints_away",
        "wait",
        "the folder or the bucket of its checkpoints can't be read",
        "Mount it, or bring it back: the program waits for it as long as `checkpoint.wait` of the job file says.",
    ),
    ReasonKind(
        "straggler",
        "wait",
        "ranks are slower than their peers, which wait for them in every step",
        "See what they do with `muster stacks`. Most often it is the program: uneven batches, or work that only one "
        "rank has. If other jobs are slow on the node too, see `muster nodes history`.",
    ),
    ReasonKind(
        "fewer_nodes",
        "wait",
        "it runs on fewer nodes than it asked for",
        "Nothing to do: it grows by itself when nodes are free that no queued job waits for, right after it saved.",
    ),
    ReasonKind("overdue", "wait", "it has waited so long that it goes first", "Nothing to do: it starts by itself."),
    # refusals
    ReasonKind(
        "never_near",
        "refusal",
        "no part of the cluster with that label in common is large enough",
        "Ask for fewer nodes, for a wider label, or for `topology.prefer`.",
    ),
    ReasonKind(
        "never_allowed",
        "refusal",
        "it wants more than the rules ever allow it",
        "Ask for less, use another queue, or ask for a higher limit; see `muster queue rules`.",
        granted_by="policy",
    ),
    ReasonKind(
        "engine_forbids",
        "refusal",
        "it asks an engine for what the engine's settings don't allow",
        "Leave it out, or have an administrator allow it; see docs/kubernetes.md.",
        granted_by="settings",
    ),
    ReasonKind(
        "over_quota",
        "refusal",
        "the user or the project has as much as the server's limits allow",
        "Wait until some of it is over or remove some, or ask for more in `[limits]` of the server's config.toml.",
        granted_by="settings",
    ),
    ReasonKind(
        "not_ready",
        "refusal",
        "a stage of the policy asks for what the run, or the model's version, has not shown",
        "`muster promote RUN --to STAGE` says what is missing, with the command that gets each.",
    ),
    ReasonKind(
        "over_budget",
        "refusal",
        "a budget that covers it has less left than it is projected to cost",
        "Wait until jobs end and release what they did not need, make it cheaper, or have more granted: `muster cost "
        "grant`.",
    ),
    ReasonKind(
        "other_currency",
        "refusal",
        "it names a currency that is not the price book's",
        "Write the amount in the currency of the price book.",
    ),
    ReasonKind(
        "pool_not_allowed",
        "refusal",
        "the rules let it into no pool that it would go to",
        "Use another pool or queue; see `muster queue rules`.",
        granted_by="policy",
    ),
    ReasonKind(
        "turns_need_one_node",
        "refusal",
        "the queue runs jobs in turns, and a gang of several nodes can't be stopped and started that often",
        "Use another queue, or `num_nodes: 1`.",
        granted_by="policy",
    ),
    ReasonKind("unknown_project", "refusal", "the project does not exist", "See `muster project ls`."),
    ReasonKind(
        "unknown_queue",
        "refusal",
        "the queue does not exist",
        "See `muster queue`.",
        granted_by="project",
    ),
    ReasonKind("wrong_project", "refusal", "the queue belongs to another project", "See `muster queue`."),
    ReasonKind(
        "priority_out_of_range",
        "refusal",
        "the queue does not admit that priority",
        "Ask for a priority within the queue's range.",
        granted_by="project",
    ),
    ReasonKind(
        "never_fits",
        "refusal",
        "no set of nodes could ever hold the gang",
        "Ask for less, or add nodes; see `muster nodes`.",
    ),
    ReasonKind("unknown_parent", "refusal", "the parent is no job of the project", "See `muster ls --all`."),
    ReasonKind(
        "unknown_need",
        "refusal",
        "a job that it needs is no job of the project",
        "Give the name or the id of a job of the project; see `muster ls --all`.",
    ),
    ReasonKind(
        "need_not_met",
        "refusal",
        "a job that it needs has already ended otherwise",
        "Resume or repeat that job first, or leave it out of `needs`.",
    ),
    ReasonKind(
        "needs_circle",
        "refusal",
        "jobs that are submitted together need each other in a circle",
        "Leave out one of their `needs`.",
    ),
    ReasonKind(
        "submitted_together",
        "refusal",
        "another job of the same call is refused, and they are accepted together or not at all",
        "Correct that one, and submit them again.",
    ),
    ReasonKind(
        "unknown_start",
        "refusal",
        "the run that it starts from is none that it may use, or has no such checkpoint",
        "Give a run with a checkpoint as `start_from: RUN` or `start_from: RUN@STEP`; see `muster runs`.",
    ),
    ReasonKind("unknown_pool", "refusal", "the pool does not exist", "See `muster nodes`."),
    ReasonKind(
        "secret_found",
        "refusal",
        "a secret stands in its code, job file or environment variables",
        "Keep it as a secret of the project with `muster project secret set NAME`, and name it in `secrets`.",
        granted_by="policy",
    ),
    ReasonKind(
        "file_too_large",
        "refusal",
        "its working directory has a file that is larger than the policy allows",
        "List it in .musterignore, and name data in `data`.",
        granted_by="policy",
    ),
    ReasonKind(
        "notebook_outputs",
        "refusal",
        "a notebook in its working directory has outputs, which the policy does not allow",
        "Clear them with `jupyter nbconvert --clear-output --inplace NOTEBOOK`.",
        granted_by="policy",
    ),
    ReasonKind(
        "artifact_quarantined",
        "refusal",
        "an artifact could run code when it is loaded, or could not be looked at",
        "Save the weights alone: `safetensors.torch.save_file(model.state_dict(), 'model.safetensors')`.",
        granted_by="policy",
    ),
    ReasonKind(
        "unknown_secret",
        "refusal",
        "a secret that the job names is not set in its project",
        "Set it with `muster project secret set NAME`.",
        granted_by="project",
    ),
    ReasonKind(
        "log_limit_too_large",
        "refusal",
        "the job asks for more output to be kept than the server allows",
        "Ask for a smaller `log_limit`.",
        granted_by="settings",
    ),
    ReasonKind(
        "not_certified",
        "refusal",
        "a rule asks for certificates of preflight that the job has not",
        "Run `muster preflight JOB_FILE`; an admin of the project can waive a rung with `muster preflight waive`.",
    ),
    ReasonKind(
        "rung_too_large",
        "refusal",
        "a job says that it is a rung of preflight, and is larger than one may be",
        "Let `muster preflight JOB_FILE` make it, or leave `preflight` out of the job file.",
    ),
    ReasonKind(
        "required_missing",
        "refusal",
        "the project requires fields that the job does not have",
        "Give each of them; see `muster queue rules`.",
        granted_by="policy",
    ),
    ReasonKind(
        "no_workdir", "refusal", "the working directory does not exist", "Correct `workdir`, or create the directory."
    ),
    ReasonKind(
        "isolation_missing",
        "refusal",
        "this machine can't keep a member's job apart from the server and from other jobs",
        "See `muster doctor` on the server's machine (often `apt-get install bubblewrap` helps), or start it with "
        "`muster up --trust-members`.",
    ),
    ReasonKind(
        "image_not_approved",
        "refusal",
        "the policy approves other images",
        "Use one that is approved; see `muster policy show`.",
        granted_by="policy",
    ),
    ReasonKind(
        "image_unsigned",
        "refusal",
        "the image is not signed with a key that the server trusts",
        "Sign it with `cosign sign --key`, or use one that is signed.",
        granted_by="settings",
    ),
    ReasonKind(
        "image_too_large",
        "refusal",
        "the image is larger than the policy allows",
        "Make it smaller: leave out build tools and caches, and keep data and models in storage.",
        granted_by="policy",
    ),
    ReasonKind(
        "environment_not_approved",
        "refusal",
        "the policy approves other lock files",
        "Take the approved lock file; see `muster policy show`.",
        granted_by="policy",
    ),
    ReasonKind(
        "vulnerable_packages",
        "refusal",
        "its lock file has packages with known vulnerabilities",
        "Update them and lock again, such as `uv lock --upgrade-package NAME`; `muster environment check` lists all.",
        granted_by="policy",
    ),
    ReasonKind(
        "too_little_memory",
        "refusal",
        "the training needs more memory than its accelerators have",
        "`muster plan CONFIG` says what fits: other or more accelerators, smaller micro-batches, recomputation.",
        granted_by="policy",
    ),
    ReasonKind(
        "advisories_unreadable",
        "refusal",
        "its packages could not be compared with known vulnerabilities, and the policy requires it",
        "Mend the lock file, or have `advisories` in the server's config.toml corrected; see `muster doctor`.",
        granted_by="policy",
    ),
    ReasonKind(
        "admission_refused",
        "refusal",
        "a check of this installation refuses it",
        "Ask who runs this installation what the check expects.",
        granted_by="settings",
    ),
    ReasonKind(
        "admission_unavailable",
        "refusal",
        "a check of this installation failed, and no job is accepted without its answer",
        "Try again. An administrator sees what is wrong in `muster doctor`.",
        granted_by="settings",
    ),
    ReasonKind("no_command", "refusal", "the command does not exist", "Correct `run`, or install the program."),
    # ends that the node caused
    ReasonKind(
        "node_check_failed",
        "node",
        "a check of the node failed before the job was started there",
        "Nothing to do: it starts on another node. Whoever runs the cluster looks at the node: `muster nodes`.",
    ),
    ReasonKind("node_lost", "node", "the node went away"),
    ReasonKind("launcher_lost", "node", "the launcher on the node was killed"),
    # ends that a worker caused
    ReasonKind("killed_by_signal", "worker", "a rank was killed by a signal"),
    ReasonKind("gang_member_died", "worker", "another worker of the gang died"),
    ReasonKind(
        "host_out_of_memory",
        "worker",
        "the machine ran out of memory and the kernel killed a rank",
        "Ask for more memory, or for fewer ranks on a node.",
    ),
    ReasonKind(
        "hung",
        "worker",
        "its processes live and its work does not go on",
        "See what every rank did with `muster stacks --last`, and which is behind in `muster why`. If it was no hang, "
        "give it more time with `hang: {patience: 1h}`, or set `hang: off`.",
    ),
    # ends that the platform caused
    ReasonKind("preempted", "preempted", "its resources were needed by work that goes first"),
    ReasonKind("quota_reclaimed", "preempted", "the accelerators that it had borrowed were wanted back"),
    ReasonKind("turn_over", "preempted", "its turn in a queue with time slices was over"),
    ReasonKind(
        "time_limit",
        "preempted",
        "the engine's time limit for one attempt was reached",
        "Nothing to do if it saves checkpoints: it goes on from the last one.",
    ),
    ReasonKind("resizing", "preempted", "it starts again on another number of nodes"),
    ReasonKind(
        "spot_notice",
        "preempted",
        "its machine is taken away soon",
        "Nothing to do: it has time to save, and goes on elsewhere.",
    ),
    ReasonKind(
        "straggler_node",
        "preempted",
        "several programs are slow on one of its nodes and nowhere else",
        "Nothing to do: it goes on elsewhere from its checkpoint, and the node is checked.",
    ),
    ReasonKind(
        "alert_restarted",
        "preempted",
        "an alert rule restarts it",
        "It goes on from its checkpoint. `muster alerts` shows the rule and its runbook.",
    ),
    ReasonKind("cancelled_outside", "preempted", "somebody cancelled it with the cluster's own tools"),
    # ends that the user's program caused
    ReasonKind("user_error", "error", "the program ended with an error", "See `muster logs`."),
    ReasonKind(
        "out_of_memory",
        "error",
        "the worker used more memory than the job asked for",
        "Raise `resources.memory`, or use less.",
    ),
    ReasonKind(
        "device_out_of_memory",
        "error",
        "an accelerator had no memory left",
        "Use a smaller batch or shorter sequences, recompute activations, shard over more ranks, or ask for an "
        "accelerator with more memory. If other processes hold the device, see `muster nodes`; if much is reserved but "
        "unallocated, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in `envs`.",
    ),
    ReasonKind(
        "command_not_found",
        "error",
        "the command does not exist on the node",
        "Correct `run`, or install the program on the node.",
    ),
    ReasonKind(
        "command_not_executable",
        "error",
        "the command can't be executed",
        "Make it executable, or call it through its interpreter.",
    ),
    ReasonKind(
        "workdir_missing",
        "error",
        "the working directory vanished before the launch",
        "Restore the directory, then `muster resume`.",
    ),
    ReasonKind(
        "not_isolated",
        "error",
        "the node can't keep a member's job apart from other jobs",
        "Install bubblewrap on the node, or set `trust_members = true` in the engine's settings.",
    ),
    ReasonKind(
        "launch_failed", "node", "the engine could not start the workers", "See the detail and `muster doctor`."
    ),
    ReasonKind(
        "engine_refused",
        "error",
        "the engine refuses the job",
        "Correct what its word names, then submit it again.",
    ),
    ReasonKind(
        "image_unavailable",
        "error",
        "the cluster can't get the container image",
        "Correct `image`, or let the cluster pull it (`kubernetes.pull_secrets`).",
    ),
    ReasonKind(
        "pod_refused",
        "error",
        "the node can't start the worker's container",
        "See the detail; correct `image` or the job's `kubernetes` section.",
    ),
    ReasonKind(
        "bad_environment",
        "error",
        "the environment that it asks for could not be made",
        "Correct `ray.runtime_env`; the detail says what failed.",
    ),
    ReasonKind("secret_missing", "error", "a secret that the job names is gone", "Set it again, then `muster resume`."),
    # ends
    ReasonKind("completed", "end", "every rank ended with exit code 0"),
    ReasonKind("user_stop", "end", "stopped on request", "Continue it with `muster resume`."),
    ReasonKind(
        "alert_stopped",
        "end",
        "an alert rule stopped it",
        "`muster alerts` shows the rule and its runbook. Continue it with `muster resume`.",
    ),
    ReasonKind(
        "max_duration",
        "end",
        "it reached its `max_duration`",
        "Raise `max_duration`, or continue it with `muster resume`.",
    ),
    ReasonKind(
        "job_budget_spent",
        "end",
        "it reached the `budget` of its job file",
        "Submit it again with a higher `budget`.",
    ),
    ReasonKind(
        "budget_spent",
        "end",
        "a budget that covers it is spent",
        "Have more granted with `muster cost grant`, then continue it with `muster resume`.",
    ),
    ReasonKind(
        "trial_paused",
        "end",
        "its study has paused it: others are better so far",
        "Nothing to do: it goes on by itself when it is among the best. See `muster tune status`.",
    ),
    ReasonKind("trial_stopped", "end", "its study has ended it early", "See `muster tune status`."),
    ReasonKind("study_stopped", "end", "its study was stopped", "Continue the study with `muster tune resume`."),
    ReasonKind(
        "study_budget_spent",
        "end",
        "the trials of the study have cost what its `budget` allows",
        "Give it more with `muster tune extend --cost`; its trials go on from their checkpoints.",
    ),
    ReasonKind(
        "study_time_over",
        "end",
        "the time of the study is over (`until`)",
        "Give it more with `muster tune extend --until`; its trials go on from their checkpoints.",
    ),
    ReasonKind(
        "objective_missing",
        "end",
        "a trial has ended without reporting the objective of its study",
        "Report it with `muster.runtime.report`, or correct `objective` and give the file again: `muster tune change`.",
    ),
    ReasonKind(
        "trials_failed",
        "end",
        "no trial of the study has a value",
        "See `muster tune status` and the output of a trial, then `muster tune resume`.",
    ),
    ReasonKind(
        "trials_not_allowed",
        "end",
        "the user of the study may not submit jobs to its project any more",
        "Have somebody who may resume it: `muster tune resume`.",
    ),
    ReasonKind(
        "restarts_spent",
        "end",
        "it failed more often than `retry.max_restarts` allows",
        "See `muster logs`; continue it with `muster resume`.",
    ),
    ReasonKind(
        "same_error_twice",
        "end",
        "two attempts ended with the same traceback at the same step",
        "Correct the program, then `muster resume`.",
    ),
    ReasonKind(
        "no_progress",
        "end",
        "three attempts in a row went beyond no earlier step or checkpoint",
        "See `muster logs` and `muster runs failures`; continue it with `muster resume`.",
    ),
    ReasonKind(
        "no_good_checkpoint",
        "end",
        "the run has saved checkpoints, and none of them can be loaded",
        "Bring the checkpoints back, then `muster resume`; or name an older one with `--checkpoint STEP`; or begin "
        "again with `--from-scratch`.",
    ),
    ReasonKind(
        "start_missing",
        "end",
        "the checkpoint that it starts from can't be had where it runs",
        "Bring it back or make it reachable, then `muster resume`; or name another one with `start_from` and submit it "
        "again; or begin without it: `muster resume JOB --from-scratch`.",
    ),
    ReasonKind(
        "needed_job_failed",
        "end",
        "a job that it needs ended otherwise than it requires",
        "Resume the needed job, then this one: `muster resume`.",
    ),
    ReasonKind(
        "tasks_failed", "end", "not all of its tasks succeeded", "Run those that did not again: `muster resume`."
    ),
    ReasonKind("resumed", "end", "resumed on request"),
]

REASONS: dict[str, ReasonKind] = {kind.code: kind for kind in _KINDS}
