"""Translates the status of pods, workloads and events: why a gang waits, and why a worker ended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from muster.wire import Outcome, WorkerExit

Object = dict[str, Any]
Cause = tuple[str, str]  # a reason code and a detail

# Reasons of a waiting container that will not start by itself soon: because of the image, or of what the job asks for.
IMAGE_TROUBLES: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
)
START_TROUBLES: Final = (
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff", "PreCreateHookError",
)  # fmt: skip
# The disruption controller's reasons for removing a pod → Muster's reason and a sentence.
_DISRUPTIONS: Final = {
    "PreemptionByScheduler": ("preempted", "the scheduler gave its place to a pod of higher priority"),
    "EvictionByEvictionAPI": ("preempted", "it was evicted, as `kubectl drain` and autoscalers do"),
    "DeletionByTaintManager": ("node_lost", "its node was tainted so that it could not stay"),
    "DeletionByPodGC": ("node_lost", "its node has gone from the cluster"),
    "DeletionByDeviceTaintManager": ("node_lost", "its device was tainted so that it could not stay"),
    "TerminationByKubelet": ("node_lost", "the kubelet ended it: its node shuts down or is short of resources"),
}
_POD_REASONS: Final = {
    "Evicted": "node_lost",
    "NodeShutdown": "node_lost",
    "Shutdown": "node_lost",
    "Terminated": "node_lost",
    "NodeLost": "node_lost",
    "NodeAffinity": "node_lost",
    "UnexpectedAdmissionError": "node_lost",
    "OutOfcpu": "node_lost",
    "OutOfmemory": "node_lost",
    "OutOfpods": "node_lost",
    "Preempting": "preempted",
    "DeadlineExceeded": "max_duration",
}
# Errors in creating a pod that may pass: from a quota, a webhook or the server itself.
_PASSING: Final = ("exceeded quota", "failed calling webhook", "Internal error", "timed out", "etcdserver",
                   "not yet ready to handle request", "connection refused", "object has been modified")  # fmt: skip
_NOT_FOUND: Final = re.compile(r'(secret|configmap) "[^"]*" not found|references non-existent')
_MAP: Final = re.compile(r'configmap "([^"]*)" not found')
_KILLED: Final = 137  # exit status of a container killed by SIGKILL
_NOT_STARTED: Final = (126, 127, 128)  # of one whose program does not exist or can't be run


def seconds_of(time: object) -> float | None:
    """Wall-clock time from the API's format, such as 2026-01-02T03:04:05Z."""
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return None


def condition(thing: Object, kind: str) -> dict[str, Any]:
    found = thing.get("status", {}).get("conditions") or []
    return next((item for item in found if item.get("type") == kind), {})


def is_true(thing: Object, kind: str) -> bool:
    return condition(thing, kind).get("status") == "True"


# --- waiting ----------------------------------------------------------------------------------------------------------
def pod_wait(pod: Object) -> tuple[str, str] | None:
    """The scheduler's reason and message for a pod without a node; None for a pod with one."""
    scheduled = condition(pod, "PodScheduled")
    if pod["spec"].get("nodeName") or scheduled.get("status") == "True":
        return None
    if not scheduled:
        return "Pending", "the scheduler has not looked at it yet"
    code = str(scheduled.get("reason") or "Unschedulable")
    return code, str(scheduled.get("message") or "the scheduler finds no node for it")


def workload_wait(workload: Object, position: int | None) -> tuple[str, str]:
    """Kueue's reason and message for a workload that is not admitted."""
    where = f" (number {position + 1} in its queue)" if position is not None else ""
    if workload.get("spec", {}).get("active") is False:
        return "Inactive", "Kueue has deactivated its workload; somebody must set it active again"
    reserved, admitted = condition(workload, "QuotaReserved"), condition(workload, "Admitted")
    if reserved.get("status") == "True" and admitted.get("status") != "True":
        checks = workload.get("status", {}).get("admissionChecks") or []
        waits = [
            f"{one['name']}: {one.get('message') or one.get('state')}" for one in checks if one["state"] != "Ready"
        ]
        return "AdmissionChecks", f"quota is reserved, and it waits for {'; '.join(waits) or 'its admission'}"
    message = str(reserved.get("message") or "Kueue has not looked at it yet")
    return str(reserved.get("reason") or "Pending"), f"Kueue: {message}{where}"


