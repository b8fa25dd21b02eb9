"""Runs one training case in any layout, and the same in plain PyTorch on one process, for comparison."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from muster.train.mesh import Layout, Mesh, make_mesh
from muster.train.models.decoder import Decoder, DecoderConfig
from muster.train.models.initial import initialise
from muster.train.models.vision import Vision, VisionConfig
from muster.train.optim import OptimSettings, adamw, measure, step
from muster.train.parallel import Micro, ParallelSettings, Prepared, parallelize, state_dicts
from muster.train.precision import SLOW_PATH, Precision

STEPS = 2  # one from the initial state and one from Adam's own; the held-out loss shows what the last one did
ROWS = 16  # samples in a global batch
SEQ = 8
SEED = 7
IGNORED = -100

LLAMA = DecoderConfig(vocab=64, dim=32, layers=2, heads=4, kv_heads=2, ffn=48, context=SEQ)
DEEP = replace(LLAMA, layers=4)  # for four stages, or for stages of several blocks
TIED = replace(LLAMA, tied=True)
GPT2 = replace(LLAMA, kv_heads=4, norm="layer", activation="gelu", positions="learned", bias=True)
VISION = VisionConfig(classes=10, image=8, patch=2, channels=3, dim=32, layers=2, heads=4, ffn=48)
OPTIM = OptimSettings(lr=1e-2, weight_decay=0.1, eps=1e-4)


@dataclass(frozen=True)
class Case:
    """One combination. `micros` is the number of micro-batches that each data rank adds up in a step."""

    name: str
    layout: dict[str, int] = field(default_factory=dict)
    settings: ParallelSettings = field(default_factory=ParallelSettings)
    precision: Precision = field(default_factory=Precision)
    config: DecoderConfig | VisionConfig = LLAMA
    micros: int = 1
    max_norm: float | None = None
    meta: bool = True  # the model starts on the meta device


@dataclass
class Outcome:
    """What training gave. On a rank that is not the first of its stage `weights` is empty."""

    losses: list[float]
    norms: list[float]
    held_out: float
    weights: dict[str, Tensor]
    optim: dict[str, Tensor] = field(default_factory=dict)


def batches(config: DecoderConfig | VisionConfig) -> list[tuple[Tensor, Tensor]]:
    """For each step inputs and targets. Rows have different numbers of targets, so that a mean of means is wrong."""
    draw = torch.Generator().manual_seed(3)
    found = []
    for _ in range(STEPS + 1):
        if isinstance(config, VisionConfig):
            images = torch.randn((ROWS, config.channels, config.image, config.image), generator=draw)
            found.append((images, torch.randint(0, config.classes, (ROWS,), generator=draw)))
            continue
        tokens = torch.randint(0, config.vocab, (ROWS, SEQ + 1), generator=draw)
        targets = tokens[:, 1:].clone()
        for row in range(ROWS):
            targets[row, SEQ - row % 6 :] = IGNORED
        found.append((tokens[:, :-1].contiguous(), targets))
    return found


def loss_sum(output: Tensor, batch: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, -2), batch.flatten(), reduction="sum", ignore_index=IGNORED)


def plain(case: Case) -> Outcome:
    """The reference: nothing of what is tested but the model. One process, one batch, PyTorch's own clipping."""
    return _plain(case.config, case.precision, case.max_norm)


@cache
def _plain(config: DecoderConfig | VisionConfig, precision: Precision, max_norm: float | None) -> Outcome:
    case = Case("plain", config=config, precision=precision, max_norm=max_norm)
    with _kernels(case):
        return _trained(case)


def _trained(case: Case) -> Outcome:
    model = build(case)
    initialise(model, SEED)
    optimizer = torch.optim.AdamW(_plain_groups(model), lr=OPTIM.lr, betas=OPTIM.betas, eps=OPTIM.eps)
    losses, norms = [], []
    data = batches(case.config)
    for tokens, targets in data[:STEPS]:
        optimizer.zero_grad()
        with case.precision.autocast(torch.device("cpu")):
            loss = loss_sum(model(tokens), targets).float() / (targets != IGNORED).sum()
        loss.backward()
        limit = case.max_norm if case.max_norm is not None else float("inf")
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), limit)))
        optimizer.step()
        losses.append(float(loss.detach()))
    with torch.no_grad():
        held_out = float(loss_sum(model(data[STEPS][0]), data[STEPS][1]))
    names = {parameter: name for name, parameter in model.named_parameters()}
    optim = {f"{names[p]}.{key}": value for p, state in optimizer.state.items() for key, value in state.items()}
    return Outcome(losses, norms, held_out, {name: p.detach() for name, p in model.named_parameters()}, optim)


def divided(case: Case) -> Outcome:
    """The same through the runtime, on this rank of a gang."""
    with _kernels(case):
        return _divided(case)


def _divided(case: Case) -> Outcome:
    mesh = _mesh(Layout.parse(case.layout))
    prepared = prepare(case, mesh)
    optimizer = adamw(prepared.parts, OPTIM)
    losses, norms = [], []
    data = batches(case.config)
    for tokens, targets in data[:STEPS]:
        loss, norm = train_step(prepared, optimizer, case, tokens, targets)
        losses.append(float(loss))
        norms.append(float(norm))
    held_out = float(prepared.evaluate(share(case, mesh, *data[STEPS]), loss_sum))
    model, optim = state_dicts(prepared, optimizer)
    return Outcome(losses, norms, held_out, _whole(model, mesh), _whole(optim, mesh))


@cache
def _mesh(layout: Layout) -> Mesh:
    """One for all cases of a gang with this layout: the threads of its process groups stay as long as the process."""
    return make_mesh(layout, "cpu")


