"""Trains a small network in one process to tell two spirals apart, and continues exactly where it was interrupted.

Run it with `python train.py`, or under Muster with `muster run job.yaml`: watched, restarted, recorded.
"""

from __future__ import annotations

import argparse
import math
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from muster import runtime

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--save-every", type=int, default=200, help="steps between checkpoints")
parser.add_argument("--seed", type=int, default=1)


def main(args: argparse.Namespace) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)  # the network is too small to gain from more
    torch.manual_seed(args.seed)
    model = nn.Sequential(
        nn.Linear(2, args.hidden), nn.Tanh(),
        nn.Linear(args.hidden, args.hidden), nn.Tanh(),
        nn.Linear(args.hidden, 1),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    start = load(model, optimizer, device)
    test_x, test_y = spirals(2000, torch.Generator().manual_seed(args.seed - 1), device)
    runtime.params(**vars(args))

    for step in range(start, args.steps):
        # A generator made from the seed and the step: a resumed run sees the same points as one that never stopped.
        x, y = spirals(args.batch, torch.Generator().manual_seed(args.seed * 1_000_003 + step), device)
        loss = F.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        done, stop = step + 1, runtime.should_stop()
        runtime.progress(done, total=args.steps, unit="step")
        if done % 20 == 0 or done == args.steps:
            right = accuracy(model, test_x, test_y)
            runtime.report(step=done, loss=loss.item(), accuracy=right)
            print(f"step {done:4d}  loss {loss.item():.6f}  accuracy {right:.3f}", flush=True)
        if done % args.save_every == 0 or done == args.steps or stop or runtime.should_save():
            save(model, optimizer, done)
        if stop:
            print(f"asked to stop: saved at step {done} and leaving", flush=True)
            return


def spirals(count: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, Tensor]:
    """(count, 2) points with a little noise on two arms wound one and a half times, and (count,) which arm: 0 or 1."""
    arm = torch.randint(2, (count,), generator=generator)
    along = torch.rand(count, generator=generator).sqrt()  # evenly spread over the area, not crowded in the middle
    angle = 3 * math.pi * along + math.pi * arm
    points = along[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
    points += 0.02 * torch.randn(count, 2, generator=generator)
    return points.to(device), arm.float().to(device)


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return ((model(x).squeeze(1) > 0) == (y > 0.5)).float().mean().item()


def save(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    with runtime.checkpoint(step) as folder:  # counts as a checkpoint once the block has ended
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, folder / "state.pt")


def load(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Restores the last committed checkpoint, if there is one, and says how many steps it has behind it."""
    folder = runtime.last_checkpoint()
    if folder is None:
        return 0
    state = torch.load(folder / "state.pt", map_location=device)
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
