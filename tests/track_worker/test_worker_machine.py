"""What a worker takes of its machine and what it runs in: figures of processes, devices in view, the right Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_kit import PATIENCE, wait_for
from muster.runtime.environment import capture, chosen, image_of, python_of, seeds
from muster.runtime.hardware import Usage, rates, take
from muster.runtime.nvml import Device, share, visible

DEVICES = [Device(index, f"GPU-{index}{index}-uuid", "H", 1 << 30, None) for index in range(8)]


@pytest.mark.parametrize(
    ("given_value", "wanted"),
    [
        (None, list(range(8))),
        ("", []),
        ("3", [3]),
        ("6,1,0", [6, 1, 0]),
        (" 2 , 4 ", [2, 4]),
        ("1,-1,2", [1]),
        ("1,99,2", [1]),
        ("GPU-33,GPU-55-uuid", [3, 5]),
        ("GPU-none,1", []),
        ("MIG-abc,2", [2]),
        ("nonsense", []),
    ],
)
def test_devices_in_view_are_those_that_cuda_would_show(given_value, wanted):
    env = {} if given_value is None else {"CUDA_VISIBLE_DEVICES": given_value}
    assert [device.index for device in visible(DEVICES, env)] == wanted


@given(st.integers(0, 8), st.integers(1, 16))
def test_ranks_share_devices_in_order_and_each_has_one_where_there_are_any(count, ranks):
    parts = [share(DEVICES[:count], local, ranks) for local in range(ranks)]
    if count >= ranks:
        together = [device.index for part in parts for device in part]
        assert together == list(range(ranks * (count // ranks)))
    else:
        assert all(len(part) == min(1, count) for part in parts)


BUSY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "x = bytearray(50 << 20)\\nwhile True: pass"])
for _ in range(3):
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"])  # what they took stays with their parent
with open(sys.argv[1], "wb") as file:
    file.write(bytes(1 << 20))
    os.fsync(file.fileno())
print("ready", flush=True)
child.wait()
"""


def test_a_tree_of_processes_is_counted_whole(tmp_path):
    command = [sys.executable, "-c", BUSY, str(tmp_path / "written")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as busy:
        try:
            assert busy.stdout is not None
            assert busy.stdout.readline() == b"ready\n"
            first = wait_for(lambda: (found := take(busy.pid)) and found.memory > 50 << 20 and found)
            assert first.cpu > 0
            assert wait_for(lambda: (found := take(busy.pid)) and found.cpu > first.cpu + 0.1)
            alone = take(busy.pid, frozenset({child(busy.pid)}))
            assert alone is not None
            assert alone.memory < 50 << 20
        finally:
            os.killpg(busy.pid, 9)
    assert take(busy.pid) is None


def child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def test_rates_are_never_less_than_nothing():
    found = rates(Usage(10.0, 100, 100, 5), Usage(9.0, 50, 300, 7), 2.0)
    assert found == {"system/cpu": 0.0, "system/memory": 7.0, "system/disk_read": 0.0, "system/disk_write": 100.0}


@pytest.fixture
def pythons(tmp_path: Path) -> dict[str, str]:
    """A machine with several of them; only their names matter here."""
    for place in ("bin/python", "bin/python3.12", "venv/bin/python", "env/bin/python"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).symlink_to(sys.executable)
    for name, line in (("torchrun", f"#!{tmp_path}/env/bin/python"), ("tool", "#!/bin/sh"), ("x.py", "#!/bin/false")):
        (tmp_path / "bin" / name).write_text(f"{line}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "venv/bin/activate").write_text("")
    return {"PATH": f"{tmp_path}/bin"}


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("python train.py --lr 1", "bin/python"),
        ("LR=3 exec python3.12 train.py", "bin/python3.12"),
        ("cd x && venv/bin/python train.py", "venv/bin/python"),
        (". venv/bin/activate && python train.py", "venv/bin/python"),
        ("source venv/bin/activate; torchrun x", "venv/bin/python"),
        ("torchrun --nproc-per-node 2 train.py", "env/bin/python"),
        ("tool --with 'an unclosed quote", "bin/python"),
        ("echo hello", "bin/python"),
    ],
)
def test_the_python_of_a_command_is_the_one_that_it_would_run(tmp_path, pythons, command, wanted):
    assert python_of(command, pythons, str(tmp_path)) == str(tmp_path / wanted)


