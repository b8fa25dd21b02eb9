"""Fine-tunes a frozen language model with low-rank adapters on a dialect of its text, and continues where it was.

Run it with `python train.py`, with the base of your own as `BASE=path python train.py`, or with `muster run job.yaml`.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import base
import torch
from grammar import encode, text
from lora import adapters, attach, merged
from model import Transformer, next_character_loss
from torch import Tensor

from muster import runtime
from muster.train import preflight

try:
    from safetensors.torch import save_file
except ImportError:
    save_file = None

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VALIDATION = 1_000_000  # the seed of the text that is never trained on

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=800)
parser.add_argument("--batch", type=int, default=16, help="sequences a step")
parser.add_argument("--rank", type=int, default=8, help="of the adapters")
parser.add_argument("--scale", type=float, default=2.0, help="by which what they add is multiplied")
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--save-every", type=int, default=200, help="steps between checkpoints")
parser.add_argument("--seed", type=int, default=1)


def main(args: argparse.Namespace) -> None:
    preflight.run_if_asked(**checked(args))  # in the rung `unit` of `muster preflight`; elsewhere it does nothing
    torch.set_num_threads(1)  # the model is too small to gain from more
    model, optimizer = build(args)
    start = load(model, optimizer)
    trained, whole = sum(each.numel() for each in adapters(model).values()), sum(p.numel() for p in model.parameters())
    print(f"{trained:,} of {whole:,} parameters are trained", flush=True)
    runtime.params(**vars(args), parameters=whole, trained=trained)

    last = min(args.steps, runtime.preflight_steps() or args.steps)
    saved_at = time.monotonic()
    for step in range(start, last):
        loss = next_character_loss(model, batch(model, args, step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        done, stop = step + 1, runtime.should_stop()
        runtime.report(step=done, loss=loss.item())
        runtime.progress(done, total=args.steps, unit="step")
        if done % 50 == 0 or done == last:
            val_loss = evaluate(model, args)
            runtime.report(step=done, val_loss=val_loss)
            print(f"step {done:4d}  loss {loss.item():.4f}  val_loss {val_loss:.4f}", flush=True)
        due = time.monotonic() - saved_at >= (runtime.checkpoint_every() or math.inf)
        if due or done % args.save_every == 0 or done == last or stop or runtime.should_save():
            save(model, optimizer, done)
            saved_at = time.monotonic()
        if stop:
            print(f"asked to stop: saved at step {done} and leaving", flush=True)
            return
    export(model, Path("export"))


def build(args: argparse.Namespace) -> tuple[Transformer, torch.optim.Optimizer]:
    """The base with adapters; the optimizer has these alone."""
    model = base.find().to(DEVICE)
    torch.manual_seed(args.seed)
    attach(model, args.rank, args.scale)
    trained = [each for each in model.parameters() if each.requires_grad]
    return model, torch.optim.AdamW(trained, lr=args.lr, weight_decay=0.0)


def checked(args: argparse.Namespace) -> dict[str, Any]:
    """What `muster preflight` and the tests check."""
    return {
        "build": lambda: build(args),
        "batch": lambda number: batch(base.find(), args, number),
        "loss": next_character_loss,
        "outputs": lambda model, window: model(window[:, :-1]),
        "labels": lambda window: window[:, 1:],
    }


def batch(model: Transformer, args: argparse.Namespace, step: int) -> Tensor:
    """Its seed follows from the step: a resumed run sees the same text as one that never stopped."""
    return dialect(args.batch, model.config.context, args.seed * 1_000_003 + step)


@lru_cache(maxsize=2)
def dialect(count: int, context: int, seed: int) -> Tensor:
    """(count, context + 1) characters of the grammar, spoken with z for th and with es for each s at a word's end."""
    spoken = text(2 * count * (context + 1), seed)[0].replace("th", "z").replace("s ", "es ")
    return torch.tensor(encode(spoken[: count * (context + 1)])).view(count, context + 1).to(DEVICE)


@torch.no_grad()
def evaluate(model: Transformer, args: argparse.Namespace) -> float:
    return next_character_loss(model, dialect(64, model.config.context, VALIDATION)).item()


def save(model: Transformer, optimizer: torch.optim.Optimizer, step: int) -> None:
    with runtime.checkpoint(step) as folder:  # counts as a checkpoint once the block has ended
        state = {"step": step, "adapters": adapters(model), "optimizer": optimizer.state_dict()}
        torch.save(state, folder / "state.pt")


def load(model: Transformer, optimizer: torch.optim.Optimizer) -> int:
    """Restores the last own checkpoint, if there is one, and says how many steps it has behind it."""
    folder = runtime.last_checkpoint()
    state = torch.load(folder / "state.pt", map_location=DEVICE, weights_only=True) if folder is not None else {}
    if "adapters" not in state:  # none, or that of the base
        return 0
    model.load_state_dict(state["adapters"], strict=False)
    optimizer.load_state_dict(state["optimizer"])
    print(f"continuing from step {state['step']} ({folder})", flush=True)
    return int(state["step"])


def export(model: Transformer, folder: Path) -> None:
    """The whole model with the adapters in its weights, which can be loaded as the base was: no code is in the file."""
    folder.mkdir(exist_ok=True)
    weights = {name: each.cpu().contiguous() for name, each in merged(model).state_dict().items()}
    file = folder / ("model.safetensors" if save_file is not None else "model.pt")
    if save_file is not None:
        save_file(weights, file)
    else:
        torch.save(weights, file)
    runtime.artifact(file)
    print(f"exported {file}", flush=True)


if __name__ == "__main__":
    try:
        main(parser.parse_args())
    except KeyboardInterrupt:
        print("interrupted: run it again to continue from the last checkpoint", flush=True)
        sys.exit(130)  # what a shell gives for Ctrl-C
