"""Muster and MLflow's own server answer the same: one script of the real client, run against each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from live import LiveServer
from mlflow_kit import mlflow_server, with_client, with_uri

SCRIPT = """
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException

client = mlflow.MlflowClient()
experiment = client.create_experiment("agrees")

def part(function):
    try:
        out[function.__name__] = function()
    except MlflowException as error:
        out[function.__name__] = [error.error_code, error.message[:200]]

def new_run(name="r"):
    return client.create_run(experiment, run_name=name).info.run_id

def new_version(model, **given):
    run = new_run()
    return client.create_model_version(model, f"{client.get_run(run).info.artifact_uri}/model", run, **given)

def refused(call, *given):
    try:
        return call(*given)
    except MlflowException as error:
        return [error.error_code, error.get_http_status_code()]

@part
def inputs():
    run = new_run()
    for names in (["zeta", "beta", "omega", "alpha"], ["mid", "zeta", "aaa"]):
        given = [DatasetInput(Dataset(n, n[::-1], "local", "s"), [InputTag("mlflow.data.context", n)]) for n in names]
        client.log_inputs(run, given)
    listed = client.search_runs([experiment], f"run_id = '{run}'")
    return [[one.dataset.name for one in found.inputs.dataset_inputs] for found in (client.get_run(run), *listed)]

@part
def large_batch():
    run = new_run()
    params = [Param(f"p{n}", "p" * 6000) for n in range(100)]
    tags = [RunTag(f"t{n}", "t" * 8000) for n in range(100)]
    client.log_batch(run, [Metric(f"m{n}", n, 5, n) for n in range(800)], params, tags)
    data = client.get_run(run).data
    return [sum(len(text) for text in [*data.params.values(), *data.tags.values()]) > 1_000_000, len(data.metrics)]

@part
def quoted_keys():
    run = new_run("quoted")
    client.log_param(run, "my key", "x")
    client.set_tag(run, "a.b/c d", "y")
    client.log_metric(run, "val loss", 2.0)
    texts = (
        "params.'my key' = 'x'", 'params."my key" = "x"', "params.`my key` = 'x'", "`params`.`my key` = 'x'",
        "tags.'a.b/c d' LIKE 'y%'", "metrics.'val loss'>=1 and params.'my key'='x'", "params.'`my key`' IS NOT NULL",
        "attributes.'run_name' = 'quoted'", "params.'my' = 'x'", "params.'my key' = 'other'",
    )
    found = {text: [one.info.run_name for one in client.search_runs([experiment], text)] for text in texts}
    orders = ("metrics.'val loss' DESC", 'metrics."val loss" DESC', "metrics.`val loss` DESC")
    first = [client.search_runs([experiment], order_by=[one])[0].info.run_name for one in orders]
    return [found, first, [refused(client.search_runs, [experiment], one) for one in ("'params'.x = 'y'", "params.'x")]]

@part
def descriptions():
    client.create_registered_model("plain")
    client.create_registered_model("told", description="about it")
    first = new_version("plain")
    second = new_version("plain", description="second")
    found = {
        "model": [client.get_registered_model(name).description for name in ("plain", "told")],
        "searched": [one.description for name in ("plain", "told")
                     for one in client.search_registered_models(f"name = '{name}'")],
        "created": [first.description, second.description],
        "got": [client.get_model_version("plain", number).description for number in ("1", "2")],
        "versions": [one.description for one in client.search_model_versions("name = 'plain'")],
        "latest": [one.description for one in client.get_latest_versions("plain")],
        "updated": [client.update_registered_model("told", text).description for text in ("new", "")],
        "version updated": [client.update_model_version("plain", "2", text).description for text in ("new", "")],
        "after": [client.get_registered_model("told").description, client.get_model_version("plain", "2").description],
    }
    client.transition_model_version_stage("plain", "1", "Staging")
    client.set_registered_model_alias("plain", "best", "1")
    found["moved"] = client.get_model_version("plain", "1").description
    found["by alias"] = client.get_model_version_by_alias("plain", "best").description
    mlflow.genai.register_prompt("asking", "Say {{x}}")
    mlflow.genai.register_prompt("asking", "Tell {{x}}", commit_message="better")
    found["prompts"] = [mlflow.genai.load_prompt("asking", version=number).commit_message for number in (1, 2)]
    found["prompt"] = [one.description for one in mlflow.genai.search_prompts()]
    return found

