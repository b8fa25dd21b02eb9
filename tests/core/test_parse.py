"""Job files, good and bad: every alias, every trap of YAML, and every mistake reported at once and in its place."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from components import require
from muster import wire
from muster.core import document, report
from muster.core.errors import SpecError
from muster.core.notation import accepted_names
from muster.core.parse import parse_job
from muster.core.spec import RESERVED, Checkpoint, JobSpec, Retry, WorkerResources

EXAMPLE = """
name: gpt-small
project: language
queue: research
purpose: baseline for the optimizer ablation     # why, in a sentence: the first entry of the logbook
workdir: .
run: python train.py --lr $LR
num_nodes: 2
resources: {accelerators: "H100:8", cpus: 16, memory: 64GB}   # per node
envs: {LR: "3e-4"}
secrets: [HF_TOKEN]                               # names only; values never enter a spec, a log or an event
data: [c4-en@v3]
priority: normal                                  # low, normal, high, urgent, or 0..100; higher goes first
use_spot: false
max_duration: 6h
checkpoint: {every: 15m, keep: 3}
retry: {max_restarts: 3, on: [node, worker, preempted], backoff: 10s}
placement: pack                                   # pack, spread, balanced, group, locality
tags: {task: pretrain, candidate: "no"}
"""


def problems(job, **options):
    with pytest.raises(SpecError) as caught:
        parse_job(job, **options)
    return caught.value.problems


def only(job, **options):
    (problem,) = problems(job, **options)
    return problem


def test_the_example():
    assert parse_job(EXAMPLE) == JobSpec(
        name="gpt-small", project="language", queue="research", purpose="baseline for the optimizer ablation",
        workdir=".", run="python train.py --lr $LR", num_nodes=2,
        resources=WorkerResources(accelerator="H100", accelerators=8, cpus=16, memory=64 * 10**9),
        envs={"LR": "3e-4"}, secrets=("HF_TOKEN",), data=("c4-en@v3",), priority=50, use_spot=False,
        max_duration=21600, checkpoint=Checkpoint(every=900, keep=3),
        retry=Retry(max_restarts=3, on=("node", "worker", "preempted"), backoff=10), placement="pack",
        tags={"task": "pretrain", "candidate": "no"},
    )  # fmt: skip


def test_an_elastic_gang_and_a_part_of_an_accelerator():
    job = parse_job('run: x\nnum_nodes: {min: 2, max: 8}\nresources: {accelerators: "H100:0.5"}')
    assert (job.num_nodes, job.min_nodes) == (8, 2)
    assert (job.resources.accelerator, job.resources.accelerators, job.resources.share) == ("H100", 1, 500)
    whole = parse_job("run: x\nnum_nodes: 8\ngpus: H100:8")
    assert (whole.num_nodes, whole.min_nodes, whole.resources.share) == (8, None, 1000)
    # What the command line gives replaces what the file says, bounds and all.
    assert parse_job({"run": "x", "nodes": 3}, defaults={"num_nodes": {"min": 2, "max": 8}}).min_nodes is None


def test_only_the_command_is_required():
    assert parse_job("run: python train.py") == JobSpec(name="train", run="python train.py")
    assert parse_job(b"\xef\xbb\xbfrun: 'true'\r\n") == JobSpec(name="true", run="true")
    assert only("name: a").where == "run"


def test_five_mistakes_are_five_problems():
    found = problems(
        "name: My_Run\nrun: python train.py\nnodes: 0\nresources: {memory: 64}\npriorty: high\nretry:\n  on: [nodes]\n"
    )
    assert [(p.where, p.given) for p in found] == [
        ("name (line 1)", "'My_Run'"),
        ("nodes (line 3)", "0"),
        ("resources.memory (line 4)", "64"),
        ("priorty (line 5)", "a key that does not exist"),
        ("retry.on[0] (line 7)", "'nodes'"),
    ]
    assert [p.hint for p in found] == [
        "Call it `my-run`.",
        "Write, for example, `num_nodes: 2`.",
        "Say the unit: `64GB` (10^9 bytes) or `64GiB` (2^30 bytes).",
        "Did you mean `priority`?",
        "Did you mean `node`?",
    ]
    assert all(p.expected for p in found)


def test_a_mapping_has_no_lines():
    job = {"name": "My_Run", "run": "x", "nodes": 0, "resources": {"memory": 64}, "envs": {"1A": "x"}}
    assert {p.where for p in problems(job)} == {"name", "nodes", "resources.memory", "envs.1A"}


# --- other names ------------------------------------------------------------------------------------------------------
OTHER_NAMES = [
    ("container_image: a/b:1", "image: a/b:1"),
    ("k8s: {queue: a, shm_size: 1GB}", "kubernetes: {queue: a, shared_memory: 1GB}"),
    ("nodes: 2", "num_nodes: 2"),
    ("gpus: 8", 'resources: {accelerators: "GPU:8"}'),
    ("gpus: H100:4", "resources: {accelerators: H100:4}"),
    ("accelerators: H100", "resources: {accelerators: H100:1}"),
    ("gpus: h100:2", "resources: {accelerators: H100:2}"),
    ("gpus: {a100-80gb: 2}", "resources: {accelerators: A100-80GB:2}"),
    ("resources: {gpus: 2}", "resources: {accelerators: 2}"),
    ("resources: {accelerators: {H100: 8}}", "resources: {accelerators: H100:8}"),
    ("gpus: 0", "resources: {}"),
    ("cpus: 4", "resources: {cpus: 4}"),
    ("memory: 1GB", "resources: {memory: 1GB}"),
    ("mem: 1GB", "resources: {memory: 1GB}"),
    ("resources: {mem: 1GB}", "resources: {memory: 1GB}"),
    ("cpus: 4\nresources: {memory: 1GB}", "resources: {cpus: 4, memory: 1GB}"),
    ("env: {A: b}", "envs: {A: b}"),
    ("time: 2:30:00", "max_duration: 9000"),
    ("time_limit: 1-00:00:00", "max_duration: 1d"),
    ("nproc_per_node: 3", "nproc: 3"),
    ("working_dir: /x", "workdir: /x"),
    ("spot: yes", "use_spot: true"),
    ("checkpoint: 15m", "checkpoint: {every: 900}"),
    ("checkpoint: auto", "checkpoint: {every: auto}"),
    ("retry: 5", "retry: {max_restarts: 5}"),
    ("retry: {on: node}", "retry: {on: [node]}"),
    ("secrets: A", "secrets: [A]"),
    ("data: c4", "data: [c4]"),
    ("priority: urgent", "priority: 95"),
    ("gpu_memory: 80GB", "resources: {accelerator_memory: 80GB}"),
    ("accelerator_memory: 80GB", "resources: {accelerator_memory: 80GB}"),
    ("gpus: h100:0.50", "resources: {accelerators: {H100: 0.5}}"),
    ("gpus: 0.5", 'resources: {accelerators: "GPU:0.5"}'),
    ("nodes: {min: 2, max: 8}", "num_nodes: {max: 8, min: 2}"),
    ("topology: rack", "topology: {require: rack}"),
    ("near: c4", "near: [c4]"),
    ("depends_on: prepare", "needs: [prepare]"),
    ("needs: {prepare: succeeded, clean: ended}", "needs: {prepare: afterok, clean: afterany}"),
    ("pool:\nenvs: ~", "{}"),
]


@pytest.mark.parametrize(("other", "canonical"), OTHER_NAMES)
def test_other_names_and_short_forms(other, canonical):
    canonical_job = {"run": "x", **yaml.safe_load(canonical)}
    assert parse_job(f"run: x\n{other}") == parse_job(canonical_job)


@pytest.mark.parametrize("name", ["run", "command", "cmd", "entrypoint", "commands"])
def test_names_of_the_command(name):
    assert parse_job(f"{name}: python train.py").run == "python train.py"


def test_a_list_of_commands_stops_at_the_first_that_fails():
    assert parse_job("commands: [pip install x, python train.py]").run == "set -e\npip install x\npython train.py"
    assert parse_job("commands: [python train.py]").run == "python train.py"
    for name in ("run", "command", "cmd", "entrypoint"):
        problem = only({name: ["python", "train.py"]})
        assert (problem.where, problem.given) == (name, "a list")
        assert "`commands`" in problem.hint
    assert only("commands: []").where == only("commands: [[a]]").where == "commands (line 1)"


def test_no_other_name_is_untested():
    tested = "\n".join(other for other, _ in OTHER_NAMES)
    names = accepted_names(JobSpec)
    others = {name for name, path in names.items() if (name,) != path and path != ("run",)}
    assert {name for name in others if f"{name}:" not in tested} == set()


@pytest.mark.parametrize(
    ("one", "two", "keep"),
    [
        ("nodes: 1", "num_nodes: 1", "num_nodes"),
        ("gpus: 1", "resources: {accelerators: 1}", "resources.accelerators"),
        ("resources: {mem: 1GB}", "memory: 1GB", "resources.memory"),
        ("env: {A: b}", "envs: {C: d}", "envs"),
        ("commands: [a]", "run: b", "run"),
        ("time: 1h", "time_limit: 1h", "max_duration"),
    ],
)
def test_two_names_for_one_field(one, two, keep):
    problem = only(f"{one}\n{two}\n" + ("" if "run" in two else "run: x"))
    assert problem.where.endswith("(line 2)")
    first, second = problem.given.removeprefix("both `").removesuffix("`").split("` and `")
    assert (first.split(".")[0], second.split(".")[0]) == (one.split(":")[0], two.split(":")[0])
    assert problem.hint == f"They mean the same: keep `{keep}`."


# --- what YAML does to people -----------------------------------------------------------------------------------------
@pytest.fixture(params=["libyaml", "python"])
def _loader(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(document, "_LOADER", yaml.SafeLoader)
    else:
        require("libyaml", hasattr(yaml, "CSafeLoader"), "Install a PyYAML that was built with it.")


@pytest.mark.usefixtures("_loader")
def test_text_is_what_was_written():
    job = parse_job(
        "run: x\ntags: {a: no, b: False, c: 1:30, d: 010, e: 1.10, f: 2024-01-01, on: off, 1: '', g: !!str null}\n"
        "envs: {LR: 3e-4, N: 0x10, T: true, Q: '3', NO: yes}\nname: on\nretry: {on: [node]}\nuse_spot: no\n"
    )
    assert job.tags == {
        "a": "no", "b": "False", "c": "1:30", "d": "010", "e": "1.10", "f": "2024-01-01", "on": "off", "1": "",
        "g": "null",
    }  # fmt: skip
    assert job.envs == {"LR": "3e-4", "N": "0x10", "T": "true", "Q": "3", "NO": "yes"}
    assert (job.name, job.retry.on, job.use_spot) == ("on", ("node",), False)


def test_values_from_a_program_become_text():
    job = parse_job({"run": "x", "envs": {"A": 1, "B": True, "C": 0.5}, "tags": {"t": False}, "nproc": "2"})
    assert (job.envs, job.tags, job.nproc) == ({"A": "1", "B": "true", "C": "0.5"}, {"t": "false"}, 2)


def test_what_another_yaml_reader_made_of_on():
    assert parse_job(yaml.safe_load("run: x\nretry: {on: [error]}")).retry.on == ("error",)


@pytest.mark.usefixtures("_loader")
@pytest.mark.parametrize(
    ("text", "where", "given"),
    [
        ("", "the whole file", "nothing"),
        ("# nothing", "the whole file", "nothing"),
        ("just text", "the whole file", "text without keys"),
        ("- run: x", "the whole file", "a list"),
        ("run: a: b", "line 1, column 7", "text that YAML can't read"),
        ("run: x\n\tname: a", "line 2, column 1", "text that YAML can't read"),
        ("run: 'x", "line 1, column ", "text that YAML can't read"),
        ("run: x\n---\nrun: y", "line 2", "a second document"),
        ("run: x\nrun: y", "run (line 1)", "the same key again on line 2"),
        ("run: x\nenvs:\n  A: 1\n  A: 2", "envs.A (line 3)", "the same key again on line 4"),
        ("run: a\x00b", "line 1, column 7", "the control character '\\x00'"),
        ("x: 1\nrun: \x1b", "line 2, column 6", "the control character '\\x1b'"),
        ("run: \ud800", "line 1, column 6", "the control character '\\ud800'"),
        ('run: "a\\0b"', "run (line 1)", "text with a NUL"),
        ("run: *nothing", "line 1", "a YAML alias to nothing"),
        ("run: &a [*a]", "line 1", "a YAML alias to nothing"),
        ("run: !!python/name:os.system x", "run (line 1)", "the YAML tag tag:yaml.org,2002:python/name:os.system"),
        ("[a]: b", "line 1", "a list or mapping as a key"),
        ("run: " + "[" * 50_000, "line 1", "more than 20 levels of nesting"),
        ("run: " + "{a: " * 50_000, "line 1", "more than 20 levels of nesting"),
    ],
)
def test_files_that_are_no_job(text, where, given):
    problem = only(text)
    assert problem.where.startswith(where)
    assert problem.given.startswith(given)


def test_a_tab_is_named():
    assert "indent with spaces" in only("run: x\nenvs:\n\tA: b").hint


@pytest.mark.parametrize("job", [None, 5, ["run"], object(), {"run"}])
def test_what_is_neither_text_nor_mapping(job):
    assert only(job).where == "the whole file"


def test_bytes_must_be_utf8():
    assert only(b"run: \xff").where == "byte 5"


def test_a_file_has_limits():
    assert "characters" in only("run: x\n#" + "x" * document.MAX_BYTES).given
    laughs = ["a: &a [x, x, x, x, x, x, x, x]"]
    laughs += [f"{b}: &{b} [{', '.join([f'*{a}'] * 8)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    assert only("\n".join(laughs)).given == "more values than any job needs"
    long_text = "a: &a '" + "x" * 100_000 + "'\ncommands: [" + "*a, " * 100 + "]"
    assert only(long_text).given == "more values than any job needs"
    assert parse_job("envs: {A: &a hello, B: *a}\nrun: *a").envs == {"A": "hello", "B": "hello"}


def test_a_hundred_problems_are_enough():
    assert len(problems({"run": "x", **{f"unknown-{n}": n for n in range(10_000)}})) == report.MAX_PROBLEMS


SHARED = "Only one accelerator can be shared: ask for a part of one, as in `H100:0.5`, or for whole ones."
FINEST = "An accelerator is shared in thousandths: write at most three digits after the point."
IN_BOTH = "Remove it from `envs`: the secret is put into the environment under that name."


# --- mistakes in fields -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("field", "where", "hint"),
    [
        ("numnodes: 1", "numnodes", "Did you mean `num_nodes`?"),
        ("numNodes: 1", "numNodes", "Did you mean `num_nodes`?"),
        ("time-limit: 1h", "time-limit", "Did you mean `time_limit`?"),
        ("every: 5m", "every", "Write it under `checkpoint`."),
        ("max_restarts: 5", "max_restarts", "Write it under `retry`."),
        ("resources: {num_nodes: 5}", "resources.num_nodes", "Write it at the top level."),
        ("retry: {backof: 5}", "retry.backof", "Did you mean `backoff`?"),
        ("zzz: 5", "zzz", "Remove it, or keep it under `tags` if it is a note of your own."),
        ("name: 1x", "name", "Call it `job-1x`."),
        ("name: a-", "name", "Call it `a`."),
        ("name: " + "a" * 51, "name", f"Call it `{'a' * 50}`."),
        ("kind: training", "kind", "Did you mean `train`?"),
        ("placement: packed", "placement", "Did you mean `pack`?"),
        ("placement: 5", "placement", "Write, for example, `placement: pack`."),
        ("project: a b", "project", "Write, for example, `project: language`."),
        ("num_nodes: two", "num_nodes", "Write, for example, `num_nodes: 2`."),
        ("num_nodes: 10001", "num_nodes", "Write, for example, `num_nodes: 2`."),
        ("num_nodes: [1]", "num_nodes", "Write, for example, `num_nodes: 2`."),
        ("nproc: 0", "nproc", "Write, for example, `nproc: 8`."),
        ("priority: 101", "priority", "Write, for example, `priority: high`."),
        ("use_spot: 2", "use_spot", "Write, for example, `use_spot: true`."),
        ("max_duration: 0", "max_duration", "Write, for example, `max_duration: 6h`."),
        ("max_duration: 6x", "max_duration", "Write, for example, `max_duration: 6h`."),
        ("max_duration: 1e400", "max_duration", "Write, for example, `max_duration: 6h`."),
        ("time: 2:30", "time", "`2:30` may be hours or minutes: write `2h30m` or `2m30s`."),
        ("stop_grace: -1", "stop_grace", "Write, for example, `stop_grace: 30s`."),
        ("checkpoint: {every: 0}", "checkpoint.every", "Write, for example, `every: 15m`."),
        ("checkpoint: {keep: 0}", "checkpoint.keep", "Write, for example, `keep: 3`."),
        ("checkpoint: [1]", "checkpoint", "Write, for example, `checkpoint: {every: 15m}`."),
        ("checkpoint: often", "checkpoint", "Write, for example, `every: 15m`."),
        ("retry: {max_restarts: -1}", "retry.max_restarts", "Write, for example, `max_restarts: 3`."),
        ("retry: true", "retry", "Write, for example, `max_restarts: 3`."),
        ("retry: {on: {node: 1}}", "retry.on", "Write, for example, `on: [node, preempted]`."),
        ("resources: 5", "resources", "Write, for example, `resources: {cpus: 16}`."),
        ("cpus: 0", "cpus", "Write, for example, `cpus: 16`."),
        ("cpus: 4+", "cpus", "Write, for example, `cpus: 16`."),
        ("memory: 0GB", "memory", "Write, for example, `memory: 64GB`."),
        ("gpus: 2000", "gpus", "Write, for example, `accelerators: H100:8`."),
        ("gpus: H100x8", "gpus", "Write `H100:8`."),
        ("gpus: H100:1.5", "gpus", SHARED),
        ("gpus: 2.5", "gpus", SHARED),
        ("gpus: 0.0001", "gpus", FINEST),
        ("nodes: {min: 8, max: 2}", "nodes", "`min` is 8, more than `max`, 2: swap them."),
        ("nodes: {min: 0, max: 2}", "nodes", "`min` is at least 1."),
        ("nodes: {min: 2}", "nodes", "Give both, and nothing else: `num_nodes: {min: 2, max: 8}`."),
        ("nodes: {min: 2, max: 8, step: 2}", "nodes", "Give both, and nothing else: `num_nodes: {min: 2, max: 8}`."),
        ("nodes: {min: 2, max: 20000}", "nodes", "Write, for example, `num_nodes: 2`."),
        ("nodes: {min: [2], max: 2}", "nodes", "Write, for example, `num_nodes: 2`."),
        ("topology: {near: rack}", "topology.near", "Write it at the top level."),
        ("topology: a b", "topology", "Write, for example, `require: rack`."),
        ("deadline: 0", "deadline", "Write, for example, `deadline: 2d`."),
        ("off_peak: 2", "off_peak", "Write, for example, `off_peak: true`."),
        ("gpu_memory: 80", "gpu_memory", "Say the unit: `80GB` (10^9 bytes) or `80GiB` (2^30 bytes)."),
        ("gpus: {H100: 1, A100: 1}", "gpus", "A node has one kind of accelerator: name one."),
        ("workdir: ''", "workdir", "Write, for example, `workdir: .`."),
        ("data: [a b]", "data[0]", "Write, for example, `data: [c4-en@v3]`."),
        ("tags: {a b: c}", "tags['a b']", "Write, for example, `tags: {task: pretrain}`."),
        ("tags: text", "tags", "Write, for example, `tags: {task: pretrain}`."),
        ("envs: [A=1]", "envs", 'Write, for example, `envs: {LR: "3e-4"}`.'),
        ("envs: {A: [1]}", "envs.A", 'Write, for example, `envs: {LR: "3e-4"}`.'),
        ("envs: {RANK: 1}", "envs.RANK", "Rename it."),
        ("envs: {MUSTER_X: 1}", "envs.MUSTER_X", "Rename it."),
        ("secrets: [MASTER_ADDR]", "secrets[0]", "Rename it."),
        ("secrets: [A]\nenvs: {A: 1}", "envs.A", IN_BOTH),
    ],
)
def test_a_mistake_says_where_and_what_to_do(field, where, hint):
    problem = only(f"run: x\n{field}")
    assert (problem.where.split(" (line ")[0], problem.hint) == (where, hint)
    mapping = yaml.load(field, Loader=yaml.BaseLoader)
    problem = only({"run": "x", **mapping})
    assert (problem.where, problem.hint) == (where, hint)


def test_items_keep_their_places_behind_a_bad_one():
    assert {p.where for p in problems({"run": "x", "data": ["ok", ["x"], "a b"]})} == {"data[1]", "data[2]"}
    assert {p.where for p in problems({"run": "x", "secrets": [None, "RANK"]})} == {"secrets[0]", "secrets[1]"}


def test_a_variable_without_a_value():
    for job in ("run: x\nenvs: {A: }", {"run": "x", "envs": {"A": None}}):
        problem = only(job)
        assert problem.where.startswith("envs.A")
        assert problem.hint == 'Write `""` for empty text.'


def test_what_was_given_is_shortened():
    assert len(only({"run": "x", "num_nodes": "9" * 500}).given) == 80
    assert only({"run": "x", "num_nodes": 10**5000}).given == "a number of thousands of digits"
    assert only({"run": "x", "k" * 500: 1}).where == "k" * 80
    assert only({"run": "x", 5: 1}).given == "the key 5"


def test_what_the_launcher_sets_is_reserved():
    names = (wire.RANK, wire.WORLD_SIZE, wire.LOCAL_RANK, wire.LOCAL_WORLD_SIZE, wire.GROUP_RANK, wire.NODE_RANK,
             wire.MASTER_ADDR, wire.MASTER_PORT)  # fmt: skip
    assert set(names) == RESERVED


# --- defaults and the folder ------------------------------------------------------------------------------------------
def test_workdir_starts_from_the_folder_of_the_file():
    folder = Path("/home/ada/project")
    assert parse_job("run: x\nworkdir: .", base=folder).workdir == "/home/ada/project"
    assert parse_job("run: x\nworkdir: ../other", base=folder).workdir == "/home/ada/other"
    assert parse_job("run: x\nworkdir: /data", base=folder).workdir == "/data"
    assert parse_job("run: x\nworkdir: ~/x", base=folder).workdir == str(Path("~/x").expanduser())
    assert parse_job("run: x", base=folder).workdir is None
    assert parse_job("run: x\nworkdir: a").workdir == "a"


def test_defaults_fill_in_what_is_left_out():
    defaults = {"nodes": 3, "gpus": "A100:2", "envs": {"A": 1, "B": 2}, "retry": {"backoff": "1m"}, "pool": "spot"}
    job = parse_job("run: x\ngpus: H100:8\nenv: {B: 3}\nretry: {on: [error]}\npool:", defaults=defaults)
    assert job == JobSpec(
        name="x", run="x", num_nodes=3, resources=WorkerResources(accelerator="H100", accelerators=8),
        envs={"A": "1", "B": "3"}, retry=Retry(on=("error",), backoff=60), pool="spot",
    )  # fmt: skip
    found = problems("run: x", defaults={"nodes": 0, "foo": 1, "secrets": ["A=hunter2"]})
    assert {p.where for p in found} == {"defaults.nodes", "defaults.foo", "defaults.secrets[0]"}
    assert "hunter2" not in repr(found)


# --- secrets ----------------------------------------------------------------------------------------------------------
SECRET = "hunter2-7f3a9"  # pragma: allowlist secret
secret_shapes = st.recursive(
    st.sampled_from([SECRET, f"HF_TOKEN={SECRET}", f"{SECRET}\x00", "A"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["A", SECRET]), inner, max_size=2),
    max_leaves=5,
)


@settings(deadline=None)
@given(secret_shapes, st.sampled_from(["secrets", "secret", "Secrets"]))
def test_secrets_are_never_echoed(shape, key):
    job = {"run": "x", "nodes": 0, key: shape}
    for form in (job, yaml.safe_dump(job), [job]):
        with pytest.raises(SpecError) as caught:
            parse_job(form)
        assert SECRET not in f"{caught.value} {caught.value.to_dict()} {caught.value!r}"


@pytest.mark.usefixtures("_loader")
@pytest.mark.parametrize(
    "text",
    [
        f"secrets: {{{SECRET}: 1, {SECRET}: 2}}",
        f"secrets: [*{SECRET}]",
        f"secrets: [!{SECRET} x]",
        f"secrets: [A={SECRET}",
        f"secrets: A: {SECRET}",
        f"\tsecrets: {SECRET}",
        f"secrets={SECRET}",
        f"envs: HF_TOKEN={SECRET}",
        f"envs: {{1A: {SECRET}}}",
        f"envs: {{A: [{SECRET}]}}",
    ],
)
def test_secrets_are_not_echoed_by_broken_files(text):
    assert SECRET not in repr(problems(f"run: x\n{text}"))


# --- anything at all --------------------------------------------------------------------------------------------------
def survives(job, **options):
    """A job or a SpecError that can be shown; whatever else is raised fails the test."""
    error = None
    try:
        assert isinstance(parse_job(job, **options), JobSpec)
    except SpecError as caught:
        error = caught
    if error is not None:
        assert error.problems
        assert all(p.where and p.given and p.expected and p.hint for p in error.problems)
        assert str(error).encode()


any_text = st.text(st.characters(exclude_categories=()))
names = st.sampled_from([*accepted_names(JobSpec), *accepted_names(Retry), *accepted_names(Checkpoint)])
odd = st.sampled_from([object(), b"x", {1}, float("nan"), float("inf"), 1j, range(3), Exception])
leaves = st.none() | st.booleans() | st.integers() | st.floats() | any_text | names | odd
data = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(names | any_text | st.integers() | st.booleans() | st.none(), inner, max_size=6)
    ),
    max_leaves=25,
)
fragments = st.sampled_from(
    [*"[]{}:,-?&*!|>'\"%@`#~<= \n\t\\0a", ": ", "- ", "\n  ", "---\n", "...", "&a ", "*a", "!!str ", "<<: ", "|\n ",
     "x: ", "run", "envs", "secrets", "retry", "on", "null", "5m", "\r\n", "\ufeff", "\u2028", "é", "🦜", '"\\ud800"',
     "%YAML 1.1\n"]
)  # fmt: skip


@settings(deadline=None, max_examples=100)
@given(any_text | st.lists(fragments, max_size=40).map("".join))
def test_any_text(text):
    survives(text)


@settings(deadline=None, max_examples=100)
@given(st.lists(fragments, max_size=40).map("".join))
def test_any_text_without_libyaml(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "_LOADER", yaml.SafeLoader)
        survives(text)


@settings(deadline=None)
@given(st.binary())
def test_any_bytes(raw):
    survives(raw)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(names | any_text, data, max_size=8))
def test_any_mapping(raw):
    survives(raw, base=Path("/x"))


@settings(deadline=None)
@given(data, st.dictionaries(names, data, max_size=3))
def test_any_data_and_any_defaults(raw, defaults):
    survives(raw)
    survives("run: x", defaults=defaults)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, len(EXAMPLE) - 1), st.integers(0, 5), fragments)
def test_the_example_with_a_slip(at, length, slip):
    survives(EXAMPLE[:at] + slip + EXAMPLE[at + length :])
