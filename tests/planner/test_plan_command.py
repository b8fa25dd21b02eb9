"""`muster plan` as a user calls it, a task of their own, and the guard on a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from live import live_server
from muster import Client
from muster.cli.main import main
from muster.control.admission.memory import configuration
from muster.core.errors import Refused
from muster.planner.traced import trace_mapping

CONFIG = """# the first
task: language
steps: 3  # few
model: {shape: llama-2-7b, sequence: 2048}
data: {batch: 8, sources: [{path: data}]}
precision: bf16
"""
TASK = """
import numpy
from torch import nn
from muster.data.collate import stack
from muster.train.task import Data, Supply

POINT = numpy.ones(8, numpy.float32)


class Points:
    def __len__(self):
        return 1

    def read(self, index):
        return {"x": POINT}


class Squares:
    unit = "points"

    def __init__(self, settings, config):
        self.config = config

    def build(self):
        return nn.Sequential(nn.Linear(8, 32, bias=False), nn.ReLU(), nn.Linear(32, 1, bias=False))

    def data(self, split):
        return Data([Supply("points", Points(), 1.0)], stack)

    def inputs(self, batch):
        return (batch["x"],)

    def loss(self, output, batch):
        return output.square().sum()

    def items(self, arrays):
        return len(arrays["x"])

""".replace("from muster.data.formats import arrays\n", "")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def test_the_plan_is_printed_written_and_applied(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", str(config), "--on", "A10G,H200", "--devices", "1..4", "--deadline", "90d", "--apply"]
    assert main([*words, "--html", "plan.html"]) == 0
    told = capsys.readouterr().out
    assert "Simplest within 90.0 days: " in told
    assert "A10G, one device: It needs" in told
    assert "optimizer" in told
    page = Path("plan.html").read_text()
    assert "<script" not in page
    assert "What does not fit" in page
    text = config.read_text()
    assert "# the first" in text
    assert "steps: 3  # few" in text
    predicted = json.loads(Path("config.plan.json").read_text())
    assert yaml.safe_load(text)["mesh"] == predicted["layout"]


def test_json_and_hugging_face(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub = config.with_name("config.json")
    hub.write_text(json.dumps({
        "model_type": "gpt2", "vocab_size": 50_257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1_024,
    }))  # fmt: skip
    assert main(["plan", "--hf", str(hub), "--on", "H100", "--devices", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (option,) = document["options"]
    assert option["fits"]
    assert sum(option["memory"].values()) == pytest.approx(option["peak_gib"], abs=0.02)
    assert sum(option["step"].values()) == pytest.approx(option["step_s"])
    assert main(["plan", str(config), "--set", "data.batch=0", "--json"]) == 2
    assert "data.batch" in capsys.readouterr().out
    assert main(["plan", "--json"]) == 2


def test_a_task_of_ones_own_is_traced(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.with_name("planned_squares.py").write_text(TASK)
    config.write_text("data: {batch: 6}\n")
    words = [
        "plan",
        str(config),
        "--task",
        "planned_squares:Squares",
        "--tokens",
        "1e6",
        "--on",
        "L4",
        "--devices",
        "1",
    ]
    assert main([*words, "--json"]) == 0
    (option,) = json.loads(capsys.readouterr().out)["options"]
    assert option["fits"]
    traced = trace_mapping({"task": "planned_squares:Squares", "steps": 1, "data": {"batch": 6}})
    assert traced.parameters == 8 * 32 + 32
    assert traced.flops == 3 * 2 * (8 * 32 + 32)
    assert traced.saved == 4 * (8 + 32 + 1), "the inputs of both products, and the output that is squared"
    assert traced.unit == "points"


@pytest.mark.parametrize(
    ("run", "found"),
    [
        ("python -m muster.train config.yaml", ("config.yaml", [])),
        ("torchrun --nproc-per-node 2 -m muster.train ./a/c.yaml data.batch=8", ("a/c.yaml", ["data.batch=8"])),
        ("python -m muster.train $CONFIG", None),
        ("python -m muster.train ../c.yaml", None),
        ("python -m muster.train /etc/passwd", None),
        ("python -m muster.train c.yaml && rm x", None),
        ("python -m muster.train c.yaml --check", None),
        ("python -m muster.train", None),
        ("python train.py muster.train", None),
        ("python -m muster.train 'c.yaml", None),
    ],
)
def test_the_configuration_of_a_command(run: str, found: Any) -> None:
    assert configuration(run) == found


def test_the_guard_refuses_by_policy_what_will_not_fit(config: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    def codes(client: Client, accelerators: str) -> dict[str, str]:
        spec: dict[str, Any] = {
            "name": "big",
            "run": "python -m muster.train config.yaml",
            "workdir": str(config.parent),
        }
        with pytest.raises(Refused) as refused:  # there is no such node, either
            client.submit({**spec, "resources": {"accelerators": accelerators}})
        return {one.code: one.message for one in refused.value.reasons}

    config.write_text(CONFIG.replace("llama-2-7b", "llama-886m"))
    with live_server(tmp_path_factory.mktemp("guarded")) as live, Client(live.url, token=live.token) as client:
        assert "too_little_memory" not in codes(client, "A10G:1"), "a warning, unless the policy says otherwise"
        with live.http() as http:
            http.put(
                "/v1/rules", json={"text": '{"guards": [{"check": "memory", "action": "refuse"}]}'}
            ).raise_for_status()
        told = codes(client, "A10G:1")["too_little_memory"]
        assert told.startswith("this will not fit an A10G: config.yaml needs 40 GiB of 22")
        assert told.endswith("GiB of 22, as predicted")
        assert "too_little_memory" not in codes(client, "H200:1")
        assert "too_little_memory" not in codes(client, "L40S:1"), "not in the catalogue"
        config.write_text("model: [")
        assert "too_little_memory" not in codes(client, "A10G:1"), "the job tells of its mistakes itself"
