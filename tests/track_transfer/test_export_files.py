"""The files that exporters write, read by the tools that they are for."""

from __future__ import annotations

import csv
import json
import math
import warnings
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet

from muster.foreign import tbevent, tfrecord
from muster.track.exporters import EXPORTERS
from muster.track.exporters.base import Facts, Medium
from muster.track.exporters.tensorboard import encoded
from transfer_kit import PNG, GivenRun, board, series

NAN, INF = float("nan"), float("inf")
FACTS = Facts(
    "gpt-17", "language", "gpt", created_at=1.7e9, started_at=1.7e9, ended_at=1.7e9 + 60, phase="failed",
    params={"lr": "3e-4", "opt": "adam", "amp": "True"}, tags={"task": "pretrain"}, metrics={"loss": 0.5},
)  # fmt: skip
CURVES = [
    series("loss", range(5000), np.linspace(2, 1, 5000).tolist()),
    series("odd", [-5, 3, 2**40, 7], [NAN, INF, -INF, 0.1]),
    series("loss", range(4000, 4100), [7.0] * 100, superseded=True),
    series("system/cpu", [0, 5], [1.0, 2.0], rank=3),
]


def export(name: str, run: GivenRun, folder: Path, superseded: bool = True) -> Path:
    (told,) = EXPORTERS.get(name).export([run], folder, superseded=superseded)
    return told.path


class TestTensorBoard:
    def test_scalars_are_what_tensorboard_reads(self, tmp_path: Path) -> None:
        found = board(export("tensorboard", GivenRun(FACTS, CURVES), tmp_path))
        loss = found.Scalars("loss")
        assert [one.step for one in loss] == list(range(5000))
        assert np.allclose([one.value for one in loss], np.linspace(2, 1, 5000))
        assert [one.wall_time for one in loss[:2]] == [1.7e9, 1.7e9 + 1]
        odd = {one.step: one.value for one in found.Scalars("odd")}
        assert odd[3] == INF
        assert odd[2**40] == -INF
        assert math.isnan(odd[-5])

    def test_other_ranks_and_superseded_parts_are_runs_beside_it(self, tmp_path: Path) -> None:
        own = export("tensorboard", GivenRun(FACTS, CURVES), tmp_path)
        assert [one.value for one in board(own / "rank-3").Scalars("system/cpu")] == [1.0, 2.0]
        assert {one.value for one in board(own / "superseded").Scalars("loss")} == {7.0}

    def test_histograms_images_and_texts(self, tmp_path: Path) -> None:
        media = [
            Medium("pic", "image", 3, 1.7e9, mime="image/png", content=PNG),
            Medium("weights", "histogram", 3, 1.7e9, data={"edges": [0.0, 1.0, 3.0], "counts": [3, 4]}),
            Medium("rows", "table", 4, 1.7e9, data={"columns": ["a", "b"], "rows": [[1, "x|y"]]}),
            Medium("said", "text", 5, 1.7e9, data={"text": "hello"}),
            Medium("nothing", "audio", 5, 1.7e9, content=b"..."),
        ]
        found = board(export("tensorboard", GivenRun(FACTS, [], media), tmp_path))
        (image,) = found.Images("pic")
        assert (image.encoded_image_string, image.width, image.height, image.step) == (PNG, 2, 2, 3)
        (weights,) = found.Histograms("weights")
        value = weights.histogram_value
        assert (value.min, value.max, value.num) == (0.0, 3.0, 7.0)
        assert list(value.bucket_limit) == [0.0, 1.0, 3.0]
        assert list(value.bucket) == [0.0, 3.0, 4.0]
        (said,) = found.Tensors("said")
        assert said.tensor_proto.string_val[0] == b"hello"
        (rows,) = found.Tensors("rows")
        assert "| 1 | x\\|y |" in rows.tensor_proto.string_val[0].decode()

    def test_parameters_are_hyperparameters(self, tmp_path: Path) -> None:
        found = board(export("tensorboard", GivenRun(FACTS, CURVES), tmp_path))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData  # noqa: PLC0415
        start = HParamsPluginData.FromString(
            found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        ).session_start_info
        assert start.hparams["lr"].number_value == 3e-4
        assert start.hparams["opt"].string_value == "adam"
        assert start.hparams["amp"].bool_value is True
        end = HParamsPluginData.FromString(
            found.SummaryMetadata("_hparams_/session_end_info").plugin_data.content
        ).session_end_info
        assert (end.status, end.end_time_secs) == (2, 1.7e9 + 60)

    def test_many_at_once_are_the_same_bytes_as_one_by_one(self) -> None:
        steps = np.array([0, 1, 127, 128, 16383, 16384, 2**40, -5, 3])
        times = np.linspace(1.7e9, 1.8e9, len(steps))
        values = np.array([1, -2, NAN, INF, -INF, 1e300, -1e300, 0.1, 1e-46])
        one_by_one = b"".join(
            tfrecord.framed(tbevent.event(time, int(step), tbevent.scalar("loss/α", value)))
            for step, time, value in zip(steps, times.tolist(), values.tolist(), strict=True)
        )
        assert encoded("loss/α", steps, times, values) == one_by_one


class TestTables:
    def test_csv(self, tmp_path: Path) -> None:
        media = [
            Medium("pic", "image", 3, 1.7e9, mime="image/png", content=PNG),
            Medium("said", "text", 5, 1.7e9, data="x"),
        ]
        own = export("csv", GivenRun(FACTS, CURVES, media), tmp_path)
        with (own / "metrics.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 5106
        assert rows[0] == {
            "name": "loss", "rank": "", "attempt": "1", "step": "0", "time": "1700000000.0", "value": "2.0",
            "superseded": "0",
        }  # fmt: skip
        odd = [row["value"] for row in rows if row["name"] == "odd"]
        assert odd == ["nan", "inf", "-inf", "0.1"]
        with (tmp_path / "runs.csv").open(newline="") as file:
            (run,) = csv.DictReader(file)
        assert (run["id"], run["params.lr"], run["metrics.loss"], run["tags.task"]) == (
            "gpt-17",
            "3e-4",
            "0.5",
            "pretrain",
        )
        shown = [json.loads(line) for line in (own / "media.jsonl").read_text().splitlines()]
        assert (own / shown[0]["path"]).read_bytes() == PNG
        assert shown[1]["data"] == "x"

    def test_parquet(self, tmp_path: Path) -> None:
        own = export("parquet", GivenRun(FACTS, CURVES), tmp_path)
        table = parquet.read_table(own / "metrics.parquet")
        assert table.num_rows == 5106
        frame = table.to_pydict()
        assert frame["rank"][0] is None
        assert frame["rank"][-1] == 3
        assert math.isnan(frame["value"][5000])
        assert sum(frame["superseded"]) == 100
        (run,) = parquet.read_table(tmp_path / "runs.parquet").to_pylist()
        assert (run["id"], run["params.lr"], run["metrics.loss"]) == ("gpt-17", "3e-4", 0.5)
