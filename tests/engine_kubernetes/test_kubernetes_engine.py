"""A real server with Kubernetes as its engine: queues, evictions, limits, images, nodes, forms; beside the contract."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster_suite import COUNT, HELD, WHOLE, elastic, hold, loses_a_node_and_grows_back, submit, whole_attempt
from live import LiveServer, call_muster, stop_everything, until
from rigs.kube_api import evict
from rigs.kube_kueue import preempt_workload
from rigs.kube_store import Object
from rigs.kubernetes_rig import KubernetesRig

AGAIN = {"backoff": 0}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesRig]:
    more = (
        'refuse_after = "1s"\nnamespaces = ["default"]\n[engines.kubernetes.allow]\nqueues = ["research", "nobody"]\n'
    )
    made = KubernetesRig(quotas={"research": 1}, more=more)
    try:
        made.start(tmp_path_factory.mktemp("kubernetes-cluster"))
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def server(rig: KubernetesRig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path_factory.mktemp("kubernetes-home"), config=rig.config)
    made.start()
    try:
        until(lambda: machines(made), "the cluster's nodes")
        yield made
    finally:
        stop_everything(made)


def machines(server: LiveServer) -> dict[str, dict[str, Any]]:
    nodes = server.get("/v1/nodes")["nodes"]
    return {node["name"]: node for node in nodes if node.get("role") == "machine"}


def first_reason(server: LiveServer, job: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get(f"/v1/jobs/{job}/attempts")["attempts"][0]["reason"]
    return found


def up(rig: KubernetesRig, server: LiveServer, folder: Path, **spec: Any) -> tuple[str, Object]:
    """A job that holds on, once its rank is up, and its pod."""
    job = submit(rig, server, folder, COUNT + HELD, retry=AGAIN, **spec)
    until(lambda: (folder / "up-0").exists(), "its rank")
    return job, rig.one_pod(job)


def goes_on(server: LiveServer, folder: Path, job: str) -> dict[str, Any]:
    """The reason for which its first attempt ended, once the second has succeeded."""
    until(lambda: server.job(job)["attempt"] == 2, "a second attempt")
    (folder / "go").touch()
    assert server.wait(job)["phase"] == "succeeded"
    assert (folder / "starts").read_text().split() == ["1", "2"]
    return first_reason(server, job)


def test_what_the_commands_show(rig: KubernetesRig, server: LiveServer, tmp_path: Path) -> None:
    """`muster submit`, `logs`, `why`, `stop`, as people type them."""

    def muster(*words: str) -> str:
        done = call_muster(*words, env={**os.environ, "MUSTER_HOME": str(server.home)})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run = f"run: |\n  echo hello\n  {hold(tmp_path)}\n"
    (tmp_path / "job.yaml").write_text(f"name: held\npool: {rig.pool}\nworkdir: .\n{run}")
    job = json.loads(muster("submit", str(tmp_path / "job.yaml"), "--json"))["jobs"][0]["id"]
    until(lambda: (tmp_path / "up-0").exists(), "its rank")
    until(lambda: "hello" in muster("logs", job), "its output")
    assert json.loads(muster("status", job, "--json"))["nodes"][0] in machines(server)
    muster("stop", job)
    assert server.wait(job)["reason"]["code"] == "user_stop"
    with (tmp_path / "job.yaml").open("a") as file:
        file.write("kubernetes: {queue: nobody}\n")
    waits = json.loads(muster("submit", str(tmp_path / "job.yaml"), "--json"))["jobs"][0]["id"]
    until(lambda: "LocalQueue nobody doesn't exist" in muster("why", waits), "Kueue's word")
    muster("stop", waits)
    assert server.wait(waits)["phase"] == "stopped"


def test_a_finished_job_leaves_nothing_in_the_cluster(rig: KubernetesRig, server: LiveServer, tmp_path: Path) -> None:
    job = submit(rig, server, tmp_path, "print('x')")
    assert server.wait(job)["phase"] == "succeeded"

    def left() -> list[str]:
        kinds = ("Job", "Pod", "Secret", "Service")
        found = [item for kind in kinds for item in rig.store.list(kind, labels=f"muster.dev/job={job}")]
        return [f"{item['kind']} {item['metadata']['name']}" for item in found]

    until(lambda: not left(), "everything to be gone")


def test_looks_ask_the_cluster_for_nothing(rig: KubernetesRig, server: LiveServer, tmp_path: Path) -> None:
    job, _ = up(rig, server, tmp_path)
    until(lambda: server.job(job)["phase"] == "running", "it to run")
    before = len(rig.api.calls)
    beats = server.get("/v1/nodes")["nodes"]
    for node in machines(server):  # what changes comes by itself
        rig.store.edit("Node", "", node, lambda item: item["metadata"].setdefault("labels", {}).update(beat="1"))
    until(lambda: all(node["labels"].get("beat") for node in machines(server).values()), "the labels")
    assert [call for call in rig.api.calls[before:] if call[0] != "GET"] == []
    assert len(rig.api.calls) - before <= 8, rig.api.calls[before:]  # watches that began again
    assert beats
    (tmp_path / "go").touch()
    assert server.wait(job)["phase"] == "succeeded"


# --- queues -----------------------------------------------------------------------------------------------------------
def test_kueue_admits_and_says_what_is_waited_for(rig: KubernetesRig, server: LiveServer, tmp_path: Path) -> None:
    queue = {"kubernetes": {"queue": "research"}}
    job, _ = up(rig, server, tmp_path, **queue)
    second = server.submit("true", workdir=str(tmp_path), pool=rig.pool, **queue)["id"]

    def why() -> str:
        found = server.get(f"/v1/jobs/{second}/why")["reason"]
        return str(found["message"]) if found["code"] == "engine_queue" else ""

    until(lambda: "insufficient unused quota" in why(), "Kueue's word")
    (tmp_path / "go").touch()
    assert [server.wait(one)["phase"] for one in (job, second)] == ["succeeded", "succeeded"]


def test_who_kueue_preempts_starts_again_as_a_new_attempt(
    rig: KubernetesRig, server: LiveServer, tmp_path: Path
) -> None:
    job, _ = up(rig, server, tmp_path, kubernetes={"queue": "research"})
    (made,) = rig.jobs(job)
    preempt_workload(rig.store, made)
    reason = goes_on(server, tmp_path, job)
    assert reason["code"] == "preempted"
    assert "Preempted to accommodate" in json.dumps(reason)


# --- ends -------------------------------------------------------------------------------------------------------------
def test_an_eviction_is_a_preemption_with_its_word(rig: KubernetesRig, server: LiveServer, tmp_path: Path) -> None:
    job, pod = up(rig, server, tmp_path)
    evict(rig.store, "training", pod["metadata"]["name"], "PreemptionByScheduler", "preempting to accommodate b")
    reason = goes_on(server, tmp_path, job)
    assert reason["code"] == "preempted"
    assert "preempting to accommodate b" in json.dumps(reason)


# It saves when all ranks have been told to stop, as a collective save does, and goes on from there.
TOGETHER = """
import os, pathlib, time
from muster import runtime
rank = int(os.environ["RANK"])
if folder := runtime.last_checkpoint():
    print("goes on after", (folder / "state").read_text(), flush=True)
    raise SystemExit
