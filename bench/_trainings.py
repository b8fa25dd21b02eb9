"""Learning curves of small networks that are really trained: made once, and kept in `.peers/trainings.json`.

A network of one hidden layer in NumPy, with momentum and weight decay, learns to read the 1,797 handwritten digits that
scikit-learn ships, from two thirds of them. It can learn too slowly, diverge, and overfit. Points are drawn at random,
as a random search would, and trained for 81 epochs; after each the loss on the other third is kept.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from muster.sim.tasks import TableTask, read_table
from muster.tune.space import Parameter, Space

FILE = Path(__file__).parent / ".peers" / "trainings.json"
POINTS, EPOCHS = 1024, 81
EPOCH = 60.0  # seconds of the median epoch in simulations, as of `sim.tasks`: each point keeps its ratio to it
SPACE = Space((
    Parameter("lr", "float", 1e-4, 3.0, log=True),
    Parameter("momentum", "float", 0.0, 0.99),
    Parameter("decay", "float", 1e-6, 1e-1, log=True),
    Parameter("batch", "choice", choices=(16, 32, 64, 128, 256)),
    Parameter("width", "choice", choices=(8, 16, 32, 64, 128)),
    Parameter("scale", "float", 0.1, 10.0, log=True),  # of the first weights
))  # fmt: skip
# A study over them has the number of a point as its parameter, so that a random search is one without repetitions.
NUMBERS = Space((Parameter("point", "int", 0, POINTS - 1, step=1),))
METRIC = "val_loss"


def trainings() -> TableTask:
    """The table, which is made if it is not there yet."""
    if not FILE.is_file():  # in one thread each, so that times are comparable
        subprocess.run([sys.executable, __file__], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    points = json.loads(FILE.read_text())["points"]
    times = np.array([point["seconds"] for point in points])
    times = np.maximum(times / np.median(times), 0.1) * EPOCH
    numbered = [
        {**point, "params": {"point": number}, "seconds": float(seconds)}
        for number, (point, seconds) in enumerate(zip(points, times, strict=True))
    ]
    return read_table(json.dumps({"points": numbered}).encode(), str(FILE), NUMBERS, METRIC)


def make() -> None:
    random = np.random.default_rng(11)
    data = _data(random)
    points: list[dict[str, Any]] = []
    began = time.perf_counter()
    for number in range(POINTS):
        params = SPACE.at(random.random(len(SPACE.parameters)).tolist())
        start = time.process_time()
        values = _train(params, data, np.random.default_rng(number))
        points.append({"params": params, "values": values, "seconds": (time.process_time() - start) / EPOCHS})
        if number % 64 == 63:
            print(f"{number + 1} of {POINTS} networks in {time.perf_counter() - began:.0f} s", flush=True)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps({"points": points}))


def _data(random: np.random.Generator) -> tuple[Any, Any, Any, Any]:
    """1,200 digits to learn from, and 597 others."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = random.permutation(len(x))
    x, y = (x[order] / 16.0).astype(np.float32), y[order]
    return x[:1200], y[:1200], x[1200:], y[1200:]


def _train(params: dict[str, Any], data: tuple[Any, Any, Any, Any], random: np.random.Generator) -> list[float | None]:
    x, y, test, told = data
    width, batch = params["width"], params["batch"]
    lr, momentum, decay = (np.float32(params[name]) for name in ("lr", "momentum", "decay"))
    weights = [
        (params["scale"] / math.sqrt(x.shape[1]) * random.normal(size=(x.shape[1], width))).astype(np.float32),
        np.zeros(width, np.float32),
        (params["scale"] / math.sqrt(width) * random.normal(size=(width, 10))).astype(np.float32),
        np.zeros(10, np.float32),
    ]
    speed = [np.zeros_like(one) for one in weights]
    found: list[float | None] = []
    with np.errstate(all="ignore"):
        for _ in range(EPOCHS):
            order = random.permutation(len(x))
            for start in range(0, len(x), batch):
                some = order[start : start + batch]
                for one, step, slope in zip(weights, speed, _slopes(weights, x[some], y[some]), strict=True):
                    step *= momentum
                    step -= lr * (slope + decay * one)
                    one += step
            loss = _loss(weights, test, told)
            found.append(loss if math.isfinite(loss) else None)
            if found[-1] is None:  # it stays so
                return found + [None] * (EPOCHS - len(found))
    return found


def _slopes(weights: list[Any], x: Any, y: Any) -> list[Any]:
    hidden = np.maximum(x @ weights[0] + weights[1], 0)
    out = _softmax(hidden @ weights[2] + weights[3])
    out[np.arange(len(y)), y] -= 1
    out /= len(y)
    back = (out @ weights[2].T) * (hidden > 0)
    return [x.T @ back, back.sum(axis=0), hidden.T @ out, out.sum(axis=0)]


def _loss(weights: list[Any], x: Any, y: Any) -> float:
    out = _softmax(np.maximum(x @ weights[0] + weights[1], 0) @ weights[2] + weights[3])
    return float(-np.log(np.maximum(out[np.arange(len(y)), y], 1e-12)).mean())


def _softmax(scores: Any) -> Any:
    high = np.exp(scores - scores.max(axis=1, keepdims=True))
    return high / high.sum(axis=1, keepdims=True)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    make()
