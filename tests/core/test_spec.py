"""The canonical form: what it refuses, what it asks of a node, its way to a file and back, its schema and its page."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import ClassVar

import jsonschema_rs
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from muster.core.errors import SpecError
from muster.core.notation import accepted_names, section_model, written
from muster.core.parse import parse_job
from muster.core.resources import Resources
from muster.core.schema import muster_schema
from muster.core.spec import (
    RESERVED,
    RESERVED_PREFIX,
    Checkpoint,
    JobSpec,
    Retry,
    Topology,
    WorkerResources,
    ask,
    dump_job,
    ranks_per_node,
    section,
)
from muster.core.spec_engines import KubernetesSection, RaySection, SlurmSection
from muster.core.spec_managed import AzureMLSection, SageMakerSection, VertexSection

ROOT = Path(__file__).parents[2]
VALIDATOR = jsonschema_rs.validator_for(muster_schema())
MODELS: list[type[BaseModel]] = [
    JobSpec, WorkerResources, Checkpoint, Retry, Topology,
    SlurmSection, RaySection, KubernetesSection, SageMakerSection, VertexSection, AzureMLSection,
]  # fmt: skip

# --- specs of every sort ----------------------------------------------------------------------------------------------
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
lines = st.sampled_from(["python train.py", "  indented", "# note", "", "a: b", "'", '"', "\t", " "])
run = (text | st.lists(lines, max_size=5).map("\n".join)).filter(str.strip)
labels = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,20}\Z")
env_names = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,20}\Z").filter(
    lambda name: name not in RESERVED and not name.startswith(RESERVED_PREFIX)
)
seconds = st.floats(0, 86400, exclude_min=True) | st.integers(1, 86400).map(float)
resources = st.builds(
    lambda kind, count, share, size, cpus, memory: WorkerResources(
        accelerator=kind if count else "", accelerators=count, share=share if count == 1 else 1000,
        accelerator_memory=size, cpus=cpus, memory=memory,
    ),
    st.sampled_from(["GPU", "H100", "A100-80GB", "NO"]),
    st.integers(0, 1024) | st.just(1),
    st.integers(1, 1000),
    st.none() | st.integers(1, 2**50),
    st.none() | st.floats(0.001, 100_000),
    st.none() | st.integers(1, 2**60),
)  # fmt: skip
datasets = st.lists(st.sampled_from(["c4-en@v3", "s3://bucket/a#b", "-", "no", "1.0"]), max_size=2).map(tuple)
nodes = st.integers(1, 10_000)
fixed_specs = st.builds(
    JobSpec,
    name=st.from_regex(r"\A[a-z]([a-z0-9-]{0,20}[a-z0-9])?\Z"),
    kind=st.sampled_from(["train", "eval", "data", "sweep", "session"]),
    project=labels,
    queue=labels,
    pool=st.none() | labels,
    array=st.none() | st.sampled_from(["0", "1-20", "1-19:2%4", "3,5,9", "0-9,20%1"]),
    needs=st.dictionaries(
        st.from_regex(r"\A[a-z]([a-z0-9-]{0,9}[a-z0-9])?(\[[0-9]{1,4}\])?\Z"),
        st.sampled_from(["succeeded", "ended", "failed"]),
        max_size=3,
    ),
    purpose=st.none() | text,
    workdir=st.none() | text.filter(bool),
    run=run,
    num_nodes=nodes,
    nproc=st.none() | st.integers(1, 1024),
    resources=resources,
    envs=st.dictionaries(env_names.map(str.upper).filter(lambda n: n not in RESERVED), text, max_size=3),
    secrets=st.lists(env_names.map(lambda name: f"s_{name}"), max_size=2).map(tuple),
    data=datasets,
    priority=st.integers(0, 100),
    use_spot=st.booleans(),
    max_duration=st.none() | seconds,
    stop_grace=seconds,
    checkpoint=st.builds(Checkpoint, every=st.none() | st.just("auto") | seconds, keep=st.integers(1, 9)),
    retry=st.builds(
        Retry,
        max_restarts=st.integers(0, 9),
        on=st.lists(st.sampled_from(["node", "worker", "preempted", "error"]), unique=True).map(tuple),
        backoff=seconds,
    ),
    placement=st.sampled_from(["pack", "spread", "balanced", "group", "locality"]),
    topology=st.builds(Topology, require=st.none() | labels, prefer=st.none() | labels),
    group=st.none() | labels,
    near=datasets,
    deadline=st.none() | seconds,
    off_peak=st.booleans(),
    tags=st.dictionaries(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._/-]{0,20}\Z"), text, max_size=3),
)
specs = fixed_specs | st.builds(
    lambda spec, fewest: spec.model_copy(update={"min_nodes": min(fewest, spec.num_nodes)}), fixed_specs, nodes
)


@settings(deadline=None, max_examples=80)
@given(specs)
def test_a_spec_survives_a_file(spec):
    assert parse_job(dump_job(spec)) == spec


@settings(deadline=None)
@given(specs)
def test_a_spec_survives_json(spec):
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


@settings(deadline=None)
@given(specs)
def test_what_is_dumped_fits_the_schema_and_any_yaml_reader(spec):
    raw = yaml.safe_load(dump_job(spec))
    VALIDATOR.validate(raw)
    assert parse_job(raw) == spec


def test_a_file_holds_what_differs_in_human_units():
    spec = JobSpec(
        name="a", run="set -e\npython a.py\n", priority=75, max_duration=5400, envs={"A": "1", "B": "no"},
        resources=WorkerResources(accelerator="H100", accelerators=8, cpus=16.0, memory=64 * 2**30),
        checkpoint=Checkpoint(every="auto"), retry=Retry(on=()),
    )  # fmt: skip
    assert dump_job(spec) == (
        "name: a\nrun: |\n  set -e\n  python a.py\n"
        "resources:\n  accelerators: H100:8\n  cpus: 16\n  memory: 64GiB\n"
        "envs:\n  A: '1'\n  B: 'no'\npriority: high\nmax_duration: 1h30m\n"
        "checkpoint:\n  every: auto\nretry:\n  'on': []\n"
    )
    assert dump_job(JobSpec(name="a", run="x")) == "name: a\nrun: x\n"
    elastic = JobSpec(name="a", run="x", num_nodes=8, min_nodes=2, topology=Topology(require="rack"))
    assert dump_job(elastic) == "name: a\nrun: x\nnum_nodes:\n  min: 2\n  max: 8\ntopology:\n  require: rack\n"
    shared = WorkerResources(accelerator="H100", accelerators=1, share=250, accelerator_memory=80 * 10**9)
    assert "H100:0.25\n  accelerator_memory: 80GB\n" in dump_job(JobSpec(name="a", run="x", resources=shared))


# --- the models -------------------------------------------------------------------------------------------------------
def test_a_spec_is_frozen_and_complete():
    spec = JobSpec(name="a", run="x")
    with pytest.raises(ValidationError, match="frozen"):
        spec.name = "b"
    with pytest.raises(ValidationError, match="extra"):
        JobSpec.model_validate({"name": "a", "run": "x", "nodes": 2})
    assert spec.retry == Retry(max_restarts=3, on=("node", "worker", "preempted"), backoff=10.0)
    assert (spec.checkpoint.keep, spec.stop_grace, spec.priority, spec.queue) == (3, 30.0, 50, "default")


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "A"}, {"name": "a_b"}, {"name": "-a"}, {"name": "a-"}, {"name": "a\n"}, {"name": "a" * 51},
        {"name": ""}, {"run": " "}, {"run": " \n"}, {"run": "a\0"}, {"run": "x" * 32_001}, {"run": "\ud800"},
        {"num_nodes": -1}, {"num_nodes": 10_001}, {"nproc": 0}, {"priority": -1}, {"priority": 101},
        {"envs": {"A B": "x"}}, {"envs": {"A": "\0"}}, {"secrets": ["A=b"]}, {"data": ["a b"]}, {"tags": {"": "x"}},
        {"max_duration": 0}, {"max_duration": float("inf")}, {"max_duration": float("nan")}, {"stop_grace": -1},
        {"checkpoint": {"every": 0}}, {"checkpoint": {"every": "soon"}}, {"checkpoint": {"keep": 0}},
        {"retry": {"on": ["always"]}}, {"retry": {"max_restarts": -1}}, {"kind": "other"}, {"placement": "any"},
        {"resources": {"cpus": 0}}, {"resources": {"memory": 0}}, {"resources": {"accelerators": -1}},
    ],
)  # fmt: skip
def test_the_canonical_form_has_bounds(changed):
    with pytest.raises(ValidationError):
        JobSpec.model_validate({"name": "a", "run": "x", **changed})


def test_reading_a_spec_back_calls_no_python():
    """100,000 of them are read when a server starts; a validator in Python would make that slow."""

    def kinds(schema):
        if isinstance(schema, dict):
            if "type" in schema:
                yield schema["type"]
            schema = list(schema.values())
        for inner in schema if isinstance(schema, list | tuple) else ():
            yield from kinds(inner)

    found = {kind for kind in kinds(JobSpec.__pydantic_core_schema__) if isinstance(kind, str)}
    assert {"model", "str", "float"} <= found
    assert not [kind for kind in found if kind.startswith("function")]


@pytest.mark.parametrize(
    ("job", "ranks", "wanted"),
    [
        ("run: x", 1, Resources(1000, 0, 0, "")),
        ("run: x\nnproc: 4", 4, Resources(4000, 0, 0, "")),
        ("run: x\ngpus: 8", 8, Resources(8000, 0, 8, "GPU")),
        ("run: x\ngpus: H100:8\nnproc: 2\nmem: 64GB", 2, Resources(2000, 64 * 10**9, 8, "H100")),
        ("run: x\ngpus: H100:8\ncpus: 0.5", 8, Resources(500, 0, 8, "H100")),
        ("run: x\ncpus: 0.0014", 1, Resources(1, 0, 0, "")),
        ("run: x\ngpus: H100:0.5", 1, Resources(1000, 0, 1, "H100", 500)),
        ("run: x\ngpus: 2\ngpu_memory: 80GB", 2, Resources(2000, 0, 2, "GPU", 1000, 80 * 10**9)),
    ],
)
def test_what_a_worker_asks_for(job, ranks, wanted):
    spec = parse_job(job)
    assert (ranks_per_node(spec), ask(spec)) == (ranks, wanted)


# --- sections of engines ----------------------------------------------------------------------------------------------
ENGINES = """
run: x
k8s:
  volumes: {/data: "pvc:datasets"}
  shm_size: 16GB
  tolerations: nvidia.com/gpu:NoSchedule
  pod: {hostNetwork: true, args: ["0o17", 0o17, 1e3, "1e3", no, 12, "12", null, "", "a\\nb"]}
