"""Traces: every format that is read, what is refused and how it is told, and the clusters that they ran on."""

from __future__ import annotations

import csv
import gzip
import io
import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.errors import SpecError
from muster.core.rules import QueueRules, Rules
from muster.sim.cluster import cluster_file_of, read_cluster
from muster.sim.model import Cluster, PoolShape
from muster.sim.traces import READERS, read_history, read_trace
from muster.sim.traces.base import Ledger, Options, gang
from muster.sim.traces.history import cluster_of

HEADER = "job_id,user,vc,submit_s,duration_s,gpus,cpus,nodes,gpu_type,status"
EIGHT = Options(per_node=8)


def columns(tmp_path, *rows, header=HEADER, name="trace.csv"):
    path = tmp_path / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def refused(path, options=EIGHT, **named):
    with pytest.raises(SpecError) as caught:
        read_trace(path, options, **named)
    return caught.value


# --- columns ----------------------------------------------------------------------------------------------------------
def test_a_part_of_an_accelerator_and_memory(tmp_path):
    path = tmp_path / "parts.csv"
    path.write_text("job_id,submit_s,duration_s,gpus,cpus,memory\na,0,60,0.46,6,4e9\nb,1,60,2,8,\nc,2,60,1.0,8,\n")
    found = read_trace(path, Options(8)).jobs
    assert [(job.accelerators, job.share, job.each, job.memory) for job in found] == [
        (1, 460, 0.46, 4 * 10**9), (2, 1000, 2, 0), (1, 1000, 1, 0),
    ]  # fmt: skip


def test_a_row_becomes_a_job(tmp_path):
    (job,) = read_trace(columns(tmp_path, "17,ada,vcA,3.5,97,16,40,2,v100,completed"), EIGHT).jobs
    assert (job.id, job.user, job.queue, job.submit, job.duration) == ("17", "ada", "vcA", 3.5, 97.0)
    assert (job.nodes, job.accelerators, job.size, job.accelerator, job.cpus) == (2, 8, 16, "V100", 20.0)
    assert (job.status, job.priority, job.declared) == ("completed", 50, None)


def test_what_the_source_does_not_say_is_left_open(tmp_path):
    gpu, cpu = read_trace(columns(tmp_path, "0,,,0,10,4,,,,", "1,,,5,10,0,6,,V100,"), EIGHT).jobs
    assert (gpu.user, gpu.queue, gpu.accelerator, gpu.cpus, gpu.nodes) == ("", "", "", 0.0, 1)
    assert (cpu.size, cpu.accelerator, cpu.cpus) == (0, "", 6.0)


@pytest.mark.parametrize(
    ("total", "nodes", "shape", "remarked"),
    [
        (8, 0, (1, 8), False),
        (16, 0, (2, 8), False),
        (14, 0, (2, 7), True),
        (20, 4, (4, 5), False),
        (12, 0, (2, 6), True),
        (9, 0, (2, 5), True),
        (8, 4, (4, 2), False),
        (24, 2, (3, 8), False),
        (0, 3, (3, 0), False),
        (0, 0, (1, 0), False),
    ],
)
def test_wide_jobs_are_divided_evenly(total, nodes, shape, remarked):
    made = gang(total, nodes, 8)
    assert (made.nodes, made.accelerators) == shape
    assert bool(made.remark) is remarked


@given(st.integers(0, 5000), st.integers(0, 300), st.integers(1, 64))
def test_a_gang_holds_what_was_asked_and_fits_its_nodes(total, nodes, per_node):
    made = gang(total, nodes, per_node)
    assert made.nodes * made.accelerators >= total
    assert made.nodes * (made.accelerators - 1) < total or total == 0
    assert made.accelerators <= per_node
    assert made.nodes >= nodes


