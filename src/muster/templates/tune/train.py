"""Trains a small network in plain NumPy to tell two spirals apart, and continues where it was interrupted.

Run it with `python train.py`, under Muster with `muster run job.yaml`, or many times with `muster tune study.yaml`.
"""

from __future__ import annotations

import argparse
import math
import sys
import time

import numpy as np
from numpy.typing import NDArray

from muster import runtime
from muster.train import preflight

Array = NDArray[np.float64]
Weights = dict[str, Array]
REPORTS = 27  # over the whole training
VALIDATION = 7_000  # the seed of the points that are never trained on

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--momentum", type=float, default=0.5)
parser.add_argument("--hidden", type=int, default=16)
parser.add_argument("--steps", type=int, default=2700)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--seed", type=int, default=0)


def main(args: argparse.Namespace) -> None:
    if runtime.preflight_rung() == "unit":  # a job of `muster preflight`
        sys.exit(preflight.finish(own_checks(args)))
    weights, velocity, start = load(args)
    x_val, y_val = spirals(1000, np.random.default_rng(VALIDATION))
    every, saved_at = max(1, args.steps // REPORTS), time.monotonic()
    last = min(args.steps, runtime.preflight_steps() or args.steps)
    for step in range(start + 1, last + 1):
        # A generator made from the seed and the step: a resumed run sees the same points as one that never stopped.
        x, y = spirals(args.batch, np.random.default_rng((args.seed, step)))
        for name, slope in gradient(weights, x, y).items():
            velocity[name] = args.momentum * velocity[name] - args.lr * slope
            weights[name] += velocity[name]
        stop = runtime.should_stop()
        runtime.report(step=step, loss=loss(weights, x, y))
        runtime.progress(step, total=args.steps, unit="step")
        if step % every == 0 or step == last:
            val_loss = loss(weights, x_val, y_val)
            runtime.report(step=step, val_loss=val_loss)
            print(f"step {step:4d}  val_loss {val_loss:.4f}", flush=True)
        due = time.monotonic() - saved_at >= (runtime.checkpoint_every() or math.inf)
        if due or stop or runtime.should_save() or step == last:
            save(weights, velocity, step)
            saved_at = time.monotonic()
        if stop:
            print(f"asked to stop: saved at step {step} and leaving", flush=True)
            return


def spirals(count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """(count, 2) points with a little noise on two arms wound one and a half times, and (count,) which arm: 0 or 1."""
    arm = rng.integers(2, size=count)
    along = np.sqrt(rng.random(count))
    angle = 3 * math.pi * along + math.pi * arm
    points = along[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points + 0.02 * rng.standard_normal((count, 2)), arm.astype(float)


def forward(w: Weights, x: Array) -> tuple[Array, Array, Array]:
    """(count, hidden) of both layers, and the (count,) logits."""
    first = np.tanh(x @ w["w1"] + w["b1"])
    second = np.tanh(first @ w["w2"] + w["b2"])
    return first, second, second @ w["w3"] + w["b3"][0]


def loss(w: Weights, x: Array, y: Array) -> float:
    """Binary cross-entropy; NaN if the weights are no numbers any more."""
    logits = forward(w, x)[2]
    return float(np.mean(np.logaddexp(0, logits) - y * logits))


def gradient(w: Weights, x: Array, y: Array) -> Weights:
    first, second, logits = forward(w, x)
    out = (1 / (1 + np.exp(-np.clip(logits, -50, 50))) - y) / len(y)
    back2 = np.outer(out, w["w3"]) * (1 - second**2)
    back1 = back2 @ w["w2"].T * (1 - first**2)
    return {
        "w1": x.T @ back1, "b1": back1.sum(axis=0),
        "w2": first.T @ back2, "b2": back2.sum(axis=0),
        "w3": second.T @ out, "b3": np.array([out.sum()]),
    }  # fmt: skip


def own_checks(args: argparse.Namespace, size: float = 1e-5) -> preflight.Report:
    """That the gradient, which is written by hand, is the slope of the loss; for PyTorch there is `preflight.check`."""
    rng = np.random.default_rng(args.seed)
    weights, (x, y), apart = initial(args), spirals(args.batch, rng), 0.0
    for name, slope in gradient(weights, x, y).items():
        way = rng.standard_normal(slope.shape)  # the slope in a random direction, and that of the loss beside it
        beside = [loss({**weights, name: weights[name] + sign * size * way}, x, y) for sign in (1, -1)]
        apart = max(apart, abs(float((slope * way).sum()) - (beside[0] - beside[1]) / (2 * size)))
    found = preflight.Finding("ok" if apart < 1e-6 else "failed", f"{apart:.1e} at most from the slope of the loss")
    return preflight.Report("spirals", [preflight.Result("unit", "gradient", "It is the slope of the loss.", found)])


def initial(args: argparse.Namespace) -> Weights:
    rng, hidden = np.random.default_rng(args.seed), args.hidden
    shapes = {"w1": (2, hidden), "b1": (hidden,), "w2": (hidden, hidden), "b2": (hidden,), "w3": (hidden,), "b3": (1,)}
    return {name: rng.standard_normal(shape) * (shape[0] ** -0.5) for name, shape in shapes.items()}


def load(args: argparse.Namespace) -> tuple[Weights, Weights, int]:
    """The last committed checkpoint, or new weights; and how many steps are behind it."""
    folder = runtime.last_checkpoint()
    if folder is not None:
        kept = np.load(folder / "state.npz")
        found = [{name[2:]: kept[name] for name in kept.files if name.startswith(kind)} for kind in ("w:", "v:")]
        print(f"continuing from step {int(kept['step'])} ({folder})", flush=True)
        return found[0], found[1], int(kept["step"])
    made = initial(args)
    return made, {name: np.zeros_like(value) for name, value in made.items()}, 0


def save(weights: Weights, velocity: Weights, step: int) -> None:
    both = {f"w:{name}": value for name, value in weights.items()} | {f"v:{n}": value for n, value in velocity.items()}
    with runtime.checkpoint(step) as folder:  # counts as a checkpoint once the block has ended
        np.savez(folder / "state.npz", step=step, **both)


if __name__ == "__main__":
    try:
        main(parser.parse_args())
    except KeyboardInterrupt:
        print("interrupted: run it again to continue from the last checkpoint", flush=True)
        sys.exit(130)  # what a shell gives for Ctrl-C
