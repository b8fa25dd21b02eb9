"""The gangs of one Muster in a cluster, assembled from the cluster's objects, and the state of their workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from muster.core.reasons import CONSEQUENCE
from muster.engines.base import Wait, WorkerReport
from muster.engines.kubernetes import reasons
from muster.engines.kubernetes.reasons import Cause
from muster.engines.kubernetes.settings import ATTEMPT, JOB, worker_of
from muster.engines.remote import Order
from muster.wire import Outcome, WorkerExit

_GIVEN_UP: Final = "where that can't pass by itself, the job is failed after {:g} s (`refuse_after`)."
WORKERS: Final = "muster.dev/workers"  # annotation of a gang's main object: the number of workers
Key = tuple[str, int]  # job, attempt
Object = dict[str, Any]


@dataclass(slots=True)
class Memo:
    """What is remembered about a gang until it is forgotten, because the cluster's objects may disappear before."""

    workers: int = 0
    gone: dict[int, Object] = field(default_factory=dict)  # the last state of deleted pods
    reports: dict[int, WorkerReport] = field(default_factory=dict)  # as last given
    started: bool = False  # one of its pods was running
    evicted: Cause | None = None  # why Kueue has evicted it
    order: Order | None = None
    delete_at: float | None = None  # monotonic; when its objects are deleted, by order
    owned: bool = False  # its secret, service etc. have the main object as their owner
    removed: bool = False  # we have deleted the main object
    main_known: bool = False  # a mirror has shown the main object, or the cluster has said that it is gone
    trouble_at: float | None = None  # monotonic; since when a pod can't be created or started
    unexplained_at: float | None = None  # monotonic; since when the server rejects it without a cause


@dataclass(slots=True)
class KubernetesGang:
    """The objects of one attempt that the cluster has now."""

    key: Key
    main: Object | None = None  # the object that starts its pods
    pods: dict[int, Object] = field(default_factory=dict)
    workload: Object | None = None  # Kueue's
    group: Object | None = None  # Volcano's
    warnings: list[Object] = field(default_factory=list)


@dataclass(slots=True)
class View:
    """Input of a look besides the gangs. Times are monotonic, except `wall`."""

    now: float
    wall: float
    lost: Mapping[str, str]  # nodes that have been away for long enough → why
    refuse_after: float  # seconds that a pod may fail to be created or started
    positions: Mapping[str, int]  # workload's uid → position in its queue, from 0
    kueue: bool = True  # whether the cluster has Kueue


def key_of(item: Object) -> Key | None:
    """The attempt that an object belongs to, by its labels. The annotation holds a job id that can't be a label."""
    about = item["metadata"]
    labels, notes = about.get("labels") or {}, about.get("annotations") or {}
    if JOB not in labels or not str(labels.get(ATTEMPT, "")).isdigit():
        return None
    return notes.get(JOB) or labels[JOB], int(labels[ATTEMPT])


def is_main(item: Object) -> bool:
    """Whether we created the object ourselves, not a controller."""
    return not any(owner.get("controller") for owner in item["metadata"].get("ownerReferences") or [])


def gather(
    mains: Iterable[Object],
    pods: Iterable[Object],
    workloads: Iterable[Object],
    groups: Iterable[Object],
    warnings: Iterable[Object],
    names: dict[str, str],
) -> dict[Key, KubernetesGang]:
    """Assembles the gangs. `names`: label → job id, where they differ; kept for pods that outlive their main object."""
    found: dict[Key, KubernetesGang] = {}
    by_uid: dict[str, KubernetesGang] = {}
    for main in mains:
        key = key_of(main)
        if key is not None and is_main(main):
            names[main["metadata"]["labels"][JOB]] = key[0]
            by_uid[main["metadata"]["uid"]] = found.setdefault(key, KubernetesGang(key))
            found[key].main = main
    for pod in pods:
        key = key_of(pod)
        if key is not None:
            key = (names.get(key[0], key[0]), key[1])
            gang = by_uid[pod["metadata"]["uid"]] = found.setdefault(key, KubernetesGang(key))
            _take(gang.pods, worker_of(pod) or 0, pod)
    for workload in workloads:
        for owner in workload["metadata"].get("ownerReferences") or []:
            if owner["uid"] in by_uid:
                by_uid[owner["uid"]].workload = workload
    for group in groups:
        key = key_of(group)
        if key in found:
            found[key].group = group
    for warning in warnings:
        if warning["uid"] in by_uid:
            by_uid[warning["uid"]].warnings.append(warning)
    return found


def size_of(gang: KubernetesGang, memo: Memo) -> int:
    notes = gang.main["metadata"].get("annotations") or {} if gang.main is not None else {}
    message = int(notes[WORKERS]) if str(notes.get(WORKERS, "")).isdigit() else 0
    return message or memo.workers or max([*gang.pods, *memo.gone], default=0) + 1


