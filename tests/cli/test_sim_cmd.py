"""`muster sim`: the command from the trace to the table, and how it tells what it can't work with."""

from __future__ import annotations

import json

import pytest

HEADER = "job_id,user,vc,submit_s,duration_s,gpus,cpus,nodes,gpu_type,status"
CLUSTER = {"trace": "A made-up trace", "license": "CC0", "gpus_per_node": 8, "virtual_cluster_nodes": {"a": 1, "b": 1}}


@pytest.fixture
def trace(tmp_path):
    """Two virtual clusters of a node each; `a` has more work than it can hold, `b` next to none."""
    rows = [
        f"{n},u{n % 3},{'b' if n % 10 == 9 else 'a'},{n * 10},{100 + n},{(1, 4, 8)[n % 3]},,,,ok" for n in range(40)
    ]
    path = tmp_path / "work.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    (tmp_path / "work.json").write_text(json.dumps(CLUSTER))
    return path


def test_policies_are_compared(muster, trace):
    found = muster("sim", str(trace), "-p", "fifo", "-p", "sjf")
    assert found.code == 0, found.err
    lines = found.out.splitlines()
    assert lines[0] == "40 jobs of work.csv"
    assert lines[1].split() == ["fifo", "sjf", "(oracle)"]
    figures = {line[:20].strip(): line for line in lines[2:]}
    assert figures["jobs finished"].split()[-2:] == ["40", "40"]
    assert "×" in figures["completion, mean"]
    assert "A made-up trace. CC0" in found.err


def test_json_has_every_figure(muster, trace):
    found = muster("sim", str(trace), "-p", "fifo", "-p", "easy", "--json")
    assert (found.code, found.err) == (0, "")
    first, second = found.json["policies"]
    assert [first["name"], second["name"]] == ["fifo", "easy"]
    assert (first["figures"]["jobs"], first["oracle"], first["ratios"]["completion_mean"]) == (40, False, 1.0)
    mean = second["figures"]["completion"]["mean"] / first["figures"]["completion"]["mean"]
    assert second["ratios"]["completion_mean"] == pytest.approx(mean)
    assert first["cluster"]["bound"] == {"a": "a", "b": "b"}
    assert found.json["trace"] == {
        "source": str(trace), "format": "columns", "rows": 40, "bad": {}, "left_out": {},
        "origin": {"trace": "A made-up trace", "license": "CC0"},
    }  # fmt: skip


def test_sharing_what_was_confined_helps_who_had_too_little(muster, trace):
    found = muster("sim", str(trace), "-p", "fifo", "--confined", "--shared", "--json").json["policies"]
    assert [one["name"] for one in found] == ["fifo (confined)", "fifo (shared)"]
    assert [len(one["cluster"]["pools"]) for one in found] == [2, 1]
    assert found[1]["ratios"]["queueing_mean"] < 1
    assert found[1]["rules"]["queues"]["a"]["quota"] == {"gpu": 8}


def test_more_nodes_and_less_load_shorten_the_wait(muster, trace):
    def wait(*words):
        found = muster("sim", str(trace), "-p", "fifo", "--json", *words)
        assert found.code == 0, found.out
        return found.json["policies"][0]["figures"]["queueing"]["mean"]

    plain = wait()
    assert wait("--add-nodes", "a=3") < plain
    assert wait("--load", "0.2") < plain < wait("--load", "2")
    assert wait("--first", "3") < plain


def test_failures_cost_and_a_seed_repeats_them(muster, trace):
    words = (
        "sim",
        str(trace),
        "-p",
        "fifo",
        "--node-failures",
        "300",
        "--repair",
        "60s",
        "--restart-cost",
        "20s",
        "--json",
    )

    def figures(*more):
        found = muster(*words, *more).json["policies"][0]["figures"]
        return {name: value for name, value in found.items() if name != "wall"}

    once = figures("--seed", "1")
    assert once["failures"] > 0
    assert once["lost"] > 0
    assert figures("--seed", "1") == once
    assert figures("--seed", "2") != once


def test_a_policy_file_and_what_is_set_over_it(muster, trace, tmp_path):
    policy = tmp_path / "mine.yaml"
    policy.write_text("preemption: false\nqueues: {a: {weight: 3}}\n")
    words = ("--set", "preemption.grace=30s", "--weight", "b=2", "--quota", "a=4", "--shared", "--json")
    (found,) = muster("sim", str(trace), "-p", str(policy), *words).json["policies"]
    assert found["name"] == "mine"
    assert found["rules"]["preemption"] == {"enabled": False, "grace": 30.0}
    assert found["rules"]["queues"]["a"] == {"weight": 3.0, "quota": {"gpu": 4}}
    assert found["rules"]["queues"]["b"]["weight"] == 2.0


def test_the_report_is_written(muster, trace, tmp_path):
    found = muster("sim", str(trace), "-p", "fifo", "--report", "out.html")
    assert found.code == 0
    assert "Report: out.html" in found.err
    text = (tmp_path / "out.html").read_text()
    assert "40 jobs of work.csv" in text
    assert "A made-up trace" in text


