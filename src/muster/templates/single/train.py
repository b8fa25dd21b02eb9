"""Trains a small network in one process to tell two spirals apart, and continues exactly where it was interrupted.

Run it with `python train.py`, or under Muster with `muster run job.yaml`: watched, restarted, recorded.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from muster import runtime
from muster.train import preflight

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=4000)
parser.add_argument("--batch", type=int, default=512)
parser.add_argument("--hidden", type=int, default=128)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--save-every", type=int, default=1000, help="steps between checkpoints")
parser.add_argument("--seed", type=int, default=1)


def main(args: argparse.Namespace) -> None:
    preflight.run_if_asked(**checked(args))  # in the rung `unit` of `muster preflight`; elsewhere it does nothing
    torch.set_num_threads(1)  # the network is too small to gain from more
    torch.manual_seed(args.seed)
    model, optimizer = build(args)
    start = load(model, optimizer)
    test_x, test_y = spirals(2000, args.seed - 1)
    runtime.params(**vars(args))

    last = min(args.steps, runtime.preflight_steps() or args.steps)
    saved_at = time.monotonic()
    for step in range(start, last):
        x, y = batch(args, step)
        loss = loss_of(model, (x, y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        done, stop = step + 1, runtime.should_stop()
        runtime.report(step=done, loss=loss.item())
        runtime.progress(done, total=args.steps, unit="step")
        if done % 100 == 0 or done == last:
            right = accuracy(model, test_x, test_y)
            runtime.report(step=done, val_accuracy=right)
            print(f"step {done:4d}  loss {loss.item():.6f}  accuracy {right:.3f}", flush=True)
        due = time.monotonic() - saved_at >= (runtime.checkpoint_every() or math.inf)
        if due or done % args.save_every == 0 or done == last or stop or runtime.should_save():
            save(model, optimizer, done)
            saved_at = time.monotonic()
        if stop:
            print(f"asked to stop: saved at step {done} and leaving", flush=True)
            return


def build(args: argparse.Namespace) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(
        nn.Linear(2, args.hidden), nn.Tanh(),
        nn.Linear(args.hidden, args.hidden), nn.Tanh(),
        nn.Linear(args.hidden, 1),
    ).to(DEVICE)  # fmt: skip
    return model, torch.optim.AdamW(model.parameters(), lr=args.lr)


def batch(args: argparse.Namespace, step: int) -> tuple[Tensor, Tensor]:
    """Its seed follows from the step: a resumed run sees the same points as one that never stopped."""
    return spirals(args.batch, args.seed * 1_000_003 + step)


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    x, y = batch
    return F.binary_cross_entropy_with_logits(model(x).squeeze(1), y)


def checked(args: argparse.Namespace) -> dict[str, Any]:
    """What `muster preflight` and the tests check."""
    return {"build": lambda: build(args), "batch": lambda number: batch(args, number), "loss": loss_of}


def spirals(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """(count, 2) points with a little noise on two arms wound one and a half times, and (count,) which arm: 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    arm = torch.randint(2, (count,), generator=generator)
    along = torch.rand(count, generator=generator).sqrt()  # evenly spread over the area, not crowded in the middle
    angle = 3 * math.pi * along + math.pi * arm
    points = along[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
    points += 0.02 * torch.randn(count, 2, generator=generator)
    return points.to(DEVICE), arm.float().to(DEVICE)


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return ((model(x).squeeze(1) > 0) == (y > 0.5)).float().mean().item()


def save(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    with runtime.checkpoint(step) as folder:  # counts as a checkpoint once the block has ended
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, folder / "state.pt")


def load(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Restores the last committed checkpoint, if there is one, and says how many steps it has behind it."""
    folder = runtime.last_checkpoint()
    if folder is None:
        return 0
    state = torch.load(folder / "state.pt", map_location=DEVICE, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    print(f"continuing from step {state['step']} ({folder})", flush=True)
    return int(state["step"])


if __name__ == "__main__":
    try:
        main(parser.parse_args())
    except KeyboardInterrupt:
        print("interrupted: run it again to continue from the last checkpoint", flush=True)
        sys.exit(130)  # what a shell gives for Ctrl-C
