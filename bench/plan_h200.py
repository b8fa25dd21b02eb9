"""What `muster plan` predicts for an H200, written down before it is run, beside what the runs then take.

    python bench/plan_h200.py --freeze        predictions into results/plan_h200_predicted.json; runs nothing
    python bench/plan_h200.py --run           runs each configuration with muster.train, and compares with that file
    python bench/plan_h200.py --run --only NAME
    python bench/plan_h200.py --tiny          the same path with a tiny model on this machine's CPU; writes nothing

Needs torch and NumPy alone, with PYTHONPATH=src. Each configuration is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from _machine import RESULTS, write
from muster.planner.catalogue import BUILT_IN, GIB
from muster.planner.search import predict
from muster.planner.setups import Layout, setup_of

STEPS = 30
SETTLED = 10  # first steps, which compile and warm up, that don't count
PREDICTED = RESULTS / "plan_h200_predicted.json"
THREE = {"shape": "llama-3.2-3b", "sequence": 4096}
SIX = {"vocab": 32_000, "dim": 4_096, "layers": 29, "heads": 32, "kv_heads": 8, "ffn": 12_288, "context": 4_096}
LLAMA = {"shape": "llama-886m"}


def _config(model: dict[str, Any], batch: int, precision: str = "bf16", compile: bool = True, **more: Any) -> Any:
    data = {"batch": batch, **{key: more.pop(key) for key in ("micro_batch",) if key in more}}
    return {"model": model, "data": data, "precision": precision, "parallel": {"compile": compile, **more}}


CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2-124m, 32 samples": _config({"shape": "gpt2"}, 32),
    "gpt2-124m, vocabulary 50,304": _config({"shape": "gpt2", "vocab": 50_304}, 32),
    "gpt2-124m, 8 samples, not compiled": _config({"shape": "gpt2"}, 8, compile=False),
    "gpt2-medium, 24 samples": _config({"shape": "gpt2-medium"}, 24),
    "gpt2-xl, 8 samples": _config({"shape": "gpt2-xl"}, 8),
    "llama-886m, 2 samples": _config(LLAMA, 2),
    "llama-886m, 16 samples": _config(LLAMA, 16),
    "llama-886m, 16 samples in micro-batches of 4": _config(LLAMA, 16, micro_batch=4),
    "llama-886m, 8 samples, not compiled": _config(LLAMA, 8, compile=False),
    "llama-886m, 16 samples, recompute full": _config(LLAMA, 16, checkpointing="full"),
    "llama-886m, 16 samples, recompute selective": _config(LLAMA, 16, checkpointing="selective"),
    "llama-886m, 16 samples, fp8": _config(LLAMA, 16, precision="fp8"),
    "llama-3.2-1b, 4 samples of 8,192": _config({"shape": "llama-3.2-1b", "sequence": 8_192}, 4),
    "llama-3.2-3b, 4 samples": _config(THREE, 4),
    "llama-3.2-3b, 8 samples, recompute full": _config(THREE, 8, checkpointing="full"),
    "llama-3.2-3b, 4 samples, fp8": _config(THREE, 4, precision="fp8"),
    "llama 6b, 2 samples, recompute full": _config(SIX, 2, checkpointing="full"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--freeze", action="store_true")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", metavar="NAME")
    parser.add_argument("--one", metavar="JSON", help="of a process of its own")
    given = parser.parse_args()
    if given.one:
        _one(json.loads(given.one))
    elif given.tiny:
        tiny = _config({"shape": "tiny-llama"}, 4, precision="fp32", compile=False)
        print(_predicted(tiny), _apart({**tiny, "device": "cpu"}))
    elif given.freeze:
        write("plan_h200_predicted", {"configurations": {name: _predicted(raw) for name, raw in CONFIGS.items()}})
    elif given.run:
        _run(given.only)
    else:
        parser.error("give --freeze, --run or --tiny")


def _predicted(raw: dict[str, Any]) -> dict[str, Any]:
    found = predict(setup_of(raw), Layout(), BUILT_IN["H200"])
    return {
        "config": raw, "fits": found.fits, "allocated_gib": round(found.memory.allocated / GIB, 2),
        "step_s": round(found.step.seconds, 4), "mfu": round(found.step.mfu, 4),
        "memory": {name: round(size / GIB, 2) for name, size in found.memory.parts().items()},
        "parts": {name: round(seconds, 4) for name, seconds in found.step.parts().items()},
    }  # fmt: skip


def _run(only: str | None) -> None:
    frozen = json.loads(PREDICTED.read_text())["configurations"]
    rows: dict[str, Any] = {}
    for name, predicted in frozen.items():
        if only is None or only == name:
            measured = _apart(predicted["config"])
            rows[name] = {"predicted": predicted, "measured": measured, **_errors(predicted, measured)}
            print(name, json.dumps(rows[name]), flush=True)
    errors = {key: [abs(row[key]) for row in rows.values() if key in row] for key in ("memory_error", "step_error")}
    write("plan_h200", {
        "device": next((row["measured"]["device"] for row in rows.values() if "device" in row["measured"]), None),
        "median_memory_error": median(errors["memory_error"]) if errors["memory_error"] else None,
        "median_step_error": median(errors["step_error"]) if errors["step_error"] else None,
        "said_to_fit_and_did_not": [
            name for name, row in rows.items() if row["predicted"]["fits"] and row["measured"].get("out_of_memory")
        ],
        "configurations": rows,
    })  # fmt: skip


def _errors(predicted: dict[str, Any], measured: dict[str, Any]) -> dict[str, float]:
    """Predicted over measured, less one."""
    if "step_s" not in measured:
        return {}
    return {
        "memory_error": round(predicted["allocated_gib"] / measured["allocated_gib"] - 1, 4),
        "step_error": round(predicted["step_s"] / measured["step_s"] - 1, 4),
    }


def _apart(raw: dict[str, Any]) -> dict[str, Any]:
    words = [sys.executable, __file__, "--one", json.dumps(raw)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("measured ")]
    if done.returncode == 0 and lines:
        rates = [float(each.replace(",", "")) for each in re.findall(r"([\d,]+) tokens/s", done.stdout)]
        found: dict[str, Any] = json.loads(lines[-1].removeprefix("measured "))
        tokens = found.pop("tokens_a_step")
        return {**found, "step_s": round(tokens / median(rates[SETTLED:]), 5), "readings": len(rates) - SETTLED}
    tail = (done.stderr or done.stdout)[-600:]
    return {"failed": tail, "out_of_memory": "OutOfMemoryError" in done.stderr}


def _one(raw: dict[str, Any]) -> None:
    import torch

    from muster.data.formats import tokens
    from muster.train import read_config, train
    from muster.train.errors import ConfigError

    setup = setup_of(raw)
    dice = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        count = (2 * setup.batch + 1) * (setup.sequence + 1)
        vocab = setup.model.vocab  # type: ignore[union-attr]
        tokens.write(Path(folder) / "data", [{"tokens": dice.integers(0, vocab, count)}], vocab=vocab)
        rest = {
            "task": "language", "steps": STEPS, "print_every": 1, "mesh": {"dp": 1},
            "checkpoint": {"where": f"{folder}/saves", "memory": "off", "at_end": False, "every": 10 * STEPS},
            "data": {**raw["data"], "sources": [{"path": f"{folder}/data"}]},
        }  # fmt: skip
        try:
            config = read_config({**raw, **rest})
        except ConfigError as error:
            raise SystemExit(f"This version refuses it: {error}") from None
        result = train(config)
    print("measured", json.dumps({
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "torch": torch.__version__,
        "tokens_a_step": setup.tokens,
        "allocated_gib": round(result.figures["memory"] / GIB, 3),
        "loss": result.loss,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
