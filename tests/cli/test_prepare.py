"""A job from the command line: what the shell adds, what the file says, what options override."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from muster.cli.call import Usage
from muster.cli.prepare import from_command, from_file, parse_overrides
from muster.cli.run import parse_envs
from muster.client.spec import submission
from muster.core import parse
from muster.core.errors import NotFound, SpecError
from muster.core.parse import parse_job


@pytest.fixture(autouse=True)
def _shell(monkeypatch):
    monkeypatch.setenv("PATH", "/my/bin:/bin")
    monkeypatch.setenv("VIRTUAL_ENV", "/my")
    monkeypatch.delenv("CONDA_PREFIX", raising=False)


def _file(folder, text):
    folder.mkdir(exist_ok=True)
    path = folder / "job.yaml"
    path.write_text(text)
    return str(path)


def test_a_command_runs_in_this_folder_with_the_python_of_this_shell(tmp_path):
    spec = from_command("python train.py", {"nproc": 2}, local=True).spec
    assert (spec.workdir, spec.name, spec.nproc) == (str(tmp_path), "train", 2)
    assert spec.envs == {"PATH": "/my/bin:/bin", "VIRTUAL_ENV": "/my"}


def test_a_server_elsewhere_is_not_sent_the_paths_of_this_machine():
    assert from_command("python train.py", {}, local=False).spec.envs == {}


def test_what_the_job_file_sets_is_left_alone(tmp_path):
    text = "run: python t.py\nenv: {PATH: /its/own, LR: 3e-4}\nworkdir: sub\n"
    spec = from_file(_file(tmp_path / "jobs", text), {}, local=True).spec
    assert spec.envs == {"PATH": "/its/own", "VIRTUAL_ENV": "/my", "LR": "3e-4"}
    assert spec.workdir == str(tmp_path / "jobs" / "sub")


def test_a_job_file_runs_in_its_own_folder(tmp_path):
    assert from_file(_file(tmp_path / "jobs", "run: true\n"), {}, local=True).spec.workdir == str(tmp_path / "jobs")


def test_overrides_go_over_the_file_under_any_of_a_fields_names(tmp_path):
    text = "run: python t.py\nnodes: 2\nresources: {cpus: 4, memory: 8GB}\nenvs: {A: '1', B: '2'}\n"
    overrides = parse_overrides(["num_nodes=3", "resources.cpus=2", "envs.B=x=y", "retry.on=[node, error]"])
    spec = from_file(_file(tmp_path, text), overrides, local=False).spec
    assert (spec.num_nodes, spec.resources.cpus, spec.resources.memory) == (3, 2, 8_000_000_000)
    assert spec.envs == {"A": "1", "B": "x=y"}
    assert spec.retry.on == ("node", "error")


def test_what_is_sent_means_the_same(tmp_path):
    made = from_file(_file(tmp_path, "run: |\n  a\n  b\ntime: 6h\ngpus: H100:8\n"), {"envs": {"E": ""}}, local=True)
    assert parse_job(submission(made.spec, {}, None)["spec"]) == made.spec


def test_standard_input_is_a_job_file_of_this_folder(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO("run: true\nname: piped\n"))
    made = from_file("-", {}, local=False)
    assert (made.source, made.spec.name, made.spec.workdir) == ("standard input", "piped", str(tmp_path))


def test_mistakes_are_told_with_the_place_where_they_were_made(tmp_path):
    path = _file(tmp_path, "run: true\nnproc: many\n")
    with pytest.raises(SpecError) as raised:
        from_file(path, {}, local=False)
    assert raised.value.message == f"{path} has one mistake."
    assert "line 2" in raised.value.problems[0].where
    with pytest.raises(SpecError, match="The command line has one mistake") as raised:
        from_file(_file(tmp_path, "run: true\n"), parse_overrides(["nprok=2"]), local=False)
    assert "nproc" in raised.value.problems[0].hint
    with pytest.raises(NotFound, match=r"no job file nope\.yaml"):
        from_file("nope.yaml", {}, local=False)


@pytest.mark.parametrize("pair", ["nproc", "=3", "envs.=3", ".x=3", "retry.on=[node"])
def test_an_override_that_is_none_is_told(pair):
    with pytest.raises(Usage, match="-o"):
        parse_overrides([pair])


def test_an_override_inside_of_a_value_is_told():
    with pytest.raises(Usage, match="value already"):
        parse_overrides(["retry=3", "retry.on=[node]"])


def test_a_bare_variable_takes_the_value_of_this_shell(monkeypatch):
    monkeypatch.setenv("SEED", "7")
    assert parse_envs(["SEED", "LR=3e-4", "EMPTY="]) == {"SEED": "7", "LR": "3e-4", "EMPTY": ""}
    with pytest.raises(Usage, match="NOT_SET"):
        parse_envs(["NOT_SET"])


@pytest.mark.parametrize(
    ("pair", "found"),
    [
        ("kubernetes.pod.hostNetwork=true", {"hostNetwork": True}),
        ("kubernetes.pod.terminationGracePeriodSeconds=45", {"terminationGracePeriodSeconds": 45}),
        ('kubernetes.pod.hostname="12"', {"hostname": "12"}),
        ("kubernetes.pod={hostNetwork: true, tolerations: [{key: a, tolerationSeconds: 5}]}",
         {"hostNetwork": True, "tolerations": [{"key": "a", "tolerationSeconds": 5}]}),
        ("kubernetes.pod.tolerations=[{key: a, tolerationSeconds: 5}]",
         {"tolerations": [{"key": "a", "tolerationSeconds": 5}]}),
        ("kubernetes={pod: {hostNetwork: false}}", {"hostNetwork": False}),
    ],
)  # fmt: skip
def test_what_is_passed_on_as_it_is_keeps_the_types_of_yaml(
    tmp_path: Path, pair: str, found: dict[str, object]
) -> None:
    made = from_file(_file(tmp_path, "run: 'true'\n"), parse_overrides([pair]), local=False)
    assert made.spec.kubernetes.pod == found


def test_an_override_of_one_field_leaves_the_types_of_others(tmp_path: Path) -> None:
    text = "run: 'true'\nenvs: {A: '1', B: 'null', C: 'true'}\nkubernetes: {pod: {hostNetwork: true, hostname: '7'}}\n"
    made = from_file(_file(tmp_path, text), parse_overrides(["num_nodes=2", "envs.D=true", "envs.E=null"]), local=False)
    assert made.spec.kubernetes.pod == {"hostNetwork": True, "hostname": "7"}
    assert made.spec.envs == {"A": "1", "B": "null", "C": "true", "D": "true", "E": "null"}


def test_a_job_file_is_read_and_parsed_once_whatever_overrides_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    for name in ("read_document", "_validated"):
        whole = getattr(parse, name)
        monkeypatch.setattr(parse, name, lambda *given, whole=whole, name=name: seen.append(name) or whole(*given))
    made = from_file(_file(tmp_path, "run: x\nnodes: 2\n"), parse_overrides(["nodes=3", "envs.LR=1"]), local=True)
    submission(made.spec, {}, None)
    assert (made.spec.num_nodes, seen) == (3, ["read_document", "_validated"])


@pytest.mark.parametrize(
    ("text", "pair", "source", "where"),
    [
        ("run: x\nenvs:\n  RANK: '1'\n", "envs.LR=1", "job.yaml", "envs.RANK (line 3)"),
        ("run: x\nenvs:\n  LR: '1'\n", "envs.RANK=1", "The command line", "envs.RANK"),
        ("run: x\nenvs:\n  9A: '1'\n", "envs.LR=1", "job.yaml", "envs.9A (line 3)"),
        ("run: x\nnproc: 2\n", "nproc=0", "The command line", "nproc"),
        ("run: x\nnproc: 0\n", "num_nodes=2", "job.yaml", "nproc (line 2)"),
        ("run: x\nnproc: 0\n", "num_nodes=many", "job.yaml", "nproc (line 2)"),
        ("nproc: 2\n", "num_nodes=2", "job.yaml", "run"),
        ("run: x\nsecrets: [A]\n", "envs.A=1", "The command line", "envs.A"),
    ],
)
def test_a_mistake_is_told_of_the_one_who_made_it(
    tmp_path: Path, text: str, pair: str, source: str, where: str
) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(SpecError) as raised:
        from_file(path, parse_overrides([pair]), local=False)
    assert raised.value.message == f"{path if source == 'job.yaml' else source} has one mistake."
    assert [problem.where for problem in raised.value.problems] == [where]


def test_a_folder_on_the_command_line_starts_from_the_current_one(tmp_path: Path) -> None:
    path = _file(tmp_path / "jobs", "run: x\nworkdir: own\n")
    assert from_file(path, {}, local=False).spec.workdir == str(tmp_path / "jobs" / "own")
    assert from_file(path, parse_overrides(["working_dir=sub"]), local=False).spec.workdir == str(tmp_path / "sub")
