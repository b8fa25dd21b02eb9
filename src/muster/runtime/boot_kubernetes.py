"""A worker's place in a gang of pods: its number, its node and rank 0's address, from the pod's manifest.

The gang's folder is a mounted Secret, which is read-only. So the worker's end goes to the container's termination
message, where the API server has it even for a pod that could not reach Muster.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from muster import wire
from muster.runtime.boot_gang import LOOPBACK, BootError, GangFile, WorkerAssignment, free_port, number

# Variables with the pod's number: of Muster's own manifest, indexed Jobs and JobSets, the Trainer,
# the training operator.
WORKER: Final = ("MUSTER_WORKER", "JOB_COMPLETION_INDEX", "PET_NODE_RANK", "RANK")
MASTER: Final = ("MUSTER_MASTER", "PET_MASTER_ADDR", "MASTER_ADDR")
NODE: Final = wire.NODE
TERMINATION: Final = "MUSTER_TERMINATION"  # variable with the path of the termination message, if it is not the default
TERMINATION_FILE: Final = "/dev/termination-log"
TERMINATION_BYTES: Final = 4096  # a kubelet's limit for it


def find(gang: GangFile, environment: Mapping[str, str]) -> WorkerAssignment:
    """Finds this worker's place. Raises BootError."""
    alone = gang.launch.num_nodes == 1
    counter = next((name for name in WORKER if environment.get(name)), None)
    if counter is None and not alone:
        raise BootError(f"the pod's manifest gives no worker's number: none of {', '.join(WORKER)} is set")
    worker = number(counter, environment[counter], gang.launch.num_nodes) if counter is not None else 0
    address = next((environment[name] for name in MASTER if environment.get(name)), gang.address)
    if not address and not alone:
        raise BootError(f"the pod's manifest does not say where rank 0 is: none of {', '.join(MASTER)} is set")
    if not gang.port and not alone:
        raise BootError("gang.json gives no port for rank 0")
    node = environment.get(NODE) or socket.gethostname()
    return WorkerAssignment(worker, node, address or LOOPBACK, gang.port or free_port())


def write_exit(ended: wire.WorkerExit, environment: Mapping[str, str]) -> None:
    """Writes the end as JSON to the termination message, as much of it as fits."""
    path = Path(environment.get(TERMINATION) or TERMINATION_FILE)
    if path.exists() and os.access(path, os.W_OK):
        path.write_bytes(message(ended))


def message(ended: wire.WorkerExit) -> bytes:
    """A `WorkerExit` without what is too long: first the ranks are left out, then the beginning of the detail."""
    document: dict[str, Any] = ended.to_dict()
    if len(raw := json.dumps(document).encode()) <= TERMINATION_BYTES:
        return raw
    document["ranks"] = ()
    while len(raw := json.dumps(document).encode()) > TERMINATION_BYTES and document["detail"]:
        document["detail"] = (
            document["detail"][-(len(document["detail"]) * 3 // 4) :] if len(document["detail"]) > 1 else ""
        )
    return raw
