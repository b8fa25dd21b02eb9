"""Correct programs of different kinds for preflight: each a function that gives the arguments of `preflight.check`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

Hook = dict[str, Any]
VOCAB, TIME, PAD = 17, 8, 0


def drawn(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(100 + number)


def adam(model: nn.Module, lr: float = 3e-3) -> torch.optim.Optimizer:
    return torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=lr)


def built(make: Callable[[], nn.Module], optimizer: Callable[[nn.Module], Any] = adam) -> Callable[[], Any]:
    def build() -> Any:
        model = make()
        return model, optimizer(model)

    return build


def step_on(loss: Callable[[nn.Module, Any], Tensor], parts: float | None = None) -> Callable[..., float]:
    """A step with accumulation, and with gradients reduced in a process group."""

    def step(model: nn.Module, optimizer: Any, batches: list[Any]) -> float:
        optimizer.zero_grad()
        total = 0.0
        for batch in batches:
            value = loss(model, batch) / (parts or len(batches))
            value.backward()
            total += float(value.detach())
        if dist.is_initialized():
            for each in model.parameters():
                dist.all_reduce(each.grad)
                each.grad /= dist.get_world_size()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return total

    return step


# A classifier of points


def points(number: int) -> dict[str, Tensor]:
    draw = drawn(number)
    x = torch.randn(8, 6, generator=draw)
    return {"x": x, "y": (x.sum(1) > 0).long() + 2 * (x[:, 0] > 0).long()}


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 4))


def class_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch["x"]), batch["y"])


def classifier(**more: Any) -> Hook:
    return {
        "build": built(perceptron),
        "batch": points,
        "loss": class_loss,
        "outputs": lambda model, batch: model(batch["x"]),
        "labels": lambda batch: batch["y"],
        "step": step_on(class_loss),
        **more,
    }


# A small GPT


class Gpt(nn.Module):
    def __init__(self, tied: bool = False, causal: bool = True, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 16)
        self.places = nn.Embedding(TIME + 1, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(16, VOCAB, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        self.causal = causal

    def forward(self, tokens: Tensor, pads: Tensor | None = None) -> Tensor:
        time = tokens.shape[1]
        x = self.embed(tokens) + self.places(torch.arange(time))
        mask = torch.triu(torch.ones(time, time, dtype=torch.bool), 1) if self.causal else None
        return self.head(self.blocks(x, mask=mask, src_key_padding_mask=pads))


def tokens(number: int) -> Tensor:
    return torch.randint(1, VOCAB, (4, TIME + 1), generator=drawn(number))


def next_loss(model: nn.Module, batch: Tensor) -> Tensor:
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def gpt(make: Callable[[], nn.Module] = Gpt, loss: Callable[..., Tensor] = next_loss, **more: Any) -> Hook:
    return {
        "build": built(make),
        "batch": tokens,
        "loss": loss,
        "outputs": lambda model, batch: model(batch[:, :-1]),
        "labels": lambda batch: batch[:, 1:],
        "step": step_on(loss),
        **more,
    }


def in_half() -> Hook:
    """Under autocast: the model returns numbers of 16 bits, and the loss is computed from their copies of 32."""

    def outputs(model: nn.Module, batch: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            found: Tensor = model(batch[:, :-1])
        return found.float()

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        return F.cross_entropy(outputs(model, batch).transpose(1, 2), batch[:, 1:])

    return gpt(loss=loss, outputs=outputs, step=step_on(loss))


def tied() -> Hook:
    return gpt(lambda: Gpt(tied=True))


# Images, through batch norm


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(),
        nn.Linear(24, 3),
    )  # fmt: skip


def images(number: int) -> list[Tensor]:
    draw = drawn(number)
    return [torch.randn(6, 1, 8, 8, generator=draw), torch.randint(0, 3, (6,), generator=draw)]


def image_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def convolution(**more: Any) -> Hook:
    return {
        "build": built(network),
        "batch": images,
        "loss": image_loss,
        "outputs": lambda model, batch: model(batch[0]),
        "labels": lambda batch: batch[1],
        "step": step_on(image_loss),
        **more,
    }


# A recurrent network over series of numbers: the next number


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.GRU(2, 16, batch_first=True)
        self.out = nn.Linear(16, 2)

    def forward(self, series: Tensor) -> Tensor:
        return self.out(self.cells(series)[0])


def series(number: int) -> Tensor:
    return torch.randn(4, TIME + 1, 2, generator=drawn(number)).cumsum(1)


def recurrent() -> Hook:
    return {
        "build": built(Recurrent, lambda model: adam(model, 1e-2)),
        "batch": series,
        "loss": lambda model, batch: F.mse_loss(model(batch[:, :-1]), batch[:, 1:]),
        "outputs": lambda model, batch: model(batch[:, :-1]),
        "causal": True,
    }


# An encoder over padded texts


class Encoder(nn.Module):
    """Classifies by the mean over the places that are no padding."""

    def __init__(self, masked: bool = True, mean: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 16, padding_idx=PAD)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        self.out = nn.Linear(16, 3)
        self.masked, self.mean = masked, mean

    def forward(self, text: Tensor, mask: Tensor) -> Tensor:
        x = self.block(self.embed(text), src_key_padding_mask=~mask if self.masked else None)
        weight = mask[..., None].float() if self.mean else torch.ones_like(mask[..., None], dtype=torch.float32)
        return self.out((x * weight).sum(1) / weight.sum(1))


def texts(number: int) -> dict[str, Tensor]:
    draw = drawn(number)
    mask = torch.arange(TIME) < torch.tensor([TIME, 5, 3, 6])[:, None]
    text = torch.randint(1, VOCAB, (4, TIME), generator=draw) * mask
    return {"text": text, "attention_mask": mask, "label": torch.randint(0, 3, (4,), generator=draw)}


def encoder(make: Callable[[], nn.Module] = Encoder) -> Hook:
    return {
        "build": built(make),
        "batch": texts,
        "loss": lambda model, batch: F.cross_entropy(model(batch["text"], batch["attention_mask"]), batch["label"]),
        "outputs": lambda model, batch: model(batch["text"], batch["attention_mask"]),
        "labels": lambda batch: batch["label"],
    }


# Regression, with two optimizers


def pairs(number: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(8, 3, generator=drawn(number))
    return x, x.square().sum(1, keepdim=True)


def two_optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    matrices = [each for each in model.parameters() if each.ndim > 1]
    rest = [{"params": [each], "weight_decay": 0.0} for each in model.parameters() if each.ndim < 2]
    return [torch.optim.SGD(matrices, lr=0.05, momentum=0.9), torch.optim.Adam(rest, lr=1e-2)]


def regression() -> Hook:
    return {
        "build": built(lambda: nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1)), two_optimizers),
        "batch": pairs,
        "loss": lambda model, batch: F.mse_loss(model(batch[0]), batch[1]),
        "outputs": lambda model, batch: model(batch[0]),
        "labels": lambda batch: batch[1],
    }


# A frozen backbone with adapters of low rank, which begin with zeros


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 24), nn.Tanh()).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(4, 24) / 5)
        self.up = nn.Parameter(torch.zeros(24, 4))
        self.head = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.backbone(x)
        return self.head(x + F.dropout(x, 0.1, self.training) @ self.down.T @ self.up.T)


def adapted() -> Hook:
    return classifier(build=built(Adapted))


# An autoencoder


def autoencoder() -> Hook:
    return {
        "build": built(lambda: nn.Sequential(nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, 12)), lambda m: adam(m, 1e-2)),
        "batch": lambda number: torch.randn(6, 12, generator=drawn(number)),
        "loss": lambda model, batch: F.mse_loss(model(batch), batch),
        "outputs": lambda model, batch: model(batch),
    }


# A masked language model, which may look at both sides


def masked_tokens(number: int) -> dict[str, Tensor]:
    text = torch.randint(2, VOCAB, (6, TIME), generator=drawn(number))
    hidden = torch.rand(6, TIME, generator=drawn(number + 50)) < 0.3
    hidden[:, 0] = True
    return {"text": text.masked_fill(hidden, 1), "labels": text.masked_fill(~hidden, -100)}


def masked_model() -> Hook:
    return {
        "build": built(lambda: Gpt(causal=False)),
        "batch": masked_tokens,
        "loss": lambda model, batch: F.cross_entropy(model(batch["text"]).flatten(0, 1), batch["labels"].flatten()),
        "outputs": lambda model, batch: model(batch["text"]),
        "labels": lambda batch: batch["labels"],
    }


CORRECT: dict[str, Callable[[], Hook]] = {
    "a classifier on two processes": lambda: classifier(distributed=True),
    "a GPT": gpt,
    "a GPT under autocast": in_half,
    "a GPT with tied embeddings": tied,
    "a network with batch norm": convolution,
    "a recurrent network": recurrent,
    "an encoder with padding": encoder,
    "regression with two optimizers": regression,
    "adapters on a frozen backbone": adapted,
    "an autoencoder": autoencoder,
    "a masked language model": masked_model,
}
