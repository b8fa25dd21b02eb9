"""`muster sim --find` and `--replications`: searches, evidence and progress, from the command to what it prints."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from muster.cli.sim_progress import Lines, OnTerminal, progress
from muster.core.rules import Rules
from muster.sim.answers import Ask
from muster.sim.compare import compare
from muster.sim.model import Cluster, Costs, PoolShape, Setup, TraceJob
from muster.sim.partial import Partial
from muster.sim.pool import Pool
from muster.sim.worlds import Worlds

HEADER = "job_id,user,vc,submit_s,duration_s,gpus,cpus,nodes,gpu_type,status"
DAY = 86_400


@pytest.fixture
def trace(tmp_path):
    """Six days, each with twelve jobs that need a whole node of two at once."""
    rows = [f"{d}.{n},u{n % 3},,{d * DAY},{3600 + n},8,,,,ok" for d in range(6) for n in range(12)]
    path = tmp_path / "work.csv"
    path.write_text("\n".join([HEADER, *rows, f"last,u,,{6 * DAY},1,8,,,,ok"]) + "\n")
    (tmp_path / "work.json").write_text(json.dumps({"nodes": 2, "gpus_per_node": 8}))
    return path


def test_nodes_are_found(muster, trace):
    found = muster("sim", str(trace), "--find", "nodes", "--target", "max wait <= 2h", "-p", "fifo")
    assert found.code == 0, found.err
    lines = found.out.splitlines()
    assert lines[0] == "73 jobs of work.csv: p100 wait <= 2h00m"
    assert lines[1].startswith("Cheapest: fifo with 6 nodes of gpu, p100 wait 1h00m; now 2.")
    assert lines[2].startswith("  fifo with 5 nodes of gpu just misses it, p100 wait 2h")
    tried = {line.split()[1]: line.split()[-1] for line in lines[5:]}
    assert (tried["2"], tried["5"], tried["6"], tried["7"]) == ("misses", "misses", "meets", "meets")


def test_the_answer_is_there_for_programs(muster, trace):
    words = ("--find", "nodes", "--target", "max wait <= 2h", "--target", "mean completion <= 1d", "--json")
    found = muster("sim", str(trace), *words)
    assert (found.code, found.err) == (0, "")
    answer = found.json
    assert [(one["policy"], one["size"], one["met"]) for one in answer["best"]] == [("default", 6, True)]
    assert answer["range"] == {"unit": "nodes of gpu", "from": 1, "to": 128, "now": 2}
    assert [one["limit"] for one in answer["targets"]] == [7200.0, 86_400.0]
    assert answer["monotone"] is True
    assert {one["size"] for one in answer["tried"]} >= {2, 5, 6, 7}


def test_no_policy_may_be_enough(muster, trace):
    found = muster("sim", str(trace), "--find", "policy", "--target", "max wait <= 1s")
    assert found.code == 0, found.err
    assert found.out.splitlines()[1] == "Nothing that was tried meets it."
    tried = {line.split()[0] for line in found.out.splitlines()[4:]}
    assert tried == {"default", "fifo", "easy", "conservative", "tiresias", "fair"}


def test_worlds_are_compared_and_say_what_they_know(muster, trace):
    words = ("-p", "fifo", "-p", "easy", "--replications", "3", "--resample", "1d")
    found = muster("sim", str(trace), *words)
    assert found.code == 0, found.err
    assert "All 3 worlds were replayed." in found.err
    assert "Not decided" in found.err
    as_json = muster("sim", str(trace), *words, "--json").json
    assert as_json["comparison"]["worlds"] == 3
    assert as_json["settings"]["worlds"].endswith("blocks of 1d drawn with replacement")


def test_a_replay_that_nothing_varies_in_is_no_evidence(muster, trace):
    found = muster("sim", str(trace), "--replications", "20")
    assert found.code == 2
    assert "nothing varies" in found.err
    assert "--resample 1d" in found.err
    plain = muster("sim", str(trace), "-p", "fifo", "-p", "easy")
    assert "there is nothing to test" in plain.err
    assert muster("sim", str(trace), "-p", "fifo").err == ""


def test_processes_give_the_same_document(muster, trace):
    def figures(count):
        found = muster("sim", str(trace), "-p", "fifo", "-p", "default", "--processes", count, "--json")
        assert (found.code, found.err) == (0, "")
        return [{**one, "figures": {**one["figures"], "wall": 0}} for one in found.json["policies"]]

    assert figures("1") == figures("2")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--find", "nodes"], "--find was given without --target."),
        (["--target", "p90 wait <= 1h"], "--target was given without --find."),
        (["--find", "nodes", "--target", "p90 wait"], "p90 wait <= 1h"),
        (["--find", "node", "--target", "p90 wait <= 1h"], "nodes:POOL"),
        (["--find", "nodes:cpu", "--target", "p90 wait <= 1h"], "a pool of the cluster"),
        (["--find", "quota:team", "--target", "p90 wait <= 1h"], "a queue of the trace"),
        (["--find", "nodes", "--target", "p90 wait of team <= 1h"], "no job of team"),
        (["--find", "nodes", "--target", "p90 wait <= 1h", "--report", "x.html"], "no place for a search"),
        (["--resample", "3d"], "2 whole blocks in the trace"),
        (["--resample", "soon"], "--resample: got 'soon'."),
        (["--processes", "0"], "--processes"),
    ],
)
def test_what_makes_no_sense_is_exit_code_2(muster, trace, words, told):
    found = muster("sim", str(trace), *words)
    assert (found.code, found.out) == (2, "")
    assert told in found.err


# --- progress ---------------------------------------------------------------------------------------------------------
TRACE = [TraceJob(str(n), n * 10.0, 100.0, 1, 8) for n in range(200)]
SETUPS = [Setup(name, Rules(), Cluster((PoolShape("gpu", 2, 8),)), Costs(node_failures=5.0)) for name in ("one", "two")]


def run(bars, monkeypatch, count=2):
    monkeypatch.setattr("muster.sim.watched.TELL_EVERY", 0.0)
    with Pool(TRACE, Worlds(1), 1, bars.partial, bars.done) as pool:
        compare(SETUPS, pool, count, True, bars.world)


def test_lines_tell_partial_results_on_standard_error(capsys, monkeypatch):
    run(Lines(every=0.0), monkeypatch)
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    partial = [line for line in lines if " run, " in line]
    assert any(line.startswith("one, world 1: ") and "on average" in line for line in partial)
    assert sum(line.startswith("two, world 2: completion ") for line in lines) == 1
    assert [line for line in lines if line.startswith("world ")] == [
        f"world {n} of up to 2: sooner:later 0:0; 1 not decided" for n in (1, 2)
    ]


def test_short_work_says_nothing(capsys, monkeypatch):
    run(Lines(every=3600.0), monkeypatch)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_bars_with_partial_results(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=160)
    with progress(quiet=False, console=console) as bars:
        assert isinstance(bars, OnTerminal)
        run(bars, monkeypatch)
        assert not bars._tasks
        bars.partial(Ask(SETUPS[0], label="one"), partial_of(0.5))
    assert "one" in screen.getvalue()
    assert "50%" in screen.getvalue()
    assert "7 done in 1m00s on average, 5.0s queueing; 2 run, 1 wait" in screen.getvalue()


def test_programs_see_no_progress(capsys, monkeypatch):
    with progress(quiet=True) as bars:
        run(bars, monkeypatch)
    assert capsys.readouterr() == ("", "")


def partial_of(share):
    return Partial(share, 7, 1, 2, 60.0, 5.0)
