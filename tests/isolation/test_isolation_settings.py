"""What ranks inherit, what an engine's settings say of isolation, and what launchers are told of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from muster.core.config import Table
from muster.core.errors import ConfigError
from muster.core.job import Job
from muster.core.spec import JobSpec
from muster.engines.base import GangLaunch, Seat
from muster.engines.isolation import (
    REFUSAL_SECONDS,
    IsolationSettings,
    IsolationStatus,
    Probe,
    isolation_of,
    read_isolation,
    read_local,
)
from muster.inherited import for_launcher, inherited
from muster.runtime.sandbox import mounts
from muster.server.leader import private_paths
from muster.server.settings import Settings
from muster.wire import Isolation, Launch

SERVER = {
    "PATH": "/bin", "LC_ALL": "C", "CUDA_HOME": "/cuda", "NCCL_DEBUG": "INFO", "http_proxy": "http://proxy:3128",
    "https_proxy": "http://me:word@proxy:3128", "SLURM_JOB_ID": "7", "SLURM_JWT": "x", "AWS_SECRET_ACCESS_KEY": "x",
    "PGPASSWORD": "x", "NCCL_SECRET": "x", "MUSTER_TOKEN": "x", "MUSTER_HOME": "/h", "HF_TOKEN": "x", "HF_HOME": "/m",
    "DATABASE_URL": "x", "SSH_AUTH_SOCK": "x", "XDG_RUNTIME_DIR": "x", "TORCH_API_KEY": "x", "WANDB_MODE": "offline",
    "WANDB_API_KEY": "x", "GITHUB_PAT": "x",
}  # fmt: skip
USUAL = {"PATH", "LC_ALL", "CUDA_HOME", "NCCL_DEBUG", "http_proxy", "SLURM_JOB_ID"}


def test_ranks_inherit_what_is_listed_and_no_credential() -> None:
    assert set(inherited(SERVER)) == USUAL
    assert set(inherited(SERVER, ["HF_HOME", "WANDB_*"])) == USUAL | {"HF_HOME", "WANDB_MODE"}
    assert set(inherited(SERVER, ["HF_TOKEN"])) == USUAL | {"HF_TOKEN"}, "an administrator may name one"
    assert set(for_launcher(SERVER)) == USUAL | {"MUSTER_HOME"}


def gang(**changes: Any) -> GangLaunch:
    said: dict[str, Any] = {"job": "a-1", "attempt": 1, "seats": [Seat("local-0")], "nproc": 1, "run": "true"}
    said |= {"workdir": "/", "envs": {}, "secrets": (), "token": "t", "checkpoint_keep": 1, "checkpoint_every": None}
    return GangLaunch(**said | {"max_duration": None, "memory": None, "stop_grace": 1.0, "project": "a"} | changes)


def test_each_project_has_a_number_of_its_own_for_ever(tmp_path: Path) -> None:
    settings, numbers = IsolationSettings(), tmp_path / "users.json"
    found = [isolation_of(gang(project=name), settings, (), numbers) for name in ("a", "b", "a", "c")]
    assert [one.uid for one in found if one] == [2_000_001, 2_000_002, 2_000_001, 2_000_003]
    assert isolation_of(gang(trusted=True), settings, (), numbers) is None
    assert isolation_of(gang(), IsolationSettings(trust_members=True), (), numbers) is None
    named = isolation_of(gang(), IsolationSettings(users={"a": "nobody"}), (), numbers)
    assert named is not None
    assert named.uid == 65534


@pytest.mark.parametrize(
    "given",
    [
        {"pass_env": "HF_HOME"},
        {"writable": ["data"]},
        {"writable": ["/"]},
        {"users": {"a": "root"}},
        {"trust_members": "yes"},
        {"uid_base": 0},
        {"use_subuids": "yes"},
        {"use_subuids": True, "users": {"a": "nobody"}},
        {"trust_member": True},
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        read_local(given, trust_members=False)


@pytest.mark.parametrize(("euid", "subids"), [(1000, [1, 2, 1]), (0, [0, 0, 0])])
def test_without_root_each_project_has_one_of_the_granted_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, euid: int, subids: list[int]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    settings, numbers = read_local({"use_subuids": True}, trust_members=False), tmp_path / "users.json"
    found = [isolation_of(gang(project=name), settings, (), numbers) for name in ("a", "b", "a")]
    assert [one.subid for one in found if one] == subids
    assert [one.uid for one in found if one] == [2_000_001, 2_000_002, 2_000_001]
    assert isolation_of(gang(trusted=True), settings, (), numbers) is None


def test_ids_are_granted_on_this_machine_alone() -> None:
    table = Table("engines.slurm", {"use_subuids": True})
    read_isolation(table)
    with pytest.raises(ConfigError, match="`use_subuids` is not a setting"):
        table.finish()


def test_one_setting_of_the_server_holds_for_every_engine() -> None:
    assert read_isolation(Table("engines.slurm", {}), trust_members=True).trust_members
    assert not read_isolation(Table("engines.slurm", {})).trust_members


def test_of_a_key_and_a_database_elsewhere_the_folder_is_hidden(tmp_path: Path) -> None:
    """A file that takes another's place is another file, which nothing hides in a sandbox that is open."""
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "privkey1.pem").write_text("key")
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "privkey.pem").symlink_to("../archive/privkey1.pem")
    settings = Settings(
        Path("/home/m"), store_url=f"sqlite:///{tmp_path}/db/m.db", tls_key=str(tmp_path / "live" / "privkey.pem")
    )
    hidden = private_paths(settings)
    assert {str(tmp_path / name) for name in ("live", "archive", "db")} <= set(hidden)
    assert "/etc/m.key" in private_paths(Settings(Path("/home/m"), tls_key="/etc/m.key"))
    assert "/etc" not in private_paths(Settings(Path("/home/m"), tls_key="/etc/m.key"))


