"""Runs from other tools into a real server and out of it again: once each, cut off and taken up, changed, deleted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from live import LiveServer, live_server
from muster.cli.main import main
from muster.client import Client
from muster.client.transfer import Imported, RemoteRun, facts_of, send_run
from muster.core.errors import Conflict, MusterError, NotFound, Unavailable
from muster.foreign import tbevent
from muster.foreign.tfrecord import framed
from muster.track.exporters import EXPORTERS
from muster.track.exporters.tensorboard import encoded
from muster.track.importers import IMPORTERS
from muster.wire import Batch, Piece
from transfer_kit import FIXTURES, PNG, board


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("transfer") / "home"
    if request.param == "sqlite":
        with live_server(home) as found:
            yield found
        return
    postgres = request.getfixturevalue("postgres_server")
    with postgres.database() as name, live_server(home, "--store", postgres.url(name)) as found:
        yield found


@pytest.fixture
def client(server: LiveServer) -> Iterator[Client]:
    with Client(home=server.home) as made:
        yield made


def send(client: Client, path: Path, tool: str = "tensorboard", project: str = "default") -> Imported:
    (found,) = IMPORTERS.get(tool).find(path)
    return send_run(client, IMPORTERS.get(tool), found, project, lambda size: None)


def log_folder(folder: Path, steps: int, seed: str) -> Path:
    """An event file with one curve and one image; the seed makes it another run."""
    folder.mkdir(parents=True, exist_ok=True)
    every = np.arange(steps)
    head = framed(tbevent.first_event(1.7e9)) + framed(tbevent.event(1.7e9, 0, tbevent.image("pic", PNG, 2, 2)))
    curve = encoded("loss", every, 1.7e9 + every, every / 7)
    (folder / f"events.out.tfevents.1.{seed}").write_bytes(head + curve)
    return folder


def view(server: LiveServer, run: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get(f"/v1/runs/{run}")
    return found


class TestImport:
    @pytest.mark.parametrize("version", ["wandb-0.16", "wandb-0.31"])
    def test_a_wandb_run_is_a_run_here(self, server: LiveServer, client: Client, version: str) -> None:
        made = send(client, FIXTURES / version, "wandb")
        assert (made.new, made.points) == (True, 65)
        run = view(server, made.id)
        assert (run["source"], run["name"], run["purpose"]) == ("import:wandb", "first", "the first try")
        assert run["phase"] == ("failed" if version == "wandb-0.16" else "succeeded")
        assert run["params"]["lr"] == "0.0001"
        assert run["tags"]["baseline"] == "true"
        assert run["summaries"]["bad"]["last"] == "NaN"
        assert run["summaries"]["loss"]["points"] == 20
        assert run["started_at"] <= run["ended_at"] < run["started_at"] + 60
        changes = server.get(f"/v1/runs/{made.id}/changes")["changes"]
        assert [(one["key"], one["old"], one["new"]) for one in changes] == [("lr", "0.0003", "0.0001")]
        assert client.read_artifact(made.id, "model.txt") == b"weights\n"
        media = {one["name"]: one for one in server.get(f"/v1/runs/{made.id}/media")["media"]}
        assert media["t"]["data"] == {"columns": ["a", "b"], "rows": [[1, "x"], [2, "y"]]}
        assert media["im"]["mime"] == "image/png"

    def test_the_same_twice_is_one_run(self, server: LiveServer, client: Client, tmp_path: Path) -> None:
        first = send(client, log_folder(tmp_path / "a", 10, "twice"))
        (tmp_path / "a").rename(tmp_path / "moved")
        second = send(client, tmp_path / "moved")
        assert first.id == second.id
        assert (first.new, second.new) == (True, False)
        run = view(server, first.id)
        assert (run["summaries"]["loss"]["points"], run["attempts"]) == (10, 1)

    def test_in_two_projects_it_is_two_runs(self, server: LiveServer, client: Client, tmp_path: Path) -> None:
        client.create_project("other")
        path = log_folder(tmp_path / "a", 10, "projects")
        assert send(client, path).id != send(client, path, project="other").id

    def test_one_that_has_grown_takes_the_place_of_what_was_there(
        self, server: LiveServer, client: Client, tmp_path: Path
    ) -> None:
        path = log_folder(tmp_path / "a", 10, "grown")
        first = send(client, path)
        log_folder(path, 15, "grown")
        second = send(client, path)
        assert (second.id, second.new) == (first.id, True)
        curve = server.get(f"/v1/runs/{first.id}/metrics/loss")
        assert curve["points"] == 15
        assert view(server, first.id)["phase"] == "succeeded"

    def test_one_that_was_cut_off_goes_on_where_it_stopped(
        self, server: LiveServer, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = log_folder(tmp_path / "a", 120_000, "cut")
        sent: list[int] = []
        whole = client._transport.send_content

        async def failing(method: str, path: str, content: Any, size: int, params: Any = None) -> Any:
            if path.endswith("/import"):
                sent.append(size)
                if len(sent) == 4:
                    await whole(method, path, content, size, params)  # the server has it, and the answer is lost
                    raise Unavailable("the network went away")
            return await whole(method, path, content, size, params)

        monkeypatch.setattr(client._transport, "send_content", failing)
        with pytest.raises(Unavailable):
            send(client, path)
        first = sum(sent)
        sent.clear()
        sent.extend([0] * 10)  # no more failures
        made = send(client, path)
        assert sum(sent) < 32 * 120_000 - first + 1_500_000  # less what had arrived, but for a batch
        run = view(server, made.id)
        assert run["summaries"]["loss"]["points"] == 120_000
        assert len(server.get(f"/v1/runs/{made.id}/media")["media"]) == 1
        assert run["phase"] == "succeeded"

    def test_a_deleted_run(self, server: LiveServer, client: Client, tmp_path: Path) -> None:
        path = log_folder(tmp_path / "a", 10, "deleted")
        first = send(client, path)
        with server.http() as http:
            assert http.delete(f"/v1/runs/{first.id}").status_code == 200
        with pytest.raises(Conflict, match="deleted"):
            send(client, path)
        with server.http() as http:
            assert http.delete(f"/v1/runs/{first.id}", params={"purge": True}).status_code == 200
        again = send(client, path)
        assert again.new
        assert again.id != first.id
        assert view(server, again.id)["summaries"]["loss"]["points"] == 10

    def test_unknown_projects_and_strangers(self, server: LiveServer, client: Client, tmp_path: Path) -> None:
        path = log_folder(tmp_path / "a", 10, "stranger")
        with pytest.raises(NotFound, match="nowhere"):
            send(client, path, project="nowhere")
        token = server.post("/v1/tokens", {"name": "s", "user": "stranger"})["token"]
        with Client(server.url, token) as stranger, pytest.raises(NotFound):
            send(stranger, path)

    def test_streams_that_are_none(self, server: LiveServer, client: Client, tmp_path: Path) -> None:
        made = send(client, log_folder(tmp_path / "a", 10, "bad"))
        with server.http() as http:

            def post(run: str, body: bytes, attempt: int = 1) -> httpx.Response:
                return http.post(f"/v1/runs/{run}/import", content=body, params={"attempt": attempt})

            assert "not a batch" in post(made.id, b"noise").json()["error"]["message"]
            late = Batch(0, "running", pieces=(Piece(0, "spool", 1 << 40, bytes(8)),)).encode()
            assert post(made.id, late).status_code == 400
            assert post(made.id, Batch(0, "running").encode(), attempt=7).status_code == 409
            own = server.post("/v1/runs", {"name": "mine"})["id"]
            assert "was not imported" in post(own, Batch(0, "running").encode()).json()["error"]["message"]
        assert view(server, made.id)["summaries"]["loss"]["points"] == 10


class TestExport:
    def test_what_was_imported_comes_out_as_it_was(self, server: LiveServer, client: Client, tmp_path: Path) -> None:
        made = send(client, FIXTURES / "wandb-0.31", "wandb")
        run = RemoteRun(client, facts_of(view(server, made.id)))
        (told,) = EXPORTERS.get("tensorboard").export([run], tmp_path)
        assert (told.points, told.media) == (65, 4)
        found = board(told.path)
        assert [(one.step, one.value) for one in found.Scalars("loss")] == [
            (step, pytest.approx(1 / (step + 1))) for step in range(20)
        ]
        assert len(found.Images("im")) == 1
        (told,) = EXPORTERS.get("csv").export([run], tmp_path / "csv")
        lines = [json.loads(line) for line in (told.path / "media.jsonl").read_text().splitlines()]
        assert {line["name"] for line in lines} == {"h", "im", "note", "t"}

    def test_superseded_parts_are_series_of_their_own(self, server: LiveServer, client: Client, tmp_path: Path) -> None:
        path = log_folder(tmp_path / "a", 10, "superseded")
        send(client, path)
        log_folder(path, 15, "superseded")
        made = send(client, path)
        run = RemoteRun(client, facts_of(view(server, made.id)))
        standing, superseded = run.series(superseded=True)
        assert (len(standing.steps), set(standing.attempts.tolist())) == (15, {2})
        assert (len(superseded.steps), set(superseded.attempts.tolist())) == (10, {1})
        assert np.allclose(standing.values, np.arange(15) / 7)
        assert [each.superseded for each in run.series()] == [False]

    def test_a_run_that_is_not_there(self, client: Client) -> None:
        with pytest.raises(MusterError):
            list(RemoteRun(client, facts_of({"id": "nobody-1", "project": "p"})).series())

    def test_points_of_a_range(self, server: LiveServer, client: Client, tmp_path: Path) -> None:
        made = send(client, log_folder(tmp_path / "a", 100, "range"))
        with server.http() as http:
            body = http.get(f"/v1/runs/{made.id}/points/loss", params={"start": 10, "stop": 20}).content
        assert np.frombuffer(body, "<i8", 10).tolist() == list(range(10, 20))


class TestCommands:
    @pytest.fixture(autouse=True)
    def nowhere_else(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("MUSTER_URL", "MUSTER_TOKEN", "MUSTER_HOME"):
            monkeypatch.delenv(name, raising=False)

    def muster(self, server: LiveServer, *words: str) -> int:
        return main(["--home", str(server.home), "runs", *words])

    def test_in_and_out(self, server: LiveServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        log_folder(tmp_path / "logs" / "one", 10, "one")
        log_folder(tmp_path / "logs" / "two", 20, "two")
        assert self.muster(server, "import", str(tmp_path / "logs"), "--json") == 0
        made = json.loads(capsys.readouterr().out)["runs"]
        assert sorted((one["name"], one["points"], one["new"]) for one in made) == [
            ("logs/one", 10, True),
            ("logs/two", 20, True),
        ]
        words = ["export", "tags.tensorboard.run = 'logs/two'", "-f", "tensorboard", "--to", str(tmp_path / "out")]
        assert self.muster(server, *words) == 0
        said = capsys.readouterr()
        assert "20 points, 1 media" in said.out
        assert "tensorboard --logdir" in said.err
        (run,) = (tmp_path / "out").iterdir()
        assert len(board(run).Scalars("loss")) == 20

    def test_mistakes_are_told(self, server: LiveServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for words, told in (
            (["import", str(tmp_path / "none")], "does not exist"),
            (["import", str(tmp_path)], "holds no runs"),
            (
                ["import", str(tmp_path), "--from", "neptune"],
                "auto, wandb, ray-tune, optuna, tensorboard, mlflow",
            ),
            (["export", "nobody", "--to", str(tmp_path)], "no run 'nobody'"),
            (["export", "nobody", "--to", str(tmp_path), "-f", "xml"], "Expected one of csv, mlflow, parquet"),
        ):
            assert self.muster(server, *words) in (1, 2)
            assert told in capsys.readouterr().err


def test_an_import_leaves_its_source_alone(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "wandb-0.31", tmp_path / "w")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (found,) = IMPORTERS.get("wandb").find(tmp_path)
    list(IMPORTERS.get("wandb").read(found))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
