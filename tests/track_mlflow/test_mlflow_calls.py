"""MLflow's calls on the record: what they keep, what they answer, and how they refuse."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mlflow_kit import FakeCaller, MlflowFixture
from muster.track.mlflow.faults import Fault
from muster.track.mlflow.files import safe_path
from muster.track.mlflow.limits import METRICS_MAX

BAD_BATCHES: list[tuple[dict[str, Any], str]] = [
    ({"metrics": [{"key": "m", "value": 1.0, "timestamp": -1}]}, "nonnegative"),
    ({"metrics": [{"key": "m", "value": True, "timestamp": 1}]}, "metrics"),
    ({"metrics": [{"key": "../m", "value": 1.0, "timestamp": 1}]}, "must not resolve to other names"),
    ({"metrics": [{"key": "a b\n", "value": 1.0, "timestamp": 1}]}, "Names may only contain"),
    ({"metrics": [{"key": "m" * 251, "value": 1.0, "timestamp": 1}]}, "maximum length of 250"),
    ({"metrics": [{"key": "m", "timestamp": 1}]}, r"metrics\[0\].value"),
    ({"metrics": [{"key": "m", "value": 1.0, "timestamp": 1, "step": 2**63}]}, "step"),
    ({"metrics": [{"key": f"m{i}", "value": 0.0, "timestamp": 1} for i in range(METRICS_MAX + 1)]}, "at most"),
    ({"params": [{"key": "p", "value": "1"}, {"key": "p", "value": "2"}]}, "Duplicate parameter keys"),
    ({"tags": [{"value": "1"}]}, r"tags\[0\].key"),
    ({"metrics": "no"}, "metrics"),
    ({"params": [7]}, "params"),
]
FILTERS: list[tuple[str, list[str]]] = [
    ("metrics.loss < 1", ["r0"]),
    ("metrics.loss >= 0.5 and metric.loss <= 2", ["r0", "r2"]),
    ("metrics.loss != 2", ["r0", "r1"]),
    ("params.lr = '1e-2'", ["r2"]),
    ("params.`lr` != '1e-2' AND tags.Team LIKE 'T%'", ["r0", "r1", "r3"]),
    ("tags.Team LIKE 't%'", []),
    ("tags.Team ILIKE 't%'", ["r0", "r1", "r2", "r3"]),
    ('tags."Team" = "T3"', ["r3"]),
    ("tags.'Team' = 'T3' and `params`.'lr' = '1e-3'", ["r3"]),
    ("tags.'`Team`' = 'T2'", ["r2"]),
    ("metrics.'loss' < 1 AND attributes.'run_name' = 'r0'", ["r0"]),
    ("`run_name` = 'r1'", ["r1"]),
    ("attributes.status = 'FAILED'", ["r2"]),
    ("start_time > 1000 and start_time <= 3000", ["r2", "r3"]),
    ("run_name = 'r1'", ["r1"]),
    ("tags.`mlflow.runName` ILIKE 'R1'", ["r1"]),
    ("params.missing IS NULL and params.lr IS NOT NULL", ["r0", "r1", "r2", "r3"]),
    ("user_id = 'ada'", ["r0", "r1", "r2", "r3"]),
    ("tags.Team = 'T0'' OR 1=1 --'", []),
]
ORDERS: list[tuple[list[str], list[str]]] = [
    ([], ["r3", "r2", "r1", "r0"]),
    (["metrics.loss ASC"], ["r0", "r2", "r1", "r3"]),
    (["metrics.loss DESC"], ["r2", "r0", "r1", "r3"]),
    (["metrics.'loss' DESC"], ["r2", "r0", "r1", "r3"]),
    (["params.lr", "start_time"], ["r0", "r1", "r2", "r3"]),
    (["status asc", "attribute.start_time ASC"], ["r2", "r0", "r1", "r3"]),
]
NO_FILTERS = [
    "foo.x = 1",
    "metrics.x = 'a'",
    "params.x = 1",
    "params.x < 'a'",
    "run_id > 'a'",
    "status =",
    "= 1",
    "a b c",
    "metrics.x = 1 or metrics.y = 2",
    "metrics.x = 1 and",
    "run_id IN ()",
    "name = 'x'",
    "('a')",
    "metrics.x 1",
    "'params'.x = 'y'",
    "`params.x` = 'y'",
    "params.'x = 'y'",
]


def refused(code: str = "INVALID_PARAMETER_VALUE", match: str = "") -> pytest.RaisesExc[Fault]:
    return pytest.RaisesExc(Fault, match=match or None, check=lambda fault: fault.code == code)


class TestExperiments:
    def test_life(self, table: MlflowFixture) -> None:
        number = table.post("experiments/create", name="ablation", tags=[{"key": "k", "value": "v"}])["experiment_id"]
        found = table.get("experiments/get", experiment_id=number)["experiment"]
        assert (found["name"], found["tags"]) == ("ablation", [{"key": "k", "value": "v"}])
        assert found["artifact_location"] == f"mlflow-artifacts:/{number}"
        table.post("experiments/update", experiment_id=number, new_name="other")
        assert table.get("experiments/get-by-name", experiment_name="other")["experiment"]["experiment_id"] == number
        run = table.new_run(number)
        table.post("experiments/delete", experiment_id=number)
        assert table.run(run)["info"]["lifecycle_stage"] == "deleted"
        assert [e["name"] for e in table.post("experiments/search", max_results=9)["experiments"]] == ["Default"]
        table.post("experiments/restore", experiment_id=number)
        assert table.run(run)["info"]["lifecycle_stage"] == "active"

    def test_default_is_there(self, table: MlflowFixture) -> None:
        found = table.post("experiments/search", max_results=1)
        assert [(e["experiment_id"], e["name"]) for e in found["experiments"]] == [("0", "Default")]

    def test_search(self, table: MlflowFixture) -> None:
        for name in ("a", "b", "B"):
            table.post("experiments/create", name=name, tags=[{"key": "team", "value": name}])
        asked = {"max_results": 10, "order_by": ["name ASC"]}
        names = [e["name"] for e in table.post("experiments/search", filter="name ILIKE 'b'", **asked)["experiments"]]
        assert sorted(names) == ["B", "b"]
        assert table.post("experiments/search", filter="tags.team = 'a'", **asked)["experiments"][0]["name"] == "a"
        page = table.post("experiments/search", max_results=3)
        rest = table.post("experiments/search", max_results=3, page_token=page["next_page_token"])
        assert len(page["experiments"]) == 3
        assert len(rest["experiments"]) == 1
        assert "next_page_token" not in rest

    def test_refusals(self, table: MlflowFixture) -> None:
        table.post("experiments/create", name="a")
        with refused("RESOURCE_ALREADY_EXISTS", "already exists"):
            table.post("experiments/create", name="a")
        with refused("RESOURCE_DOES_NOT_EXIST", "No Experiment with id=77 exists"):
            table.get("experiments/get", experiment_id="77")
        with refused("RESOURCE_DOES_NOT_EXIST", "No Experiment with id=-1 exists"):
            table.get("experiments/get", experiment_id="-1")
        assert table.found(experiment_ids=["-1"]) == []
        for number in (2**63, -(2**63) - 1):
            with refused(match="Experiment ID must be a valid integer"):
                table.get("experiments/get", experiment_id=str(number))
        with refused(match="Experiment ID must be a valid integer"):
            table.get("experiments/get", experiment_id="x")
        with refused(match="Missing value for required parameter 'name'"):
            table.post("experiments/create")
        with refused(match="Invalid value 123 for parameter 'name'"):
            table.post("experiments/create", name=123)


class TestRuns:
    def test_a_run_as_mlflow_shows_it(self, table: MlflowFixture) -> None:
        run = table.new_run(user_id="u", start_time=123, run_name="first", tags=[{"key": "x", "value": "é"}])
        table.post("runs/log-metric", run_id=run, key="m", value=1, timestamp=5, step=2)
        table.post("runs/log-parameter", run_id=run, key="p", value="0.1")
        table.post("runs/update", run_id=run, status="FINISHED", end_time=777)
        assert table.run(run) == {
            "info": {
                "run_uuid": run, "run_id": run, "experiment_id": "0", "run_name": "first", "user_id": "u",
                "status": "FINISHED", "start_time": 123, "end_time": 777, "lifecycle_stage": "active",
                "artifact_uri": f"mlflow-artifacts:/0/{run}/artifacts",
            },
            "data": {
                "metrics": [{"key": "m", "value": 1.0, "timestamp": 5, "step": 2}],
                "params": [{"key": "p", "value": "0.1"}],
                "tags": [{"key": "x", "value": "é"}, {"key": "mlflow.runName", "value": "first"}],
            },
            "inputs": {},
            "outputs": {},
        }  # fmt: skip

    def test_special_numbers(self, table: MlflowFixture) -> None:
        run = table.new_run()
        for key, value in (("n", "NaN"), ("i", "Infinity"), ("j", "-Infinity")):
            table.post("runs/log-metric", run_id=run, key=key, value=value, timestamp=5)
        values = {one["key"]: one["value"] for one in table.run(run)["data"]["metrics"]}
        assert values == {"n": "NaN", "i": "Infinity", "j": "-Infinity"}

    def test_names_are_one(self, table: MlflowFixture) -> None:
        run = table.new_run(tags=[{"key": "mlflow.runName", "value": "tagged"}])
        assert table.run(run)["info"]["run_name"] == "tagged"
        table.post("runs/set-tag", run_id=run, key="mlflow.runName", value="renamed")
        assert table.run(run)["info"]["run_name"] == "renamed"
        with refused(match="different values"):
            table.new_run(run_name="a", tags=[{"key": "mlflow.runName", "value": "b"}])

    def test_a_parameter_is_not_changed(self, table: MlflowFixture) -> None:
        run = table.new_run()
        for _ in range(2):
            table.post("runs/log-parameter", run_id=run, key="p", value="1")
        with refused(match=r"Changing param values is not allowed.*key='p'.*value='1'.*'2'"):
            table.post("runs/log-parameter", run_id=run, key="p", value="2")
        with refused(match="old_value"):
            table.post("runs/log-batch", run_id=run, params=[{"key": "q", "value": "1"}, {"key": "p", "value": "3"}])
        assert table.run(run)["data"]["params"] == [{"key": "p", "value": "1"}]

    def test_a_point_is_kept_once(self, table: MlflowFixture) -> None:
        run = table.new_run()
        metrics = [{"key": "m", "value": v, "timestamp": 10 + s, "step": s} for s in range(5) for v in (1.0, 2.0, 2.0)]
        for _ in range(2):
            table.post("runs/log-batch", run_id=run, metrics=metrics)
        found = table.get("metrics/get-history", run_id=run, metric_key="m")["metrics"]
        assert [(one["step"], one["value"]) for one in found] == [(s, v) for s in range(5) for v in (1.0, 2.0)]

    def test_history_in_pages(self, table: MlflowFixture) -> None:
        run = table.new_run()
        metrics = [{"key": "m", "value": float(s), "timestamp": 100 - s, "step": s} for s in range(7)]
        table.post("runs/log-batch", run_id=run, metrics=metrics)
        first = table.get("metrics/get-history", run_id=run, metric_key="m", max_results=4)
        rest = table.get("metrics/get-history", run_id=run, metric_key="m", page_token=first["next_page_token"])
        assert [one["step"] for one in first["metrics"] + rest["metrics"]] == [6, 5, 4, 3, 2, 1, 0]
        sampled = table.get("metrics/get-history-bulk-interval", run_ids=[run], metric_key="m", max_results=3)
        assert [one["step"] for one in sampled["metrics"]] == [0, 3, 6]

    def test_data_sets_and_models(self, table: MlflowFixture) -> None:
        run = table.new_run()
        dataset = {"name": "c4", "digest": "v3", "source_type": "local", "source": "s"}
        given = [{"tags": [{"key": "mlflow.data.context", "value": "train"}], "dataset": dataset}]
        for _ in range(2):
            table.post("runs/log-inputs", run_id=run, datasets=given, models=[{"model_id": "m-1"}])
        table.post("runs/outputs", run_id=run, models=[{"model_id": "m-2", "step": 3}])
        found = table.run(run)
        assert found["inputs"] == {"dataset_inputs": given, "model_inputs": [{"model_id": "m-1"}]}
        assert found["outputs"] == {"model_outputs": [{"model_id": "m-2", "step": 3}]}
        assert table.found("dataset.name = 'c4' and dataset.context IN ('train', 'test')") != []
        assert table.found("dataset.digest != 'v3'") == []

    def test_inputs_and_outputs_are_in_the_order_of_logging(self, table: MlflowFixture) -> None:
        run = table.new_run()
        for names in (["zeta", "beta", "omega"], ["mid", "zeta", "aaa"]):
            given = [{"dataset": {"name": n, "digest": "1", "source_type": "local", "source": "s"}} for n in names]
            table.post("runs/log-inputs", run_id=run, datasets=given)
            table.record.moment[0] += 1
        table.post("runs/log-inputs", run_id=run, models=[{"model_id": f"m-{n}"} for n in (5, 1, 4)])
        table.post("runs/outputs", run_id=run, models=[{"model_id": f"m-{n}", "step": n} for n in (9, 6, 8)])
        found = table.run(run)
        names = [one["dataset"]["name"] for one in found["inputs"]["dataset_inputs"]]
        assert names == ["zeta", "beta", "omega", "mid", "aaa"]
        assert [one["model_id"] for one in found["inputs"]["model_inputs"]] == ["m-5", "m-1", "m-4"]
        assert [one["model_id"] for one in found["outputs"]["model_outputs"]] == ["m-9", "m-6", "m-8"]

    def test_deleted_and_restored(self, table: MlflowFixture) -> None:
        run = table.new_run(run_name="gone")
        table.post("runs/delete", run_id=run)
        assert table.found() == []
        assert table.found(run_view_type="DELETED_ONLY") == ["gone"]
        with refused(match="must be in the 'active' state"):
            table.post("runs/set-tag", run_id=run, key="a", value="b")
        table.post("runs/restore", run_id=run)
        assert table.found() == ["gone"]

    def test_a_bad_batch_leaves_nothing(self, table: MlflowFixture) -> None:
        run = table.new_run()
        for request, match in BAD_BATCHES:
            with refused(match=match):
                table.post("runs/log-batch", run_id=run, **request)
        assert table.run(run)["data"].keys() == {"tags"}


class TestSearch:
    @pytest.fixture
    def runs(self, table: MlflowFixture) -> MlflowFixture:
        for number, loss in enumerate((0.5, math.nan, 2.0, None)):
            run = table.new_run(
                run_name=f"r{number}", start_time=1000 * number, tags=[{"key": "Team", "value": f"T{number}"}]
            )
            table.post("runs/log-parameter", run_id=run, key="lr", value=f"1e-{number}")
            if loss is not None:
                value = "NaN" if math.isnan(loss) else loss
                table.post("runs/log-metric", run_id=run, key="loss", value=value, timestamp=number)
            table.post("runs/update", run_id=run, status="FAILED" if number == 2 else "RUNNING")
        return table

    def test_filters_and_orders(self, runs: MlflowFixture) -> None:
        for text, names in FILTERS:
            assert sorted(runs.found(text)) == names, text
        for order, names in ORDERS:
            assert runs.found(order_by=order) == names, order

    def test_pages(self, runs: MlflowFixture) -> None:
        page = runs.post("runs/search", experiment_ids=["0"], max_results=3)
        rest = runs.post("runs/search", experiment_ids=["0"], max_results=3, page_token=page["next_page_token"])
        assert [run["info"]["run_name"] for run in page["runs"] + rest["runs"]] == ["r3", "r2", "r1", "r0"]

    def test_what_is_no_filter(self, table: MlflowFixture) -> None:
        for text in NO_FILTERS:
            with refused():
                table.found(text)


class TestWhoMay:
    def test_projects_are_apart(self, table: MlflowFixture) -> None:
        eve = FakeCaller("eve", {"vision": "member"})
        mine = table.post("experiments/create", name="secret")["experiment_id"]
        run = table.new_run(mine)
        for path, request in (
            ("experiments/get", {"experiment_id": mine}),
            ("experiments/get-by-name", {"experiment_name": "secret"}),
            ("runs/get", {"run_id": run}),
            ("metrics/get-history", {"run_id": run, "metric_key": "m"}),
            ("artifacts/list", {"run_id": run}),
        ):
            with refused("RESOURCE_DOES_NOT_EXIST"):
                table.ask("GET", path, eve, **request)
        with refused("RESOURCE_DOES_NOT_EXIST"):
            table.ask("POST", "runs/set-tag", eve, run_id=run, key="a", value="b")
        assert table.ask("POST", "runs/search", eve, experiment_ids=[mine]) == {}
        theirs = table.ask("POST", "experiments/create", eve, name="secret")["experiment_id"]
        found = table.ask("GET", "experiments/get-by-name", eve, experiment_name="secret")["experiment"]
        assert (found["experiment_id"], found["name"]) == (theirs, "vision/secret")

    def test_a_viewer_only_looks(self, table: MlflowFixture) -> None:
        run = table.new_run()
        bob = FakeCaller("bob", {"default": "viewer"})
        assert table.ask("GET", "runs/get", bob, run_id=run)["run"]["info"]["run_id"] == run
        with refused("PERMISSION_DENIED", "member"):
            table.ask("POST", "runs/log-metric", bob, run_id=run, key="m", value=1, timestamp=1)

    def test_a_name_names_its_project(self, table: MlflowFixture) -> None:
        ada = FakeCaller("ada", {"default": "member", "vision": "member"})
        number = int(table.ask("POST", "experiments/create", ada, name="vision/x")["experiment_id"])
        found = table.record.track.experiments.get(number)
        assert found is not None
        assert (found.project, found.name) == ("vision", "vision/x")


class TestPaths:
    @pytest.mark.parametrize("path", ["a/b.txt", "a%20b", "50%", "a/%25252e", "été/%C3%A9"])
    def test_what_stays_where_it_belongs(self, path: str) -> None:
        assert safe_path(path) == path

    @pytest.mark.parametrize("path", ["../a", "a/%2e%2e/b", "a/%25252e%25252e/b", "/a", "%2Fa", "a%5Cb", "a%00", "s:x"])
    def test_what_leads_elsewhere(self, path: str) -> None:
        with pytest.raises(Fault, match="Invalid path"):
            safe_path(path)

    def test_what_is_quoted_without_end(self) -> None:
        """Unquoted as often as it is quoted, megabytes of this would keep a thread busy for days."""
        for end in ("", "2e/b", "41"):
            with pytest.raises(Fault, match=r"Invalid path.*Send it as it is"):
                safe_path("a/%" + "25" * 1_000_000 + end)
