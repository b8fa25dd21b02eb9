"""What is shipped to nodes without Muster: all that workers import, nothing of the server, the same each time."""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from muster.engines.package import INSIDE, MAIN, SOURCE_ALONE, Package, worker_package

CONFIG_MAP = 1 << 20  # bytes that the API server takes; the content is written in base64
RUNTIME = re.compile(r"muster/runtime/\w+\.py")
OFFERED = ("muster.client", "muster.client.optuna")
NOT_THERE = ("cli", "client", "control", "core", "engines", "monitor", "sched", "server", "store", "track")


def test_it_holds_the_workers_side_and_nothing_of_the_servers() -> None:
    files = worker_package().files
    assert {"muster/wire.py", "muster/runtime/boot.py", "muster/train/loop.py", MAIN} <= files.keys()
    assert not [path for path in files if path.split("/")[1:2] and path.split("/")[1] in NOT_THERE]
    sources = {path.replace("__pycache__/", "").rsplit(".", 2)[0] + ".py" for path in files if path.endswith(".pyc")}
    assert {"muster/wire.py", "muster/runtime/launcher.py"} <= sources <= files.keys()


def test_whatever_it_imports_of_muster_is_in_it() -> None:
    files = worker_package().files
    for path, content in files.items():
        for name in imported(content) if path.endswith(".py") else ():
            at = name.replace(".", "/")
            # The package offers `muster.Client` and others to those who have all of it.
            assert f"{at}.py" in files or f"{at}/__init__.py" in files or name in OFFERED, (path, name)


def imported(content: bytes) -> set[str]:
    """The modules of Muster that a file names, however deep inside."""
    found = set()
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
    return {name for name in found if name.split(".")[0] == "muster"}


def test_the_archive_is_the_same_each_time_and_fits_a_config_map() -> None:
    first, second = worker_package().as_zip(), worker_package().as_zip()
    assert first == second
    assert len(first) * 4 // 3 < CONFIG_MAP
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(io.BytesIO(held.pop(INSIDE))) as inside:
        assert held | {name: inside.read(name) for name in inside.namelist()} == worker_package().files


def test_what_a_launcher_imports_at_its_start_is_compiled() -> None:
    program = "import sys, muster.runtime.boot, muster.runtime.launcher; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {f"{name[7:].replace('.', '/')}.py" for name in done.stdout.split() if name.startswith("muster.")}
    assert "runtime/launcher.py" in loaded
    assert not loaded & SOURCE_ALONE
    assert all(f"muster/{path}" in worker_package().files for path in SOURCE_ALONE)


def test_a_python_that_has_nothing_else_imports_it(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    place = worker_package().unpack_into(tmp_path / "pkg")
    modules = [path[:-3].replace("/", ".") for path in worker_package().files if RUNTIME.fullmatch(path)]
    program = f"import sys; sys.path.insert(0, {str(place)!r}); import muster, muster.wire, muster.train\n" + "\n".join(
        f"import {module.removesuffix('.__init__')}" for module in modules
    )
    command = [str(tmp_path / "bare" / "bin" / "python"), "-I", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_both_forms_run(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    archive = tmp_path / "muster.pyz"
    archive.write_bytes(worker_package().as_zip())
    for what in (archive, worker_package().unpack_into(tmp_path)):
        command = [str(tmp_path / "bare" / "bin" / "python"), str(what)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("usage: python -m muster.runtime.boot slurm|kubernetes FOLDER")


def test_it_is_unpacked_once_and_whole_by_however_many(tmp_path: Path) -> None:
    package = Package("0123456789abcdef" * 4, {f"a/{n}.py": bytes([n]) * 100 for n in range(50)})
    with ThreadPoolExecutor(8) as pool:
        (place,) = set(pool.map(lambda _: package.unpack_into(tmp_path), range(16)))
    assert [path.name for path in tmp_path.iterdir()] == ["0123456789abcdef"]
    found = {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*.py")}
    assert found == package.files
    seen = place.stat().st_mtime_ns
    assert package.unpack_into(tmp_path).stat().st_mtime_ns == seen


def test_more_can_be_asked_for() -> None:
    more = worker_package(("core", "engines"))
    assert more.digest != worker_package().digest
    assert more.files.keys() > worker_package().files.keys()
    assert "muster/engines/local.py" in more.files


def test_nothing_is_run_from_a_folder_that_another_has_made(tmp_path: Path) -> None:
    archive, gang = tmp_path / "muster.pyz", tmp_path / "gang"
    archive.write_bytes(worker_package().as_zip())
    gang.mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "real")
    (gang / "gang.json").write_text(json.dumps({"scratch": str(tmp_path / "scratch")}))
    done = subprocess.run([sys.executable, str(archive), "kubernetes", str(gang)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "belongs to another user, or is a link" in done.stderr
    assert list((tmp_path / "real").iterdir()) == []