pathlib.Path(f"up-{rank}").touch()
while not runtime.should_stop():
    runtime.report(step=7, loss=1.0)
    time.sleep(0.05)
pathlib.Path(f"leaves-{rank}").touch()
while not all(pathlib.Path(f"leaves-{other}").exists() for other in range(2)):
    time.sleep(0.02)
if rank == 0:
    with runtime.checkpoint(7) as folder:
        (folder / "state").write_text("step 7")
"""


@pytest.fixture
def rules(rig: KubernetesRig, server: LiveServer) -> Iterator[Callable[[str], None]]:
    """Sets whether the pool's machines are spot machines, for one test."""

    def spot(value: str) -> None:
        with server.http() as http:
            answer = http.put("/v1/rules", json={"text": f"pools: {{{rig.pool}: {{spot: {value}}}}}"})
        assert answer.status_code == 200, answer.text

    yield spot
    spot("auto")


@pytest.mark.parametrize(
    ("why", "spot", "code"),
    [("EvictionByEvictionAPI", False, "preempted"), ("TerminationByKubelet", True, "spot_notice")],
)
def test_a_gang_of_which_one_pod_is_told_to_leave_saves_together_and_goes_on(
    rig: KubernetesRig,
    server: LiveServer,
    tmp_path: Path,
    rules: Callable[[str], None],
    why: str,
    spot: bool,
    code: str,
) -> None:
    rules(str(spot).lower())
    job = submit(rig, server, tmp_path, TOGETHER, num_nodes=2, use_spot=spot, stop_grace="20s")
    until(lambda: len(list(tmp_path.glob("up-*"))) == 2, "both ranks")
    until(lambda: server.job(job)["phase"] == "running", "it to run")
    pod = rig.pods(job)[1]
    evict(rig.store, "training", pod["metadata"]["name"], why, "the machine goes")
    assert server.wait(job)["phase"] == "succeeded", server.output(job)
    assert "goes on after step 7" in server.output(job, attempt=2)
    (requeued,) = server.get("/v1/events", job=job, kind="job.requeued")["events"]
    assert (requeued["data"]["reason"]["code"], requeued["data"]["charge"]) == (code, "preempted")
    assert "it saved step 7 before it left" in requeued["data"]["reason"]["message"]
    node = pod["spec"]["nodeName"]
    if spot:
        assert machines(server)[node]["why"] == "it is taken away (spot notice)"
        server.post(f"/v1/nodes/{node}/health", {"health": "healthy"})
    assert machines(server)[node]["health"] == "healthy"


