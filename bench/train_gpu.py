"""`muster.train` on one GPU: throughput beside a bare compiled loop, exact runs, the cost of saves, the time to start.

Each measurement is a process of its own, in turn with what it is compared to. It needs torch and NumPy alone:

    PYTHONPATH=src python bench/train_gpu.py                           # all: about 20 minutes on an H200
    PYTHONPATH=src python bench/train_gpu.py --parts exact --shapes gpt2:16x1024
    PYTHONPATH=src python bench/train_gpu.py --cpu                     # a tiny model, to try the script itself
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import _train_peers
from _machine import RESULTS, machine
from muster.data.formats import tokens
from muster.train import session
from muster.train.config import read_config
from muster.train.loop import train
from muster.train.models import Decoder, shape
from muster.train.readings import Read, Reporter
from muster.train.throughput import peak_flops

PARTS = ("throughput", "exact", "text", "saves")  # and `equal`: the part of `exact` that measures no time
SHAPES = ("llama-886m:8x4096", "gpt2:32x1024")
WARM = 10  # steps that don't count: compilation, and clocks that rise
STEPS = 40
ROUNDS = 2
EXACT_STEPS = 10
TEXT_STEPS, TEXT_LAST = 300, 20
SAVE_STEPS, SAVE_EVERY = 90, "9s"


@dataclass(frozen=True)
class Bench:
    """What is measured with: a folder for data and checkpoints, and how large."""

    root: Path
    cpu: bool
    rounds: int
    given: argparse.Namespace

    def config(self, given: Shape, precision: str, steps: int, **more: Any) -> dict[str, Any]:
        data = self.root / f"data-{given.name}-{given.sequence}"
        if not data.exists():
            row = np.random.default_rng(1).integers(0, shape(given.name).vocab, 16 * given.batch * given.sequence + 1)
            tokens.write(data, [{"tokens": row}], vocab=shape(given.name).vocab)
        never = {
            "where": str(self.root / f"unused-{threading.get_ident()}"),
            "every": 10**9,
            "at_end": False,
            "memory": "off",
        }
        return {
            "task": "language", "model": {"shape": given.name, "sequence": given.sequence}, "steps": steps,
            "data": {"batch": given.batch, "sources": [{"path": str(data), "name": "random"}]},
            "parallel": {"compile": not self.cpu}, "precision": precision, "checkpoint": never,
            "device": "cpu" if self.cpu else "cuda", "print_every": 1 if self.cpu else WARM, **more,
        }  # fmt: skip

    def child(self, config: dict[str, Any], **more: Any) -> dict[str, Any]:
        """One process: what it found, and the seconds from its start to its first line and to its end."""
        name = f"{threading.get_ident()}"
        job, out = self.root / f"job-{name}.json", self.root / f"found-{name}.json"
        job.write_text(json.dumps({"config": config, "out": str(out), **more}))
        out.unlink(missing_ok=True)
        began, first = time.perf_counter(), None
        command = [sys.executable, __file__, "--child", str(job)]
        env = {**os.environ, **more.get("envs", {})}
        if self.cpu:  # two threads that wait for each other take minutes on cores that others use, too
            env["OMP_NUM_THREADS"] = "1"
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
            assert process.stdout is not None
            for line in process.stdout:
                first = first or time.perf_counter() - began
                sys.stderr.write(f"    {line}")
        assert process.returncode == 0, f"exit code {process.returncode}"
        found: dict[str, Any] = json.loads(out.read_text())
        return {**found, "first_line_s": first, "whole_s": time.perf_counter() - began}


@dataclass(frozen=True)
class Shape:
    """`name:BATCHxSEQUENCE`."""

    name: str
    batch: int
    sequence: int

    @classmethod
    def parse(cls, text: str) -> Shape:
        name, _, sizes = text.partition(":")
        batch, _, sequence = sizes.partition("x")
        return cls(name, int(batch), int(sequence))

    def __str__(self) -> str:
        return f"{self.name}:{self.batch}x{self.sequence}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--precisions", default="bf16")
    parser.add_argument("--peers", default="bare", help=f"of bare, {', '.join(_train_peers.PEERS)}")
    parser.add_argument("--exact", action="store_true", help="throughput of an exact run, too")
    parser.add_argument("--save-steps", type=int, default=SAVE_STEPS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        _be_child(json.loads(Path(given.child).read_text()))
        return
    if not given.cpu and not torch.cuda.is_available():
        sys.stderr.write("no GPU here; --cpu tries the script on a tiny model\n")
        return
    shapes = [Shape.parse("tiny-llama:4x64")] if given.cpu else [Shape.parse(each) for each in given.shapes.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), given.cpu, given.rounds, given)
        result: dict[str, Any] = {
            "device": "cpu" if given.cpu else torch.cuda.get_device_name(),
            "torch": torch.__version__,
        }
        for part in given.parts.split(","):
            for each in shapes if part == "throughput" else shapes[:1]:
                if part == "throughput":
                    result.setdefault(part, {})[str(each)] = throughput(bench, each, given.precisions.split(","))
                else:
                    result[part] = {"exact": exact, "equal": equal, "text": text, "saves": saves}[part](bench, each)
                _write(result, keep=not given.cpu)  # what is there stays, if a later part is cut off


def throughput(bench: Bench, given: Shape, precisions: list[str]) -> dict[str, Any]:
    """Tokens a second and MFU, in turn with a bare loop on the same model, compiled as a whole with its loss."""
    found: dict[str, list[dict[str, Any]]] = {}
    warm, steps = (1, 4) if bench.cpu else (WARM, STEPS)
    for _ in range(bench.rounds):
        for precision in precisions:
            config = bench.config(given, precision, steps)
            found.setdefault(precision, []).append(bench.child(config, warm=warm))
        config = bench.config(given, "bf16", steps)
        if bench.given.exact:
            found.setdefault("exact bf16", []).append(bench.child({**config, "exact": True}, warm=warm))
        for peer in filter(None, bench.given.peers.split(",")):
            try:
                found.setdefault(f"{peer} bf16", []).append(bench.child(config, warm=warm, peer=peer))
            except AssertionError as error:  # one that is not there takes no measurement with it
                sys.stderr.write(f"{peer} was not measured: {error}\n")
    return {name: _rates(runs) for name, runs in found.items() if runs}


def exact(bench: Bench, given: Shape) -> dict[str, Any]:
    """The cost of `exact`, and whether it holds."""
    warm, steps = (1, 4) if bench.cpu else (WARM, STEPS)
    speed: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for _ in range(bench.rounds):
        for on in speed:
            speed[on].append(bench.child(bench.config(given, "bf16", steps, exact=on), warm=warm))
    plain, bound = (_rates(speed[on]) for on in (False, True))
    cost = 1 - bound["tokens_per_s"] / plain["tokens_per_s"]
    found = {"not exact": plain, "exact": bound, "cost": round(cost, 4)}
    return {"shape": str(given), **found, "equal": equal(bench, given)}


def equal(bench: Bench, given: Shape) -> dict[str, Any]:
    """Whether two exact runs are equal, and one resumed in a new process without a compile cache. No times."""
    bench.config(given, "bf16", EXACT_STEPS)  # writes the data
    with ThreadPoolExecutor() as pool:
        whole, again = (pool.submit(_kept, bench, given, name, EXACT_STEPS) for name in ("one", "two"))
        first = _kept(bench, given, "parts", EXACT_STEPS // 2)
        envs = {"TORCHINDUCTOR_CACHE_DIR": str(bench.root / "empty")}
        rest = _kept(bench, given, "parts", EXACT_STEPS, envs=envs)
        runs = whole.result(), again.result()
    parts = {"losses": first["losses"] + rest["losses"], "state": rest["state"]}
    for name in ("one", "two", "parts"):
        shutil.rmtree(bench.root / name)
    return {
        "shape": str(given),
        "two runs": all(runs[0][key] == runs[1][key] for key in parts),
        "a resumed run": all(runs[0][key] == parts[key] for key in parts),
        "steps": EXACT_STEPS,
    }


def text(bench: Bench, given: Shape) -> dict[str, Any]:
    """The loss in 8 bits beside bf16's on real text, byte by byte: the sources of Python's own library."""
    folder, steps = bench.root / "text", 8 if bench.cpu else TEXT_STEPS
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    rows = [{"tokens": np.frombuffer(each.read_bytes(), np.uint8)} for each in sources if each.stat().st_size]
    tokens.write(folder, rows, vocab=256)
    model = {"shape": given.name, "sequence": min(1024, given.sequence), "vocab": 256}
    data = {"batch": 2 * given.batch, "sources": [{"path": str(folder), "name": "text"}]}
    schedule = {"warmup": steps // 10}

    def run(precision: str) -> float:
        config = {**bench.config(given, precision, steps), "model": model, "data": data, "schedule": schedule}
        return float(np.mean([loss for loss, _ in bench.child(config, warm=1)["losses"][-TEXT_LAST:]]))

    with ThreadPoolExecutor() as pool:
        plain, small = pool.map(run, ("bf16", "fp8"))
    found = {"bf16": round(plain, 4), "fp8": round(small, 4), "difference": round(small / plain - 1, 5)}
    return {"shape": str(given), "steps": steps, f"mean loss of the last {TEXT_LAST}": found}


def saves(bench: Bench, given: Shape) -> dict[str, Any]:
    """What a save takes from training in wall clock: beside a run without one, and as the run tells it."""
    steps, every = (40, "0.1s") if bench.cpu else (bench.given.save_steps, SAVE_EVERY)
    found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for on in found:
        where = bench.root / "saves"
        checkpoint = {"where": str(where), "every": every, "keep": 1, "at_end": False, "memory": "off"}
        config = bench.config(given, "bf16", steps, **({"checkpoint": checkpoint} if on else {}))
        found[on].append(bench.child(config, warm=1 if bench.cpu else WARM))
        size = sum(each.stat().st_size for each in where.rglob("*") if each.is_file())
    (saved,), (plain,) = found[True], found[False]
    count = len(saved["saves_s"])
    return {
        "shape": str(given), "bytes": size, "every": every, "saves": count,
        "lost_s_of_each": round((saved["seconds"] - plain["seconds"]) / max(1, count), 4),
        "stall_s_of_each": [round(each, 4) for each in saved["saves_s"]],
        "first_line_s": round(saved["first_line_s"], 2), "start_s": saved["start_s"],
    }  # fmt: skip


def _kept(bench: Bench, given: Shape, name: str, steps: int, **more: Any) -> dict[str, Any]:
    """An exact run that is saved at its end: its losses and norms, and a digest of the state."""
    where = bench.root / name
    checkpoint = {"where": str(where), "every": 10**9, "keep": 1, "memory": "off"}
    config = bench.config(given, "bf16", steps, exact=True, checkpoint=checkpoint, schedule={"steps": EXACT_STEPS})
    found = bench.child(config, warm=1, **more)
    (folder,) = where.glob(f"step-{steps:09d}*")
    paths = sorted(folder.glob("*.bin"))
    with ThreadPoolExecutor() as pool:
        return {**found, "state": dict(zip([each.name for each in paths], pool.map(_digest, paths), strict=True))}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rates(runs: list[dict[str, Any]]) -> dict[str, Any]:
    found = {"tokens_per_s": round(median(each["rate"] for each in runs)), "of": [round(each["rate"]) for each in runs]}
    if runs[0]["mfu"] is not None:
        found["mfu"] = round(median(each["mfu"] for each in runs), 4)
    return {
        **found,
        "memory_gib": round(max(each["memory"] for each in runs) / 2**30, 1),
        "first_line_s": [round(each["first_line_s"] or 0.0, 1) for each in runs],
        "start_s": [each["start_s"] for each in runs],
        "loss": runs[0]["losses"][-1][0],
    }


def _write(result: dict[str, Any], keep: bool) -> None:
    """Parts that were not measured now stay as they were, if the device is the same."""
    path = RESULTS / "train_gpu.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    same = all(before.get(key) == result[key] for key in ("device", "torch"))
    kept = {**(before if same else {}), **result}
    kept["throughput"] = {**(before.get("throughput", {}) if same else {}), **result.get("throughput", {})}
    if keep:
        path.write_text(json.dumps({"machine": machine(), **kept}, indent=2) + "\n")
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


class _Recorder(Reporter):
    """Keeps what each step reported, and when."""

    seen: list[tuple[float, dict[str, float], Reporter]] = []  # noqa: RUF012 - of the one run of the process

    def step(self, read: Read) -> None:
        super().step(read)
        self.seen.append((time.perf_counter(), self.last, self))


def _be_child(job: dict[str, Any]) -> None:
    config, warm = read_config(job["config"]), job["warm"]
    if job.get("peer") == "bare":
        found = _bare(job["config"], warm)
    elif job.get("peer"):
        found = _train_peers.measured(job["peer"], job["config"], warm)
    else:
        session.Reporter = _Recorder  # type: ignore[attr-defined]
        train(config)
        steps = _Recorder.seen
        found = {
            "seconds": steps[-1][0] - steps[warm - 1][0],
            "losses": [(figures["loss"], figures["grad_norm"]) for _, figures, _ in steps],
            "saves_s": [figures["save_s"] for _, figures, _ in steps[warm:] if figures["save_s"] > 0],
            "memory": steps[-1][1]["memory"],
            "start_s": {name: round(each, 2) for name, each in steps[-1][2].startup.parts.items()},
        }
    given = config.data.batch * int(config.model["sequence"])
    found["rate"] = given * (len(found["losses"]) - warm) / found["seconds"]
    with torch.device("meta"):
        flops = Decoder(shape(config.model["shape"])).flops_per_token(int(config.model["sequence"]))
    peak = peak_flops(torch.device(config.device))
    found["mfu"] = flops * found["rate"] / peak if peak else None
    Path(job["out"]).write_text(json.dumps(found))


def _bare(config: dict[str, Any], warm: int) -> dict[str, Any]:
    """A loop as one writes it by hand, and compiled as a whole."""
    device, batch, sequence = torch.device(config["device"]), config["data"]["batch"], config["model"]["sequence"]
    cuda = device.type == "cuda"
    given = shape(config["model"]["shape"])
    torch.manual_seed(1)
    with device:
        model = Decoder(given)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=cuda)
    rows = torch.from_numpy(np.random.default_rng(1).integers(0, given.vocab, (config["steps"], batch, sequence + 1)))

    def forward(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(inputs)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    run = torch.compile(forward) if config["parallel"]["compile"] else forward
    losses, began = [], 0.0
    for number, row in enumerate(rows):
        if number == warm:
            if cuda:
                torch.cuda.synchronize()
            began = time.perf_counter()
        row = (row.pin_memory() if cuda else row).to(device, non_blocking=True)
        loss = run(row[:, :-1].contiguous(), row[:, 1:].contiguous())
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append((loss.detach(), norm.detach()))
    told = [(float(loss), float(norm)) for loss, norm in losses]
    seconds = time.perf_counter() - began
    memory = torch.cuda.max_memory_allocated() if cuda else 0
    return {"seconds": seconds, "losses": told, "saves_s": [], "memory": memory, "start_s": {}}


if __name__ == "__main__":
    main()
