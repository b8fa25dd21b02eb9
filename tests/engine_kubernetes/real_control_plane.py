"""The engine on a real control plane: the contract of all engines, and what a real server says no with.

Not collected by itself, for the control plane is not on every machine: `make test-kubernetes BIN_FOLDER=...`, with a
folder that has kube-apiserver, kube-controller-manager and kube-scheduler; etcd is on the PATH.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kube_kit import HUGE, KEY, gang
from test_kubernetes_faults import end_of, pod, wait_of

from cluster_suite import ClusterContract, hold
from live import LiveServer, stop_everything, until
from muster.engines import remote, unseen
from muster.engines.describe import Home
from muster.engines.kubernetes import adapter as adapter_module
from muster.engines.kubernetes import removal as removal_module
from muster.engines.kubernetes.config import read
from muster.engines.remote import RemoteEngine
from rigs.kube_real import RealRig

INSTALLATION = "0123456789"
MINE = f"muster.dev/installation={INSTALLATION}"
SPACE = "muster-jobs"


class TestRealKubernetes(ClusterContract):
    make = RealRig


# --- what a real server says no with ----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRig]:
    made = RealRig(standard="baseline")
    try:
        made.start(tmp_path_factory.mktemp("real-cluster"))
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen, "HOLD_FIRST", 0.1)
    monkeypatch.setattr(unseen, "HOLD_LAST", 0.5)
    monkeypatch.setattr(remote, "AGAIN_FIRST", 0.1)
    monkeypatch.setattr(removal_module, "DELETE_AGAIN", 0.1)


@contextmanager
def engine(rig: RealRig, **settings: Any) -> Iterator[RemoteEngine]:
    home = Home(rig.folder, INSTALLATION, lambda: ("http://muster:6878",))
    given = {
        "kubeconfig": "kubeconfig", "service_account": "muster-worker", "network_policy": True,
        "allow": {"pod_settings": "any"}, **settings,
    }  # fmt: skip
    adapter = read("k8s", given, home)
    adapter.look_every = 0.1
    made = RemoteEngine("k8s", adapter)
    made.start()
    try:
        until(made.answered, "the first look")
        yield made
        for job, attempt in {(item[0], item[1]) for item in gangs(rig)}:
            made.stop(job, attempt, 0.0, "user_stop")
            made.forget(job, attempt)
        until(lambda: kinds(rig) == [], "everything to be gone")
    finally:
        made.close()


def gangs(rig: RealRig) -> list[tuple[str, int]]:
    return [
        (labels["muster.dev/job"], int(labels["muster.dev/attempt"]))
        for item in rig.store.list("Job", labels=MINE)
        for labels in [item["metadata"]["labels"]]
    ]


def jobs(rig: RealRig) -> set[str]:
    return {name for name, _ in gangs(rig)}


def kinds(rig: RealRig) -> list[str]:
    """What there is of gangs."""
    found = ("Secret", "Service", "Job", "Pod", "NetworkPolicy")
    return sorted(item["kind"] for kind in found for item in rig.store.list(kind, SPACE, labels=MINE))


def quota(**hard: str) -> dict[str, Any]:
    about = {"name": "compute", "namespace": SPACE}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": about, "spec": {"hard": hard}}


@contextmanager
def held_by(rig: RealRig, **hard: str) -> Iterator[None]:
    rig.store.create(quota(**hard))

    def counted() -> bool:
        found = rig.store.find("ResourceQuota", SPACE, "compute")
        return bool(found and found.get("status", {}).get("hard"))

    until(counted, "the quota to count")
    try:
        yield
    finally:
        rig.store.delete("ResourceQuota", SPACE, "compute")


TYPOS = [
    (pod(tolerationz=[]), "tolerationz: field not declared in schema"),
    (pod(hostNetwork="yes"), "hostNetwork: expected boolean"),
    (pod(initContainers=[{"name": "i", "image": "x", "env": [{"name": "X"}, {"name": "X"}]}]), "duplicate entries"),
    (pod(initContainers=[{"name": "i", "image": "x", "resources": {"limits": {"cpu": "lots"}}}]), "quantities must"),
    (pod(restartPolicy="Always"), "restartPolicy"),
]


@pytest.mark.parametrize(("bad", "said"), TYPOS)
def test_a_mistake_in_one_job_fails_that_job_alone(rig: RealRig, bad: dict[str, Any], said: str) -> None:
    with engine(rig) as made:
        made.launch(gang("good-1", ask=HUGE))
        made.launch(gang("bad-1", **bad))
        made.launch(gang("good-2", ask=HUGE))
        end = end_of(made, "bad-1").exit
        assert end is not None
        assert (end.outcome, end.reason) == ("failed", "engine_refused")
        assert said in end.detail
        until(lambda: jobs(rig) == {"good-1", "good-2"}, "the others to be there")
        assert made.condition().ok
        assert not made.condition().trouble
        made.forget("bad-1", 1)


@pytest.mark.parametrize("standard", ["baseline", "restricted"])
def test_pods_pass_the_standards_of_deploy(rig: RealRig, standard: str) -> None:
    def enforce(level: str) -> None:
        rig.store.http.patch(
            f"/api/v1/namespaces/{SPACE}",
            headers={"Content-Type": "application/merge-patch+json"},
            json={"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}},
        ).raise_for_status()

    enforce(standard)
    try:
        with engine(rig, run_as_non_root=standard == "restricted") as made:
            made.launch(gang(ask=HUGE, workers=2))
            wait = wait_of(made, "Unschedulable")  # said of a pod that was let in
            assert "Insufficient" in wait.message or "cpu" in wait.message
            assert kinds(rig).count("Pod") == 2
    finally:
        enforce("baseline")


def test_what_baseline_forbids_is_the_jobs_affair(rig: RealRig) -> None:
    with engine(rig, refuse_after="1s") as made:
        made.launch(gang(**pod(hostNetwork=True)))
        end = end_of(made).exit
        assert end is not None
        assert "violates PodSecurity" in end.detail


@pytest.mark.parametrize("after", ["stopped", "lifted"])
def test_a_stop_wins_over_a_quota_and_leaves_nothing(rig: RealRig, after: str) -> None:
    with engine(rig) as made:
        with held_by(rig, **{"count/jobs.batch": "0"}):
            made.launch(gang(ask=HUGE))
            wait = wait_of(made, "ExceededQuota")
            assert "exceeded quota: compute" in wait.message
            if after == "stopped":
                made.stop(*KEY, 5.0, "user_stop")
                end = end_of(made).exit
                assert end is not None
                assert (end.outcome, end.reason) == ("stopped", "user_stop")
                made.forget(*KEY)
                until(lambda: kinds(rig) == [], "everything to be gone")
        if after == "lifted":
            until(lambda: jobs(rig) == {KEY[0]}, "it to be there once there is room")
        else:
            made.launch(gang("next-1", ask=HUGE))
            until(lambda: jobs(rig) == {"next-1"}, "the next one alone")


def test_a_binding_that_is_taken_away_is_the_engines_trouble_and_mends(rig: RealRig) -> None:
    where = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SPACE}/rolebindings"
    with engine(rig) as made:
        kept = rig.store.call("GET", f"{where}/muster-engine-rights")
        rig.store.call("DELETE", f"{where}/muster-engine-rights")
        made.launch(gang(ask=HUGE))
        wait = wait_of(made, "MissingRight")
        assert "may not" in wait.message
        assert "deploy/base/access.yaml" in wait.hint
        until(lambda: made.condition().trouble or not made.condition().ok, "the engine to say so")
        about = {"name": kept["metadata"]["name"], "namespace": SPACE}
        rig.store.call("POST", where, {**kept, "metadata": about})
        until(lambda: jobs(rig) == {KEY[0]}, "it to be there")
        until(lambda: made.condition().ok and not made.condition().trouble, "the engine to be well")


@pytest.mark.parametrize("policy", ["Background", "Orphan"])
def test_a_job_that_somebody_deletes_is_told_as_that(rig: RealRig, policy: str) -> None:
    with engine(rig) as made:
        made.launch(gang(ask=HUGE))
        wait_of(made, "Unschedulable")
        (job,) = rig.store.list("Job", labels=MINE)
        rig.store.delete("Job", SPACE, job["metadata"]["name"], {"propagationPolicy": policy})
        if policy == "Background":
            end = end_of(made).exit
            assert end is not None
            assert (end.outcome, end.reason) == ("failed", "cancelled_outside")
        else:
            until(lambda: "Job" not in kinds(rig), "the Job to be gone alone")
            made.stop(*KEY, 0.0, "user_stop")
            end_of(made)
        made.forget(*KEY)
        until(lambda: kinds(rig) == [], "everything to be gone")


def test_the_launchers_package_is_made_again(rig: RealRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_module, "PACKAGE_CHECK", 0.0)
    with engine(rig) as made:
        made.launch(gang(ask=HUGE))
        until(lambda: jobs(rig) == {KEY[0]}, "the first")
        (package,) = rig.store.list("ConfigMap", SPACE, labels=MINE)
        rig.store.delete("ConfigMap", SPACE, package["metadata"]["name"])
        made.launch(gang("next-1", ask=HUGE))
        until(lambda: "next-1" in jobs(rig), "the next one")
        assert len(rig.store.list("ConfigMap", SPACE, labels=MINE)) == 1


def test_an_account_that_is_not_there_fails_its_job(rig: RealRig) -> None:
    with engine(rig, refuse_after="1s", allow={"service_accounts": ["nobody"]}) as made:
        made.launch(gang(options={"service_account": "nobody"}, ask=HUGE))
        end = end_of(made).exit
        assert end is not None
        assert end.reason == "pod_refused"
        assert 'serviceaccount "nobody" not found' in end.detail


def test_what_is_not_allowed_never_reaches_the_cluster(
    rig: RealRig, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A member's job file that names Secrets, accounts and settings of pods, through a real server."""
    rig.store.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "theirs", "namespace": SPACE},
            "stringData": {"key": "value-of-theirs"},
        }
    )
    config = rig.config.replace(f'checkpoints = "hostPath:{rig.folder}/checkpoints"\n', "")
    home = tmp_path_factory.mktemp("real-home")  # beside the rig's folder, where pods find its server
    server = LiveServer(home, config=config + 'service_account = "muster-worker"\nnetwork_policy = true\n')
    server.start()
    try:
        until(lambda: server.get("/v1/nodes")["nodes"], "the nodes")
        mount = {"volumes": [{"name": "x", "secret": {"secretName": "theirs"}}]}
        for asked in ({"pod": mount}, {"service_account": "default"}, {"priority_class": "system-node-critical"}):
            with server.http() as http:
                body = {"spec": {"name": "bad", "run": "true", "pool": rig.pool, "kubernetes": asked}}
                answer = http.post("/v1/jobs", json=body)
            if answer.status_code < 300:
                ended = server.wait(answer.json()["jobs"][0]["id"])
                assert ended["phase"] == "failed", (asked, ended)
        job = server.submit(f"echo hello; {hold(tmp_path)}", workdir=str(tmp_path), pool=rig.pool)["id"]
        until(lambda: (tmp_path / "up-0").exists(), "its rank, under baseline")
        (tmp_path / "go").touch()
        assert server.wait(job)["phase"] == "succeeded", server.output(job)
        names = [item["metadata"]["name"] for item in rig.store.list("Secret", SPACE)]
        assert "theirs" in names
        until(lambda: not rig.store.list("Secret", SPACE, labels=f"muster.dev/job={job}"), "its Secret to be gone")
    finally:
        stop_everything(server)
        rig.store.delete("Secret", SPACE, "theirs")