def test_a_pod_that_passes_its_memory_limit_is_out_of_memory(
    rig: KubernetesRig, server: LiveServer, tmp_path: Path
) -> None:
    job, pod = up(rig, server, tmp_path, resources={"memory": "2GB"})
    rig.kubelets.end_container(pod, "OOMKilled")
    ended = server.wait(job)
    assert (ended["phase"], ended["reason"]["code"]) == ("failed", "out_of_memory")
    assert "2000000000" in json.dumps(ended["reason"])


def test_a_node_short_of_memory_is_the_nodes_fault(rig: KubernetesRig, server: LiveServer, tmp_path: Path) -> None:
    job, pod = up(rig, server, tmp_path)
    rig.kubelets.end_container(pod, "Evicted")
    reason = goes_on(server, tmp_path, job)
    assert reason["code"] == "node_lost"
    assert "low on resource: memory" in json.dumps(reason)


def test_an_image_that_cannot_be_pulled_fails_the_job(rig: KubernetesRig, server: LiveServer, tmp_path: Path) -> None:
    job = server.submit("true", workdir=str(tmp_path), pool=rig.pool, image="missing/image:1")["id"]
    ended = server.wait(job)
    assert (ended["phase"], ended["reason"]["code"]) == ("failed", "image_unavailable")
    assert "missing/image:1" in json.dumps(ended["reason"])
    until(lambda: not rig.pods(job), "its pods to be gone")


def test_a_namespace_that_is_not_ours_is_refused(rig: KubernetesRig, server: LiveServer, tmp_path: Path) -> None:
    assert "kube-system" in refused(rig, server, tmp_path, {"namespace": "kube-system"})[0]["message"]
    other = server.submit("true", workdir=str(tmp_path), pool=rig.pool, kubernetes={"namespace": "default"})["id"]
    assert server.wait(other)["phase"] == "succeeded"


def refused(rig: KubernetesRig, server: LiveServer, folder: Path, asked: Object) -> list[dict[str, Any]]:
    body = {"spec": {"name": "a", "run": "true", "workdir": str(folder), "pool": rig.pool, "kubernetes": asked}}
    with server.http() as http:
        answer = http.post("/v1/jobs", json=body)
    assert answer.status_code == 409, answer.text
    found: list[dict[str, Any]] = answer.json()["error"]["reasons"]
    return found


