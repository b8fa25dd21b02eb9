"""What is asked of Slurm and what its words mean, without one: node lists, submissions, reasons, settings, books."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.control.usage_audit import Attempted, compare
from muster.core.errors import ConfigError, EngineError
from muster.core.reasons import REASONS
from muster.core.resources import Resources
from muster.engines.base import GangLaunch, Seat, Usage
from muster.engines.describe import Home
from muster.engines.slurm.adapter import SlurmAdapter
from muster.engines.slurm.config import read
from muster.engines.slurm.history import usages
from muster.engines.slurm.machines import health_of, node_infos, pools_of
from muster.engines.slurm.model import (
    JobRow,
    MachineRow,
    PartitionRow,
    PastRow,
    SlurmClient,
    Submission,
    expand,
    gpus_of,
    tres,
)
from muster.engines.slurm.reasons import WAITS, exit_of, state_from_message, wait_of
from muster.engines.slurm.settings import PoolSettings, check
from muster.engines.slurm.submission import submission_of, together
from muster.engines.slurm.tools import Tools, options

HOME = Home(Path("/srv/muster"), "0123456789", lambda: ["http://127.0.0.1:1"])
MACHINE = MachineRow("n1", ("IDLE",), 16, 64000, "gpu:h100:8(S:0-1)", ("low", "high"), features=("fast",))


def gang(**changes: Any) -> GangLaunch:
    values: dict[str, Any] = {
        "job": "job-1", "attempt": 1, "seats": [Seat("low/1")], "nproc": 1, "run": "true", "workdir": "/", "envs": {},
        "secrets": (), "token": "t", "checkpoint_keep": 1, "checkpoint_every": None, "max_duration": None,
        "memory": None, "stop_grace": 30.0, "pool": "low", "ask": Resources(1500, 1 << 30, 2, "H100"),
    }  # fmt: skip
    return GangLaunch(**{**values, **changes})


def asked(settings: dict[str, Any] | None = None, privileged: bool = True, **changes: Any) -> Submission:
    found = check("slurm", settings or {}, HOME)
    return submission_of(gang(**changes), found, PoolSettings("low"), [MACHINE], "0123456789", privileged)


@given(st.lists(st.tuples(st.sampled_from(["n", "gpu-a", "x"]), st.integers(0, 300)), min_size=1, max_size=5))
def test_lists_of_nodes_are_read_in_their_order(parts: list[tuple[str, int]]) -> None:
    short = ",".join(f"{head}[{first:03d}-{first + 2:03d},999]" for head, first in parts)
    whole = [f"{head}{n:03d}" for head, first in parts for n in (first, first + 1, first + 2, 999)]
    assert list(expand(short)) == whole


def test_odd_lists_of_nodes() -> None:
    assert expand("") == expand("(null)") == ()
    assert expand("a,b[1-2]c,d") == ("a", "b1c", "b2c", "d")
    assert expand("r[1-2]n[1-2]") == ("r1n1", "r1n2", "r2n1", "r2n2")


def test_gres_and_tres_as_slurm_writes_them() -> None:
    assert gpus_of("gpu:h100:8(S:0-1),nvme:2") == [("h100", 8)]
    assert gpus_of("gpu:4") == [("", 4)]
    assert gpus_of("(null)") == []
    assert tres("cpu=8,mem=1.5G,node=2,gres/gpu=2,gres/gpu:h100=2") == {
        "cpu": 8, "mem": 1536, "node": 2, "gres/gpu": 2, "gres/gpu:h100": 2,
    }  # fmt: skip


def test_a_job_asks_for_what_its_file_says() -> None:
    wanted = asked(max_duration=600.0, options={"qos": "long", "constraint": "fast", "exclusive": True, "nice": 7})
    assert (wanted.partition, wanted.cpus, wanted.memory, wanted.gres) == ("low", 2, 1024, "gpu:h100:2")
    # The launcher ends it at 600 s; Slurm's signal, up to 60 s early, must come later.
    assert wanted.minutes == 12
    assert (wanted.qos, wanted.constraint, wanted.exclusive, wanted.nice) == ("long", "fast", True, 7)
    words = options(wanted)
    assert "--gres=gpu:h100:2" in words
    assert "--comment=muster:0123456789:job-1:1" in words
    assert "--signal=B:USR1@60" in words


def test_any_kind_of_accelerator_is_asked_for_without_a_type() -> None:
    assert asked(ask=Resources(1000, 0, 2, "GPU")).gres == "gpu:2"
    assert asked(ask=Resources(1000, 0, 0, "")).gres == ""


@pytest.mark.parametrize(
    ("priority", "privileged", "nice"), [(50, True, 0), (95, True, -4500), (95, False, 0), (20, False, 3000)]
)
def test_priority_becomes_nice_and_only_who_may_goes_before_others(priority: int, privileged: bool, nice: int) -> None:
    assert asked(privileged=privileged, priority=priority).nice == nice


def test_priority_becomes_a_qos_where_that_is_set() -> None:
    settings = {"priority": "qos", "priority_qos": {"0": "scavenge", "high": "urgent"}}
    assert (asked(settings, priority=50).qos, asked(settings, priority=75).qos) == ("scavenge", "urgent")
    assert asked(settings, priority=50).nice is None


@pytest.mark.parametrize("option", ["--uid=0", "--wrap=id", "-o x", "--export=ALL", "--output=/etc/passwd", "hostname"])
def test_options_that_change_who_or_what_runs_are_refused(option: str) -> None:
    with pytest.raises(EngineError, match=r"slurm\.extra"):
        asked(options={"extra": [option]})


def test_alike_jobs_of_one_node_go_together_and_gangs_alone() -> None:
    one = [asked(job=f"job-{i}") for i in range(5)]
    two = asked(job="job-9", seats=[Seat("a"), Seat("b")])
    other = asked(job="job-8", ask=Resources(9000))
    assert together([*one, two, other], 3) == [[0, 1, 2], [3, 4], [5], [6]]


def test_every_end_has_a_reason_that_exists() -> None:
    for state in ("NODE_FAIL", "PREEMPTED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY", "REQUEUED", "FAILED", "COMPLETED"):
        for started in (True, False):
            assert exit_of(state, started, "job 7").reason in REASONS
    assert exit_of("NODE_FAIL", True, "").reason == "node_lost"
    assert exit_of("FAILED", False, "it printed: no such python").reason == "launch_failed"


@pytest.mark.parametrize(
    ("told", "state"),
    [
        ("slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***", "PREEMPTED"),
        ("error: *** STEP 1.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***", "TIMEOUT"),
        ("*** JOB 1 ON n1 CANCELLED AT X DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", "NODE_FAIL"),
        ("*** JOB 1 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***", "CANCELLED"),
        ("", ""),
    ],
)
def test_what_the_script_was_told(told: str, state: str) -> None:
    assert state_from_message(told) == state


@pytest.mark.parametrize(
    ("reason", "code", "words"),
    [
        ("Priority", "Priority", "higher priority"),
        ("QOSMaxGRESPerUser", "QOSMaxGRESPerUser", "the QOS allows no more GPUs for each user"),
        ("AssocGrpGRES", "AssocGrpGRES", "the account or user allows no more GPUs"),
        ("AssocGrpCPURunMinutesLimit", "AssocGrpCPURunMinutesLimit", "CPUs times minutes"),
        ("ReqNodeNotAvail, UnavailableNodes:n2", "ReqNodeNotAvail", "down, drained or reserved"),
        ("Nodes required for job are DOWN, DRAINED or reserved", "ReqNodeNotAvail", "down, drained or reserved"),
        ("SomethingNew", "SomethingNew", "no more than that"),
    ],
)
def test_waits_in_sentences(reason: str, code: str, words: str) -> None:
    found = wait_of("job-1", 2, JobRow("7", "7", "PENDING", 0, reason, 1000.0, (), 1, ""))
    assert (found.code, found.starts_at) == (code, 1000.0)
    assert words in found.message
    assert not any(sentence.endswith(".") for sentence in WAITS.values())


@pytest.mark.parametrize(
    ("topology", "seats", "extra"),
    [
        ({"require": "rack"}, 2, ("--switches=1",)),
        ({"prefer": "rack"}, 2, ("--switches=1@5",)),
        ({"require": "zone"}, 2, ()),
        ({"require": "rack"}, 1, ()),
        ({"require": "rack", "options": {"extra": ["--switches=2"]}}, 2, ("--switches=2",)),
    ],
)
def test_one_switch_is_asked_for_where_it_is_what_the_job_calls_it(
    topology: dict[str, Any], seats: int, extra: tuple[str, ...]
) -> None:
    wanted = {"seats": [Seat(f"low/{number}") for number in range(seats)], **topology}
    assert asked({"switch": "rack"}, **wanted).extra == extra
    assert not [option for option in asked(**{**wanted, "options": {}}).extra if "switches" in option]


def test_the_slots_of_a_pool_share_what_slurm_sees_to() -> None:
    pools = pools_of([PartitionRow("low", True, True)], {})
    found = node_infos([MACHINE], pools, 2.0, "rack")
    assert {one.labels.get("rack") for one in found if one.role == "slot"} == {"low"}
    assert {one.labels.get("rack") for one in found if one.role == "machine"} == {None}


def test_machines_are_listed_once_and_slots_by_partition() -> None:
    machines = [MACHINE, MachineRow("n2", ("DOWN", "NOT_RESPONDING"), 8, 1000, "", ("low",), "gone")]
    pools = pools_of([PartitionRow("high", False, True), PartitionRow("low", True, True)], {})
    found = node_infos(machines, pools, 2.0)
    assert [(n.name, n.pool, n.health) for n in found if n.role == "machine"] == [
        ("n1", "low", "healthy"), ("n2", "low", "suspect"),
    ]  # fmt: skip
    assert [n.name for n in found if n.pool == "high"] == [f"high/{i}" for i in range(1, 10)]
    assert {n.resources.accelerator for n in found if n.role == "slot"} == {"H100", ""}


@pytest.mark.parametrize(
    ("states", "health"),
    [
        (("IDLE",), "healthy"), (("MIXED", "DRAIN"), "draining"), (("IDLE", "POWERED_DOWN"), "healthy"),
        (("ALLOCATED", "NOT_RESPONDING"), "suspect"), (("IDLE", "MAINT"), "draining"), (("DOWN", "DRAIN"), "suspect"),
    ],
)  # fmt: skip
def test_states_of_machines(states: tuple[str, ...], health: str) -> None:
    assert health_of(MachineRow("n", states, 1, 1, "", ()))[0] == health


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rooot": "/x"}, "Did you mean `root`"),
        ({"root": "relative"}, "begins with `/`"),
        ({"priority": "rank"}, "`nice`, `qos` or `none`"),
        ({"priority": "qos"}, "go together"),
        ({"look_every": "soon"}, "a duration is expected"),
        ({"pools": {"a": {"partitoin": "x"}}}, "Did you mean `partition`"),
        ({"rest": "somewhere"}, "unix:/path"),
        ({"python": 3}, "a text is expected"),
    ],
)
def test_settings_that_make_no_sense_say_what_would(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read("slurm", settings, HOME)
    assert words in str(caught.value)


def test_every_run_of_a_job_that_was_queued_again_is_its_own_attempt() -> None:
    rows = [
        PastRow("7", "PREEMPTED", ("n1",), 100.0, 160.0, 60.0, 2, 1),
        PastRow("7", "COMPLETED", ("n2",), 200.0, 230.0, 30.0, 2, 1),
        PastRow("8", "COMPLETED", ("n2",), 200.0, 230.0, 30.0, 2, 1),
    ]
    found = usages(rows, [("7", 0, ("job-1", 1)), ("7", 1, ("job-1", 2))])
    assert [(u.job, u.attempt, u.nodes, u.accelerator_seconds) for u in found] == [
        ("job-1", 1, ("n1",), 60.0), ("job-1", 2, ("n2",), 30.0),
    ]  # fmt: skip


def test_books_differ_where_they_do_and_only_there() -> None:
    ours = [
        Attempted("a", 1, ("n1",), 100.0, 200.0, 1),
        Attempted("b", 1, ("n1",), 100.0, 200.0, 1),
        Attempted("c", 1, ("n1",), 100.0, 4000.0, 2),
        Attempted("d", 1, (), None, 90.0, 2),
    ]
    theirs = [
        Usage("a", 1, "COMPLETED", ("n1",), 98.0, 203.0, 105.0, 0.0),
        Usage("c", 1, "COMPLETED", ("n2",), 100.0, 2000.0, 3800.0, 0.0),
        Usage("e", 3, "COMPLETED", ("n2",), 100.0, 2000.0, 3800.0, 0.0),
    ]
    assert [(d.job, d.what) for d in compare(ours, theirs)] == [
        ("b", "unknown_to_engine"), ("c", "nodes"), ("c", "ended"), ("c", "accelerator_time"),
        ("e", "unknown_to_muster"),
    ]  # fmt: skip


def test_a_drained_node_is_looked_at_again_even_moments_after_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.engines.slurm.adapter.time", SimpleNamespace(monotonic=lambda: 1.0))
    client = SimpleNamespace(
        jobs=list, machines=lambda: [MACHINE], partitions=lambda: [PartitionRow("low", True, True)],
        drain=lambda node, why: None,
    )  # fmt: skip
    adapter = SlurmAdapter(check("slurm", {"root": str(tmp_path)}, HOME), HOME, cast(SlurmClient, client), Tools({}))
    assert adapter.look(nodes=True).nodes
    assert adapter.look(nodes=False).nodes is None  # they are known, and looked at again after a while
    adapter.drain("n1", "a bad fan")
    assert adapter.look(nodes=False).nodes