def start_trouble(pod: Object) -> tuple[str, str, bool] | None:
    """What keeps a pod's containers from starting on their node:
    the kubelet's reason, its message, and whether the image is the cause; None when nothing does."""
    status = pod.get("status", {})
    for one in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (one.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason in IMAGE_TROUBLES or reason in START_TROUBLES:
            said = waiting.get("message") or f"container {one['name']} of image {one.get('image')}"
            return reason, f"{reason}: {said}", reason in IMAGE_TROUBLES
    return None


def pod_creation_error(events: Iterable[Object], main: Object) -> str:
    """Why the main object can't create its pods, where that does not pass by itself; "" if no event says so."""
    found = newest_warning(event for event in events if event["uid"] == main["metadata"]["uid"])
    lasting = found is not None and found[0] == "FailedCreate" and not any(sign in found[1] for sign in _PASSING)
    return found[1] if found is not None and lasting else ""


def mount_error(events: Iterable[Object], pod: Object) -> str:
    """What a pod on its node can't mount because it does not exist;
    "" if no event says so, or if it has been mounted."""
    if is_true(pod, "PodReadyToStartContainers"):
        return ""
    found = newest_warning(event for event in events if event["uid"] == pod["metadata"]["uid"])
    return found[1] if found is not None and found[0] == "FailedMount" and _NOT_FOUND.search(found[1]) else ""


def missing_map(events: Iterable[Object]) -> set[str]:
    """ConfigMaps that pods wait for and that don't exist."""
    said = [str(event["message"]) for event in events if event["reason"] == "FailedMount"]
    return {found[1] for text in said if (found := _MAP.search(text))}


def newest_warning(events: Iterable[Object]) -> tuple[str, str] | None:
    """The newest warning among an object's events."""
    found = max(events, key=lambda event: str(event.get("at", "")), default=None)
    return (found["reason"], f"{found['reason']}: {found['message']}") if found is not None else None


def slim_event(event: Object) -> Object | None:
    """The part of a warning that is kept: object, reason, message and time."""
    about = event.get("involvedObject") or {}
    if event.get("type") != "Warning" or not str(about.get("name", "")).startswith("muster-"):
        return None
    series = event.get("series") or {}
    at = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
    return {
        "metadata": {"namespace": event["metadata"]["namespace"], "name": event["metadata"]["name"]},
        "uid": about.get("uid", ""),
        "reason": str(event.get("reason") or ""),
        "message": str(event.get("message") or "")[:1000],
        "at": at,
    }


# --- ends -------------------------------------------------------------------------------------------------------------
def disruption(pod: Object) -> Cause | None:
    """Why the cluster removes a pod, as far as the pod's status says so."""
    target = condition(pod, "DisruptionTarget")
    if target.get("status") == "True":
        code, words = _DISRUPTIONS.get(str(target.get("reason")), ("preempted", str(target.get("reason"))))
        return code, f"{words}: {target['message']}" if target.get("message") else words
    status = pod.get("status", {})
    blame = _POD_REASONS.get(str(status.get("reason", "")))
    if blame is not None:
        # Exceeding its own limit is the job's fault; a shortage of shared resources is the node's.
        message = str(status.get("message") or "")
        own = status["reason"] == "Evicted" and "exceeds the" in message and "limit" in message
        return ("user_error" if own else blame), f"{status['reason']}: {message}".rstrip(": ")
    return None


def eviction(workload: Object | None) -> Cause | None:
    """Why Kueue has evicted a workload; None if it has not."""
    if workload is None:
        return None
    evicted = condition(workload, "Evicted")
    if evicted.get("status") != "True":
        return None
    reason, message = str(evicted.get("reason") or "Evicted"), str(evicted.get("message") or "")
    code = "max_duration" if "MaximumExecutionTime" in reason else "preempted"
    return code, f"Kueue evicted it ({reason}): {message}".rstrip(": ")


def end_of_pod(pod: Object, now: float, known: Cause | None = None) -> tuple[WorkerExit, bool]:
    """The exit of an ended pod's worker, and whether it is final because no launcher can report more.
    `known`: why the platform or the cluster ended it."""
    status = pod.get("status", {})
    ended = _terminated(pod)
    at = seconds_of(ended.get("finishedAt")) or now
    exit_ = _launcher_exit(ended.get("message"))
    cause = known or disruption(pod)
    if status.get("phase") == "Succeeded":
        return exit_ or WorkerExit("succeeded", "completed", "", at, None, 0), True
    # The launcher's own exit status, unless it only assumed that its node was lost.
    if exit_ is not None and not (cause and exit_.reason == "node_lost"):
        return exit_, True
    if ended.get("reason") == "OOMKilled":
        limit = _memory_limit(pod)
        words = f"its container passed its limit of {limit}" if limit else "the kernel killed its container"
        return WorkerExit("failed", "out_of_memory", words, at, exit_code=ended.get("exitCode")), True
    if cause is not None:
        return WorkerExit(_outcome(cause[0]), cause[0], cause[1], at), True
    code = ended.get("exitCode")
    if code == _KILLED or not ended:
        detail = str(status.get("message") or "its container was killed and left no word")
        return WorkerExit("failed", "launcher_lost", detail, at), True
    word, said = ended.get("reason") or "its container ended", str(ended.get("message") or status.get("message") or "")
    detail = f"{word} with status {code}" + (f": {said[-2000:]}" if said else "")
    if code in _NOT_STARTED or word in ("StartError", "ContainerCannotRun"):
        return WorkerExit("failed", "pod_refused", detail, at, exit_code=code), True
    # Status 1: the launcher has reported to the server, or is about to.
    return WorkerExit("failed", "launch_failed", detail, at, exit_code=code), code != 1


def last_message(pod: Object) -> str:
    """What the container of an ended pod left, or else what the cluster says of its end."""
    ended, status = _terminated(pod), pod.get("status", {})
    about = f"{ended.get('reason') or status.get('reason') or ''} {status.get('message') or ''}".strip()
    return str(ended.get("message") or about)


def has_ended(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_up(pod: Object) -> bool:
    """Whether the worker's container runs."""
    return any(
        (one.get("state") or {}).get("running") is not None
        for one in pod.get("status", {}).get("containerStatuses") or []
    )


def _terminated(pod: Object) -> Mapping[str, Any]:
    """The end of the first container that failed; if all succeeded, of the first that ended."""
    states = [one.get("state") or {} for one in pod.get("status", {}).get("containerStatuses") or []]
    ended = [state["terminated"] for state in states if state.get("terminated")]
    return next((one for one in ended if one.get("exitCode")), ended[0] if ended else {})


def _launcher_exit(message: object) -> WorkerExit | None:
    """The exit that the launcher left in the container's termination message."""
    if not isinstance(message, str) or not message.startswith("{"):
        return None
    try:
        return WorkerExit.from_dict(json.loads(message))
    except (ValueError, TypeError, KeyError):
        return None


def _outcome(code: str) -> Outcome:
    return "stopped" if code in ("user_stop", "max_duration") else "failed"


def _memory_limit(pod: Object) -> str:
    limits = [((one.get("resources") or {}).get("limits") or {}).get("memory") for one in pod["spec"]["containers"]]
    return next((str(limit) for limit in limits if limit), "")