slurm: {qos: high, requeue: false, signal: 2m, nice: -3, extra: [--hint=nomultithread]}
ray: {driver: yes, runtime_env: {pip: [einops], config: {setup_timeout_seconds: 5}}}
"""


def test_what_is_said_to_an_engine_is_what_it_gets():
    spec = parse_job(ENGINES)
    assert section(spec, "slurm") == {
        "qos": "high", "requeue": False, "signal": 120.0, "nice": -3, "extra": ["--hint=nomultithread"],
    }  # fmt: skip
    assert section(spec, "ray") == {
        "driver": True,
        "runtime_env": {"pip": ["einops"], "config": {"setup_timeout_seconds": 5}},
    }
    assert section(spec, "kubernetes")["pod"] == {
        "hostNetwork": True,
        "args": ["0o17", 15, 1000.0, "1e3", "no", 12, "12", None, "", "a\nb"],
    }
    assert section(spec, "local") == section(parse_job("run: x"), "slurm") == {}
    assert parse_job(dump_job(spec)) == spec
    assert parse_job(spec.model_dump(mode="json", include={"run", "ray"})).ray == spec.ray


free = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), free, max_size=4))
def test_what_is_passed_on_comes_back_from_a_file_as_it_was(values):
    try:
        spec = parse_job({"run": "x", "ray": {"runtime_env": values}})
    except SpecError:
        return  # a NUL in it
    assert spec.ray is None or spec.ray.runtime_env == values
    again = parse_job(dump_job(spec)).ray
    assert again == spec.ray
    assert again is None or _types(again.runtime_env) == _types(values)


def _types(value):
    if isinstance(value, dict):
        return {key: _types(item) for key, item in value.items()}
    return [_types(item) for item in value] if isinstance(value, list) else type(value)


@pytest.mark.parametrize(
    ("line", "where", "hint"),
    [
        ("slurm: {quos: a}", "slurm.quos", "Did you mean `qos`?"),
        ("slurm: {qos: a b}", "slurm.qos", "Write, for example, `qos: high`."),
        ("slurm: high", "slurm", "Write, for example, `slurm: {qos: high}`."),
        ("qos: high", "qos", "Write it under `slurm`."),
        ("kubernetes: {form: jbset}", "kubernetes.form", "Did you mean `jobset`?"),
        ("kubernetes: {tolerations: [a b]}", "kubernetes.tolerations[0]", ""),
        ("kubernetes: {volumes: {data: emptyDir}}", "kubernetes.volumes.data", ""),
        ("ray: {runtime_env: [1]}", "ray.runtime_env", "Write, for example, `runtime_env: {pip: [einops]}`."),
    ],
)
def test_a_mistake_in_a_section_says_where_and_what_to_do(line, where, hint):
    with pytest.raises(SpecError) as caught:
        parse_job(f"run: x\n{line}")
    (problem,) = caught.value.problems
    assert problem.where == f"{where} (line 2)"
    assert hint in problem.hint


# --- words, schema and page -------------------------------------------------------------------------------------------
def test_every_field_says_what_it_is_and_its_example_is_right():
    for model in MODELS:
        for name, info in model.model_fields.items():
            note = written(info)
            if note is None:
                # Each is written with another: `H100:0.5`, and `{min: 2, max: 8}`.
                assert name in ("accelerator", "share", "min_nodes")
                continue
            assert info.description
            section = next((n for n, i in JobSpec.model_fields.items() if section_model(i) is model), None)
            field = {name: yaml.load(note.example, Loader=yaml.BaseLoader)}
            job = {"run": "x", **({section: field} if section else field)}
            parse_job(job)
            assert bool(note.item) == (note.form in ("list", "mapping", "needs"))


def test_no_name_means_two_things():
    for model in MODELS:
        names = [n for name, i in model.model_fields.items() if (w := written(i)) for n in (name, *w.aliases)]
        assert len(names) == len(set(names))
    lifted = set(accepted_names(WorkerResources))
    own = {n for name, i in JobSpec.model_fields.items() if (w := written(i)) for n in (name, *w.aliases)}
    assert not lifted & own


class EditorLoader(yaml.SafeLoader):
    """YAML 1.2, as editors read it: `on` and `no` are text."""

    yaml_implicit_resolvers: ClassVar = {
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:bool" or first in "tTfF"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


GOOD = [
    {"run": "x"},
    {"commands": ["a", "b"], "nodes": 2, "gpus": 8, "env": {"A": 1, "B": True, "C": "x"}, "time": "2:30:00"},
    {"run": "x", "gpus": {"H100": 8}, "checkpoint": "15m", "retry": 3, "priority": 7, "memory": "64GiB"},
    {"run": "x", "checkpoint": {"every": "auto"}, "retry": {"on": "node", "backoff": 5}, "time_limit": "1-12:00:00"},
    {"run": "x", "resources": {"accelerators": "H100", "mem": "64G"}, "max_duration": "1h30m", "secrets": "A"},
    {"run": "x", "num_nodes": {"min": 2, "max": 8}, "topology": "rack", "deadline": "2d", "off_peak": True},
    {"run": "x", "nodes": 2, "topology": {"require": "zone", "prefer": "link"}, "group": "g", "near": "c4-en@v3"},
    *({"run": "x", "gpus": part} for part in ("H100:0.5", "0.25", 0.5, {"H100": 0.125})),
    *({"run": "x", "gpus": kind} for kind in ("h100:8", "rtx4090", "GTX1080", "MI300X:8", "JETSON-TX2")),
]
BAD = [
    {},
    {"run": "x", "commands": ["y"]},
    {"run": "x", "nodes": 1, "num_nodes": 1},
    {"run": "x", "resources": {"mem": "1GB", "memory": "1GB"}},
    {"run": "x", "prioritty": 1},
    {"run": ["python", "x"]},
    {"run": "x", "memory": 64},
    {"run": "x", "memory": "64"},
    {"run": "x", "time": "2:30"},
    {"run": "x", "time": "1m1h"},
    {"run": "x", "time": ""},
    {"run": "x", "name": "My_Run"},
    {"run": "x", "secrets": {"A": "b"}},
    {"run": "x", "secrets": ["A=b"]},
    {"run": "x", "envs": {"1A": "b"}},
    {"run": "x", "gpus": {"H100": 8, "A100": 8}},
    {"run": "x", "gpus": "H100x8"},
    {"run": "x", "gpus": "a100-80gbx8"},
    {"run": "x", "gpus": "GPUx2"},
    {"run": "x", "retry": {"on": ["always"]}},
    {"run": "x", "checkpoint": "often"},
    {"run": "x", "priority": "highest"},
    {"run": "x", "gpus": 1.5},
    {"run": "x", "gpus": "H100:1.5"},
    {"run": "x", "gpus": {"H100": 2.5}},
    {"run": "x", "nodes": {"min": 2}},
    {"run": "x", "nodes": {"min": 0, "max": 2}},
    {"run": "x", "topology": {"near": "rack"}},
]


def test_the_schema_agrees_with_the_parser():
    jsonschema_rs.meta.validate(muster_schema())
    for job in GOOD:
        VALIDATOR.validate(job)
        parse_job(job)
    for job in BAD:
        assert not VALIDATOR.is_valid(job), job
        with pytest.raises(SpecError):
            parse_job(job)


def test_the_schema_has_every_name():
    assert set(muster_schema()["properties"]) == set(accepted_names(JobSpec))


def test_the_page_and_its_example():
    page = (ROOT / "docs" / "job-file.md").read_text(encoding="utf-8")
    example = page.split("```yaml\n")[1].split("```")[0]
    assert parse_job(example).resources.accelerators == 8
    VALIDATOR.validate(yaml.load(example, Loader=EditorLoader))
    for name in accepted_names(JobSpec):
        assert f"`{name}`" in page or f".{name}`" in page
    assert json.loads((ROOT / "docs" / "job.schema.json").read_text(encoding="utf-8")) == muster_schema()


def test_a_stale_page_is_seen_and_written_anew(tmp_path):
    """That all pages are fresh is a part of `make check`."""
    program = textwrap.dedent("""
        import sys, pathlib, generate
        folder, pages = pathlib.Path(sys.argv[1]), {"job-file.md": generate.job_file_page}
        print([generate.write(folder, pages, check) for check in (True, False, True)])
    """)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "docs")}
    words = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(words, check=False, timeout=180, capture_output=True, text=True, env=env)
    assert (done.stdout, "job-file.md is stale" in done.stderr) == ("[1, 0, 0]\n", True), done.stderr
    assert (tmp_path / "job-file.md").read_bytes() == (ROOT / "docs" / "job-file.md").read_bytes()