def test_jobs_come_in_the_order_of_submission_and_ties_in_that_of_the_file(tmp_path):
    found = read_trace(columns(tmp_path, "a,,,9,1,1,,,,", "b,,,5,1,1,,,,", "c,,,9,1,1,,,,", "d,,,0,1,1,,,,"), EIGHT)
    assert [job.id for job in found.jobs] == ["d", "b", "a", "c"]


def test_dates_are_counted_from_the_first_job(tmp_path):
    found = read_trace(columns(tmp_path, "a,,,1600000060,1,1,,,,", "b,,,1600000000,1,1,,,,"), EIGHT)
    assert [(job.id, job.submit) for job in found.jobs] == [("b", 0.0), ("a", 60.0)]


def test_columns_may_stand_in_any_order_and_others_are_named(tmp_path):
    path = columns(tmp_path, "4,7,1,x,2", header="GPUS,duration_s,submit_s,colour,job_id")
    found = read_trace(path, EIGHT)
    assert (found.jobs[0].id, found.jobs[0].size, found.jobs[0].duration) == ("2", 4, 7.0)
    assert found.ledger.notes() == ["columns that were not used: colour."]


def test_queues_get_names_that_a_policy_can_hold(tmp_path):
    found = read_trace(columns(tmp_path, "a,,team one,0,1,1,,,,", "b,,team/one,1,1,1,,,,", "c,,_x,2,1,1,,,,"), EIGHT)
    assert [job.queue for job in found.jobs] == ["team-one", "team-one-2", "x"]
    Rules(queues={job.queue: QueueRules() for job in found.jobs})
    (note,) = found.ledger.notes()
    assert "'team/one' is called 'team-one-2'" in note


# --- bad rows ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (",,,1,1,1,,,,", "job_id is missing"),
        ("x,,,,1,1,,,,", "submit_s is missing"),
        ("x,,,1,,1,,,,", "duration_s is missing"),
        ("x,,,1,1,,,,,", "gpus is missing"),
        ("x,,,-1,1,1,,,,", "submit_s is negative"),
        ("x,,,1,-5,1,,,,", "duration_s is negative"),
        ("x,,,1,1,-1,,,,", "gpus is negative"),
        ("x,,,nan,1,1,,,,", "submit_s is not a finite number"),
        ("x,,,1,NaN,1,,,,", "duration_s is not a finite number"),
        ("x,,,1,inf,1,,,,", "duration_s is not a finite number"),
        ("x,,,1,long,1,,,,", "duration_s is not a number"),
        ("x,,,1,315360001,1,,,,", "duration_s is over 315,360,000 seconds"),
        ("x,,,1,1,1000001,,,,", "gpus is over 1,000,000 accelerators"),
        ("x,,,1,1,1.5,,,,", "gpus is neither a whole number nor a part of one"),
        ("x,,,1,1,1,many,,,", "cpus is not a number"),
        ("x,,,1,1,1,,-2,,", "nodes is negative"),
        ("x,,,1,1,1", "it has 6 fields and not 10"),
        ("x,,,1,1,1,,,,,,", "it has 12 fields and not 10"),
        ("0,,,1,1,1,,,,", "its id was there before"),
    ],
)
def test_a_bad_row_is_counted_by_its_reason(tmp_path, row, reason):
    good = [f"{number},,,{number},1,1,,,," for number in range(99)]
    found = read_trace(columns(tmp_path, *good, row), EIGHT)
    assert len(found.jobs) == 99
    assert found.ledger.notes() == [f"1 row bad: {reason} (line 101)."]
    assert (found.ledger.rows, found.ledger.bad_rows) == (100, 1)


def test_beyond_the_share_that_is_allowed_the_trace_is_refused(tmp_path):
    rows = [f"{number},,,{number},{-1 if number % 10 == 0 else 1},1,,,," for number in range(100)]
    path = columns(tmp_path, *rows)
    error = refused(path)
    assert error.message == f"{path} is refused: 10 of 100 rows are bad, more than the 1% that --max-bad allows."
    (problem,) = error.problems
    assert (problem.where, problem.given) == ("lines 2, 12, 22, 32, 42, ...", "10 rows where duration_s is negative")
    assert len(read_trace(path, Options(8, max_bad=0.1)).jobs) == 90