def report(gang: KubernetesGang, memo: Memo, view: View) -> tuple[list[WorkerReport], Wait | None]:
    """Reports every worker of a gang, and why the gang waits while any of them is not running."""
    memo.workers = size_of(gang, memo)
    memo.evicted = memo.evicted or (reasons.eviction(gang.workload) if memo.started else None)
    if not any(_trouble(gang, number) for number in range(memo.workers)):
        memo.trouble_at = None
    elif memo.trouble_at is None:
        memo.trouble_at = view.now
    reports = [_worker(gang, memo, view, number) for number in range(memo.workers)]
    memo.reports = {one.worker: one for one in reports}
    waiting = [one.worker for one in reports if one.status in ("pending", "starting")]
    return reports, _wait(gang, memo, view, waiting) if waiting else None


def report_gone(key: Key, memo: Memo, view: View) -> list[WorkerReport]:
    """Reports a gang whose objects are all gone, until it is forgotten."""
    reports = [_worker(KubernetesGang(key), memo, view, number) for number in range(memo.workers)]
    memo.reports = {one.worker: one for one in reports}
    return reports


def known_cause(gang: KubernetesGang, memo: Memo) -> Cause | None:
    """Why the gang as a whole ends, as far as known."""
    evicted = memo.evicted or reasons.eviction(gang.workload)
    if evicted is not None and _agrees(memo, evicted):
        return evicted
    if memo.order is not None:
        return memo.order.reason, "stopped by the server's order"
    deleted = gang.main is None or bool(gang.main["metadata"].get("deletionTimestamp"))
    if deleted and not memo.removed:
        return "cancelled_outside", f"its {kind_of(gang)} was deleted in the cluster, not by Muster nor by Kueue"
    return None


def _agrees(memo: Memo, cause: Cause) -> bool:
    """Whether what the cluster did is the cause: no order came before, or it came because of that, or because a worker
    of the gang had ended, which may be the first that was heard of it."""
    return memo.order is None or memo.order.reason in (cause[0], CONSEQUENCE)


def kind_of(gang: KubernetesGang) -> str:
    return str(gang.main.get("kind", "Job")) if gang.main is not None else "Job"


def cause_of(gang: KubernetesGang, memo: Memo, worker: int, lost: Mapping[str, str]) -> Cause | None:
    """Why one worker was told to exit."""
    pod = gang.pods.get(worker) or memo.gone.get(worker)
    node = pod["spec"].get("nodeName", "") if pod is not None else ""
    happened = (reasons.disruption(pod) if pod is not None else None) or (
        ("node_lost", lost[node]) if node in lost else None
    )
    if happened is not None and _agrees(memo, happened):
        return happened
    if found := known_cause(gang, memo):
        return found
    if pod is None:
        return None
    if not pod["metadata"].get("deletionTimestamp"):
        return None
    if gang.main is not None and (reasons.is_true(gang.main, "FailureTarget") or _is_over(gang.main)):
        return CONSEQUENCE, "another worker of its gang had failed"
    return "cancelled_outside", "its pod was deleted in the cluster, not by Muster nor by Kueue"


def _worker(gang: KubernetesGang, memo: Memo, view: View, number: int) -> WorkerReport:
    before = memo.reports.get(number)
    if before is not None and before.status == "ended":
        return before  # an ended worker stays ended, whatever happens to its objects
    pod = gang.pods.get(number)
    if pod is None:
        return _absent(gang, memo, view, number)
    node = pod["spec"].get("nodeName", "")
    if reasons.has_ended(pod):
        return _ended(gang, memo, view, number, pod)
    if node in view.lost:
        end = WorkerExit("failed", "node_lost", view.lost[node], view.wall)
        return WorkerReport(*gang.key, number, "ended", end, node, sure=True)
    if not node:
        return WorkerReport(*gang.key, number, "pending")
    if reasons.is_up(pod):
        memo.started = True
        return WorkerReport(*gang.key, number, "running", node=node)
    return _refused(gang, memo, view, number) or WorkerReport(*gang.key, number, "starting", node=node)


def _refused(gang: KubernetesGang, memo: Memo, view: View, number: int) -> WorkerReport | None:
    """The end of a worker whose pod could not be created or started for `refuse_after` seconds."""
    trouble = _trouble(gang, number)
    if trouble is None or memo.trouble_at is None or view.now - memo.trouble_at < view.refuse_after:
        return None
    node = gang.pods[number]["spec"].get("nodeName", "") if number in gang.pods else ""
    return WorkerReport(*gang.key, number, "ended", WorkerExit("failed", *trouble, view.wall), node, sure=True)