def test_a_probe_that_failed_is_made_again_after_a_while() -> None:
    answers = [IsolationStatus("none", "no"), IsolationStatus("sandbox", "yes")]
    clock = [0.0]
    probe = Probe(IsolationSettings(), lambda settings: answers.pop(0), lambda: clock[0])
    found = []
    for clock[0] in (0.0, 1.0, REFUSAL_SECONDS - 1.0, REFUSAL_SECONDS, 10 * REFUSAL_SECONDS):
        found.append(probe().isolation_error)
    assert found == ["no", "no", "no", "", ""]


def test_of_two_rules_the_longer_path_holds(tmp_path: Path) -> None:
    home, data, muster = tmp_path / "home", tmp_path / "home" / "data", tmp_path / "home" / "data" / "muster"
    (muster / "w" / "0").mkdir(parents=True)
    told = Isolation(1, 1, "a", hidden=(str(muster),), readable=(str(data), str(muster)), writable=(str(tmp_path),))
    words = list(mounts(told, muster / "w" / "0", {}, {"HOME": str(home)}))
    at = {path: words.index(str(path)) for path in (home, data, muster)}
    last = {path: len(words) - 1 - words[::-1].index(str(path)) for path in (home, data, muster)}
    assert words[at[muster] - 1] == "--tmpfs", "what is hidden is not shown again, whoever lists it"
    assert last[home] < last[data] < at[muster]


def test_a_launch_and_a_job_of_before_know_nothing_of_it() -> None:
    launch = Launch.from_json(_launch_json())
    assert (launch.isolation, launch.pass_env) == (None, None)
    spec = JobSpec(name="a", run="true")
    job = Job("a-1", 1, "default", "default", "ada", spec, 0.0, trusted=True)
    doc = job.to_doc()
    assert Job.from_doc(doc, spec).trusted
    del doc["trusted"]
    assert not Job.from_doc(doc, spec).trusted


def _launch_json() -> str:
    return (
        '{"job": "a", "attempt": 1, "worker": 0, "node": "n", "num_nodes": 1, "nproc": 1, "run": "true", '
        '"workdir": "/", "envs": {}, "secrets": [], "urls": [], "urls_file": null, "token": "t", "master_addr": "", '
        '"master_port": 0, "checkpoint_dir": "", "checkpoint_keep": 1, "checkpoint_every": null, "devices": null, '
        '"max_duration": null, "memory": null, "stop_grace": 1.0, "log_limit": 1}'
    )