def test_a_job_that_reaches_for_what_is_not_its_own_is_refused_before_it_exists(
    rig: KubernetesRig, server: LiveServer, tmp_path: Path
) -> None:
    """With every problem at once, and the setting that would allow each; another gang's Secret, never."""
    _, pod = up(rig, server, tmp_path)
    (victim,) = [one["secret"]["secretName"] for one in pod["spec"]["volumes"] if "secret" in one]
    rig.store.get("Secret", rig.namespace, victim)
    before = len(rig.store.list("Job"))
    mount = {"volumes": [{"name": "stolen", "secret": {"secretName": victim}}], "hostPID": True}
    (told,) = refused(rig, server, tmp_path, {"pod": mount, "service_account": "cluster-admin"})
    assert told["code"] == "engine_forbids"
    assert {one["where"] for one in told["data"]["problems"]} == {
        "pod.volumes.stolen.secret.secretName", "pod.hostPID", "pod.serviceAccountName",
    }  # fmt: skip
    for word in ("`service_accounts` of [engines.kubernetes.allow]", 'pod_settings = "any"', "Muster's alone"):
        assert word in told["hint"]
    assert len(rig.store.list("Job")) == before
    (tmp_path / "go").touch()


# --- nodes and forms --------------------------------------------------------------------------------------------------
def test_drains_go_both_ways(rig: KubernetesRig, server: LiveServer) -> None:
    server.post("/v1/nodes/node-a/health", {"health": "draining", "reason": "bad fan"})
    until(lambda: rig.store.get("Node", "", "node-a")["spec"].get("unschedulable"), "the cordon")
    assert rig.store.get("Node", "", "node-a")["metadata"]["annotations"]["muster.dev/drained"] == "bad fan"
    server.post("/v1/nodes/node-a/health", {"health": "healthy"})
    until(lambda: not rig.store.get("Node", "", "node-a")["spec"].get("unschedulable"), "its end")
    rig.store.edit("Node", "", "node-b", lambda node: node["spec"].update(unschedulable=True), "kubectl")
    until(lambda: machines(server)["node-b"]["health"] == "draining", "what kubectl did")
    rig.store.edit("Node", "", "node-b", lambda node: node["spec"].pop("unschedulable"), "kubectl")
    until(lambda: machines(server)["node-b"]["health"] == "healthy", "what kubectl undid")


def checks_left(rig: KubernetesRig) -> list[str]:
    return [item["metadata"]["name"] for item in rig.store.list("Job", labels="muster.dev/check")]


def test_a_node_without_a_job_is_checked_even_if_it_is_drained(rig: KubernetesRig, server: LiveServer) -> None:
    rig.store.edit("Node", "", "node-b", lambda node: node["spec"].update(unschedulable=True), "kubectl")
    try:
        found = server.post("/v1/nodes/node-b/check")
    finally:
        rig.store.edit("Node", "", "node-b", lambda node: node["spec"].pop("unschedulable"), "kubectl")
    assert not found["later"]
    assert {one["check"] for one in found["findings"]} >= {"disk", "kernel_log", "devices"}
    assert {one["status"] for one in found["findings"]} <= {"ok", "unknown"}, found
    assert not checks_left(rig)
    assert "checked" in [entry["kind"] for entry in server.get("/v1/nodes/node-b/history")["entries"]]


def test_a_check_of_a_full_node_leaves_the_devices_out_and_one_of_a_killed_server_is_removed(
    rig: KubernetesRig, server: LiveServer, tmp_path: Path
) -> None:
    job, pod = up(rig, server, tmp_path, resources=WHOLE, nproc=1)
    node = pod["spec"]["nodeName"]
    found = {one["check"]: one for one in server.post(f"/v1/nodes/{node}/check")["findings"]}
    assert found["disk"]["status"] == "ok"
    assert {found[name]["status"] for name in found if name.startswith("device")} == {"unknown"}
    assert "others hold" in found["device_memory"]["detail"]
    (tmp_path / "go").touch()
    assert server.wait(job)["phase"] == "succeeded"
    (installation,) = {
        item["metadata"]["labels"]["muster.dev/installation"] for item in rig.store.list("ConfigMap", rig.namespace)
    }
    labels = {"muster.dev/installation": installation, "muster.dev/check": "muster-check-left"}
    spec = {"suspend": True, "completions": 1, "template": {"spec": {"containers": [{"name": "x", "image": "y"}]}}}
    meta = {"name": "muster-check-left", "namespace": "training", "labels": labels}
    rig.store.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})
    until(lambda: not checks_left(rig), "what another server left to be gone")


