"""The real MLflow client, unchanged, by http and by `muster://`; and what its autologging leaves."""

from __future__ import annotations

import pytest

from live import LiveServer
from mlflow_kit import with_client
from muster.cli.main import main

EVERYTHING = """
from pathlib import Path
import pandas as pd
experiment = mlflow.set_experiment(f"client-{URI}")
frame = pd.DataFrame({"x": [1, 2], "y": [3.0, 4.0]})
with mlflow.start_run(run_name="parent") as parent:
    mlflow.log_params({"lr": 3e-4, "depth": 4})
    for step in range(5):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
    mlflow.log_metrics({"a": float("nan"), "b": float("inf")})
    mlflow.set_tags({"team": "vision"})
    mlflow.log_input(mlflow.data.from_pandas(frame, name="tiny"), context="training")
    mlflow.log_text("hello", "notes/hello.txt")
    mlflow.log_dict({"k": [1]}, "config.json")
    for number in range(20):
        path = Path("tree-{URI}", *["deep"] * (number % 2), f"{number}.txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    mlflow.log_artifacts("tree-{URI}", "tree")
    with mlflow.start_run(run_name="child", nested=True):
        mlflow.log_metric("loss", 2.0)
client = mlflow.MlflowClient()
run = client.get_run(parent.info.run_id)
found = mlflow.search_runs(filter_string="metrics.loss < 1 and params.depth = '4'", order_by=["metrics.loss"])
out["search"] = [len(found), found.iloc[0]["params.lr"], found.iloc[0]["tags.team"]]
out["all"] = sorted(one.info.run_name for one in mlflow.search_runs(output_format="list"))
out["status"] = run.info.status
out["history"] = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "loss")]
out["special"] = [str(run.data.metrics["a"]), str(run.data.metrics["b"])]
out["data"] = [one.dataset.name for one in run.inputs.dataset_inputs]
out["files"] = sorted(one.path for one in client.list_artifacts(run.info.run_id))
out["below"] = [one.path for one in client.list_artifacts(run.info.run_id, "notes")]
tree = Path(mlflow.artifacts.download_artifacts(f"{run.info.artifact_uri}/tree"))
out["tree"] = sorted([path.relative_to(tree).as_posix(), path.read_text()] for path in tree.rglob("*.txt"))
out["text"] = mlflow.artifacts.load_text(f"{run.info.artifact_uri}/notes/hello.txt")
out["child"] = [
    one.info.run_name
    for one in client.search_runs([experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{run.info.run_id}'")
]

import numpy as np
from sklearn.linear_model import LinearRegression
with mlflow.start_run():
    model = LinearRegression().fit(np.array([[0.0], [1.0]]), [0.0, 2.0])
    how = {"registered_model_name": "line-{URI}", "serialization_format": "cloudpickle"}
    how["pip_requirements"] = ["scikit-learn"]  # else another process imports all of it to find out
    info = mlflow.sklearn.log_model(model, name="line", **how)
out["predicted"] = float(mlflow.pyfunc.load_model(f"models:/line-{URI}/1").predict(np.array([[3.0]]))[0])
out["model"] = mlflow.get_logged_model(info.model_id).name
with mlflow.start_span(name="span") as span:
    span.set_inputs({"a": 1})
mlflow.flush_trace_async_logging()
out["trace"] = [one.data.spans[0].name for one in [mlflow.get_trace(span.trace_id)]]
"""

SKLEARN_AND_XGBOOST = """
import numpy as np
import xgboost
from sklearn.linear_model import LogisticRegression
x = np.random.default_rng(0).normal(size=(60, 3))
y = (x[:, 0] > 0).astype(int)
mlflow.set_experiment("autolog")
mlflow.autolog(log_models=False, silent=True)
with mlflow.start_run(run_name="sklearn"):
    LogisticRegression(C=0.5).fit(x, y)
with mlflow.start_run(run_name="xgboost"):
    data = xgboost.DMatrix(x, y)
    xgboost.train({"objective": "binary:logistic", "eta": 0.3}, data, 3, evals=[(data, "train")])
"""

LIGHTNING = """
import lightning
import torch
mlflow.set_experiment("autolog")
mlflow.pytorch.autolog(log_models=False, silent=True)

class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, index):
        loss = self.layer(batch[0]).pow(2).mean()
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 2)), batch_size=4)
with mlflow.start_run(run_name="lightning"):
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Line(), data)
"""

