"""Where the GPU's time of a training step goes: kernels by kind, and the gaps between them.

    PYTHONPATH=src python bench/step_parts.py                                     # llama-886m, 8 samples of 4,096, bf16
    PYTHONPATH=src python bench/step_parts.py precision=fp8 parallel.compile=false

Trains 16 steps and reads the profiler's trace of three of them. Prints; writes nothing.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from muster.data.formats import tokens
from muster.train import read_config, train
from muster.train.models.shapes import shape

STEPS, TRACED = 16, 3
KINDS: Final = (
    ("attention", ("fmha", "flash", "sdpa", "attention")),
    ("products", ("gemm", "cutlass", "nvjet", "cublas", "xmma")),
    ("optimizer", ("adam", "multi_tensor", "norm_kernel", "lpnorm")),
    ("copies", ("memcpy", "memset")),
    ("compiled", ("triton",)),
)  # the first that matches; the rest is `other`


def main() -> None:
    overrides = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = {
            "task": "language", "model": {"shape": "llama-886m", "sequence": 4096}, "steps": STEPS, "precision": "bf16",
            "data": {"batch": 8, "sources": [{"path": str(folder / "data")}]}, "parallel": {"compile": True},
            "checkpoint": {"where": str(folder / "saves"), "every": 10**9, "at_end": False, "memory": "off"},
            "profile": {"at": STEPS - TRACED, "steps": TRACED}, "folder": str(folder / "run"),
        }  # fmt: skip
        read = read_config(config, overrides)
        vocab, count = shape(read.model["shape"]).vocab, 2 * read.data.batch * int(read.model["sequence"]) + 1
        tokens.write(folder / "data", [{"tokens": np.random.default_rng(1).integers(0, vocab, count)}], vocab=vocab)
        train(read)
        (trace,) = (folder / "run").glob("trace-*.json.gz")
        with gzip.open(trace, "rt") as file:
            _tell(json.load(file)["traceEvents"])


def _tell(events: list[dict[str, Any]]) -> None:
    kernels = [each for each in events if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    if not kernels:
        sys.stdout.write("the trace has no work of a GPU\n")
        return
    kernels.sort(key=lambda each: float(each["ts"]))
    begin, end = kernels[0]["ts"], max(each["ts"] + each["dur"] for each in kernels)
    busy, reach = 0.0, begin
    for each in kernels:
        busy += max(0.0, each["ts"] + each["dur"] - max(reach, each["ts"]))
        reach = max(reach, each["ts"] + each["dur"])
    kinds: dict[str, float] = defaultdict(float)
    names: dict[str, list[float]] = defaultdict(list)
    for each in kernels:
        low = each["name"].lower()
        kinds[next((kind for kind, parts in KINDS if any(part in low for part in parts)), "other")] += each["dur"]
        names[each["name"]].append(each["dur"])
    each_ms = 1e-3 / TRACED
    sys.stdout.write(f"a step {(end - begin) * each_ms:.1f} ms, gaps {(end - begin - busy) * each_ms:.1f} ms\n")
    for kind, spent in sorted(kinds.items(), key=lambda item: -item[1]):
        sys.stdout.write(f"  {kind:10} {spent * each_ms:7.1f} ms\n")
    for name, times in sorted(names.items(), key=lambda item: -sum(item[1]))[:40]:
        sys.stdout.write(f"  {sum(times) * each_ms:7.2f} ms  {len(times) / TRACED:6.1f} times  {name[:110]}\n")


if __name__ == "__main__":
    main()
