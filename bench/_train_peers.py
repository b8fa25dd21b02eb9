"""Trainers that a user would take instead, each as its own manual has it: Lightning and Hugging Face's Trainer."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from muster.train.models import Decoder, DecoderConfig, shape

PEERS = ("lightning", "transformers")


class Rows(Dataset[Any]):
    """Random tokens, the same amount for every step."""

    def __init__(self, steps: int, batch: int, sequence: int, vocab: int, shift: bool) -> None:
        rng = np.random.default_rng(1)
        self.rows = torch.from_numpy(rng.integers(0, vocab, (steps * batch, sequence + int(not shift))))
        self.shift = shift  # the model itself shifts the targets

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        row = self.rows[index]
        return {"input_ids": row, "labels": row} if self.shift else (row[:-1], row[1:])


class Clock:
    """The time between two steps on the device, and the losses."""

    def __init__(self, warm: int, last: int) -> None:
        self.warm, self.last, self.seconds = warm, last, 0.0
        self.began = 0.0

    def step(self, number: int) -> None:
        """After this many steps."""
        if number not in (self.warm, self.last):
            return
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.began, self.seconds = (now, 0.0) if number == self.warm else (self.began, now - self.began)


def measured(peer: str, config: dict[str, Any], warm: int) -> dict[str, Any]:
    """As `_bare` of `train_gpu`."""
    steps, batch, sequence = config["steps"], config["data"]["batch"], config["model"]["sequence"]
    given, clock = shape(config["model"]["shape"]), Clock(warm, steps)
    torch.manual_seed(1)
    run: Callable[..., float] = {"lightning": _lightning, "transformers": _transformers}[peer]
    loss = run(given, Rows(steps, batch, sequence, given.vocab, peer == "transformers"), config, clock)
    memory = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    losses = [(loss, 0.0)] * steps
    return {"seconds": clock.seconds, "losses": losses, "saves_s": [], "memory": memory, "start_s": {}}


def _lightning(given: DecoderConfig, rows: Rows, config: dict[str, Any], clock: Clock) -> float:
    import pytorch_lightning as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Decoder(given)
            for parameter in self.model.parameters():
                if parameter.ndim > 1:
                    nn.init.normal_(parameter, std=0.02)
            self.run = torch.compile(self.model) if config["parallel"]["compile"] else self.model
            self.last = torch.zeros(())

        def training_step(self, batch: Any, _: int) -> Tensor:
            logits = self.run(batch[0])
            self.last = F.cross_entropy(logits.float().flatten(0, 1), batch[1].flatten())
            return self.last

        def on_train_batch_end(self, *_: Any) -> None:
            clock.step(self.trainer.global_step)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            # Not fused: Lightning refuses to clip the gradients of one that is.
            return torch.optim.AdamW(self.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)

    module = Module()
    trainer = pl.Trainer(
        accelerator="gpu" if config["device"] == "cuda" else "cpu", devices=1, precision="bf16-mixed",
        max_steps=config["steps"], gradient_clip_val=1.0, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(rows, config["data"]["batch"], num_workers=2, pin_memory=True)
    trainer.fit(module, loader)
    return float(module.last)


def _transformers(given: DecoderConfig, rows: Rows, config: dict[str, Any], clock: Clock) -> float:
    hf: Any = importlib.import_module("transformers")

    model = hf.LlamaForCausalLM(hf.LlamaConfig(
        vocab_size=given.vocab, hidden_size=given.dim, intermediate_size=given.ffn, num_hidden_layers=given.layers,
        num_attention_heads=given.heads, num_key_value_heads=given.kv_heads, max_position_embeddings=given.context,
        rms_norm_eps=given.eps, tie_word_embeddings=given.tied, use_cache=False, attn_implementation="sdpa",
    )).float()  # fmt: skip

    class Told(hf.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            clock.step(state.global_step)

    arguments = hf.TrainingArguments(
        output_dir="/tmp/muster-peer", max_steps=config["steps"], per_device_train_batch_size=config["data"]["batch"],
        bf16=True, torch_compile=config["parallel"]["compile"], optim="adamw_torch_fused", learning_rate=3e-4,
        weight_decay=0.1, adam_beta2=0.95, max_grad_norm=1.0, logging_steps=config["steps"], report_to=[],
        save_strategy="no", disable_tqdm=True, dataloader_num_workers=2, use_cpu=config["device"] == "cpu",
    )  # fmt: skip
    found = hf.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[Told()]).train()
    return float(found.training_loss)