# Its Trainer wants a package more; without it the callback that the Trainer would call is called as it would.
TRANSFORMERS = """
import importlib.util
import types
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerControl, TrainerState
from transformers import TrainingArguments
from transformers.integrations import MLflowCallback
mlflow.set_experiment("autolog")
mlflow.transformers.autolog(log_models=False, silent=True)
tiny = BertConfig(
    vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
    max_position_embeddings=8,
)
model = BertForSequenceClassification(tiny)
rows = [{"input_ids": torch.arange(4), "labels": torch.tensor(i % 2)} for i in range(4)]
given = {"output_dir": "hf", "max_steps": 2, "logging_steps": 1, "report_to": ["mlflow"], "save_strategy": "no"}
with mlflow.start_run(run_name="transformers"):
    if importlib.util.find_spec("accelerate"):
        arguments = TrainingArguments(**given, use_cpu=True, disable_tqdm=True)
        Trainer(model, arguments, train_dataset=rows).train()
    else:
        state, control, callback = TrainerState(is_world_process_zero=True), TrainerControl(), MLflowCallback()
        arguments = types.SimpleNamespace(**given, run_name=None, to_dict=lambda: dict(given))
        callback.on_train_begin(arguments, state, control, model=model)
        for state.global_step in (1, 2):
            callback.on_log(arguments, state, control, {"loss": 0.5}, model=model)
        callback.on_train_end(arguments, state, control)
"""


@pytest.mark.parametrize("uri", ["http", "muster"])
def test_the_client(muster: LiveServer, uri: str) -> None:
    found = with_client(muster, EVERYTHING.replace("{URI}", uri), uri, load="sklearn.linear_model")
    assert found["search"] == [1, "0.0003", "vision"]
    assert found["all"] == ["child", "parent"]
    assert found["status"] == "FINISHED"
    assert found["history"] == [[step, 1 / (step + 1)] for step in range(5)]
    assert found["special"] == ["nan", "inf"]
    assert found["data"] == ["tiny"]
    assert found["files"] == ["config.json", "notes", "tree"]
    assert found["tree"] == sorted([f"{'deep/' * (one % 2)}{one}.txt", str(one)] for one in range(20))
    assert found["below"] == ["notes/hello.txt"]
    assert found["text"] == "hello"
    assert found["child"] == ["child"]
    assert found["predicted"] == pytest.approx(6.0)
    assert (found["model"], found["trace"]) == ("line", ["span"])


NAMES = """
import mlflow.tracking
mlflow.set_experiment("named")
with mlflow.start_run(run_name="baseline"):
    mlflow.log_param("lr", 1)
with mlflow.start_run() as run:
    mlflow.set_tag("mlflow.runName", "tagged later")
client = mlflow.MlflowClient()
client.update_run(client.create_run(run.info.experiment_id).info.run_id, name="renamed")
"""


@pytest.mark.parametrize("words", [(), ("-c", "params.lr")])
def test_runs_have_their_names_in_muster(
    muster: LiveServer, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_client(muster, NAMES)
    monkeypatch.setenv("MUSTER_HOME", str(muster.home))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("MUSTER_URL", raising=False)
    monkeypatch.delenv("MUSTER_TOKEN", raising=False)
    names = "name in (baseline, 'tagged later', renamed)"
    assert main(("runs", f"source = mlflow and {names}", "--sort", "name", *words)) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["id", "name", "phase"]
    assert {row[head.index("name") : head.index("phase")].strip() for row in rows} == {
        "baseline",
        "tagged later",
        "renamed",
    }


@pytest.mark.parametrize(
    ("script", "load", "expected"),
    [
        (
            SKLEARN_AND_XGBOOST,
            "sklearn.linear_model",
            {"sklearn": ("C", "training_accuracy_score"), "xgboost": ("eta", "train-logloss")},
        ),
        (LIGHTNING, "torch", {"lightning": ("epochs", "train_loss")}),
        (TRANSFORMERS, "torch", {"transformers": ("max_steps", "loss")}),
    ],
    ids=["sklearn-xgboost", "lightning", "transformers"],
)
def test_autologging(muster: LiveServer, script: str, load: str, expected: dict[str, tuple[str, str]]) -> None:
    with_client(muster, script, load=load)
    with muster.http() as http:
        number = http.get(
            "/mlflow/api/2.0/mlflow/experiments/get-by-name", params={"experiment_name": "autolog"}
        ).json()
        asked = {"experiment_ids": [number["experiment"]["experiment_id"]]}
        runs = http.post("/mlflow/api/2.0/mlflow/runs/search", json=asked).json()["runs"]
    named = {run["info"]["run_name"]: run for run in runs}
    for name, (param, metric) in expected.items():
        data = named[name]["data"]
        assert param in {one["key"] for one in data["params"]}
        assert metric in {one["key"] for one in data["metrics"]}
        assert named[name]["info"]["status"] == "FINISHED"
