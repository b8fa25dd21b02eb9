"""Measures a checkpoint of the `ddp` template on held-out text; without one, an untrained model for comparison.

Run it with `python eval.py`, or `CHECKPOINT=path/to/checkpoint python eval.py`.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

import torch
from grammar import ALPHABET, encode, text
from model import Config, Transformer, next_character_loss

from muster import runtime

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--batches", type=int, default=20)
parser.add_argument("--batch", type=int, default=64, help="sequences a batch")
parser.add_argument("--seed", type=int, default=1_000_000, help="of the text; training uses small ones")


@torch.no_grad()
def main(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    model, step = load(os.environ.get("CHECKPOINT", ""))
    model.eval()
    B, T = args.batch, model.config.context + 1  # each character but a window's first is predicted
    batches = min(args.batches, runtime.preflight_steps() or args.batches)
    characters, floor = text(batches * B * T, args.seed)
    data = torch.tensor(encode(characters)).view(batches, B, T)
    runtime.params(**vars(args), checkpoint=os.environ.get("CHECKPOINT", ""), checkpoint_step=step)

    total = 0.0
    for batch, window in enumerate(data):
        total += next_character_loss(model, window).item()
        runtime.progress(batch + 1, total=batches, unit="batch")
        if runtime.should_stop():
            sys.exit(f"asked to stop after batch {batch + 1} of {batches}: nothing is reported of a part")
    loss = total / batches
    runtime.report(step=step, loss=loss, bits_per_character=loss / math.log(2), floor=floor, excess=loss - floor)
    print(f"step {step}: loss {loss:.4f} nats a character, of {data.numel():,}; the grammar allows {floor:.4f}")


def load(path: str) -> tuple[Transformer, int]:
    """The model of a checkpoint and its step; a small fresh one and 0 when no path is given."""
    if not path:
        torch.manual_seed(0)
        print("CHECKPOINT is not set: measuring an untrained model")
        return Transformer(Config(len(ALPHABET), dim=32, layers=1)), 0
    found = sorted(Path(path).rglob("state.pt"), key=lambda file: file.stat().st_mtime)
    if not found:
        sys.exit(f"CHECKPOINT: no state.pt in {path!r}. Give a checkpoint of the ddp template, or their folder.")
    state = torch.load(found[-1], map_location="cpu", weights_only=True)
    model = Transformer(Config(**state["config"]))
    model.load_state_dict(state["model"])
    return model, int(state["step"])


if __name__ == "__main__":
    main(parser.parse_args())
