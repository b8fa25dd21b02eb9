"""Ray's settings are read strictly, its nodes become Muster's, and asks become Ray's words. Needs no Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.core.errors import ConfigError
from muster.core.resources import Resources
from muster.engines.base import GangLaunch, Seat
from muster.engines.describe import Home
from muster.engines.package import worker_package
from muster.engines.ray.adapter import RayAdapter
from muster.engines.ray.config import read
from muster.engines.ray.connect import SHIPPED
from muster.engines.ray.nodes import Pool, bundle_of, name_nodes, node_infos, requests_of


def home(folder: Path) -> Home:
    return Home(folder, "0123456789", lambda: ["http://127.0.0.1:1"])


def parsed(**settings: Any) -> RayAdapter:
    return read("ray", settings, home(Path("/nowhere")))


def node(name: str, cpus: float = 4, **resources: float) -> dict[str, Any]:
    about = {"id": f"{name}00000000", "ip": "10.0.0.1", "host": "vm", "name": name, "labels": {"rack": name}}
    return {**about, "resources": {"CPU": cpus, "memory": 8e9, **resources}}


def test_settings_are_read_and_nothing_is_connected() -> None:
    pools = {"big": {"selector": {"rack": "r1"}, "node": {"cpus": 16, "memory": "64GB", "accelerators": "H100:8"}}}
    pools["big"]["max_nodes"] = 4  # type: ignore[assignment]
    adapter = parsed(address="10.0.0.1:6379", checkpoints="s3://bucket/x", nodes_every="5s", pools=pools)
    assert (adapter.settings.address, adapter.settings.nodes_every) == ("10.0.0.1:6379", 5.0)
    assert adapter.most() == {"big": (Resources(16_000, 64_000_000_000, 8, "H100"), 4)}


def gang(job: str, project: str) -> GangLaunch:
    return GangLaunch(
        job=job, attempt=1, seats=[Seat("n1")], nproc=1, run="true", workdir="/", envs={}, secrets=(), token="t",
        checkpoint_keep=1, checkpoint_every=None, max_duration=None, memory=None, stop_grace=1.0, project=project,
        ask=Resources(1000),
    )  # fmt: skip


class Heard(RayAdapter):
    """Keeps what the bridge would be told."""

    def _call(self, do: str, **given: Any) -> Any:
        self.told = given


def test_a_member_sees_no_checkpoints_of_others_and_an_account_that_is_not_there_is_its_own_projects_affair(
    tmp_path: Path,
) -> None:
    read_in = parsed(checkpoints="/shared/ckpt", scratch="/fast", users={"b": "nobody-of-that-name"})
    adapter = Heard("ray", read_in.settings, home(tmp_path))
    refused = adapter.launch([gang("a-1", "a"), gang("b-1", "b")], lambda key: True)
    assert list(refused) == [("b-1", 1)]
    assert "nobody-of-that-name" in str(refused["b-1", 1])
    (told,) = adapter.told["gangs"]
    hidden = json.loads(told["launches"][0])["isolation"]["hidden"]
    assert {"/shared/ckpt", "/fast"} <= set(hidden)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"adress": "x"}, "Did you mean `address`?"),
        ({"address": 3}, "text is expected"),
        ({"checkpoints": "here"}, "whole path"),
        ({"scratch": "here"}, "whole path"),
        ({"nodes_every": "soon"}, "a duration is expected"),
        ({"pools": {"a": {"selecter": {}}}}, "Did you mean `selector`?"),
        ({"pools": {"a": {"selector": {"x": 1}}}}, "pools.a.selector is {'x': 1}; a table such as"),
        ({"pools": {"a": {"max_nodes": 3}}}, "needs both"),
        ({"pools": {"a": {"node": {"cpus": 0}, "max_nodes": 3}}}, "node.cpus is 0; a number from"),
        ({"pools": {"a": {"node": {"memory": "much"}, "max_nodes": 3}}}, "node.memory is 'much'; a size"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parsed(**settings)
    assert said in str(raised.value)


def test_nodes_are_named_by_label_or_address_and_never_alike() -> None:
    nodes = {
        "aaaaaaaa1": {"ip": "10.0.0.1", "labels": {}},
        "bbbbbbbb1": {"ip": "10.0.0.2", "labels": {"muster-node": "left"}},
        "cccccccc1": {"ip": "10.0.0.3", "labels": {}},
        "dddddddd1": {"ip": "10.0.0.3", "labels": {}},
    }
    names = name_nodes(nodes, {})
    assert list(names.values()) == ["10.0.0.1", "left", "10.0.0.3-ccccc1", "10.0.0.3-ddddd1"]
    nodes["eeeeeeee1"] = {"ip": "10.0.0.1", "labels": {}}
    assert name_nodes(nodes, names) == names | {"eeeeeeee1": "10.0.0.1-eeeee1"}


def test_nodes_belong_to_the_first_pool_whose_selector_fits() -> None:
    pools = [Pool("gpus", {"accelerator": "H100"}), Pool("r2", {"rack": "r2"})]
    raw = [node("r1", GPU=2, **{"accelerator_type:H100": 1}), node("r2"), node("r3"), node("head", cpus=0)]
    raw[2]["trouble"] = "the agent does not start"
    found = node_infos(raw, pools, "ray")
    assert [(one.name, one.pool, one.health) for one in found] == [
        ("r1", "gpus", "healthy"),
        ("r2", "r2", "healthy"),
        ("r3", "ray", "suspect"),
    ]
    assert found[0].resources == Resources(4000, 8_000_000_000, 2, "H100")


def test_an_ask_becomes_a_bundle() -> None:
    assert bundle_of(Resources(1500, 1 << 30, 2, "H100")) == {"CPU": 1.5, "memory": float(1 << 30), "GPU": 2.0}
    assert bundle_of(Resources(0, 0, 1, "H100", share=250)) == {"GPU": 0.25}
    assert bundle_of(Resources(), "10.0.0.1") == {"node:10.0.0.1": 0.001}


def test_who_waits_becomes_requests_with_the_pools_labels() -> None:
    pools = [Pool("gpus", {"accelerator": "H100", "rack": "r1"})]
    found = requests_of([("gpus", Resources(1000, 0, 1, "H100"), 2), ("ray", Resources(500), 1)], pools)
    wanted = ({"CPU": 1.0, "GPU": 1.0, "accelerator_type:H100": 0.001}, {"rack": "r1"})
    assert found == [wanted, wanted, ({"CPU": 0.5}, {})]


def test_the_server_never_imports_ray() -> None:
    program = "import sys, muster.engines.ray.config; sys.exit('ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=180)


def test_an_agent_needs_nothing_but_what_is_shipped(tmp_path: Path) -> None:
    place = worker_package(SHIPPED).unpack_into(tmp_path)
    program = f"import sys; sys.path[:0] = [{str(place)!r}]; import muster.engines.ray.agent as a; print(a.__file__)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=180)
    assert done.stdout.startswith(str(place)), done.stderr


def test_without_ray_the_doctor_says_what_to_install(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    [finding] = read("ray", {"python": str(bare)}, home(tmp_path)).diagnose()
    assert (finding.status, finding.name) == ("fail", "package")
    assert "No module named 'ray'" in finding.detail
    assert "Install Ray" in finding.hint