@part
def deleted_version():
    client.create_registered_model("shrinks")
    new_version("shrinks")
    before = client.get_registered_model("shrinks").last_updated_timestamp
    client.delete_model_version("shrinks", "1")
    return client.get_registered_model("shrinks").last_updated_timestamp > before

@part
def negative_experiment():
    calls = (client.get_experiment, client.delete_experiment, client.create_run)
    found = [refused(call, number) for call in calls for number in ("-1", "-77")]
    return [*found, [one.info.run_id for one in client.search_runs(["-1"])], refused(client.get_experiment, "x")]

@part
def same_step_and_time():
    found = {}
    nan = float("nan")
    for name, values in {
        "falls": [2.0, 1.0], "rises": [1.0, 2.0], "hill": [1.0, 3.0, 2.0],
        "nan after": [1.0, nan], "nan before": [nan, 1.0], "nan and negative": [nan, -1.0],
    }.items():
        run = new_run()
        for value in values:
            client.log_metric(run, "one", value, timestamp=5, step=1)
        client.log_batch(run, [Metric("batch", value, 5, 1) for value in values], [], [])
        client.log_metric(run, "later", 9.0, timestamp=4, step=1)
        client.log_metric(run, "later", 1.0, timestamp=5, step=1)
        data = client.get_run(run).data.metrics
        found[name] = [str(data["one"]), str(data["batch"]), data["later"], len(client.get_metric_history(run, "one"))]
    return found
"""


@dataclass
class Answers:
    muster: dict[str, Any]
    mlflow: dict[str, Any]

    def agreed(self, name: str) -> Any:
        """What both answered."""
        assert self.muster[name] == self.mlflow[name]
        return self.muster[name]


@pytest.fixture(scope="module")
def answers(muster: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    folder = tmp_path_factory.mktemp("theirs")
    with mlflow_server(folder) as url:
        theirs = with_uri(url, SCRIPT, folder)
    return Answers(with_client(muster, SCRIPT), theirs)


def test_inputs_are_in_the_order_of_logging(answers: Answers) -> None:
    assert answers.agreed("inputs") == [["zeta", "beta", "omega", "alpha", "mid", "aaa"]] * 2


def test_a_batch_of_more_than_a_million_bytes(answers: Answers) -> None:
    assert answers.agreed("large_batch") == [True, 800]


def test_keys_in_any_quotes(answers: Answers) -> None:
    found, first, refused = answers.agreed("quoted_keys")
    assert [len(names) for names in found.values()] == [1] * 8 + [0] * 2
    assert first == ["quoted"] * 3
    assert refused == [["INVALID_PARAMETER_VALUE", 400]] * 2


def test_a_description_that_was_not_given_is_empty(answers: Answers) -> None:
    found = answers.agreed("descriptions")
    assert found["model"] == ["", "about it"]
    assert found["created"] == found["got"] == ["", "second"]
    assert found["prompts"] == ["", "better"]


def test_a_deleted_version_touches_its_model(answers: Answers) -> None:
    assert answers.agreed("deleted_version") is True


def test_no_experiment_has_a_negative_id(answers: Answers) -> None:
    missing = ["RESOURCE_DOES_NOT_EXIST", 404]
    assert answers.agreed("negative_experiment") == [*[missing] * 6, [], ["INVALID_PARAMETER_VALUE", 400]]


def test_of_two_values_at_one_step_and_time_the_greater_is_the_last(answers: Answers) -> None:
    found = answers.agreed("same_step_and_time")
    assert {name: values[0] for name, values in found.items()} == {
        "falls": "2.0", "rises": "2.0", "hill": "3.0", "nan after": "1.0", "nan before": "1.0",
        "nan and negative": "nan",
    }  # fmt: skip