@contextmanager
def _kernels(case: Case) -> Iterator[None]:
    """PyTorch's own products in float32: to set up one of oneDNN takes longer than to compute one so small."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = before and (case.precision.compute != "float32" or case.settings.compile)
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


def build(case: Case) -> nn.Module:
    return Vision(case.config) if isinstance(case.config, VisionConfig) else Decoder(case.config)


def prepare(case: Case, mesh: Mesh) -> Prepared:
    with torch.device("meta" if case.meta else "cpu"):
        model = build(case)
    if not case.meta:
        initialise(model, SEED)
    fill = (lambda part: initialise(part, SEED)) if case.meta else None
    return parallelize(model, mesh, case.settings, case.precision, fill)


def train_step(
    prepared: Prepared, optimizer: torch.optim.Optimizer, case: Case, tokens: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    optimizer.zero_grad()
    micros = share(case, prepared.mesh, tokens, targets)
    loss = prepared.forward_backward(micros, loss_sum, int((targets != IGNORED).sum()))
    norm, factor = measure(prepared.parts, prepared.mesh, case.max_norm, prepared.scaler)
    skip = (~norm.isfinite()).float()
    step(optimizer, skip, factor)
    if prepared.scaler is not None:
        prepared.scaler.update(skip)
    return loss, norm


def share(case: Case, mesh: Mesh, tokens: Tensor, targets: Tensor) -> list[Micro]:
    rows = slice(mesh.data_rank * ROWS // mesh.data_world, (mesh.data_rank + 1) * ROWS // mesh.data_world)
    pairs = zip(tokens[rows].chunk(case.micros), targets[rows].chunk(case.micros), strict=True)
    return [Micro((ours,), wanted) for ours, wanted in pairs]


def divided_all(cases: list[Case]) -> list[Outcome]:
    """Every case in a row, in one gang. Warnings of ours are errors here too."""
    torch.set_num_threads(1)
    found = []
    for case in cases:
        try:
            with warnings.catch_warnings():
                # The compiler's own modules warn when they are first imported.
                warnings.simplefilter("ignore" if case.settings.compile else "error")
                warnings.filterwarnings("ignore", SLOW_PATH, UserWarning)
                found.append(divided(case))
        except Exception as error:
            error.add_note(f"in case {case.name}")
            raise
    return found


def merge(outcomes: list[Outcome], same: bool = True) -> Outcome:
    """One outcome of a gang: weights of all stages, after a look that every rank tells the same losses and norms."""
    first = outcomes[0]
    for other in outcomes[1:] if same else []:
        assert other.losses == first.losses
        assert other.norms == first.norms
        assert other.held_out == first.held_out
    weights: dict[str, Tensor] = {}
    optim: dict[str, Tensor] = {}
    for outcome in outcomes:
        weights |= outcome.weights
        optim |= outcome.optim
    return Outcome(first.losses, first.norms, first.held_out, weights, optim)


@dataclass(frozen=True)
class Tolerance:
    """How far a divided run may lie from the plain one. Sums are added up in another order, no more."""

    loss: float = 1e-6  # relative, each step and held out
    norm: float = 2e-6  # relative, each step: the norm before clipping
    weights: float = 1e-4  # of what Adam can change a weight by in all steps
    optim: float = 1e-4  # of the largest value of that state in the model


FLOAT32 = Tolerance()


def differences(outcome: Outcome, reference: Outcome, tolerance: Tolerance = FLOAT32) -> list[str]:
    """Everything in which two outcomes differ by more than the tolerance, in words; empty for equal ones."""
    found = []
    for what, ours, theirs, limit in (
        ("loss", outcome.losses, reference.losses, tolerance.loss),
        ("norm", outcome.norms, reference.norms, tolerance.norm),
        ("held-out loss", [outcome.held_out], [reference.held_out], tolerance.loss),
    ):
        pairs = enumerate(zip(ours, theirs, strict=True))
        found += [f"{what} {n}: {a} for {b}" for n, (a, b) in pairs if not abs(a - b) <= limit * abs(b)]
    moved = OPTIM.lr * STEPS
    found += _apart("weight", outcome.weights, reference.weights, {"": tolerance.weights * moved})
    largest: dict[str, float] = {}
    for name, value in reference.optim.items():
        kind = name.rpartition(".")[2]
        largest[kind] = max(largest.get(kind, 0.0), tolerance.optim * float(value.abs().max()))
    return found + _apart("state", outcome.optim, reference.optim, largest)


def _apart(what: str, mine: dict[str, Tensor], wanted: dict[str, Tensor], limits: dict[str, float]) -> list[str]:
    """Tensors that lie apart by more than the limit of their kind (the end of their name), or are on one side alone."""
    found = [f"{what} {name} is on one side alone" for name in mine.keys() ^ wanted.keys()]
    for name in mine.keys() & wanted.keys():
        limit = limits.get(name.rpartition(".")[2], limits.get("", 0.0))
        apart = float((mine[name] - wanted[name]).abs().max())
        if not apart <= limit:
            found.append(f"{what} {name}: {apart:.2e} apart, {limit:.2e} allowed")
    return found


def _whole(state: dict[str, Any], mesh: Mesh) -> dict[str, Tensor]:
    """Full tensors, on the first rank of each stage alone."""
    full = {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in state.items()}
    first = all(mesh.place[name] == 0 for name in ("dp", "fsdp", "tp"))
    return {name: value.detach().clone() for name, value in full.items()} if first else {}


def _plain_groups(model: nn.Module) -> list[dict[str, Any]]:
    tables = {p for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()}
    decayed = [p for p in model.parameters() if p.ndim > 1 and p not in tables]
    others = [p for p in model.parameters() if p.ndim <= 1 or p in tables]
    return [
        {"params": decayed, "weight_decay": OPTIM.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