def test_a_gang_as_a_jobset(rig: KubernetesRig, server: LiveServer, tmp_path: Path) -> None:
    run = "import os; open('ran-' + os.environ['RANK'], 'w').write(os.environ['MASTER_ADDR'])"
    job = submit(rig, server, tmp_path, run, num_nodes=2, kubernetes={"form": "jobset"})
    assert server.wait(job)["phase"] == "succeeded", server.output(job)
    (where,) = {(tmp_path / f"ran-{rank}").read_text() for rank in range(2)}
    assert where.startswith(f"muster-{job}-1-"), server.get(f"/v1/jobs/{job}/attempts")
    until(lambda: not rig.store.list("JobSet"), "it to be gone")


def test_what_a_stranger_left_is_left_alone(rig: KubernetesRig, server: LiveServer, tmp_path: Path) -> None:
    labels = {"muster.dev/installation": "another", "muster.dev/job": "theirs-1", "muster.dev/attempt": "1"}
    spec = {"suspend": True, "completions": 1, "template": {"spec": {"containers": [{"name": "x", "image": "y"}]}}}
    meta = {"name": "muster-theirs-1-1-zz", "namespace": "training", "labels": labels}
    rig.store.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})
    job = submit(rig, server, tmp_path, "print('x')")
    assert server.wait(job)["phase"] == "succeeded"
    assert rig.store.find("Job", "training", "muster-theirs-1-1-zz") is not None


def test_the_doctor_finds_it_well(rig: KubernetesRig, server: LiveServer) -> None:
    with server.http() as http:
        answer = http.get("/v1/engines/kubernetes/doctor")
    findings = [json.loads(line) for line in answer.text.splitlines()]
    found = {(one["status"], one["name"]) for one in findings}
    assert ("ok", "the API") in found
    assert ("ok", "rights") in found
    assert not [one for one in findings if one["status"] == "fail"], findings


def test_an_elastic_gang_goes_on_without_a_lost_node_and_grows_back(
    rig: KubernetesRig, server: LiveServer, tmp_path: Path
) -> None:
    loses_a_node_and_grows_back(rig, server, tmp_path, most=3)


def test_half_a_gang_gives_its_nodes_back_and_starts_with_those_that_are_free(
    rig: KubernetesRig, server: LiveServer, tmp_path: Path
) -> None:
    """A node is another's. The launcher of one of the others is frozen later on."""
    other = server.submit(hold(tmp_path, "other"), workdir=str(tmp_path), pool=rig.pool, resources=WHOLE, nproc=1)["id"]
    until(lambda: (tmp_path / "other-0").exists(), "the other")
    job = elastic(rig, server, tmp_path, 2, 3, hang={"least": "4s"})
    half = "2 of 3 workers are up"
    waits = until(lambda: (why := server.job(job)["reason"]) and half in why["message"] and why, "half a gang")
    assert "It asks for fewer nodes, 2 at least" in waits["hint"]
    smaller = whole_attempt(tmp_path, 2)
    assert len(rig.pods(job)) == 2
    until(lambda: (server.job(job)["progress"] or {}).get("step", 0) > 20, "steps")
    for process in frozen_with_its_launcher(tmp_path):
        os.kill(process, signal.SIGSTOP)
    again = whole_attempt(tmp_path, 2, after=smaller)
    hung = server.get(f"/v1/jobs/{job}/attempts")["attempts"][smaller - 1]
    assert (hung["reason"]["code"], hung["reason"]["data"]["kind"]) == ("hung", "launcher silent")
    assert again == smaller + 1
    (tmp_path / "go").touch()
    assert [server.wait(one)["phase"] for one in (job, other)] == ["succeeded"] * 2


def frozen_with_its_launcher(folder: Path) -> list[int]:
    """A rank that works in this folder, and its launcher, by their ids outside of the pod."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            program = b"program.py" in (path / "cmdline").read_bytes()
            if program and str((path / "cwd").readlink()).endswith(str(folder)):
                parent = int((path / "status").read_text().partition("PPid:")[2].split()[0])
                assert Path(f"/proc/{parent}/comm").read_text().strip() == "muster-launcher"
                return [int(path.name), parent]
        except OSError:
            continue
    raise AssertionError(f"no rank works in {folder}")
