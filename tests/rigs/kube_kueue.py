"""A little Kueue: workloads for Jobs with a queue, admitted while the queue has room for their pods."""

from __future__ import annotations

from rigs.kube_edit import condition, edit, has, set_conditions
from rigs.kube_store import Object, Store

QUEUE = "kueue.x-k8s.io/queue-name"


def run_kueue(store: Store, quotas: dict[str, int]) -> None:
    """Jobs with a queue get a workload; it is admitted when the queue has room for its pods."""
    jobs = {job["metadata"]["uid"]: job for job in store.list("Job") if QUEUE in (job["metadata"].get("labels") or {})}
    known = {w["metadata"]["ownerReferences"][0]["uid"]: w for w in store.list("Workload")}
    for uid, job in jobs.items():
        if uid not in known and not job["metadata"].get("deletionTimestamp"):
            owner = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": job["metadata"]["name"],
                "uid": uid,
                "controller": True,
            }
            meta = {"name": f"job-{job['metadata']['name']}", "namespace": job["metadata"]["namespace"],
                    "ownerReferences": [owner], "labels": {"kueue.x-k8s.io/job-uid": uid}}  # fmt: skip
            spec = {"queueName": job["metadata"]["labels"][QUEUE], "active": True}
            store.create(
                {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": meta, "spec": spec}, "kueue"
            )
    held = dict.fromkeys(quotas, 0)
    waiting = []
    for workload in store.list("Workload"):
        job = jobs.get(workload["metadata"]["ownerReferences"][0]["uid"])
        over = job is None or any(c["type"] in ("Complete", "Failed") for c in job["status"].get("conditions") or [])
        if over:
            continue
        if has(workload, "Admitted"):
            held[workload["spec"]["queueName"]] += job["spec"]["completions"]
        else:
            waiting.append((workload, job))
    for workload, job in sorted(waiting, key=lambda pair: pair[0]["metadata"]["creationTimestamp"]):
        queue, wants = workload["spec"]["queueName"], job["spec"]["completions"]
        if queue not in quotas:
            set_conditions(
                store,
                workload,
                condition("QuotaReserved", "Inadmissible", f"LocalQueue {queue} doesn't exist", "False"),
            )
        elif held[queue] + wants > quotas[queue] or has(workload, "Evicted"):
            message = (
                f"couldn't assign flavors to pod set main: insufficient unused quota for pods, {wants} more needed"
            )
            set_conditions(store, workload, condition("QuotaReserved", "Pending", message, "False"))
        else:
            held[queue] += wants
            set_conditions(store, workload, condition("QuotaReserved", "QuotaReserved", "Quota reserved in main"),
                        condition("Admitted", "Admitted", "The workload is admitted"))  # fmt: skip
            edit(store, job, lambda j: j["spec"].update(suspend=False), "kueue-job-controller")


def preempt_workload(store: Store, job: Object) -> None:
    """Kueue takes a job's quota back."""
    name = f"job-{job['metadata']['name']}"
    workload = store.get("Workload", job["metadata"]["namespace"], name)
    message = "Preempted to accommodate a workload (UID: x) due to prioritization in the ClusterQueue"
    told = [
        condition("Admitted", "NoReservation", "", "False"),
        condition("QuotaReserved", "Preempted", message, "False"),
    ]
    set_conditions(store, workload, condition("Evicted", "Preempted", message), *told)
    edit(store, job, lambda j: j["spec"].update(suspend=True), "kueue-job-controller")