def test_bad_rows_are_told_and_taken_up_to_a_share(muster, trace):
    trace.write_text(trace.read_text() + "x,,,1,-1,1,,,,\n")
    found = muster("sim", str(trace), "-p", "fifo")
    assert found.code == 2
    assert "is refused: 1 of 41 rows are bad, more than the 1% that --max-bad allows" in found.err
    found = muster("sim", str(trace), "-p", "fifo", "--max-bad", "5%")
    assert found.code == 0
    assert "1 row bad: duration_s is negative (line 42)." in found.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "No trace was given."),
        (["none.csv"], "no such file"),
        (["work.csv", "-p", "fifoo"], "Did you mean 'fifo'?"),
        (["work.csv", "-p", "fifo", "-p", "fifo"], "was given twice"),
        (["work.csv", "--cluster", "none.yaml"], "a cluster file"),
        (["work.csv", "--cluster", "work.csv"], "a mapping with `pools`"),
        (["work.csv", "--format", "sawct"], "--format: got 'sawct'."),
        (["work.csv", "--add-nodes", "c=1"], "There are: a, b."),
        (["work.csv", "--add-nodes", "a=none"], "--add-nodes: got 'a=none'."),
        (["work.csv", "--remove-nodes", "a=1"], "at least one node that is left"),
        (["work.csv", "--weight", "a"], "--weight: got 'a'."),
        (["work.csv", "--weight", "a=heavy"], "queues.a.weight"),
        (["work.csv", "--quota", "a=1"], "a pool of the cluster"),
        (["work.csv", "--set", "preemption.grice=3s"], "grice"),
        (["work.csv", "--set", ".=3"], "--set: got '.=3'."),
        (["work.csv", "--set", "defaults.pools=[a"], "Close the bracket"),
        (["work.csv", "--load", "0"], "--load: got 0."),
        (["work.csv", "--load", "nan"], "--load: got nan."),
        (["work.csv", "--node-failures", "inf"], "--node-failures: got inf."),
        (["work.csv", "--checkpoint-every", "0s"], "--checkpoint-every: got '0s'."),
        (["work.csv", "--repair", "soon"], "--repair: got 'soon'."),
        (["work.csv", "--max-bad", "some"], "--max-bad: got 'some'."),
        (["work.csv", "--first", "0"], "--first"),
        (["work.csv", "--report", "no/such/folder.html"], "--report"),
    ],
)
def test_what_makes_no_sense_is_exit_code_2_for_people_and_programs(muster, trace, words, told):
    found = muster("sim", *words)
    assert found.code == 2
    assert told in found.err
    assert found.out == ""
    as_json = muster("sim", *words, "--json")
    assert as_json.code == 2
    assert told in json.dumps(as_json.json["error"], ensure_ascii=False)
    assert as_json.err == ""


def test_a_trace_alone_needs_a_cluster(muster, trace, tmp_path):
    (tmp_path / "work.json").unlink()
    found = muster("sim", "work.csv")
    assert found.code == 2
    assert "Give --cluster with a file such as" in found.err
    (tmp_path / "c.yaml").write_text('pools: {main: {nodes: 2, accelerators: "GPU:8"}}')
    assert muster("sim", "work.csv", "--cluster", "c.yaml", "-p", "fifo").code == 0
    assert "has no virtual clusters" in muster("sim", "work.csv", "--cluster", "c.yaml", "--shared").err


def test_swf_brings_its_own_cluster(muster, tmp_path):
    rows = [f"{n} {n} -1 50 {n % 6 + 1} -1 -1 -1 60 -1 1 {n % 2} -1 -1 1 1 -1 -1" for n in range(1, 20)]
    (tmp_path / "log.swf").write_text("\n".join(["; MaxNodes: 2", "; MaxProcs: 8", *rows]))
    found = muster("sim", "log.swf", "-p", "easy", "--json").json
    assert found["policies"][0]["figures"]["jobs"] == 19
    assert [(pool["nodes"], pool["accelerators"]) for pool in found["policies"][0]["cluster"]["pools"]] == [(2, 4)]


def test_the_servers_own_past_can_be_replayed(live, at_home):
    job = live.submit("true", name="past")
    live.wait(job["id"])
    found = at_home("sim", "--history", "-p", "fifo", "--json")
    assert found.code == 0, found.out
    assert found.json["trace"]["format"] == "history"
    assert found.json["policies"][0]["figures"]["jobs"] >= 1


def test_a_trace_and_the_servers_past_are_one_too_many(muster):
    found = muster("sim", "jobs.csv", "--history")
    assert found.code == 2
    assert "Leave one of them out." in found.err


def test_history_without_a_server_says_what_to_do(muster):
    found = muster("sim", "--history")
    assert found.code == 1
    assert "muster up -d" in found.err


def test_a_price_book_says_what_each_policy_costs(muster, trace, tmp_path):
    (tmp_path / "book.yaml").write_text("currency: EUR\npools: {a: [{accelerator: 2}]}\n")
    found = muster("sim", str(trace), "-p", "fifo", "--prices", "book.yaml", "--json").json
    money = found["policies"][0]["figures"]["money"]
    hours = sum((100 + n) * (1, 4, 8)[n % 3] for n in range(40) if n % 10 != 9) / 3600
    assert (money["currency"], money["charged"]) == ("EUR", pytest.approx(2_000_000 * hours))
    assert money["unpriced"] > 0, "pool b has no price"
    assert found["settings"]["prices"] == "in EUR, of a, as they are today"
    (tmp_path / "bad.yaml").write_text("pools: {a: [{accelerator: -1}]}\n")
    refused = muster("sim", str(trace), "--prices", "bad.yaml")
    assert refused.code == 2
    assert "pools.a" in refused.err
    assert muster("sim", str(trace), "--prices", "none.yaml").code == 2