# --- files that are no trace ------------------------------------------------------------------------------------------
def test_packed_and_plain_give_the_same_jobs(tmp_path):
    plain = columns(tmp_path, "a,,,0,1,1,,,,", "b,,,1,1,1,,,,")
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_trace(packed, EIGHT).jobs == read_trace(plain, EIGHT).jobs


def test_a_byte_order_mark_and_windows_lines_do_no_harm(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEADER}\r\na,,,0,1,1,,,,\r\n".encode())
    assert [job.id for job in read_trace(path, EIGHT).jobs] == ["a"]


def _cut(data):
    return gzip.compress(data * 200, mtime=0)[:-20]


@pytest.mark.parametrize(
    ("content", "given"),
    [
        (b"", "an empty file"),
        (b" \n\n", "an empty file"),
        (b"\x00\x01\x02\x03" * 100, "bytes that are no text"),
        (bytes(range(128, 256)), "bytes that are not UTF-8"),
        (_cut(b"job_id,submit_s,duration_s,gpus\n1,2,3,4\n"), "a gzip file that breaks off"),
        (b"\x1f\x8b\x08\x00garbage that no one packed", "a gzip file that is damaged"),
        (b"once upon a time\n", "a first line that reads 'once upon a time'"),
        (f"{HEADER}\n".encode(), "no job"),
    ],
)
def test_what_is_no_trace_is_told_clearly(tmp_path, content, given):
    path = tmp_path / "trace"
    path.write_bytes(content)
    (problem,) = refused(path).problems
    assert problem.given.startswith(given)
    assert problem.expected
    assert problem.hint


def test_a_file_that_is_not_there_is_told_clearly(tmp_path):
    (problem,) = refused(tmp_path / "none.csv").problems
    assert problem.given == "no such file"


def test_wrong_columns_are_named_with_their_nearest(tmp_path):
    error = refused(columns(tmp_path, "1,2,3,4", header="id,submit_time,duration,gpu_num"))
    assert [problem.expected for problem in error.problems] == [
        "a column 'job_id'", "a column 'submit_s'", "a column 'duration_s'", "a column 'gpus'",
    ]  # fmt: skip
    hints = " ".join(problem.hint for problem in error.problems)
    assert "Rename the column 'submit_time' to 'submit_s'." in hints
    assert "Rename the column 'duration' to 'duration_s'." in hints
    assert "Rename the column 'gpu_num' to 'gpus'." in hints


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_a_trace_or_an_error_of_ours(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "trace"
    path.write_bytes(content)
    for name in (None, *READERS):
        with suppress(SpecError):
            read_trace(path, EIGHT, name)


_CELL = st.one_of(st.sampled_from(["", "1", "0", "-1", "nan", "1e300", "8", "x", '"', "1_0"]), st.text(max_size=4))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(_CELL, min_size=10, max_size=10), max_size=12))
def test_any_rows_are_jobs_or_counted(tmp_path_factory, rows):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADER.split(","), *rows])
    path = tmp_path_factory.mktemp("rows") / "trace.csv"
    path.write_text(text.getvalue(), encoding="utf-8", errors="replace", newline="")
    try:
        found = read_trace(path, Options(8, max_bad=1.0))
    except SpecError:
        return
    assert len(found.jobs) + found.ledger.bad_rows == found.ledger.rows
    assert all(job.nodes >= 1 and job.duration >= 0 and job.accelerators <= 8 for job in found.jobs)


