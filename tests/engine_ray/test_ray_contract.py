"""Ray under the contract of every engine, and what is Ray's alone, on a real cluster with a head and three nodes."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import signal
import tomllib
from pathlib import Path
from typing import Any

import isolation_kit
from cluster_suite import COUNT, HELD, MEET, ClusterContract, Rig, hold, submit
from isolation_kit import TRAINS, member, program
from live import LiveServer, below, until
from muster.control.secrets import load_keyring
from muster.engines.base import Finding
from muster.engines.describe import Home
from muster.engines.ray.config import read
from rigs.ray_rig import HEAD, NODES, RayRig

PROGRAM = """
import os
from pathlib import Path
import ray
from ray import train, tune
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from muster.adapters.ray_tune import MusterLogger
ray.init()
rows = ray.data.range(10, override_num_blocks=1).map(lambda row: {"id": row["id"] * 2}).take_all()
print("data", sum(row["id"] for row in rows))
here = os.getcwd()
keep = {"storage_path": f"{here}/kept"}
def trial(config):
    tune.report({"score": (config["x"] - 2) ** 2})
space = {"x": tune.grid_search([1, 2])}
told = tune.RunConfig(verbose=0, callbacks=[MusterLogger()], **keep)
found = tune.Tuner(trial, param_space=space, run_config=told).fit()
print("tune", found.get_best_result("score", "min").config["x"])
def loop():
    about = train.get_context()
    Path(here, f"trained-{about.get_world_rank()}-{about.get_world_size()}").touch()
scale = train.ScalingConfig(num_workers=2)
DataParallelTrainer(loop, scaling_config=scale, run_config=train.RunConfig(**keep)).fit()
print("train", *sorted(path.name for path in Path(here).glob("trained-*")))
"""
TAKE_ALL = """
from ray.util import placement_group
nodes = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
taken = placement_group([{"CPU": 4}] * len(nodes), strategy="STRICT_SPREAD", name="other", lifetime="detached")
assert taken.wait(180)
"""
GIVE_BACK = "from ray.util import get_placement_group, remove_placement_group as r; r(get_placement_group('other'))"


REQUESTED = """
from ray.experimental.internal_kv import _internal_kv_get
print((_internal_kv_get(b"autoscaler_resource_request") or b"[]").decode())
"""


# As somebody would who has read the agent's code, and knows its address.
REDIRECT = """
import json
from ray.util import list_named_actors
for one in list_named_actors(all_namespaces=True):
    if not one["name"].startswith("muster-agent:"):
        continue
    agent = ray.get_actor(one["name"], namespace=one["namespace"])
    session, proof = ray.get(agent.introduce.remote("mine"))
    message = json.dumps({"session": session, "id": "1", "method": "hello", "given": [["http://evil:1"], ""]})
    for call in (
        lambda: agent.hello.remote(["http://evil:1"], ""),
        lambda: agent.ask.remote(message, proof),
        lambda: agent.ask.remote(message, ""),
    ):
        try:
            print("told", ray.get(call()))
        except Exception as error:
            print("told", type(error).__name__, str(error).splitlines()[-1])
"""
# Takes the place of agents; what it is asked is counted by another actor.
TAKE_NAMES = """
from ray.util import list_named_actors
@ray.remote(num_cpus=0)
class Count:
    number = 0
    def add(self):
        self.number += 1
    def get(self):
        return self.number
@ray.remote(num_cpus=0)
class Squatter:
    def introduce(self, nonce):
        return "session", "0" * 64
    def ask(self, message, signature):
        ray.get(ray.get_actor("count", namespace="foreign").add.remote())
    hello = launch = ask
Count.options(name="count", namespace="foreign", lifetime="detached").remote()
ray.get(ray.get_actor("count", namespace="foreign").get.remote())
for one in list_named_actors(all_namespaces=True):
    if one["name"].startswith("muster-agent:"):
        ray.kill(ray.get_actor(one["name"], namespace=one["namespace"]), no_restart=True)
        try:
            Squatter.options(name=one["name"], namespace=one["namespace"], lifetime="detached").remote()
            print("taken")
        except ValueError:
            print("lost")  # the bridge was quicker
