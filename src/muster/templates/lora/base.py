"""The base model of the fine-tuning: from a checkpoint of another run, or a small one made here in seconds."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from grammar import ALPHABET, encode, text
from model import Config, Transformer, next_character_loss

from muster import runtime

SMALL = Config(len(ALPHABET), context=64, dim=64, layers=2)
STEPS = 150  # in which the small one is made


def find() -> Transformer:
    """The base model. It is copied beside the checkpoints, so that each attempt has the same one."""
    kept = (runtime.checkpoint_dir() or Path("checkpoints")) / "base.pt"
    if not kept.is_file():
        state = _named() or _started_from() or made()
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = kept.with_suffix(".draft")
        torch.save({"config": state["config"], "model": state["model"]}, draft)
        draft.replace(kept)
    state = _read(kept)
    model = Transformer(Config(**state["config"]))
    model.load_state_dict(state["model"])
    return model


def made(config: Config = SMALL, steps: int = STEPS) -> dict[str, Any]:
    """A small model of the grammar, as a checkpoint has it."""
    print(f"making a small base model in {steps} steps: neither BASE nor start_from names one", flush=True)
    torch.manual_seed(0)
    model = Transformer(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    windows = torch.tensor(encode(text(steps * 16 * (config.context + 1), seed=0)[0])).view(steps, 16, -1)
    for window in windows:
        next_character_loss(model, window).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"step": steps, "config": config.to_dict(), "model": model.state_dict()}


def _named() -> dict[str, Any] | None:
    """The newest checkpoint of the `ddp` template at `BASE`, a file or a folder."""
    place = os.environ.get("BASE", "")
    if not place:
        return None
    found = [Path(place)] if Path(place).is_file() else sorted(Path(place).rglob("state.pt"), key=_modified)
    if not found:
        sys.exit(f"BASE: no state.pt in {place!r}. Give a checkpoint of the ddp template, or the folder of several.")
    print(f"fine-tuning {found[-1]}", flush=True)
    return _read(found[-1])


def _started_from() -> dict[str, Any] | None:
    """With `start_from: RUN` in the job file, that run's checkpoint is the last one until there is an own one."""
    folder = runtime.last_checkpoint()
    state = _read(folder / "state.pt") if folder is not None else {}
    if "config" not in state:
        return None
    print(f"fine-tuning the model of step {state['step']} in {folder}", flush=True)
    return state


def _read(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _modified(path: Path) -> float:
    return path.stat().st_mtime