def test_the_packages_are_those_of_that_python_and_the_cache_sees_a_new_one(tmp_path):
    venv, site = tmp_path / "venv", tmp_path / "site"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=PATIENCE)
    site.mkdir()
    env = {"PATH": f"{venv}/bin", "PYTHONPATH": str(site)}

    def look(cache: Path | None = tmp_path / "cache") -> dict[str, str]:
        return dict(capture("python x.py", env, str(tmp_path), {}, cache)["packages"])

    assert look() == look() == {}
    install(site, "first", "1.0")
    assert look() == {"first": "1.0"}
    assert look() == look(None) == {"first": "1.0"}
    install(site, "second", "2.0")
    assert look() == {"first": "1.0", "second": "2.0"}


def test_jobs_in_two_folders_share_the_list_of_packages_unless_the_folder_is_part_of_the_path(tmp_path):
    cache, folders = tmp_path / "cache", [tmp_path / "a", tmp_path / "b"]
    env = {"PATH": str(Path(sys.executable).parent)}
    for folder in folders:
        (folder / "lib").mkdir(parents=True)
        install(folder / "lib", folder.name, "1.0")

    def look(path: str, folder: Path) -> dict[str, str]:
        return dict(capture("python x.py", {**env, "PYTHONPATH": path}, str(folder), {}, cache)["packages"])

    assert look("/nowhere", folders[0]) == look("/nowhere", folders[1])
    assert len(list(cache.iterdir())) == 1
    assert look("/nowhere:lib", folders[0]).get("a") == "1.0"
    assert look("/nowhere:lib", folders[1]).get("b") == "1.0"


def install(site: Path, name: str, version: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    stamp = site.stat().st_mtime_ns
    os.utime(site, ns=(stamp, stamp - 3_600_000_000_000 + len(name)))  # as if it had been there for an hour


def test_a_machine_without_a_python_still_has_an_environment(tmp_path):
    doc = capture("run", {"PATH": str(tmp_path)}, str(tmp_path), {}, None)
    assert doc["packages"] == {}
    assert doc["host"]["name"]


@pytest.mark.parametrize(
    ("files", "env", "wanted"),
    [
        ({}, {"MUSTER_IMAGE": "registry/image:1"}, "registry/image:1"),
        ({"run/.containerenv": 'name="x"\nimage="quay.io/x:2"\n'}, {}, "quay.io/x:2"),
        ({"proc/self/cgroup": f"0::/docker/{'ab' * 32}\n"}, {}, "docker:abababababab"),
        ({".dockerenv": ""}, {}, "docker"),
        ({}, {"APPTAINER_CONTAINER": "/images/x.sif"}, "/images/x.sif"),
        ({}, {}, ""),
    ],
)
def test_the_image_is_what_can_be_known_from_within(tmp_path, files, env, wanted):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert image_of(env, tmp_path) == wanted


def test_only_what_decides_how_a_program_computes_is_taken():
    env = {
        "CUDA_VISIBLE_DEVICES": "0",
        "PYTHONHASHSEED": "3",
        "HOME": "/home/x",
        "HF_HUB_TOKEN": "t",
        "NCCL_SECRET_KEY": "k",
        "OMP_NUM_THREADS": "2",
        "DATA_SEED": "11",
    }
    assert set(chosen(env, {})) == {"CUDA_VISIBLE_DEVICES", "PYTHONHASHSEED", "OMP_NUM_THREADS", "DATA_SEED"}
    assert set(chosen(env, {"OMP_NUM_THREADS": "", "OTHER": "11"})) == {"CUDA_VISIBLE_DEVICES", "PYTHONHASHSEED"}
    assert seeds(env) == {"DATA_SEED": "11", "PYTHONHASHSEED": "3"}
