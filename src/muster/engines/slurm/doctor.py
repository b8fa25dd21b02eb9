"""The checks of `muster doctor --engine` for Slurm: tools, controller, partitions, and a node's view of the server."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from muster.core.errors import EngineError
from muster.engines.base import Finding
from muster.engines.describe import Home
from muster.engines.slurm.machines import health_of, pools_of
from muster.engines.slurm.model import MachineRow, SlurmClient
from muster.engines.slurm.settings import SlurmSettings
from muster.engines.slurm.shared import Shared
from muster.engines.slurm.tools import Tools

TOOLS: Final = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sacct")
PROBE_WAIT: Final = 20  # seconds that a probe on a node may wait in the queue
# Runs on a node and reports: Python's version, whether the shared folder is visible, and which servers are reachable.
_PROBE: Final = """
import json, os, sys, urllib.error, urllib.request
root, urls = sys.argv[1], sys.argv[2:]
told = {"python": list(sys.version_info[:2]), "root": os.path.exists(os.path.join(root, "servers.json")), "urls": {}}
for url in urls:
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url + "/readyz", timeout=5).read()
        told["urls"][url] = ""
    except urllib.error.HTTPError:
        told["urls"][url] = ""  # it is there, if not ready
    except Exception as error:
        told["urls"][url] = repr(error)
print("muster-probe " + json.dumps(told))
"""


def diagnose(
    settings: SlurmSettings, home: Home, client: SlurmClient, shared: Shared, tools: Tools
) -> Iterator[Finding]:
    """Runs the checks one after the other, as far as they can be run."""
    yield from _tools(settings)
    try:
        cluster = client.describe()
    except EngineError as error:
        yield Finding("fail", "controller", error.message, error.hint or "Try `scontrol ping`.")
        return
    yield Finding("ok", "controller", f"cluster {cluster.name}, Slurm {cluster.version}")
    if cluster.accounting:
        yield Finding("ok", "accounting", "slurmdbd keeps the books: `muster engines reconcile` can compare them")
    else:
        yield Finding("warn", "accounting", "there is no slurmdbd: ends are known for a while only, and no usage")
    try:
        yield from _pools(settings, client)
    except EngineError as error:
        yield Finding("fail", "nodes", error.message, error.hint)
        return
    try:
        shared.prepare(home.urls())
    except OSError as error:
        yield Finding("fail", "root", f"{settings.root} can't be written: {error}", "Set `root` to a shared folder.")
        return
    yield Finding("ok", "root", f"{settings.root} can be written")
    yield from _node(settings, home, tools)


def _tools(settings: SlurmSettings) -> Iterator[Finding]:
    missing = [tool for tool in TOOLS if shutil.which(tool, path=settings.tools or None) is None]
    if missing and not settings.rest:
        yield Finding(
            "fail", "tools", f"not found: {', '.join(missing)}", "Install Slurm's client tools, or set `tools`."
        )
    elif missing:
        yield Finding("warn", "tools", f"not found: {', '.join(missing)}; slurmrestd is used instead")
    else:
        yield Finding("ok", "tools", "sbatch, squeue, scancel, scontrol and sacct are there")


def _pools(settings: SlurmSettings, client: SlurmClient) -> Iterator[Finding]:
    machines = client.machines()
    partitions = client.partitions()
    names = {partition.name for partition in partitions}
    for pool, given in pools_of(partitions, settings.pools).items():
        if given.partition not in names:
            there = f"There are: {', '.join(sorted(names))}."
            yield Finding("fail", f"pool {pool}", f"Slurm has no partition {given.partition!r}", there)
            continue
        members = [machine for machine in machines if given.partition in machine.partitions]
        yield _members(pool, given.partition, members)


def _members(pool: str, partition: str, members: list[MachineRow]) -> Finding:
    well = [machine for machine in members if health_of(machine)[0] == "healthy"]
    detail = f"partition {partition}: {len(members)} nodes, {len(well)} of them well"
    if len(well) == len(members) and members:
        return Finding("ok", f"pool {pool}", detail)
    bad = next((f"; {machine.name}: {health_of(machine)[1]}" for machine in members if machine not in well), "")
    return Finding("warn" if well else "fail", f"pool {pool}", detail + bad, "See `sinfo -R`.")


def _node(settings: SlurmSettings, home: Home, tools: Tools) -> Iterator[Finding]:
    """Checks a node's view by a small job of one minute."""
    srun = str(Path(tools.folder) / "srun") if tools.folder else "srun"
    where = ["--nodes=1", "--ntasks=1", "--time=1", f"--immediate={PROBE_WAIT}", "--job-name=muster-doctor", "--quiet"]
    where += [f"--account={settings.account}"] if settings.account else []
    where += [f"--qos={settings.qos}"] if settings.qos else []
    where += [f"--partition={next(iter(settings.pools.values())).partition}"] if settings.pools else []
    command = [srun, *where, settings.python, "-c", _PROBE, str(settings.root), *home.urls()]
    try:
        done = subprocess.run(
            command, env=dict(tools.environment), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PROBE_WAIT + 40, cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("warn", "a node", f"no probe could be run: {error}", "Try `srun hostname`.")
        return
    answer = next((line for line in done.stdout.splitlines() if line.startswith("muster-probe ")), "")
    if not answer:
        words = " ".join(done.stderr.split())[-300:] or f"it ended with {done.returncode}"
        busy = "allocate" in words or "busy" in words.lower()
        hint = "All nodes may be in use: try again later." if busy else "Set `python` to one that the nodes have."
        yield Finding("warn" if busy else "fail", "a node", f"the probe with {settings.python} failed: {words}", hint)
        return
    yield from _seen(settings, answer)


def _seen(settings: SlurmSettings, answer: str) -> Iterator[Finding]:
    seen = json.loads(answer.removeprefix("muster-probe "))
    version = ".".join(str(part) for part in seen["python"])
    if tuple(seen["python"]) >= (3, 11):
        yield Finding("ok", "python on a node", f"{settings.python} is Python {version}")
    else:
        yield Finding("fail", "python on a node", f"{settings.python} is Python {version}; 3.11 or newer is needed",
                      "Set `python` to a newer one.")  # fmt: skip
    if seen["root"]:
        yield Finding("ok", "root on a node", f"{settings.root} is the same folder there")
    else:
        yield Finding("fail", "root on a node", f"a node does not see what the server wrote to {settings.root}",
                      "Set `root` to a folder on a file system that all share.")  # fmt: skip
    reached = [url for url, error in seen["urls"].items() if not error]
    if reached:
        yield Finding("ok", "server from a node", f"{reached[0]} answers")
    elif seen["urls"]:
        url, error = next(iter(seen["urls"].items()))
        yield Finding("fail", "server from a node", f"a node can't reach {url}: {error}",
                      "Set `advertise` and `host` so that the nodes reach the server.")  # fmt: skip
