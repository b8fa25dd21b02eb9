"""A job that can never start is refused at once, with the nearest shape that could."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from muster.control.admission import CHECKS, Context, Files
from muster.control.admission.files import Disk
from muster.control.bootstrap import first_events
from muster.control.submit import Submission, submit
from muster.core.entities.pool import PoolSet
from muster.core.event import Event
from muster.core.parse import parse_job
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.core.rules import PoolRules, ProjectRules, QueueRules, Rules
from muster.store.base import Entry
from muster.store.commit import GroupCommit
from muster.store.memory import MemoryStore
from scheduler_kit import node_event
from wait_kit import ClusterState, ruled


def refusals(cluster_state: ClusterState, **spec: Any) -> list[Reason]:
    parsed = parse_job({"name": "job", "run": "true", **spec})
    context = Context(cluster_state.state, "ada", lambda project, name: True, local=False)
    return [found for check in CHECKS if (found := check(parsed, context)) is not None]


def nearest(cluster_state: ClusterState, **spec: Any) -> tuple[str, Any]:
    """The only reason against it, and what it proposes; a job file with that is admitted."""
    (found,) = refusals(cluster_state, **spec)
    change = found.data["nearest"]
    assert found.hint
    if change:
        change = {name: value for name, value in change.items() if value is not None}
        left = {name: value for name, value in spec.items() if found.data["nearest"].get(name, 0) is not None}
        left.pop("gpus" if "resources" in change else "", None)
        left.pop("cpus" if "cpus" in change.get("resources", {}) else "", None)
        assert refusals(cluster_state, **{**left, **change}) == []
    return found.code, found.data["nearest"]


def test_more_ranks_than_cpus_is_told_with_what_to_type_instead() -> None:
    (found,) = refusals(ClusterState(), nproc=9)
    assert found.message == "9 ranks on a node want 9 CPUs, one for each, and the largest node has 8"
    assert found.hint == "Use `--nproc 8`, or let the ranks share the CPUs: `-o cpus=8`, in a job file `cpus: 8`."
    assert refusals(ClusterState(), nproc=8) == refusals(ClusterState(), nproc=9, cpus=8) == []
    (asked,) = refusals(ClusterState(), nproc=2, cpus=9)
    assert "ranks" not in asked.message, "the CPUs were asked for, whatever the ranks"


def test_a_gang_that_would_need_the_spares_is_refused() -> None:
    cluster_state = ClusterState(("n0", "n1", "n2"), ruled({"main": PoolRules(spares=1)}))
    assert refusals(cluster_state, num_nodes=2) == []
    assert nearest(cluster_state, num_nodes=3, gpus=2) == ("never_fits", {"num_nodes": 2})
    (found,) = refusals(cluster_state, num_nodes=3)
    assert "pool 'main' has 2 such beside the 1 that it keeps free" in found.message
    (other,) = refusals(cluster_state, num_nodes=4)
    assert "spares" not in other.message + other.hint, "it would not fit without them either"
    (found,) = refusals(ClusterState(("n0",), ruled({"main": PoolRules(spares=1)})))
    assert found.code == "never_fits"
    assert found.hint.startswith("Have `spares` of the pool lowered")


def test_what_fits_is_admitted() -> None:
    assert refusals(ClusterState(), gpus=2, num_nodes=2) == []


def test_too_many_nodes() -> None:
    assert nearest(ClusterState(), gpus=2, num_nodes=3) == ("never_fits", {"num_nodes": 2})
    assert refusals(ClusterState(), gpus=2, num_nodes={"min": 2, "max": 8}) == []
    assert nearest(ClusterState(), gpus=2, num_nodes={"min": 3, "max": 8}) == ("never_fits", {"num_nodes": 2})


def test_too_much_on_a_node() -> None:
    found = nearest(ClusterState(), gpus=4, cpus=1)
    assert found == ("never_fits", {"resources": {"accelerators": "GPU:2"}})
    assert nearest(ClusterState(), cpus=9) == ("never_fits", {"resources": {"cpus": 8.0}})
    assert refusals(ClusterState(), gpus=0.5, num_nodes=2) == []


def test_no_domain_is_large_enough() -> None:
    cluster_state = ClusterState(nodes=("n0", "n1", "n2"))
    for name, rack in (("n0", "a"), ("n1", "a"), ("n2", "b")):
        cluster_state.state.nodes[name].labels["rack"] = rack
    assert refusals(cluster_state, num_nodes=2, topology="rack") == []
    assert nearest(cluster_state, num_nodes=3, topology="rack") == ("never_near", {"num_nodes": 2})
    (found,) = refusals(cluster_state, num_nodes=2, topology="link")
    assert (found.code, found.data["nearest"]) == ("never_near", {"topology": {"require": None}})


@pytest.mark.parametrize(
    ("queue", "change"),
    [
        ({"quota": {"main": 1}, "borrow": {"main": 2}}, {"num_nodes": 1}),
        ({"borrow": {}, "quota": {"main": 1}}, {"num_nodes": 1, "resources": {"accelerators": "GPU:1"}}),
        ({"max_accelerators_per_user": 3}, {"num_nodes": 1}),
    ],
)
def test_more_than_the_queue_may_ever_use(queue: dict[str, Any], change: dict[str, Any]) -> None:
    cluster_state = ClusterState(rules=ruled(**queue))
    assert nearest(cluster_state, gpus=2, num_nodes=2) == ("never_allowed", change)


def test_more_than_the_project_may_have_or_others_ever_lend() -> None:
    cluster_state = ClusterState(rules=Rules(projects={"default": ProjectRules(max_accelerators=2)}))
    assert nearest(cluster_state, gpus=2, num_nodes=2) == ("never_allowed", {"num_nodes": 1})
    keeper = QueueRules(quota={"main": 2}, lend=False)
    cluster_state = ClusterState(rules=Rules(queues={"q1": keeper}), queues=2)
    assert nearest(cluster_state, gpus=2, num_nodes=2) == ("never_allowed", {"num_nodes": 1})
    assert refusals(cluster_state, gpus=2, num_nodes=2, queue="q1") == []


def test_pools_that_the_rules_or_the_job_shut() -> None:
    cluster_state = ClusterState(nodes=(), pools={"a-spot": ("s0",)})
    assert nearest(cluster_state, gpus=1) == ("pool_not_allowed", {"use_spot": True})
    cluster_state = ClusterState(pools={"other": ("o0",)}, rules=ruled(pools={"other": PoolRules(kinds=("eval",))}))
    assert nearest(cluster_state, gpus=1, pool="other") == ("pool_not_allowed", {"pool": None})
    cluster_state = ClusterState(rules=ruled(pools={"main": PoolRules(kinds=("eval",))}))
    assert nearest(cluster_state, gpus=1) == ("pool_not_allowed", {})
    assert [found.code for found in refusals(ClusterState(), pool="gone")] == ["unknown_pool"]


def test_turns_are_for_one_node() -> None:
    cluster_state = ClusterState(rules=ruled(slice=60.0))
    assert nearest(cluster_state, num_nodes=2) == ("turns_need_one_node", {"num_nodes": 1})


def test_an_empty_cluster_says_so() -> None:
    (found,) = refusals(ClusterState(nodes=()))
    assert (found.code, found.message) == ("never_fits", "there are no nodes")


def test_another_kind_of_accelerator_is_proposed() -> None:
    (found,) = refusals(ClusterState(), gpus="A100:2")
    assert found.data["nearest"] == {"resources": {"accelerators": "H100:2"}}


def grown(cluster_state: ClusterState, most: int, **spec: Any) -> list[str]:
    parsed = parse_job({"name": "job", "run": "no-such-command", "workdir": "/no-such-folder", **spec})
    growth = {"cloud": (Resources(8_000, 64 * 10**9, 8, "H100"), most)}
    file_findings = Files().look(parsed)
    context = Context(
        cluster_state.state, "ada", lambda project, name: True, local=True, growth=growth, file_findings=file_findings
    )
    return [found.code for check in CHECKS if (found := check(parsed, context)) is not None]


def test_a_pool_that_grows_counts_for_what_it_may_become() -> None:
    assert grown(ClusterState(), 2, gpus=8, num_nodes=2) == []
    assert grown(ClusterState(), 2, gpus=8, num_nodes=3) == ["never_fits"]
    assert grown(ClusterState(), 2, gpus=8, pool="cloud", topology="rack") == []
    assert grown(ClusterState(nodes=()), 1, gpus=8, pool="cloud") == []
    assert grown(ClusterState(), 0, gpus=8, pool="cloud") == ["never_fits"]
    rules = ruled(rules={"queues": {"default": QueueRules(quota={"cloud": 8}, borrow={})}})
    assert grown(ClusterState(rules=rules), 2, gpus=8, pool="cloud") == []
    assert grown(ClusterState(rules=rules), 2, gpus=8, num_nodes=2, pool="cloud") == ["never_allowed"]


def programs(folder: Path, *names: str) -> str:
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return str(folder)


def missing(run: str, path: str, python: str = "") -> tuple[str, object]:
    parsed = parse_job({"name": "job", "run": run, "workdir": "/", "envs": {"PATH": path}})
    file_findings = Files().look(parsed, python)
    context = Context(ClusterState().state, "ada", lambda project, name: True, local=True, file_findings=file_findings)
    (found,) = [found for check in CHECKS if (found := check(parsed, context)) is not None]
    assert found.code == "no_command"
    return found.hint, found.data.get("instead")


def test_where_python_is_missing_the_refusal_says_what_to_write(tmp_path: Path) -> None:
    system, venv = (
        programs(tmp_path / "bin", "python3", "python3.11"),
        programs(tmp_path / "my venv", "python", "torchrun"),
    )
    empty = programs(tmp_path / "empty")
    mine = f"{venv}/python"
    (tmp_path / "usr").symlink_to(system)
    (tmp_path / "bin" / "python3.11").unlink()
    (tmp_path / "bin" / "python3.11").symlink_to("python3")
    # The one that submits, under the name that the job's PATH has for it, or by its path.
    assert missing("python t.py --lr 1", system, f"{system}/python3") == ("Write `python3 t.py --lr 1`.", "python3")
    assert missing("python t.py", system, f"{tmp_path}/usr/python3.11") == ("Write `python3 t.py`.", "python3")
    assert missing("python t.py\necho done", empty, mine) == (f"Write `'{mine}' t.py`.", mine)
    assert missing("python3 t.py", empty, mine)[1] == mine
    assert missing("torchrun t.py", system, mine)[1] == f"{venv}/torchrun"
    # A virtual environment's interpreter is a link to the system's, but has packages of its own.
    linked = programs(tmp_path / "linked")
    (Path(linked) / "python").symlink_to(f"{system}/python3")
    assert missing("python t.py", system, f"{linked}/python")[1] == f"{linked}/python"
    assert missing(f"python {'x' * 500}", empty, mine)[0].endswith("x …`.")


@pytest.mark.parametrize(
    "python", ["", "/no/such/python", "C:\\python.exe", "python3", "/etc/passwd", "/\0/python", "/" * 9_000]
)
def test_an_interpreter_of_another_machine_is_not_proposed(tmp_path: Path, python: str) -> None:
    system, empty = programs(tmp_path / "bin", "python3"), programs(tmp_path / "empty")
    assert missing("python t.py", system, python) == ("Write `python3 t.py`.", "python3")
    assert missing("python t.py", empty, python) == ("Correct `run`, or install the program.", None)
    assert missing("torchrun t.py", system, python)[1] is None


def test_folders_and_commands_are_looked_at_only_where_jobs_can_run_nowhere_else() -> None:
    """Of a job that may go to a cluster nobody here can tell whether its folder is there."""
    parsed = parse_job({"name": "job", "run": "no-such-command", "workdir": "/no-such-folder"})
    cluster_state = ClusterState(pools={"far": ("f0",)})

    def codes(**spec: Any) -> list[str]:
        context = Context(
            cluster_state.state, "ada", lambda project, name: True, local=True, file_findings=Files().look(parsed)
        )
        asked = parsed.model_copy(update=spec)
        return [found.code for check in CHECKS if (found := check(asked, context)) is not None]

    assert codes() == ["no_workdir"]
    cluster_state.apply(Event(PoolSet(name="far", engine="slurm"), 1.0))
    assert codes() == []
    assert codes(pool="far") == []
    assert codes(pool="main") == ["no_workdir"]


class HungDisk(Disk):
    """A file system that answers nothing until it is released, as an NFS folder whose server is away."""

    def __init__(self) -> None:
        self.asked, self.back = threading.Event(), threading.Event()

    def is_folder(self, path: str) -> bool:
        self.asked.set()
        assert self.back.wait(60)
        return True


def test_a_folder_that_hangs_delays_its_own_submit_alone() -> None:
    store = MemoryStore()
    commit = GroupCommit(store, on_commit=lambda events: None)
    commit.start()
    commit.submit(lambda state: Entry([*first_events(state, 1.0), node_event("n0", 2, 8)])).result(60)
    disk = HungDisk()

    def submitted(name: str, files: Files) -> str:
        spec = parse_job({"name": name, "run": "true", "workdir": "/"})
        proposal = submit(store, Submission(spec, "ada"), 2.0, True, files=files)
        return commit.submit(proposal).result(60)[0].job

    try:
        with ThreadPoolExecutor(1) as hung:
            first = hung.submit(submitted, "first", Files(disk))
            assert disk.asked.wait(60)
            try:
                assert submitted("second", Files()) == "second-1"
                assert not first.done()
            finally:
                disk.back.set()
            assert first.result(60) == "first-2"
    finally:
        commit.close()


class CountingDisk(Disk):
    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def is_folder(self, path: str) -> bool:
        self.asked.append(("folder", path))
        return super().is_folder(path)

    def exists(self, path: str) -> bool:
        self.asked.append(("file", path))
        return super().exists(path)

    def which(self, word: str, path: str | None) -> str:
        self.asked.append(("word", word, str(path)))
        return super().which(word, path)


def test_the_jobs_of_a_request_share_what_was_found(tmp_path: Path) -> None:
    disk = CountingDisk()
    files, path = Files(disk), programs(tmp_path / "bin", "train")
    for run, missing in (("train --lr 1", ""), ("train --lr 2", ""), ("./t.sh", "./t.sh"), ("other", "other")) * 3:
        spec = parse_job({"name": "job", "run": run, "workdir": str(tmp_path), "envs": {"PATH": path}})
        assert files.look(spec).missing == missing
    assert disk.asked == [
        ("folder", str(tmp_path)),
        ("word", "train", path),
        ("file", f"{tmp_path}/t.sh"),
        ("word", "other", path),
    ]
