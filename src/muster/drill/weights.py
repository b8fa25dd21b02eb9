"""Compares what two runs have learned: by a digest of their checkpoints at the same step, else by their last losses.

The digest is computed by a small job, where the checkpoints are and with the rights of the runs. Of PyTorch's files the
tensors count and not the bytes: the same tensors are not always pickled into the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from muster.client import Client, MusterError
from muster.core.spec import JobSpec, Retry
from muster.drill.measure import Check
from muster.drill.must_hold import last_losses, skipped

NAME: Final = "the same weights as the undisturbed run"
_MARK: Final = "drill digests "
_SECONDS: Final = 300.0
_PROGRAM: Final = """
import hashlib, json, os, sys
def feed(into, value):
    if hasattr(value, "detach"):
        flat = value.detach().cpu().contiguous()
        into(f"tensor {flat.dtype} {tuple(flat.shape)} ")
        into(flat.flatten().view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    elif isinstance(value, dict):
        into(f"dict {len(value)} ")
        for key in sorted(value, key=repr):
            into(repr(key)), feed(into, value[key])
    elif isinstance(value, (list, tuple)):
        into(f"list {len(value)} ")
        for one in value:
            feed(into, one)
    else:
        into(repr(value) + " ")
def digest(folder):
    total = hashlib.sha256()
    into = lambda data: total.update(data.encode() if isinstance(data, str) else data)
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            file = os.path.join(place, name)
            if name == "manifest.json" and place == folder:
                continue
            into(os.path.relpath(file, folder) + " ")
            try:
                if not name.endswith((".pt", ".pth", ".ckpt")):
                    raise ValueError
                feed(into, torch.load(file, map_location="cpu", weights_only=True))
            except Exception:
                with open(file, "rb") as opened:
                    into(opened.read())
    return total.hexdigest()
try:
    import torch
except ImportError:
    pass
found = {path: digest(path) if os.path.isdir(path) else None for path in json.loads(sys.argv[1])}
print("drill digests " + json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that is there."""

    step: int
    path: str


def checkpoints(client: Client, job: str) -> dict[int, Saved]:
    """The checkpoints of a run that are there, by their steps."""
    found = client.run_checkpoints(job)
    return {one["step"]: Saved(one["step"], one["path"]) for one in found if not one.get("gone_at")}


def common(one: Mapping[int, Saved], other: Mapping[int, Saved]) -> int | None:
    """The last step at which both have a checkpoint."""
    return max(one.keys() & other.keys(), default=None)


def digests(client: Client, spec: JobSpec, paths: Sequence[str]) -> dict[str, str]:
    """The digest of each of these folders; those that can't be read are left out."""
    python = '"$(command -v python3 || command -v python)"'
    said = json.dumps(sorted(set(paths))).replace("'", "'\\''")
    changes: dict[str, Any] = {
        "name": "drill-weights", "purpose": "a digest of the checkpoints of a drill", "kind": "eval", "num_nodes": 1,
        "min_nodes": 1, "nproc": 1, "retry": Retry(max_restarts=0), "needs": {}, "array": None,
        "run": f"{python} - '{said}' <<'END OF PROGRAM'{_PROGRAM}END OF PROGRAM",
    }  # fmt: skip
    job = client.submit(spec.model_copy(update=changes), snapshot=False, inherit=False)
    client.wait(job.id, timeout=_SECONDS)
    lines = [line.text for line in client.logs(job.id) if line.text.startswith(_MARK)]
    found: dict[str, str | None] = json.loads(lines[-1].removeprefix(_MARK)) if lines else {}
    return {path: text for path, text in found.items() if text}


def compare(client: Client, spec: JobSpec, reference: str, jobs: Sequence[str]) -> dict[str, Check]:
    """Each of the jobs compared with the reference."""
    ours, theirs = checkpoints(client, reference), {job: checkpoints(client, job) for job in jobs}
    steps = {job: step for job, found in theirs.items() if (step := common(ours, found)) is not None}
    paths = [path for job, step in steps.items() for path in (ours[step].path, theirs[job][step].path)]
    try:
        found = digests(client, spec, paths) if paths else {}
    except (MusterError, TimeoutError):
        found = {}
    checks = {}
    for job in jobs:
        if metric := skipped(client, job):
            checks[job] = Check(NAME, None, f"it left samples out, and reported that as {metric}")
            continue
        step = steps.get(job)
        pair = [found.get(place[step].path) for place in (ours, theirs[job])] if step is not None else [None]
        if all(pair):
            told = f"checkpoints at step {step}, sha256 {str(pair[0])[:12]} and {str(pair[1])[:12]}"
            checks[job] = Check(NAME, pair[0] == pair[1], told)
        else:
            checks[job] = _by_losses(client, reference, job)
    return checks


def _by_losses(client: Client, reference: str, job: str) -> Check:
    """The last values of every metric with `loss` in its name."""
    ours, theirs = last_losses(client, reference), last_losses(client, job)
    if not ours:
        return Check(NAME, None, "nothing to compare: no checkpoint that can be read, and no metric named loss")
    named = ", ".join(f"{name} at step {step}" for name, (step, _) in sorted(ours.items()))
    return Check(NAME, ours == theirs, f"no checkpoint can be read; the last values were compared: {named}")
