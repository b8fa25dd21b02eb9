"""What `muster plan` predicts for an H200, written down before it is run, beside what the runs then take.

    python bench/plan_h200.py --freeze        predictions into results/plan_h200_predicted.json; runs nothing
    python bench/plan_h200.py --run           runs each configuration with muster.train, and compares with that file;
                                              a run that was cut off goes on with the configurations that it lacks
    python bench/plan_h200.py --run --only NAME
    python bench/plan_h200.py --tiny          the same path with a tiny model on this machine's CPU; writes nothing

Needs torch and NumPy alone, with PYTHONPATH=src. Each configuration is a process of its own; the next one's imports run
while one is measured, and it touches the GPU when that one has ended.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from _machine import RESULTS, machine, write
from muster.planner.catalogue import BUILT_IN, GIB
from muster.planner.search import predict
from muster.planner.setups import Layout, setup_of

STEPS = 18
SETTLED = 6  # first steps, which compile and warm up, that don't count
PREDICTED = RESULTS / "plan_h200_predicted.json"
MEASURED = RESULTS / "plan_h200.json"
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
        print(_predicted(tiny), _Apart({**tiny, "device": "cpu"}).measured())
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
    rows: dict[str, Any] = json.loads(MEASURED.read_text())["configurations"] if MEASURED.exists() else {}
    left = [name for name in frozen if name not in rows and only in (None, name)]
    waiting = _Apart(frozen[left[0]]["config"]) if left else None
    for name, after in zip(left, [*left[1:], None], strict=True):
        assert waiting is not None
        now, waiting = waiting, None if after is None else _Apart(frozen[after]["config"])
        measured = now.measured()
        rows[name] = {"predicted": frozen[name], "measured": measured, **_errors(frozen[name], measured)}
        _keep(rows)
        sys.stderr.write(f"{name}: {_told(rows[name])}\n")
    sys.stdout.write(MEASURED.read_text() if rows else "nothing was run\n")


def _keep(rows: dict[str, Any]) -> None:
    """Written after each row, so that a run that is cut off has lost one row at most."""
    errors = {key: [abs(row[key]) for row in rows.values() if key in row] for key in ("memory_error", "step_error")}
    result = {
        "machine": machine(),
        "device": next((row["measured"]["device"] for row in rows.values() if "device" in row["measured"]), None),
        "median_memory_error": median(errors["memory_error"]) if errors["memory_error"] else None,
        "median_step_error": median(errors["step_error"]) if errors["step_error"] else None,
        "said_to_fit_and_did_not": [
            name for name, row in rows.items() if row["predicted"]["fits"] and row["measured"].get("out_of_memory")
        ],
        "configurations": rows,
    }
    MEASURED.write_text(json.dumps(result, indent=2) + "\n")


def _told(row: dict[str, Any]) -> str:
    if "failed" in row["measured"]:
        return f"failed: {row['measured']['failed'][-200:]}"
    found, said = row["measured"], row["predicted"]
    return (
        f"{found['allocated_gib']:.1f} GiB, predicted {said['allocated_gib']:.1f} ({row['memory_error']:+.1%}); "
        f"{found['step_s'] * 1000:.1f} ms, predicted {said['step_s'] * 1000:.1f} ({row['step_error']:+.1%})"
    )


def _errors(predicted: dict[str, Any], measured: dict[str, Any]) -> dict[str, float]:
    """Predicted over measured, less one."""
    if "step_s" not in measured:
        return {}
    return {
        "memory_error": round(predicted["allocated_gib"] / measured["allocated_gib"] - 1, 4),
        "step_error": round(predicted["step_s"] / measured["step_s"] - 1, 4),
    }


class _Apart:
    """A process that has begun its imports, and waits for a line before it touches the GPU."""

    def __init__(self, raw: dict[str, Any]) -> None:
        words = [sys.executable, __file__, "--one", json.dumps(raw)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def measured(self) -> dict[str, Any]:
        out, err = self._process.communicate("go\n")
        lines = [line for line in out.splitlines() if line.startswith("measured ")]
        if self._process.returncode == 0 and lines:
            rates = [float(each.replace(",", "")) for each in re.findall(r"([\d,]+) tokens/s", out)]
            found: dict[str, Any] = json.loads(lines[-1].removeprefix("measured "))
            tokens = found.pop("tokens_a_step")
            started = re.search(r"first step ([\d.]+) s", out)
            return {
                **found,
                "step_s": round(tokens / median(rates[SETTLED:]), 5),
                "readings": len(rates) - SETTLED,
                "first_step_s": float(started[1]) if started else None,  # imports left out
            }
        return {"failed": (err or out)[-600:], "out_of_memory": "OutOfMemoryError" in err}


def _one(raw: dict[str, Any]) -> None:
    import torch

    from muster.data.formats import tokens
    from muster.train import read_config, train
    from muster.train.errors import ConfigError

    sys.stdin.readline()
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
    }), flush=True)  # fmt: skip
    os._exit(0)  # at once: the next one waits for the GPU


if __name__ == "__main__":
    main()
