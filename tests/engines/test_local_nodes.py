"""The machine as the local engine describes it: shares, logical accelerators, real GPUs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from muster.core.errors import ConfigError
from muster.core.resources import Resources
from muster.engines.base import NodeInfo
from muster.engines.local import describe_machine
from muster.engines.local_nodes import gpu_kind


def test_the_machine_is_shared_evenly_or_as_told() -> None:
    whole = describe_machine(accelerators="")[0]
    halves = describe_machine(2, accelerators="H100:8")
    assert [node.name for node in halves] == ["local-0", "local-1"]
    assert {node.resources for node in halves} == {
        Resources(whole.resources.milli_cpus // 2, whole.resources.memory // 2, 8, "H100")
    }
    told = describe_machine(1, accelerators="A100", cpus=1.5, memory=10, pool="laptop")
    assert told == [NodeInfo("local-0", "laptop", Resources(1500, 10, 1, "A100"))]


def test_a_node_of_a_machine_that_is_cut_small_still_takes_a_job_of_one_cpu() -> None:
    whole = describe_machine(accelerators="")[0].resources
    many = describe_machine(1000, accelerators="")
    assert {node.resources.milli_cpus for node in many} == {1000}
    assert {node.resources.memory for node in many} == {whole.memory // 1000}
    assert describe_machine(1000, accelerators="", cpus=0.5)[0].resources.milli_cpus == 500


@pytest.mark.parametrize(
    "changes", [{"accelerators": "H100:"}, {"accelerators": ":8"}, {"accelerators": "H100:x"}, {"nodes": 0}]
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        describe_machine(**changes)


def test_real_gpus_are_shared_out_by_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a program in nvidia-smi's place that prints what that prints on a machine of two kinds."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf 'NVIDIA T400\\nNVIDIA H100 80GB HBM3\\nNVIDIA H100 80GB HBM3\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    shares = [node.labels["cuda_devices"] for node in describe_machine(3)]
    assert shares == ["1", "2", ""]
    nodes = describe_machine(2)
    assert [(n.resources.accelerator, n.resources.accelerators, n.labels) for n in nodes] == [
        ("H100", 1, {"cuda_devices": "1"}),
        ("H100", 1, {"cuda_devices": "2"}),
    ]
    program.write_text("#!/bin/sh\nexit 9\n")
    assert describe_machine()[0].resources.accelerators == 0


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
    ],
)
def test_products_have_the_names_that_people_ask_for(product: str, kind: str) -> None:
    assert gpu_kind(product) == kind
