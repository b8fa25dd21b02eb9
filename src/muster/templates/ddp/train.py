"""Trains a small character-level transformer with data parallelism, and continues exactly where it was interrupted.

    python train.py                                  one process
    torchrun --nproc-per-node 2 train.py             two, under torchrun
    muster run job.yaml                              two, under Muster: watched, restarted, recorded

Everything random follows from (seed, step, rank), so the state to save is the model, the optimizer and the step.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from grammar import ALPHABET, encode, text
from model import Config, Transformer, next_character_loss
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from muster import runtime
from muster.train import preflight

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--batch", type=int, default=16, help="sequences a rank and step")
parser.add_argument("--context", type=int, default=64, help="characters a sequence")
parser.add_argument("--dim", type=int, default=128)
parser.add_argument("--layers", type=int, default=3)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--warmup", type=int, default=20, help="steps until the full learning rate")
parser.add_argument("--characters", type=int, default=400_000, help="of training text")
parser.add_argument("--save-every", type=int, default=25, help="steps between checkpoints")
parser.add_argument("--seed", type=int, default=1)


def main(args: argparse.Namespace) -> None:
    preflight.run_if_asked(**checked(args))  # in the rung `unit` of `muster preflight`; elsewhere it does nothing
    device = join()
    rank, world = runtime.rank(), runtime.world_size()
    torch.manual_seed(args.seed)  # the same on every rank, so that all start from the same weights
    model, optimizer = build(args, device)
    start = load(model, optimizer, device)
    parallel = DistributedDataParallel(model, device_ids=[device.index] if device.index is not None else None)

    data = characters(args.characters, args.seed)
    last = min(args.steps, runtime.preflight_steps() or args.steps)
    say(f"{size(model):,} parameters, {world} rank(s) on {device.type}, steps {start + 1} to {last}")
    runtime.params(**vars(args), parameters=size(model), world_size=world)

    saved_at, began = time.monotonic(), time.monotonic()
    for step in range(start, last):
        torch.manual_seed(args.seed * 1_000_003 + step * world + rank)  # for dropout
        window = batch(data, args, step, rank, world).to(device)  # (B, T + 1)
        loss = next_character_loss(parallel, window)
        loss.backward()  # DDP averages the gradients over the ranks on the way
        grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(args, step)
        optimizer.step()
        optimizer.zero_grad()

        done = step + 1
        mean_loss, stop = agree(loss.detach(), runtime.should_stop())
        now = time.monotonic()
        if rank == 0:
            speed = world * window[:, 1:].numel() / (now - began)
            lr = learning_rate(args, step)
            runtime.report(step=done, loss=mean_loss, lr=lr, grad_norm=float(grad_norm), tokens_per_s=speed)
            runtime.progress(done, total=args.steps, unit="step")
            if done % 10 == 0 or done == last:
                say(f"step {done:4d}  loss {mean_loss:.4f}  {speed:,.0f} tokens/s")
        began = now

        due = done % args.save_every == 0 or now - saved_at >= (runtime.checkpoint_every() or math.inf)
        if due or stop or runtime.should_save() or done == last:
            save(model, optimizer, done)
            saved_at = time.monotonic()
        if stop:
            say(f"asked to stop: saved at step {done} and leaving")
            return


def build(args: argparse.Namespace, device: torch.device) -> tuple[Transformer, torch.optim.Optimizer]:
    config = Config(len(ALPHABET), args.context, args.dim, args.layers, args.heads, args.dropout)
    model = Transformer(config).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def checked(args: argparse.Namespace) -> dict[str, Any]:
    """What `muster preflight` and the tests check."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return {
        "build": lambda: build(args, device),
        "batch": lambda number: batch(characters(args.characters, args.seed), args, number, 0, 1).to(device),
        "loss": next_character_loss,
        "outputs": lambda model, window: model(window[:, :-1]),
        "labels": lambda window: window[:, 1:],
    }


def join() -> torch.device:
    """Joins the other ranks, by NCCL where there are GPUs and gloo where there are none; alone it is a group of one."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cuda = torch.cuda.device_count() >= here  # one for each rank, or none at all
    device = torch.device("cuda", runtime.local_rank()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)  # more would fight with the other ranks for the cores
    backend = "nccl" if cuda else "gloo"
    if "MASTER_ADDR" in os.environ:
        dist.init_process_group(backend, device_id=device if cuda else None)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    return device


def batch(data: Tensor, args: argparse.Namespace, step: int, rank: int, world: int) -> Tensor:
    """This rank's (B, T + 1) share of a step: windows in an order shuffled each epoch, found from the step alone."""
    windows = (len(data) - 1) // args.context
    first = (step * world + rank) * args.batch
    rows = []
    for position in range(first, first + args.batch):
        epoch, index = divmod(position, windows)
        at = int(order(windows, args.seed + epoch)[index]) * args.context
        rows.append(data[at : at + args.context + 1])
    return torch.stack(rows)


@lru_cache(maxsize=2)  # a step may end one epoch and begin the next
def order(windows: int, seed: int) -> Tensor:
    """The order of the windows in one epoch."""
    return torch.randperm(windows, generator=torch.Generator().manual_seed(seed))


@lru_cache(maxsize=1)
def characters(count: int, seed: int) -> Tensor:
    """(count,) characters of training text."""
    return torch.tensor(encode(text(count, seed)[0]))


def learning_rate(args: argparse.Namespace, step: int) -> float:
    """Rises in a line over the warmup, then falls along a cosine to a tenth."""
    warm = min(1.0, (step + 1) / args.warmup)
    return args.lr * warm * (0.55 + 0.45 * math.cos(math.pi * step / args.steps))


def agree(loss: Tensor, stop: bool) -> tuple[float, bool]:
    """The mean loss of all ranks, and whether any was asked to stop: all then leave after the same step."""
    both = torch.stack([loss, torch.tensor(float(stop), device=loss.device)])
    dist.all_reduce(both)
    return both[0].item() / dist.get_world_size(), both[1].item() > 0


def save(model: Transformer, optimizer: torch.optim.Optimizer, step: int) -> None:
    """All ranks hold the same state: the first saves it. The folder counts as a checkpoint once it is whole."""
    if runtime.rank() == 0:
        state = {"step": step, "config": model.config.to_dict()}
        state |= {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        with runtime.checkpoint(step) as folder:
            torch.save(state, folder / "state.pt")


def load(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Restores the last committed checkpoint, if there is one, and says how many steps it has behind it."""
    folder = runtime.last_checkpoint()
    if folder is None:
        return 0
    state = torch.load(folder / "state.pt", map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    say(f"continuing from step {state['step']} ({folder})")
    return int(state["step"])


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def say(line: str) -> None:
    if runtime.rank() == 0:
        print(line, flush=True)


if __name__ == "__main__":
    try:
        main(parser.parse_args())
        dist.barrier()  # nobody leaves while another still talks to it
        dist.destroy_process_group()  # not after an error: with a peer that is gone it may wait for ever
    except KeyboardInterrupt:
        say("interrupted: run it again to continue from the last checkpoint")
        sys.exit(130)  # what a shell gives for Ctrl-C