def _trouble(gang: KubernetesGang, number: int) -> Cause | None:
    """What keeps a worker's pod from being created or started and may not pass by itself."""
    pod = gang.pods.get(number)
    if pod is None:
        message = reasons.pod_creation_error(gang.warnings, gang.main) if gang.main is not None else ""
        return ("pod_refused", message) if message else None
    if found := reasons.start_trouble(pod):
        return ("image_unavailable" if found[2] else "pod_refused"), found[1]
    message = reasons.mount_error(gang.warnings, pod)
    return ("pod_refused", message) if message else None


def _ended(gang: KubernetesGang, memo: Memo, view: View, number: int, pod: Object) -> WorkerReport:
    cause = cause_of(gang, memo, number, view.lost)
    end, sure = reasons.end_of_pod(pod, view.wall, cause)
    return WorkerReport(*gang.key, number, "ended", end, pod["spec"].get("nodeName", ""), sure)


def _absent(gang: KubernetesGang, memo: Memo, view: View, number: int) -> WorkerReport:
    """Reports a worker without a pod: not created yet, or gone."""
    last = memo.gone.get(number)
    if last is not None:
        return _ended(gang, memo, view, number, last)
    cause = known_cause(gang, memo)
    over = gang.main is None or _is_over(gang.main)
    if not over and not (cause and memo.started):
        refused = _refused(gang, memo, view, number) if cause is None else None
        return refused or WorkerReport(*gang.key, number, "pending")
    if gang.main is not None and cause is None:
        failed = reasons.condition(gang.main, "Failed")
        if failed.get("status") != "True":
            end = WorkerExit("succeeded", "completed", "", view.wall, None, 0)
            return WorkerReport(*gang.key, number, "ended", end, sure=True)
        cause = ("launcher_lost", f"{failed.get('reason')}: {failed.get('message')}")
    code, detail = cause or ("user_stop", "its objects were deleted")
    outcome: Outcome = "stopped" if memo.order is not None or code == "max_duration" else "failed"
    end = WorkerExit(outcome, code, detail, view.wall)
    return WorkerReport(*gang.key, number, "ended", end, sure=True)


def _is_over(main: Object) -> bool:
    """Whether a Job, JobSet, TrainJob or PyTorchJob has ended."""
    return any(reasons.is_true(main, kind) for kind in ("Complete", "Completed", "Succeeded", "Failed"))


def _wait(gang: KubernetesGang, memo: Memo, view: View, waiting: list[int]) -> Wait:
    code, message = _wait_reason(gang, view, waiting)
    up = memo.workers - len(waiting)
    if up and memo.workers > 1:
        message = f"{up} of {memo.workers} workers are up; of the others: {message}"
    return Wait(*gang.key, code, message, hint=_hint(code, view))


def _hint(code: str, view: View) -> str:
    """What the user can do about a wait; "" if nothing."""
    if code in reasons.IMAGE_TROUBLES:
        return f"Correct `image`, or let the cluster pull it; {_GIVEN_UP.format(view.refuse_after)}"
    if code in reasons.START_TROUBLES or code in ("FailedCreate", "FailedMount"):
        late = _GIVEN_UP.format(view.refuse_after)
        return f"Correct what it names, in the job's `kubernetes` section or in the cluster; {late}"
    if code == "Suspended" and not view.kueue:
        return "The cluster has no Kueue: have it installed, or leave `queue` out."
    return ""


def _wait_reason(gang: KubernetesGang, view: View, waiting: list[int]) -> tuple[str, str]:
    workload = gang.workload
    if workload is not None and not reasons.is_true(workload, "Admitted"):
        return reasons.workload_wait(workload, view.positions.get(workload["metadata"]["uid"]))
    pods = [gang.pods[number] for number in waiting if number in gang.pods]
    unplaced = [word for pod in pods if (word := reasons.pod_wait(pod)) is not None]
    if unplaced:
        group = reasons.condition(gang.group, "Unschedulable") if gang.group is not None else {}
        if group.get("status") == "True" and group.get("message"):
            return "Unschedulable", str(group["message"])
        return next((word for word in unplaced if word[0] != "Pending"), unplaced[0])
    for pod in pods:
        if trouble := reasons.start_trouble(pod):
            return trouble[0], trouble[1]
    if warned := reasons.newest_warning(gang.warnings):
        return warned
    if pods:
        where = ", ".join(sorted({pod["spec"]["nodeName"] for pod in pods}))
        return "ContainerCreating", f"its containers are being made on {where}"
    if gang.main is not None and gang.main.get("spec", {}).get("suspend"):
        return "Suspended", "it is suspended until Kueue, or who else manages it, lets it go"
    return "Pending", "its pods have not been made yet"


def _take(pods: dict[int, Object], number: int, pod: Object) -> None:
    """Keeps the newer of two pods of one worker."""
    before = pods.get(number)
    if before is None or before["metadata"].get("creationTimestamp", "") <= pod["metadata"].get(
        "creationTimestamp", ""
    ):
        pods[number] = pod
