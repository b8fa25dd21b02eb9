"""Fixtures that several folders share."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from components import Postgres, clear, postgres
from muster.store.registry import open_store
from report_kit import pytest_report_to_serializable as pytest_report_to_serializable
from schema_kit import install

# For every process that a test starts `python` is this one: a machine may have none, or another, on its PATH.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

# A machine may say that compiled modules are not to be kept; hundreds of processes would then compile them anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What the caller's shell says of a server, of a gang or of colours is no business of the tests.
for _name in list(os.environ):
    if re.match(r"MUSTER_|SLURM_|((FORCE|NO)_COLOR|RANK|WORLD_SIZE|LOCAL_\w+|GROUP_RANK|MASTER_(ADDR|PORT))$", _name):
        del os.environ[_name]

# What a shell starts in the background ignores Ctrl-C, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

install()  # new databases

# Tests assert no times: an example may take as long as a busy machine needs. In CI the examples are the same in each
# run, elsewhere they differ; `EXAMPLES=500 make test` tries more.
settings.register_profile("muster", deadline=None, max_examples=int(os.environ.get("EXAMPLES", "20")))
settings.load_profile("muster")


# Files that take minutes, those that mostly wait beside those that mostly compute: begun first, none of them is left
# for the end, when the other processes have nothing to do.
LONG = (
    "engine_ray/test_ray_contract.py",
    "engine_slurm/test_slurm_contract.py",
    "sim/test_replay.py",
    "train_parallel/test_parallel_equal.py",
    "engine_kubernetes/test_kubernetes_contract.py",
    "sim/test_quota_waits.py",
    "cli/test_demo.py",
    "engine_slurm/test_slurm_life.py",
    "track_mlflow/test_mlflow_client.py",
    "faults/test_server_killed.py",
    "train/test_train_examples.py",
    "engine_kubernetes/test_kubernetes_engine.py",
    "templates/test_templates.py",
    "templates/test_projects.py",
    "engine_kubernetes/test_kubernetes_faults.py",
    "docs/test_pages_run.py",
    "server/test_fuzz.py",
    "cli/test_server.py",
    "server/test_denial.py",
    "isolation/test_local_isolation.py",
    "cli/test_output_limit.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    turns = {name: turn for turn, name in enumerate(LONG)}
    items.sort(key=lambda item: turns.get("/".join(item.path.parts[-2:]), len(turns)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What it makes, millions of objects with torch's, stays to the end: the garbage collector looks at none of it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One PostgreSQL for the whole session, started when a test first asks for it."""
    with postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[str]:
    """A new, empty database."""
    with postgres_server.database() as name:
        yield postgres_server.url(name)


@pytest.fixture(scope="session")
def _tables_url(postgres_server: Postgres) -> Iterator[str]:
    with postgres_server.database() as name:
        open_store(postgres_server.url(name)).close()
        yield postgres_server.url(name)


@pytest.fixture
def tables_url(_tables_url: str) -> str:
    """A database with Muster's tables and nothing in them. To make one anew takes longer than most tests."""
    clear(_tables_url)
    return _tables_url
