"""A user's own compiled loop that reports each step: alone, and as a job of a server here, in turns.

PYTHONPATH=src python bench/no_tax.py                    # GPT-2's shape on a GPU, a minute and a half
PYTHONPATH=src python bench/no_tax.py --cpu              # a tiny shape, to try the script itself
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from _machine import write

ALONE, JOB = "alone", "as a job"
MUSTER = [sys.executable, "-m", "muster"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--turns", default="alone,job,job,alone")
    parser.add_argument("--loop", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.loop:
        _loop(given.loop, given.cpu)
        return
    found: dict[str, list[float]] = {ALONE: [], JOB: []}
    with tempfile.TemporaryDirectory() as name:
        env = {**os.environ, "MUSTER_HOME": f"{name}/home"}
        subprocess.run([*MUSTER, "up", "-d"], env=env, check=True, stdout=subprocess.DEVNULL)
        try:
            for turn in given.turns.split(","):
                out = Path(name, "found.json")
                words = [sys.executable, __file__, "--loop", str(out), *(["--cpu"] if given.cpu else [])]
                if turn == "job":
                    gpu = [] if given.cpu else ["--gpus", "1"]
                    words = [*MUSTER, "run", "--no-snapshot", *gpu, "--", *words]
                subprocess.run(words, env=env, check=True, stdout=sys.stderr)
                found[JOB if turn == "job" else ALONE].append(json.loads(out.read_text())["tokens_per_s"])
                device = json.loads(out.read_text())["device"]
        finally:
            subprocess.run([*MUSTER, "down"], env=env, check=False, stdout=subprocess.DEVNULL)
    result: dict[str, Any] = {"device": device, "tokens_per_s": found}
    result["lost"] = round(1 - median(found[JOB]) / median(found[ALONE]), 5)
    if given.cpu:
        print(result)
    else:
        write("no_tax", result)


def _loop(out: Path, cpu: bool) -> None:
    """As a user writes it: the whole step compiled, the loss read and reported in each one."""
    import torch
    import torch.nn.functional as F

    from muster import runtime
    from muster.train.models import Decoder, shape

    name, batch, sequence, warm, steps = ("tiny-gpt2", 2, 64, 2, 6) if cpu else ("gpt2", 32, 1024, 20, 170)
    device = torch.device("cpu" if cpu else "cuda")
    torch.manual_seed(1)
    with device:
        model = Decoder(shape(name))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=not cpu)
    rows = torch.randint(0, model.config.vocab, (steps, batch, sequence + 1))

    def forward(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(inputs)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    run = forward if cpu else torch.compile(forward)
    began = 0.0
    for number, row in enumerate(rows):
        if number == warm:
            began = time.perf_counter()
        row = row.to(device)
        loss = run(row[:, :-1].contiguous(), row[:, 1:].contiguous())
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        runtime.report(step=number + 1, loss=loss.item())
    rate = batch * sequence * (steps - warm) / (time.perf_counter() - began)
    device_name = "cpu" if cpu else torch.cuda.get_device_name()
    out.write_text(json.dumps({"tokens_per_s": rate, "device": device_name}))


if __name__ == "__main__":
    main()
