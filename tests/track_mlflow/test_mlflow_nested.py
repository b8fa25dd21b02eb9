"""What belongs to another job is a nested run for MLflow's own client: trials, tasks of arrays, runs of a program."""

from __future__ import annotations

from collections.abc import Iterator

import mlflow
import pytest

from live import LiveServer, live_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("nested")) as found:
        yield found


@pytest.fixture(scope="module", params=["http", "muster"])
def client(request: pytest.FixtureRequest, server: LiveServer) -> Iterator[mlflow.MlflowClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_TOKEN", server.token)
        patch.setenv("MUSTER_TOKEN", server.token)
        scheme = f"{server.url}/mlflow" if request.param == "http" else server.url.replace("http://", "muster://")
        yield mlflow.MlflowClient(scheme)


def nested(client: mlflow.MlflowClient, parent: str, more: str = "") -> dict[str, mlflow.entities.Run]:
    experiment = client.get_run(parent).info.experiment_id
    found = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{parent}'{more}")
    return {one.info.run_name: one for one in found}


@pytest.fixture(scope="module")
def family(server: LiveServer) -> tuple[str, str]:
    """A job with two others below it, and an array of three tasks."""
    above = server.submit("true", name="study")["id"]
    below = [server.submit("true", name=f"trial-{letter}", parent=above)["id"] for letter in "ab"]
    array = server.submit("true", name="sweep", array="1-3")["id"]
    for job in (above, *below, array):
        server.wait(job)
    return above, array


def test_jobs_below_another_one(client: mlflow.MlflowClient, family: tuple[str, str]) -> None:
    above, _ = family
    found = nested(client, above)
    assert set(found) == {"trial-a", "trial-b"}
    assert all(one.data.tags["mlflow.parentRunId"] == above for one in found.values())
    assert client.get_run(found["trial-a"].info.run_id).data.tags["mlflow.parentRunId"] == above
    assert set(nested(client, above, " and attributes.run_name = 'trial-b'")) == {"trial-b"}
    assert set(nested(client, above, " and status = 'FAILED'")) == set()
    assert "mlflow.parentRunId" not in client.get_run(above).data.tags


def test_tasks_of_an_array(client: mlflow.MlflowClient, family: tuple[str, str]) -> None:
    _, array = family
    found = nested(client, array)
    assert set(found) == {"sweep[1]", "sweep[2]", "sweep[3]"}
    assert {one.data.tags["mlflow.parentRunId"] for one in found.values()} == {array}
    assert {one.info.status for one in found.values()} == {"FINISHED"}


def test_other_comparisons_of_tags_that_muster_knows(client: mlflow.MlflowClient, family: tuple[str, str]) -> None:
    above, array = family
    experiment = client.get_run(above).info.experiment_id

    def names(text: str) -> set[str]:
        return {one.info.run_name for one in client.search_runs([experiment], text)}

    all_ = {"study", "trial-a", "trial-b", "sweep", "sweep[1]", "sweep[2]", "sweep[3]"}
    assert names("tags.`mlflow.parentRunId` IS NULL") == {"study", "sweep"}
    assert names("tags.`mlflow.parentRunId` IS NOT NULL") == all_ - {"study", "sweep"}
    assert names(f"tags.`mlflow.parentRunId` != '{array}'") == {"trial-a", "trial-b"}
    assert names("tags.mlflow.parentRunId LIKE 'study%'") == {"trial-a", "trial-b"}
    assert names("tags.mlflow.user = 'admin'") == all_
    assert names("tags.mlflow.user = 'nobody'") == set()


def test_a_nested_run_of_its_own_under_a_job(client: mlflow.MlflowClient, family: tuple[str, str]) -> None:
    _, array = family
    experiment = client.get_run(array).info.experiment_id
    made = client.create_run(experiment, run_name="by hand", tags={"mlflow.parentRunId": array})
    try:
        assert "by hand" in nested(client, array)
    finally:
        client.delete_run(made.info.run_id)
    assert "by hand" not in nested(client, array)
