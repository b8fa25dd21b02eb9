"""`muster nodes --history` and `muster queue slo`: bars, a sentence, CSV, JSON, and what is refused."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path

import pytest

from live import live_server
from muster.cli.format import bars
from muster.cli.node_history import sentence
from muster.monitor.history import figures
from muster.monitor.rollup import ALL, DAY, EMPTY, held, merge, start_of, to_text, waited
from muster.store.base import Entry
from muster.store.past import Rollup
from muster.store.registry import open_store

QUIET = {"used": 2000, "there": 8000, "jobs": 0, "asked": 0, "free": 6000, "usable": 3000}
BUSY = {"used": 8000, "there": 8000, "jobs": 5000, "asked": 24_000, "free": 0, "usable": 0}


@pytest.fixture(scope="module")
def past_home(tmp_path_factory):
    """A server that was there a month ago as well: quiet first, busy in the last week."""
    home: Path = tmp_path_factory.mktemp("cli-past") / "home"
    home.mkdir(parents=True)
    store, today, rows = open_store(f"sqlite:///{home}/muster.db"), start_of(time.time(), DAY), []
    for ago in range(1, 31):
        start = today - ago * DAY
        parts = [part for _, part in held(BUSY if ago <= 7 else QUIET, 1000 * start, 1000 * (start + DAY), DAY)]
        text = to_text(merge([*parts, waited(3600.0 if ago <= 7 else 60.0)]))
        rows += [Rollup(DAY, start, pool, 1000 * (start + DAY), text) for pool in ("gpus", ALL)]
    store.transact([lambda state: Entry(rollups=rows)])
    store.close()
    with live_server(home) as server:
        yield server


@pytest.fixture
def call(past_home, muster, monkeypatch):
    monkeypatch.setenv("MUSTER_HOME", str(past_home.home))
    return muster


class TestNodesHistory:
    def test_a_table_and_a_sentence(self, call):
        found = call("nodes", "--history", "--pool", "gpus", "--since", "30d", "--every", "1d")
        assert found.code == 0
        line = next(line for line in found.out.splitlines() if "accelerators in use" in line)
        assert "▂" * 23 + "█" * 7 in line
        assert "42%" in line  # (23 x 2 + 7 x 8) of 30 x 8
        said = found.out.splitlines()[-1]
        assert said.startswith(
            "gpus: 42% of the accelerators in use on average, 24 accelerators asked for and none free"
        )
        assert "p90 wait 1h00m over 30 starts" in said
        assert "50% of what was free could take a typical gang" in said

    def test_under_ls_it_is_the_same(self, call):
        words = ("--history", "--pool", "gpus", "--since", "10d", "--every", "1d", "--json")
        first, second = call("nodes", *words).json, call("nodes", "ls", *words).json
        assert first["pools"] == second["pools"]
        assert len(first["pools"][0]["buckets"]) == 10

    def test_csv(self, call):
        found = call("nodes", "--history", "--pool", "gpus", "--every", "1d", "--csv")
        rows = list(csv.DictReader(io.StringIO(found.out)))
        assert len(rows) == 30
        assert (rows[0]["pool"], rows[0]["accelerators_used"], rows[-1]["waits_p90"]) == ("gpus", "2.0", "3600.0")
        assert rows[0]["start"].endswith("T00:00:00Z")

    def test_short_buckets_are_not_kept_for_so_long(self, call):
        found = call("nodes", "--history", "--pool", "gpus", "--since", "100d", "--every", "1h")
        assert "Nothing is recorded" in found.err
        assert "kept for 60 days; `--every 1d` goes back further" in found.err

    def test_a_list_of_one_pool(self, call):
        everything = call("nodes", "--json").json["nodes"]
        assert call("nodes", "--pool", everything[0]["pool"], "--json").json["nodes"] == everything
        assert call("nodes", "--pool", "gpus", "--json").json["nodes"] == []

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (("--since", "soon", "--history"), "--since is 'soon'"),
            (("--every", "90s", "--history"), "whole minutes"),
            (("--every", "1d"), "belong to --history"),
            (("--history", "--csv", "--json"), "Give one of them"),
        ],
    )
    def test_what_makes_no_sense(self, call, words, told):
        found = call("nodes", *words)
        assert found.code == 2
        assert told in found.out + found.err


class TestWords:
    def test_bars(self):
        assert bars([0.0, 0.01, 0.5, 1.0, None, 2.0], 1.0) == "▁▁▄█ █"
        assert bars([0.0, None], 0.0) == "▁ "

    def test_a_free_one_at_peak(self):
        busy = merge(b for _, b in held({**BUSY, "free": 4000}, 0, 1000, DAY))
        assert "6.0 accelerators asked for per free one at peak" in sentence("main", figures(busy))

    def test_cpus_where_there_is_nothing_else(self):
        cpus = merge(b for _, b in held({"cpus": 8000, "cpus_used": 2000}, 0, 1000, DAY))
        assert sentence("", figures(cpus)) == "all pools: 25% of the CPUs in use on average"

    def test_nothing(self):
        assert sentence("main", figures(EMPTY)) == "main: nothing is known"


class TestSlo:
    def test_what_started_and_in_time(self, call, past_home):
        past_home.wait(past_home.submit("true", name="quick")["id"])
        found = call("queue", "slo", "--json").json
        level = next(one for one in found["levels"] if (one["work"], one["priority"]) == ("single", "standard"))
        assert (level["started"], level["within"], level["share"]) == (1, 1, 1.0)
        shown = call("queue", "slo", "default")
        assert "100.0%" in shown.out
        assert "past their target" in shown.err

    def test_nobody(self, call):
        call("queue", "create", "empty")
        assert call("queue", "slo", "empty").err == "No job started within 7d, and none waits.\n"

    def test_no_such_queue(self, call):
        found = call("queue", "slo", "nothing")
        assert found.code == 1
        assert "no queue 'nothing'" in found.err