# --- SWF --------------------------------------------------------------------------------------------------------------
SWF = """\
; Version: 2.2
; MaxNodes: 4
; MaxProcs: 16
  1   10  5  100  4  -1  -1   4  200  -1 1  7  3 11 2 1 -1 -1
  2   20  5   50 -1  -1  -1  10   -1 512 0  7 -1 -1 -1 2 -1 -1
  3   30 -1   -1 -1  -1  -1   4  200  -1 5  8  3 -1 2 1 -1 -1
  4   40 -1   60  6  -1  -1   6  200  -1 2  8  3 -1 2 1 -1 -1
; a comment between
  5   50 -1   60  0  -1  -1   0  200  -1 1  8  3 -1 2 1 -1 -1
"""


def test_swf_jobs_come_with_their_cluster(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(SWF)
    found = read_trace(path, Options(max_bad=0.5))
    first, second = found.jobs
    assert found.format == "swf"
    assert (first.id, first.submit, first.duration, first.nodes, first.accelerators) == ("1", 10.0, 100.0, 1, 4)
    assert (first.declared, first.user, first.queue, first.project, first.name, first.status) == (
        200.0, "7", "queue-2", "group-3", "program-11", "completed",
    )  # fmt: skip
    assert (second.nodes, second.accelerators, second.memory, second.queue) == (3, 4, 4 * 512 * 1024, "partition-2")
    assert (second.declared, second.status) == (None, "failed")
    assert found.ledger.cluster == Cluster((PoolShape("nodes", 4, 4, "GPU"),))
    assert found.ledger.left_out == {"it never ran": 1, "one burst of a job that has a line of its own": 1}
    assert [(reason, tally.lines) for reason, tally in found.ledger.bad.items()] == [
        ("the number of processors is 0", [9])
    ]


def test_swf_processors_of_a_node_may_be_given(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(SWF)
    found = read_trace(path, Options(procs_per_node=2, max_bad=0.5))
    assert [(job.nodes, job.accelerators) for job in found.jobs] == [(2, 2), (5, 2)]
    assert found.ledger.cluster == Cluster((PoolShape("nodes", 8, 2, "GPU"),))


def test_swf_without_a_size_says_what_to_give(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text("".join(line for line in SWF.splitlines(keepends=True) if "Max" not in line))
    (problem,) = refused(path, Options()).problems
    assert "--procs-per-node" in problem.hint


# --- sacct ------------------------------------------------------------------------------------------------------------
SACCT = """\
JobID|JobName|User|Account|Partition|Submit|Start|End|Elapsed|Timelimit|State|NNodes|ReqTRES|AllocTRES
100|train|ada|nlp|gpu,long|2024-03-01T10:00:00|2024-03-01T10:05:00|2024-03-02T12:05:00|1-02:00:00|2-00:00:00|COMPLETED|2|billing=1,cpu=64,gres/gpu=16,mem=1T,node=2|billing=1,cpu=64,gres/gpu:a100=16,gres/gpu=16,mem=1T,node=2
100.batch|batch||nlp||2024-03-01T10:05:00|2024-03-01T10:05:00|2024-03-02T12:05:00|1-02:00:00||COMPLETED|1||cpu=32,mem=512G,node=1
100.0|python||nlp||2024-03-01T10:05:00|2024-03-01T10:05:00|2024-03-02T12:05:00|1-02:00:00||COMPLETED|2||cpu=64,node=2
101_3|prep|bob|vision|cpu|2024-03-01T09:59:00|2024-03-01T10:00:00|2024-03-01T10:01:30|00:01:30|UNLIMITED|CANCELLED by 1000|1|cpu=8,mem=4000M,node=1|cpu=8,mem=4000M,node=1
102|wait|bob|vision|gpu|2024-03-01T10:00:00|Unknown|Unknown|00:00:00|Partition_Limit|PENDING|1|cpu=8,gres/gpu=1,node=1|
103|gone|bob|vision|gpu|2024-03-01T10:00:00|None|2024-03-01T11:00:00|00:00:00|01:00:00|CANCELLED|1|cpu=8,gres/gpu=1,node=1|
104|typed|bob|vision|gpu|2024-03-01T11:00:00|2024-03-01T11:00:00|2024-03-01T11:00:10|00:00:10|30:00|TIMEOUT|1|cpu=8,node=1|cpu=8,gres/gpu:h100=3,node=1
105|broken|bob|vision|gpu|yesterday|2024-03-01T11:00:00|2024-03-01T11:00:10|00:00:10|30:00|TIMEOUT|1|cpu=8,node=1|cpu=8,node=1
"""  # noqa: E501


def test_sacct_output_is_read_as_it_is_printed(tmp_path):
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT)
    found = read_trace(path, Options(8, max_bad=0.5))
    prep, train, typed = found.jobs
    assert found.format == "sacct"
    assert (prep.id, prep.submit, prep.duration, prep.size, prep.cpus, prep.memory) == (
        "101_3", 0.0, 90.0, 0, 8.0, 4000 * 1024**2,
    )  # fmt: skip
    assert (prep.declared, prep.status) == (None, "cancelled")
    assert (train.submit, train.duration, train.declared) == (60.0, 93_600.0, 172_800.0)
    assert (train.nodes, train.accelerators, train.accelerator, train.cpus) == (2, 8, "A100", 32.0)
    assert (train.memory, train.user, train.queue, train.project, train.name) == (
        2**39, "ada", "gpu", "nlp", "train",
    )  # fmt: skip
    assert (typed.size, typed.accelerator, typed.declared) == (3, "H100", 1800.0)
    assert found.ledger.left_out == {
        "it has not ended": 1,
        "it never ran": 1,
        "steps, which their jobs contain": 2,
    }
    assert [(reason, tally.lines) for reason, tally in found.ledger.bad.items()] == [("Submit is no ISO time", [9])]


def test_sacct_with_a_separator_at_the_end_and_raw_numbers(tmp_path):
    path = tmp_path / "sacct.txt"
    path.write_text(
        "JobIDRaw|Submit|ElapsedRaw|TimelimitRaw|NNodes|\n7|1700000000|30|5|2|\n8|1700000001|40|UNLIMITED|1|\n"
    )
    seven, eight = read_trace(path, EIGHT).jobs
    assert (seven.id, seven.duration, seven.declared, seven.nodes) == ("7", 30.0, 300.0, 2)
    assert (eight.submit, eight.declared) == (1.0, None)


def test_sacct_without_what_is_needed_says_how_to_export_it(tmp_path):
    path = tmp_path / "sacct.txt"
    path.write_text("JobID|User|State\n7|ada|COMPLETED\n")
    error = refused(path)
    assert [problem.expected for problem in error.problems] == [
        "a column Submit", "a column Elapsed", "a column AllocTRES",
    ]  # fmt: skip
    assert "sacct -aXP" in error.problems[0].hint


# --- Muster's own -----------------------------------------------------------------------------------------------------
def past(number, **changes):
    return {
        "id": f"job-{number}", "number": number, "name": "job", "kind": "eval", "project": "nlp", "queue": "research",
        "user": "ada", "phase": "succeeded", "submitted_at": 1.7e9 + number, "started_at": 1.7e9 + number + 5,
        "finished_at": 1.7e9 + number + 65, "attempt": 1, "num_nodes": 2, "priority": 75,
        "resources": {"cpus": 4.0, "memory": 1000, "accelerator": "H100", "accelerators": 8}, **changes,
    }  # fmt: skip


def test_history_is_read_one_a_line_or_in_one_document(tmp_path):
    jobs = [past(2), past(1), past(3, finished_at=None), past(4, started_at=None), past(5, attempt=2)]
    jobs.append(past(6, kind="sweep", num_nodes=0, attempt=0))
    texts = ["\n".join(map(json.dumps, jobs)), json.dumps({"jobs": jobs}), json.dumps({"jobs": jobs}, indent=1)]
    for text in texts:
        path = tmp_path / "jobs.json"
        path.write_text(text)
        found = read_trace(path, EIGHT)
        assert found.format == "history"
        assert [(job.id, job.submit) for job in found.jobs] == [("job-1", 0.0), ("job-2", 1.0), ("job-5", 4.0)]
        assert found.jobs == read_history(jobs, "server", 0.0).jobs
        assert found.ledger.left_out == {"it has not ended": 1, "it never ran": 1, "it held no nodes": 1}
        assert found.ledger.notes()[-1].startswith("1 job: started more than once")
    job = found.jobs[0]
    assert (job.duration, job.nodes, job.accelerators, job.accelerator, job.cpus) == (60.0, 2, 8, "H100", 4.0)
    assert (job.memory, job.user, job.queue, job.project, job.kind, job.priority) == (
        1000, "ada", "research", "nlp", "eval", 75,
    )  # fmt: skip


def test_bad_history_is_counted(tmp_path):
    path = tmp_path / "jobs.json"
    lines = [json.dumps(past(1)), "{", json.dumps({"id": "x"}), json.dumps(past(2, finished_at=1.6e9)), "3"]
    path.write_text("\n".join(lines))
    found = read_trace(path, Options(8, max_bad=1.0))
    assert {reason: tally.lines for reason, tally in found.ledger.bad.items()} == {
        "it is no JSON object": [2, 5],
        "submitted_at is missing": [3],
        "finished_at after started_at is negative": [4],
    }


def test_the_nodes_of_a_server_are_pools():
    def node(pool, accelerators, kind):
        return {"pool": pool, "total": {"cpus": 4.0, "memory": 9, "accelerator": kind, "accelerators": accelerators}}

    found = cluster_of([node("main", 8, "H100"), node("cpu", 0, ""), node("main", 8, "H100"), node("main", 4, "H100")])
    assert [(pool.name, pool.nodes, pool.accelerators) for pool in found.pools] == [
        ("cpu", 1, 0), ("main", 1, 4), ("main-2", 2, 8),
    ]  # fmt: skip


def test_a_format_that_was_named_is_not_guessed(tmp_path):
    assert "JSON" in refused(columns(tmp_path, "a,,,0,1,1,,,,"), format="history").problems[0].given


def test_a_ledger_keeps_the_first_lines_alone():
    ledger = Ledger("t")
    for line in range(1, 20):
        ledger.reject(line, "it is bad")
    assert ledger.notes() == ["19 rows bad: it is bad (lines 1, 2, 3, 4, 5, ...)."]


# --- clusters ---------------------------------------------------------------------------------------------------------
VIRTUAL = {
    "trace": "T",
    "license": "L",
    "gpus_per_node": 8,
    "gpu_type": "v100",
    "virtual_cluster_nodes": {"a": 2, "b": 3},
}


def cluster(tmp_path, text, name="cluster.yaml"):
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def test_pools_are_read_from_yaml(tmp_path):
    text = """
pools:
  a100: {nodes: 16, accelerators: "A100:8", cpus: 128, memory: 1TB, rack: 4, spot: yes}
  cpu: {nodes: 2, cpus: 64}
queues: {prep: cpu}
"""
    found = read_cluster(cluster(tmp_path, text))
    a100, cpu = found.cluster.pools
    assert a100 == PoolShape("a100", 16, 8, "A100", 128.0, 10**12, 4, True)
    assert (cpu.nodes, cpu.accelerators, cpu.spot) == (2, 0, False)
    assert found.cluster.bound == {"prep": "cpu"}
    assert (found.per_node, found.virtual) == (8, {})


def test_a_trace_with_plain_nodes(tmp_path):
    found = read_cluster(cluster(tmp_path, {"nodes": 8, "gpus_per_node": 4, "jobs": 5}))
    assert found.cluster == Cluster((PoolShape("gpu", 8, 4, "GPU"),))


def test_virtual_clusters_are_confined_or_share(tmp_path):
    found = read_cluster(cluster(tmp_path, VIRTUAL))
    confined, shared = found.lay_out("confined"), found.lay_out("shared")
    assert [(pool.name, pool.nodes, pool.accelerators, pool.accelerator) for pool in confined.pools] == [
        ("a", 2, 8, "V100"), ("b", 3, 8, "V100"),
    ]  # fmt: skip
    assert confined.bound == {"a": "a", "b": "b"}
    assert [(pool.name, pool.nodes) for pool in shared.pools] == [("v100", 5)]
    assert shared.bound == {}
    assert found.origin == {"trace": "T", "license": "L"}


def test_in_a_shared_layout_each_has_its_nodes_as_quota(tmp_path):
    found = read_cluster(cluster(tmp_path, VIRTUAL))
    rules = Rules(defaults=QueueRules(weight=2.0), queues={"b": QueueRules(quota={"v100": 1})})
    shared = found.with_quotas(rules, "shared")
    assert shared.queues["a"] == QueueRules(weight=2.0, quota={"v100": 16})
    assert shared.queues["b"].quota == {"v100": 1}  # what a policy says goes before
    assert found.with_quotas(rules, "confined") is rules


@pytest.mark.parametrize(
    ("text", "where", "hint"),
    [
        ("pools: {a: {nodes: 0}}", "pools.a.nodes (line 1)", "`nodes: 16`"),
        ("pools: {a: {node: 4}}", "pools.a.node (line 1)", "Did you mean `nodes`?"),
        ("pools: {a: {nodes: 4, accelerators: A100x8}}", "pools.a.accelerators (line 1)", "Write `A100:8`."),
        ("pools: {a: {nodes: 4, accelerators: 'A100:0.5'}}", "pools.a.accelerators (line 1)", "whole accelerators"),
        ("pools: {a: {nodes: 4, memory: 64}}", "pools.a.memory (line 1)", "64GB"),
        ("pools: {a: {nodes: 4, cpus: -1}}", "pools.a.cpus (line 1)", "cpus: 128"),
        ("pools: {a: 4}", "pools.a (line 1)", "nodes: 16"),
        ("pools: {}", "pools (line 1)", "nodes: 16"),
        ("pools: {a: {nodes: 1}}\nqueues: {q: b}", "queues.q (line 2)", "`a`"),
        ("pools: {a: {nodes: 1}}\nnodes: 4", "nodes (line 2)", "pools"),
        ("{}", "the whole file", "pools"),
        ("[]", "the whole file", "pools"),
        ('{"nodes": 3}', "gpus_per_node", "gpus_per_node: 8"),
        ('{"virtual_cluster_nodes": {"a": "x"}, "gpus_per_node": 8}', "virtual_cluster_nodes.a (line 1)", "nodes: 16"),
        ('{"virtual_cluster_nodes": 3, "gpus_per_node": 8}', "virtual_cluster_nodes (line 1)", "vc1"),
    ],
)
def test_mistakes_in_a_cluster_file_are_told(tmp_path, text, where, hint):
    with pytest.raises(SpecError) as caught:
        read_cluster(cluster(tmp_path, text))
    found = {problem.where: problem for problem in caught.value.problems}
    assert where in found, found
    assert hint in found[where].hint + found[where].expected


def test_a_cluster_file_that_is_not_there(tmp_path):
    with pytest.raises(SpecError) as caught:
        read_cluster(tmp_path / "none.yaml")
    assert caught.value.problems[0].where == "the path"


def test_the_file_beside_a_trace_is_found(tmp_path):
    trace = tmp_path / "t.one.csv.gz"
    assert cluster_file_of(trace) is None
    path = cluster(tmp_path, VIRTUAL, "t.one.json")
    assert cluster_file_of(trace) == path
    assert cluster_file_of(path) is None  # a history is not its own cluster
