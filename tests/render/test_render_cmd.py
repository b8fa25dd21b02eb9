"""`muster render` as a user types it: no server, no cluster, manifests on stdout and the rest on stderr."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from render_kit import all_valid

from muster.cli.main import main
from muster.cli.render import as_yaml
from muster.engines.rendering import RENDERERS, Rendered

JOB = """\
name: gpt-small
run: python train.py --lr $LR
num_nodes: 2
resources: {accelerators: "H100:8", cpus: 16, memory: 64GB}
envs: {LR: "3e-4"}
secrets: [HF_TOKEN]
image: registry.example.com/train:1.4
kubernetes: {queue: team-a, labels: {build: "08", run: "1e3"}, node_selector: {gpu: h100}}
"""


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def muster(capsys, monkeypatch, tmp_path: Path) -> Callable[..., Result]:
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "no-server"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)

    def call(*words: str) -> Result:
        capsys.readouterr()
        code = main(words)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.mark.parametrize("form", ["job", "jobset", "trainjob", "pytorchjob"])
def test_manifests_are_printed_as_yaml_that_is_valid(muster, form) -> None:
    got = muster("render", "job.yaml", "--engine", "kubernetes", "--form", form)
    assert got.code == 0, got.err
    made = list(yaml.safe_load_all(got.out))
    all_valid(made)
    assert made[-1]["kind"].lower() == form
    assert "Secret muster-gang-" in got.err
    assert "LocalQueue team-a" in got.err
    for word in ("train.py", "HF_TOKEN", "3e-4"):
        assert word not in got.out


def test_json_for_kubectl_and_json_for_programs(muster) -> None:
    listed = json.loads(muster("render", "job.yaml", "-e", "kubernetes", "-o", "json").out)
    assert (listed["kind"], [item["kind"] for item in listed["items"]]) == ("List", ["Service", "Job"])
    got = muster("render", "job.yaml", "-e", "kubernetes", "--json")
    told = json.loads(got.out)
    assert (told["engine"], told["status"], told["documents"]) == ("kubernetes", "rendered", listed["items"])
    assert told["not_carried"] == []
    assert any("Secret" in note for note in told["notes"])
    assert got.err == ""


def test_fields_are_set_as_when_it_is_submitted(muster) -> None:
    got = muster("render", "job.yaml", "-e", "kubernetes", "--set", "num_nodes=4", "--set", "kubernetes.form=jobset")
    (jobset,) = yaml.safe_load_all(got.out)
    assert jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] == 4


def test_an_engine_of_this_home_has_its_settings(muster, tmp_path) -> None:
    home = tmp_path / "no-server"
    home.mkdir()
    (home / "config.toml").write_text(
        '[engines.gke]\nkind = "kubernetes"\nnamespace = "ml"\nform = "jobset"\ncheckpoints = "pvc:shared"\n'
        '[engines.gke.pools.h100]\nselector = {gpu = "h100"}\naccelerator = "H100"\nqueue = "fast"\n'
    )
    (jobset,) = yaml.safe_load_all(muster("render", "job.yaml", "-e", "gke").out)
    assert (jobset["kind"], jobset["metadata"]["namespace"]) == ("JobSet", "ml")
    assert "claimName: shared" in yaml.safe_dump(jobset)
    (home / "config.toml").write_text('[engines.gke]\nkind = "kubernetes"\nnamspace = "ml"\n')
    got = muster("render", "job.yaml", "-e", "gke")
    assert got.code == 1
    assert "namespace" in got.err
    assert muster("render", "job.yaml", "-e", "gke2").code == 1


def test_what_is_not_carried_is_said(muster) -> None:
    Path("job.yaml").write_text(
        "name: x\nrun: 'true'\nnum_nodes: {min: 1, max: 3}\n"
        "resources: {gpus: 'H100:1', gpu_memory: 80GB}\ntopology: rack\n"
    )
    got = muster("render", "job.yaml", "-e", "kubernetes")
    assert got.code == 0
    for words in (
        "which nodes have H100",
        "accelerator_memory",
        "topology 'rack' has no label",
        "for 3 nodes",
        "leave the others",
    ):
        assert words in got.err


def test_needs_and_arrays_are_not_carried_and_that_is_said(muster) -> None:
    got = muster("render", "job.yaml", "-e", "kubernetes", "--set", "needs=[prepare, fetch]", "--set", "array=1-20",
                 "--set", "start_from=gpt-12@2000")  # fmt: skip
    assert got.code == 0, got.err
    assert "Muster waits for prepare, fetch" in got.err
    assert "Muster gives it the checkpoint of gpt-12@2000; what is rendered begins without one" in got.err
    assert "20 tasks" in got.err


def test_mistakes_are_told_with_what_to_do(muster) -> None:
    wrong: dict[tuple[str, ...], str] = {
        ("-e", "kubernets"): "kubernetes",
        ("-e", "kubernetes", "--form", "jobsets"): "jobset",
        ("-e", "kubernetes", "-o", "envs.LR=1"): "--set envs.LR=1",
        ("-e", "vertex", "--form", "job"): "Leave it out",
        ("-e", "kubernetes", "--set", "kubernetes.pod={nodeSelector: {a: b c}}"): "nodeSelector.a",
        ("-e", "kubernetes", "--set", "resources.accelerators=H100:0.5"): "whole one",
    }
    for words, told in wrong.items():
        got = muster("render", "job.yaml", *words)
        assert got.code != 0, words
        assert told in got.err, (words, got.err)
        assert got.out == ""
    assert json.loads(muster("render", "none.yaml", "-e", "kubernetes", "--json").out)["error"]["code"] == "not_found"


def test_every_renderer_that_is_registered_exists(muster) -> None:
    """Whether it can render this job or not, it says so as a user can read it."""
    for engine in RENDERERS:
        got = muster("render", "job.yaml", "--engine", engine, "--json")
        told = json.loads(got.out)
        assert got.code == (1 if "error" in told else 0)
        if "error" in told:
            assert told["error"]["code"] != "bug", told


READ_OTHERWISE = (
    "1e3",
    "08",
    "0o17",
    "0x1F",
    "1_000",
    "12:30:45",
    "y",
    "No",
    "~",
    "",
    "null",
    "=",
    "2026-11-15",
    ".5",
    "+1",
)


@given(st.one_of(st.sampled_from(READ_OTHERWISE), st.text()))
def test_text_stays_text_under_any_reader_of_yaml(text: str) -> None:
    document: dict[str, Any] = {"value": text, "list": [text], "number": 292, "flag": True}
    written = as_yaml(Rendered([document], "about"))
    assert yaml.safe_load(written) == document
    assert written.startswith("# about\n")
    if text in READ_OTHERWISE:
        assert f'value: "{text}"' in written or f"value: '{text}'" in written