"""
HEARD = """
count = ray.get_actor("count", namespace="foreign")
print(ray.get(count.get.remote()))
ray.kill(count)
"""


class TestRay(ClusterContract):
    make = RayRig

    def test_who_waits_for_nodes_that_can_be_made_is_a_request_to_the_autoscaler(
        self, rig: RayRig, server: LiveServer
    ) -> None:
        def requested() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = json.loads(rig.ask(REQUESTED).splitlines()[-1])
            return found

        job = server.submit("true", num_nodes=2, pool="cloud", resources={"cpus": 2})["id"]
        asked = until(requested, "the request")
        assert [one["CPU"] for one in asked] == [2, 2]
        server.post(f"/v1/jobs/{job}/stop")
        until(lambda: not requested(), "the request to be taken back")

    def test_a_ray_program_of_its_own_runs_as_a_job(self, rig: Rig, server: LiveServer, folder: Path) -> None:
        """With Ray Data, Ray Tune and Ray Train, each of which asks Ray for what it needs."""
        job = submit(rig, server, folder, PROGRAM, num_nodes=2, ray={"driver": True})
        assert server.wait(job)["phase"] == "succeeded", server.output(job)
        said = server.output(job).splitlines()
        assert {"data 90", "tune 2", "train trained-0-2 trained-1-2"} <= set(said), said
        found = server.post("/v1/runs/search", {"query": f'parent = "{job}"'})["runs"]
        trials = {one["params"]["x"]: (one["phase"], one["metrics"]["score"]) for one in found}
        assert trials == {"1": ("succeeded", 1.0), "2": ("succeeded", 0.0)}

    def test_a_jobs_runtime_environment_is_the_ranks(self, rig: Rig, server: LiveServer, folder: Path) -> None:
        job = server.submit(
            "echo $COLOUR $RAY_JOB_ID.", pool=rig.pool, ray={"runtime_env": {"env_vars": {"COLOUR": "blue as ü"}}}
        )["id"]
        assert server.wait(job)["phase"] == "succeeded", server.job(job)
        # A node on which a job of another test has failed is checked first, which its launcher says.
        checked = re.compile(r"\[muster\] \S+ failed lately and was checked: .*\n")
        assert checked.sub("", server.output(job)) == "blue as ü .\n"

    def test_an_impossible_runtime_environment_fails_the_job_with_a_word(self, rig: Rig, server: LiveServer) -> None:
        job = server.submit("true", pool=rig.pool, ray={"runtime_env": {"working_dir": "/home/me"}})["id"]
        ended = server.wait(job)
        assert (ended["phase"], ended["reason"]["code"], ended["attempt"]) == ("failed", "bad_environment", 1)
        assert "/home/me" in ended["reason"]["message"]

    def test_who_waits_for_another_user_of_ray_is_told_so_and_starts_when_he_leaves(
        self, rig: Any, server: LiveServer, folder: Path
    ) -> None:
        rig.ask(TAKE_ALL)
        job, other = (submit(rig, server, folder, COUNT, num_nodes=2, resources={"cpus": 1}) for _ in range(2))
        why = until(lambda: _waits(server, job), "a word from Ray")
        assert "somebody else in Ray holds what it needs: 1 CPU" in why["message"]
        server.post(f"/v1/jobs/{other}/stop")
        assert server.wait(other)["phase"] == "stopped"
        _kill(_children(server, "muster.engines.ray.bridge"))  # the next one takes it up where this one was
        rig.ask(GIVE_BACK)
        assert server.wait(job)["phase"] == "succeeded", server.job(job)
        assert (folder / "starts").read_text().split() == ["1", "1"]

    def test_work_goes_on_when_agents_and_bridge_are_killed(self, rig: Rig, server: LiveServer, folder: Path) -> None:
        job = submit(rig, server, folder, COUNT + HELD, num_nodes=2)
        until(lambda: len(list(folder.glob("up-*"))) == 2, "both ranks")
        _kill(_processes("ray::Agent"))
        _kill(_children(server, "muster.engines.ray.bridge"))
        (folder / "go").touch()
        ended = server.wait(job)
        assert (ended["phase"], ended["attempt"]) == ("succeeded", 1), server.output(job)
        assert (folder / "starts").read_text().split() == ["1", "1"]
        again = server.submit(hold(folder), workdir=str(folder), pool=rig.pool)["id"]
        assert server.wait(again)["phase"] == "succeeded"

    def test_a_foreign_client_neither_redirects_an_agent_nor_takes_its_name(
        self, rig: RayRig, server: LiveServer, folder: Path
    ) -> None:
        """Any client of a Ray cluster finds the agents and can call them: it is refused, and jobs go on as before."""
        said = rig.ask(REDIRECT).splitlines()
        told = [line for line in said if line.startswith("told")]
        assert len(told) >= len(NODES)
        assert all("BadSignature" in line or "AttributeError" in line for line in told), told
        shown = rig.records()
        kept = below(Path(tomllib.loads(rig.config)["engines"]["ray"]["scratch"]), "urls.json")
        assert kept
        assert not any("evil" in path.read_text() for path in kept)
        job = submit(rig, server, folder, COUNT, num_nodes=2)
        assert server.wait(job)["phase"] == "succeeded", server.job(job)
        taken = rig.ask(TAKE_NAMES).split()
        assert "taken" in taken, taken
        other = submit(rig, server, folder, COUNT, num_nodes=3)
        assert server.wait(other)["phase"] == "succeeded", server.job(other)
        assert rig.ask(HEARD).split()[-1] == "0", "an actor that only has an agent's name was told something"
        assert _agents_key(server) not in shown + rig.records()

    def test_a_members_job_gets_at_no_token_of_another_gang(self, rig: Any, server: LiveServer) -> None:
        ada, eve = member(server, "ada"), member(server, "eve", "vision")
        held = isolation_kit.submit(server, ada, "exec sleep 1000", pool=rig.pool)
        pid = isolation_kit.rank_pid(held)
        launcher = _parent(pid)
        told = [str(path) for path in below(rig.folder, "launch.json") if held in str(path)]
        assert told, "the gang's folder is elsewhere"
        asked = {"project": "vision", "queue": "vision", "pool": rig.pool}
        assert isolation_kit.attack(server, eve, [pid, launcher], Path("/root"), told, **asked) == []
        assert server.job(held)["phase"] == "running"
        server.post(f"/v1/jobs/{held}/stop", {"force": True})
        server.wait(held)

    def test_a_members_job_reports_saves_is_killed_and_goes_on(self, rig: Any, server: LiveServer) -> None:
        retry = {"max_restarts": 1, "on": ["worker"], "backoff": "0s"}
        job = isolation_kit.submit(server, member(server, "ada"), program(TRAINS), retry=retry, pool=rig.pool)
        ended = server.wait(job)
        assert (ended["phase"], ended["attempt"]) == ("succeeded", 2), server.output(job)
        assert "goes on from step-000000007 seven" in server.output(job)

    def test_nothing_of_it_stays_in_ray(self, rig: Any, server: LiveServer, folder: Path) -> None:
        job = submit(rig, server, folder, COUNT)
        assert server.wait(job)["phase"] == "succeeded"
        gone = f"every placement group to be removed; there were {_left(rig)}"
        until(lambda: not _left(rig), gone)

    def test_the_doctor_finds_the_cluster_well_and_says_what_is_not(
        self, rig: Any, server: LiveServer, tmp_path: Path
    ) -> None:
        found = _examine(tmp_path, [server.url], {"address": HEAD, "scratch": str(tmp_path / "scratch")})
        assert {finding.status for finding in found} == {"ok"}, found
        assert len([one for one in found if one.name.startswith("server from")]) == 3
        found = _examine(tmp_path, ["http://127.0.0.1:9"], {"address": HEAD, "scratch": str(tmp_path / "scratch")})
        assert {one.name.split()[0] for one in found if one.status == "fail"} == {"server"}
        assert all("advertise" in one.hint for one in found if one.status == "fail")

    def test_a_cluster_that_was_restarted_whole_goes_on_with_its_jobs(
        self, rig: RayRig, server: LiveServer, folder: Path
    ) -> None:
        job = submit(rig, server, folder, COUNT + HELD, num_nodes=2, retry={"backoff": "50ms"})
        until(lambda: len(list(folder.glob("up-*"))) == 2, "both ranks")
        rig.restart()
        (folder / "go").touch()
        ended = server.wait(job)
        assert ended["phase"] == "succeeded", ended
        # It may be given nodes of which nobody has noticed yet that they are gone too; that is no start.
        last = str(ended["attempt"])
        assert sorted((folder / "starts").read_text().split()) == ["1", "1", last, last]

    def test_the_links_of_a_gang_with_a_node_that_failed_lately_are_measured(
        self, rig: Rig, server: LiveServer, folder: Path
    ) -> None:
        """Those of the test before were lost. A node without a job can be checked too."""
        found = server.post(f"/v1/nodes/{NODES[0]}/check", {})
        assert {one["check"]: one["status"] for one in found["findings"]}["disk"] == "ok", found
        job = submit(rig, server, folder, MEET, num_nodes=3, nproc=1)
        assert server.wait(job)["phase"] == "succeeded", server.output(job)
        said = server.output(job)
        assert " failed lately and was checked: " in said
        assert re.search(r"links to the gang's first worker: worker 1 \d+ MB/s, [\d.]+ ms; worker 2 \d+ MB/s", said), (
            said
        )
        assert "not measured" not in said


def _agents_key(server: LiveServer) -> str:
    key = load_keyring(server.home / "key").engines
    return hmac.new(key, b"ray agents", hashlib.sha256).hexdigest()


def _waits(server: LiveServer, job: str) -> dict[str, Any] | None:
    reason = server.get(f"/v1/jobs/{job}/why")["reason"]
    return reason if reason["code"] == "engine_queue" and "somebody" in reason["message"] else None


def _left(rig: Any) -> list[str]:
    """Placement groups that exist."""
    program = """
        from ray.util import placement_group_table
        for group in placement_group_table().values():
            if group["state"] != "REMOVED":
                print(group["name"], group["state"])
    """
    left: list[str] = rig.ask(program).splitlines()
    return left


def _examine(folder: Path, urls: list[str], settings: dict[str, Any]) -> list[Finding]:
    home = Home(folder, "0123456789", lambda: urls)
    return list(read("ray", settings, home).diagnose())


def _processes(word: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def _children(server: LiveServer, word: str) -> list[int]:
    assert server.process is not None
    parents = {pid: _parent(pid) for pid in _processes(word)}
    return [pid for pid, parent in parents.items() if parent == server.process.pid]


def _parent(pid: int) -> int:
    try:
        raw = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(raw[raw.rindex(")") + 2 :].split()[1])


def _kill(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
