"""More output than is kept, through a real server: the first and the last part, a line between them, and the word of it
in every view; below the limit every line is there once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from live import LiveServer, live_server, until
from muster.client import Client

LINES = 1_000_001
LIMIT = 1_000_000
MARKER = re.compile(r"\[muster\] ([0-9,]+) bytes of the output of rank 0 are missing here: past `log_limit` \(1MB")


@pytest.fixture
def job(live: LiveServer, at_home) -> str:
    made = live.submit(f"seq {LINES}", log_limit="1MB")
    assert live.wait(made["id"])["phase"] == "succeeded"
    return str(made["id"])


def check(lines: list[str]) -> int:
    """The numbers from 1 on, a marker, the numbers up to the last; returns the bytes that the marker names."""
    (place,) = [place for place, line in enumerate(lines) if not line.isdigit()]
    found = MARKER.match(lines[place])
    assert found, lines[place]
    first, last = [int(line) for line in lines[:place]], [int(line) for line in lines[place + 1 :]]
    assert first == list(range(1, len(first) + 1))
    assert last == list(range(last[0], LINES + 1))
    missing = sum(len(f"{number}\n") for number in range(first[-1] + 1, last[0]))
    assert int(found[1].replace(",", "")) == missing
    return missing


def test_of_a_million_lines_the_first_and_the_last_are_kept_and_every_view_says_so(job, live, at_home) -> None:
    missing = check(at_home("logs", job).out.splitlines())
    whole = sum(len(f"{number}\n") for number in range(1, LINES + 1))
    check(at_home("logs", job, "--rank", "0").out.splitlines())
    assert check(at_home("logs", "-f", job).out.splitlines()) == missing
    assert [one["dropped"] for one in at_home("logs", job, "--json").lines if "dropped" in one] == [missing]
    assert at_home("logs", job, "--tail", "3").out.splitlines() == [str(LINES - 2), str(LINES - 1), str(LINES)]

    output = at_home("status", job, "--json").json["output"]
    assert (output["dropped"], output["kept"], output["limit"]) == (missing, whole - missing, LIMIT)
    assert output["ranks"] == [{"attempt": 1, "rank": 0, "kept": whole - missing, "dropped": missing}]
    assert 0.8 * LIMIT <= output["kept"] <= LIMIT
    for verb in (["status", job], ["runs", "show", job]):
        assert "dropped: `log_limit` is 1MB for each rank" in at_home(*verb).out
    assert at_home("runs", "show", job, "--json").json["output"] == output
    assert live.get(f"/v1/jobs/{job}/summary")["output"] == output


def test_the_last_lines_reach_over_what_is_missing(live, at_home) -> None:
    made = live.submit("seq 20000", log_limit="8KiB")
    live.wait(made["id"])
    lines = at_home("logs", made["id"], "-n", "100000").out.splitlines()
    assert (lines[0], lines[-1]) == ("1", "20000")
    assert len([line for line in lines if "bytes of the output of rank 0 are missing here" in line]) == 1
    (place,) = [place for place, line in enumerate(lines) if not line.isdigit()]
    again = at_home("logs", made["id"], "-n", str(len(lines) - place + 1)).out.splitlines()
    assert again == lines[place - 1 :]


def test_a_follower_sees_each_line_once_and_a_marker_where_it_was_too_slow(live, at_home, tmp_path: Path) -> None:
    run = "for part in 1 2 3 4 5 6 7 8; do seq $((part * 100000)) $((part * 100000 + 9999)); sleep 0.1; done"
    made = live.submit(run, log_limit="16KiB")
    with Client(home=live.home) as client:
        seen = list(client.logs(made["id"], follow=True))
    text = "".join("" if line.dropped else f"{line.text}\n" for line in seen)
    whole = [line for line in text.splitlines() if len(line) == 6]
    assert whole == sorted(set(whole))
    assert (whole[0], whole[-1]) == ("100000", "809999")
    # Whatever it did not see it was told of; a line that it saw the beginning of may end at a gap.
    cut = [line for line in text.splitlines() if len(line) < 6]
    missing = sum(line.dropped for line in seen)
    # A gap may also begin just before a line's break: then the line is whole, and its break is among the missing bytes.
    gaps = [seen[at - 1] for at, line in enumerate(seen) if line.dropped and at]
    breaks = missing + len(text) - len(cut) - 7 * 80_000
    assert 0 <= breaks <= len([line for line in gaps if not line.dropped and len(line.text) == 6])
    assert [seen[at + 1].dropped > 0 for at, line in enumerate(seen) if line.text in cut] == [True] * len(cut)


def test_below_the_limit_every_line_is_there_once_although_the_server_was_away(tmp_path: Path) -> None:
    lines = 2_000_000  # 15 MB in one burst
    with live_server(tmp_path / "muster") as server:
        run = f"while [ ! -e go ]; do sleep 0.05; done; seq {lines}; touch done"
        job = server.submit(run, workdir=str(tmp_path), log_limit="16MB")["id"]
        server.wait(job, "running")
        server.kill()
        (tmp_path / "go").touch()
        until((tmp_path / "done").exists, "the job to have printed everything")
        server.start()
        assert server.wait(job)["phase"] == "succeeded"
        with Client(home=server.home) as client:
            found = [line.text for line in client.logs(job)]
            assert client.job(job).raw["output"]["dropped"] == 0
    assert len(found) == lines
    assert found == [str(number) for number in range(1, lines + 1)]


def test_more_than_the_server_allows_is_refused_with_the_setting_that_helps(live, at_home, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("run: 'true'\nlog_limit: 2GB\n")
    refused = at_home("submit", "job.yaml", "--json")
    assert refused.code != 0
    (reason,) = refused.json["jobs"][0]["error"]["reasons"]
    assert reason["code"] == "log_limit_too_large"
    assert "1GB at most" in reason["message"]
    assert "log_limit_max" in reason["hint"]
    (tmp_path / "job.yaml").write_text("run: 'true'\nlog_limit: 100\n")
    assert at_home("submit", "job.yaml").code != 0


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path / "muster", config="log_limit = '20KB'\nlog_limit_max = '40KB'\n") as server:
        yield server


def test_the_servers_settings_hold(small: LiveServer) -> None:
    job = small.submit("seq 100000")
    small.wait(job["id"])
    output = small.job(job["id"])["output"]
    assert output["limit"] == 20_000
    assert output["kept"] <= 20_000 < output["dropped"]
    with small.http() as http:
        answer = http.post("/v1/jobs", json={"spec": {"name": "x", "run": "true", "log_limit": "50KB"}})
    assert [one["code"] for one in answer.json()["error"]["reasons"]] == ["log_limit_too_large"]
