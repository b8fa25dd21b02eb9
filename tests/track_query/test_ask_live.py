"""Asking through what a user types: the command, the SDK and the API of a real server, over jobs that really ran."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from live import LiveServer, live_server, until
from muster.cli.main import main
from muster.client import Client
from muster.client.blocking import BlockingTransport
from muster.core.errors import ConfigError, Invalid, NotFound

SCRIPT = """
import sys
import muster.runtime as m
values = dict(word[2:].split("=") for word in sys.argv[1:])
lr, seed = float(values["lr"]), int(values["seed"])
m.params(depth=12)
for step in range(1, 21):
    m.report(step=step, loss=lr * 10 + seed / 100 + 1 / step, grad=float("nan"))
sys.exit(1 if lr > 0.5 else 0)
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("ask") / "home") as server:
        yield server


@pytest.fixture(scope="module")
def client(live: LiveServer) -> Iterator[Client]:
    with Client(live.url, live.token) as made:
        yield made


@pytest.fixture(scope="module")
def jobs(live: LiveServer, client: Client, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two learning rates with two seeds each, and one that fails; the last with other code."""
    folder: Path = tmp_path_factory.mktemp("work")
    (folder / "train.py").write_text(SCRIPT)
    made = []
    for lr, seed in ((0.1, 1), (0.1, 2), (0.2, 1), (0.2, 2), (0.9, 1)):
        if lr == 0.9:  # the jobs before may be about to read the file: they find the old or the new one, whole
            (folder / "other.py").write_text(SCRIPT + "# other\n")
            (folder / "other.py").replace(folder / "train.py")
        run = f"python train.py --lr={lr} --seed={seed}"
        job = client.submit({"name": "toy", "run": run, "workdir": str(folder), "retry": 0, "purpose": "to ask of it"})
        made.append(job.id)
    for job_id in made:
        client.wait(job_id, timeout=180)
    until(lambda: all(run.final and "loss" in run.metrics for run in client.runs("name = toy")), "every run's end")
    return made


@pytest.fixture
def muster(live: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("MUSTER_HOME", str(live.home))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("MUSTER_URL", "MUSTER_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


class TestCommand:
    def test_a_query_is_a_table_of_what_it_is_about(self, muster: Any, jobs: list[str]) -> None:
        code, out, _ = muster("runs", "metrics.loss < 5 and params.lr >= 0.15", "--sort", "-metrics.loss")
        lines = out.splitlines()
        assert code == 0
        assert lines[0].split() == ["id", "phase", "user", "age", "loss", "lr", "grad", "seed"]
        assert [line.split()[0] for line in lines[1:]] == [jobs[3], jobs[2]]
        assert "nan" in lines[1]

    def test_columns_of_one_name_are_told_apart_and_runs_without_a_job_have_their_names(
        self, muster: Any, client: Client, jobs: list[str]
    ) -> None:
        assert "name" not in muster("runs", "name = toy")[1].splitlines()[0].split()
        for lr in ("1", "2"):  # an id as MLflow makes them
            run = client.create_run(
                "colliding-otter", id=f"a{lr}" * 16, params={"loss": lr, "user": lr}, tags={"made": "here"}
            )
        shown = muster("runs", "tags.made = here or name = toy", "--columns", "params.loss,metrics.loss,params.user")
        head, *rows = shown[1].splitlines()
        assert head.split() == ["id", "name", "phase", "user", "age", "params.loss", "metrics.loss", "params.user"]
        row = next(row for row in rows if row.startswith(run["id"]))
        assert row.split()[1] == "colliding-otter"
        alone = muster("runs", "name = toy", "--columns", "params.lr,metrics.loss")[1].splitlines()[0]
        assert alone.split() == ["id", "phase", "user", "age", "lr", "loss"]

    def test_failed_runs_are_found(self, muster: Any, jobs: list[str]) -> None:
        assert [run["id"] for run in json.loads(muster("runs", "failed", "--json")[1])["runs"]] == [jobs[4]]
        assert jobs[4] in muster("runs", "note ~ 'exit code 1'")[1]

    def test_columns_limits_and_csv(self, muster: Any, jobs: list[str]) -> None:
        words = ("runs", "name = toy", "-c", "params.seed,metrics.loss.min,code.tree", "-n", "2", "--csv")
        rows = list(csv.DictReader(io.StringIO(muster(*words)[1])))
        assert [row["id"] for row in rows] == jobs[:2:-1]
        assert float(rows[1]["metrics.loss.min"]) == pytest.approx(2.07)
        assert rows[0]["code.tree"] != rows[1]["code.tree"] != ""
        assert "2 of 5 runs" in muster("runs", "name = toy", "-n", "2")[2]
        everything = list(csv.DictReader(io.StringIO(muster("runs", "name = toy", "--csv", "--all")[1])))
        assert {row["params.lr"] for row in everything} == {"0.1", "0.2", "0.9"}

    def test_mistakes_are_told_with_a_caret_and_hints(self, muster: Any, jobs: list[str]) -> None:
        code, _, err = muster("runs", "metrics.loss < oops")
        assert code == 1
        assert "metrics.loss < oops\n                 ^^^^" in err
        code, _, err = muster("runs", "metrics.los < 3")
        assert (code, "did you mean `metrics.loss`" in err) == (0, True)

    def test_saved_queries(self, muster: Any, jobs: list[str]) -> None:
        assert muster("runs", "save", "good", "metrics.loss < 2", "--sort", "metrics.loss", "-c", "params.seed")[0] == 0
        answer = json.loads(muster("runs", "@good", "--json")[1])
        assert [(run["id"], run["cells"]) for run in answer["runs"]] == [
            (jobs[0], {"params.seed": "1"}), (jobs[1], {"params.seed": "2"}),
        ]  # fmt: skip
        assert "@good" in muster("runs", "queries")[1]
        assert muster("runs", "queries", "--remove", "good")[0] == 0
        code, _, err = muster("runs", "@good")
        assert (code, "no saved query" in err) == (1, True)

    def test_show(self, muster: Any, jobs: list[str]) -> None:
        out = muster("runs", "show", jobs[4], "--curve", "loss")[1]
        for word in (
            "failed",
            "to ask of it",
            "--lr=0.9",
            "snapshot",
            "python",
            "packages",
            "lr = 0.9",
            "exit code 1",
            "┤",
        ):
            assert word in out, word
        shown = json.loads(muster("runs", "show", jobs[4], "--json")[1])
        assert shown["metrics"]["grad"] == "NaN"
        assert shown["attempts_of"][0]["attempt"] == 1

    def test_show_makes_one_request(self, muster: Any, jobs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        sent: list[str] = []
        whole = BlockingTransport._exchange

        async def counted(self: BlockingTransport, method: str, url: str, *rest: Any) -> Any:
            sent.append(f"{method} {urlsplit(url).path}")
            return await whole(self, method, url, *rest)

        monkeypatch.setattr(BlockingTransport, "_exchange", counted)
        for words in ((), ("--json",), ("--all",)):
            assert muster("runs", "show", jobs[0], *words)[0] == 0
        assert sent == [f"GET /v1/runs/{jobs[0]}/page"] * 3

    def test_tags(self, muster: Any, jobs: list[str]) -> None:
        assert muster("runs", "tag", jobs[0], "candidate=yes", "x=1")[1] == "candidate = yes\nx = 1\n"
        assert muster("runs", "tag", jobs[0], "--remove", "x")[1] == "candidate = yes\n"
        assert [run["id"] for run in json.loads(muster("runs", "tags.candidate = yes", "--json")[1])["runs"]] == [
            jobs[0]
        ]

    def test_compare(self, muster: Any, jobs: list[str]) -> None:
        out = muster("compare", *jobs, "--metric", "loss", "--diff")[1]
        assert out.index("other parameters") < out.index("metrics, last") < out.index("by group")
        for word in ("lr=0.1", "+# other", "~ train.py", "lr=0.1 is lower than lr=0.2", "needs 2 runs"):
            assert word in out, word
        found = json.loads(muster("compare", "--query", "params.lr in (0.1, 0.2)", "--json")[1])
        assert [row["name"] for row in found["differences"]["params"]] == ["lr", "seed"]
        assert muster("compare")[0] == 2

    def test_help_lists_verbs_that_are_loaded_when_called(self, muster: Any) -> None:
        code, out, _ = muster("runs", "--help")
        assert code == 0
        for verb in ("find", "save", "show", "reproduce", "lineage", "export", "import", "sync", "rm"):
            assert verb in out


class TestSdk:
    def test_runs_and_one_run(self, client: Client, jobs: list[str]) -> None:
        first = client.runs("metrics.loss exists and name = toy", sort="metrics.loss", limit=1)[0]
        assert (first.id, first.params["lr"], first.phase) == (jobs[0], "0.1", "succeeded")
        assert first.metrics["loss"] == pytest.approx(1.06)
        assert math.isnan(first.metrics["grad"])
        assert client.run(jobs[0]).params == first.params
        assert client.run(1).id == jobs[0]
        assert len(client.runs("name = toy", limit=None)) == 5
        with pytest.raises(NotFound):
            client.run("nothing-of-the-kind")

    def test_the_page_of_a_run(self, client: Client, jobs: list[str]) -> None:
        page, run = client.run_page(jobs[0]), client.run(jobs[0])
        assert page["run"] == run.raw
        assert [one["attempt"] for one in page["attempts"]] == [1]
        assert page["notes"] == list(client.notes(jobs[0]))
        assert page["summary"] is not None
        assert (page["summary"]["id"], page["artifacts"]) == (jobs[0], client.artifacts(jobs[0]))
        with pytest.raises(NotFound):
            client.run_page("nobody-17")

    def test_curves_and_points(self, client: Client, jobs: list[str]) -> None:
        run = client.run(jobs[0])
        curve = run.curve("loss", 5)
        assert (len(curve.count), sum(curve.count), curve.points) == (5, 20, 20)
        assert curve.low[-1] == pytest.approx(1.06)
        assert [band["attempt"] for band in curve.bands] == [1]
        assert all(math.isnan(value) for value in run.curve("grad").last)
        points = run.points("loss", start=11)
        assert list(points.step) == list(range(11, 21))
        assert points.value[-1] == pytest.approx(1.06)

    @pytest.mark.parametrize("kind", ["pandas", "polars"])
    def test_frames(self, client: Client, jobs: list[str], kind: Any) -> None:
        frame = client.run(jobs[1]).frame(kind=kind)
        assert list(frame.columns) == ["step", "attempt", "time", "grad", "loss"]
        assert list(frame["step"]) == list(range(1, 21))
        assert frame["loss"][19] == pytest.approx(1.07)
        runs = client.frame("name = toy", kind, sort="created")
        assert list(runs["run_id"]) == jobs
        assert list(runs["params.lr"]) == [0.1, 0.1, 0.2, 0.2, 0.9]
        assert list(runs["phase"])[-1] == "failed"
        assert runs["start_time"][0] is not None

    def test_a_frame_of_nothing(self, client: Client) -> None:
        assert len(client.frame("name = none-of-it")) == 0
        with pytest.raises(Invalid, match="pandas or polars"):
            client.frame(kind="excel")  # type: ignore[arg-type]

    def test_a_missing_library_is_told(self, client: Client, jobs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "polars", None)
        with pytest.raises(ConfigError, match="polars is not installed"):
            client.frame("name = toy", "polars")


@pytest.fixture(scope="module")
def outsider(live: LiveServer, client: Client) -> Iterator[Client]:
    """Somebody who may look into one project."""
    client.create_project("secret-lab")
    client.create_project("open-lab")
    client.set_member("open-lab", "eve", "viewer")
    token = client.create_token("eve", "eve", "member")["token"]
    with Client(live.url, token) as made:
        yield made


class TestWhoMaySee:
    def test_only_runs_of_ones_projects(self, client: Client, outsider: Client, jobs: list[str]) -> None:
        client.create_run("seen", "open-lab", params={"a": 1})
        hidden = client.create_run("unseen", "secret-lab", params={"b": 1})
        assert [run.name for run in outsider.runs(limit=None)] == ["seen"]
        assert outsider.runs("params.b = 1", projects=["secret-lab"]) == []
        with pytest.raises(NotFound):
            outsider.compare([hidden["id"], jobs[0]])

    def test_a_viewer_shares_no_queries_but_uses_them(self, client: Client, outsider: Client) -> None:
        client.save_query("team", "params.a = 1", project="open-lab")
        client.save_query("own", "valid")
        assert [one["name"] for one in outsider.queries()] == ["team"]
        assert [run.name for run in outsider.runs("@open-lab/team")] == ["seen"]
        for attempt in (
            lambda: outsider.save_query("mine", "valid", project="open-lab"),
            lambda: outsider.remove_query("open-lab/team"),
        ):
            with pytest.raises(Exception, match="needs the role member"):
                attempt()
        with pytest.raises(NotFound):
            outsider.runs("@own")


def test_curves_of_several_runs_are_one_answer(live: LiveServer, jobs: list[str]) -> None:
    runs = [*jobs[:2], jobs[0]]
    found = live.post("/v1/compare/curves", {"runs": runs, "metric": "loss", "buckets": 5, "start": 11})
    assert [one["run"] for one in found["curves"]] == jobs[:2]
    first = found["curves"][0]
    assert {len(first[name]) for name in ("step", "time", "low", "high", "mean")} == {5}
    assert first["step"][-1] == 20
    assert first["high"][0] == pytest.approx(1.01 + 1 / 11)
    assert live.post("/v1/compare/curves", {"runs": runs, "metric": "none"})["curves"] == []


def test_bad_requests_are_refused_politely(live: LiveServer) -> None:
    bodies = [
        {"query": "x" * 30_000}, {"query": "a\0"}, {"limit": 0}, {"columns": ["oops"]}, {"sort": "oops"},
        {"after": "x"}, {"unknown": 1}, {"query": "@a and b"}, {"columns": ["id"] * 60},
    ]  # fmt: skip
    with live.http() as http:
        for body in bodies:
            answer = http.post("/v1/runs/search", json=body)
            assert answer.status_code == 400, body
            assert answer.json()["error"]["hint"]
        assert http.get("/v1/runs", params={"query": "failed"}).status_code == 200
