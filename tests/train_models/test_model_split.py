"""The decoder in parts is the decoder: stages, tensor-parallel plans and shards of every kind, on real gloo ranks."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module

from gang_kit import gang
from muster.train.models import Decoder, DecoderConfig, Vision, VisionConfig, initialise

LLAMA = DecoderConfig(vocab=67, dim=32, layers=4, heads=4, kv_heads=2, ffn=48, context=16)
GPT2 = DecoderConfig(
    vocab=67, dim=32, layers=4, heads=4, kv_heads=4, ffn=48, context=15, norm="layer", activation="gelu",
    positions="learned", bias=True, tied=True,
)  # fmt: skip
SEED = 11
SEQ = 12


def built(config, device="cpu"):
    with torch.device(device):
        return Decoder(config)


def samples():
    drawn = torch.randint(0, 67, (3, SEQ + 1), generator=torch.Generator().manual_seed(5))
    return drawn[:, :-1], drawn[:, 1:]


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def run_whole(config):
    """Logits, gradients and weights of one process."""
    model = built(config)
    initialise(model, SEED)
    tokens, labels = samples()
    logits = model(tokens)
    loss_of(logits, labels).backward()
    return logits.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}, model.state_dict()


def same(name, found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6, msg=lambda text: f"{name}: {text}")


def compare(model, logits, expected):
    want_logits, gradients, weights = expected
    same("logits", logits.detach(), want_logits)
    for name, parameter in model.named_parameters():
        assert torch.equal(whole(parameter.detach()), weights[name]), name
        same(name, whole(parameter.grad), gradients[name])


def tensor_parallel(config, sequence):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    model = built(config, "meta")
    parallelize_module(model, mesh, model.tensor_plan(sequence))
    model.to_empty(device="cpu")
    initialise(model, SEED)
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    tokens, labels = samples()
    logits = model(tokens)
    loss_of(logits, labels).backward()
    compare(model, logits, run_whole(config))


def staged(config, sequence):
    """Two stages on every rank, each split over all ranks: the stream is handed over as this rank has it."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    first, last = built(config, "meta"), built(config, "meta")
    first.stage(0, 1, True, False)
    last.stage(1, 4, False, True)
    for stage in (first, last):
        parallelize_module(stage, mesh, stage.tensor_plan(sequence))
        stage.to_empty(device="cpu")
        initialise(stage, SEED)
    tokens, labels = samples()
    stream = first(tokens)
    assert stream.shape[1] == (SEQ // mesh.size() if sequence else SEQ)
    logits = last(stream)
    loss_of(logits, labels).backward()
    expected = run_whole(config)
    names = [name for stage in (first, last) for name, _ in stage.named_parameters()]
    assert sorted(names) == sorted(expected[1])
    compare(first, logits, expected)
    compare(last, logits, expected)


def sharded(config, shape, names, sequence):
    """Fully sharded (and replicated) with or without tensor parallelism."""
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    model = built(config, "meta")
    if "tp" in names:
        parallelize_module(model, mesh["tp"], model.tensor_plan(sequence))
        model.tie()
    data = mesh[tuple(name for name in names if name != "tp")]
    for block in model.blocks.values():
        fully_shard(block, mesh=data)
    fully_shard(model, mesh=data)
    model.to_empty(device="cpu")
    initialise(model, SEED)
    tokens, labels = samples()
    logits = model(tokens)
    loss_of(logits, labels).backward()
    compare(model, logits, run_whole(config))


def images_split():
    """The image model's blocks split like the decoder's; its ends stay whole on each rank."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    config = VisionConfig(classes=3, image=8, patch=4, channels=2, dim=16, layers=2, heads=2, ffn=32)
    one, model = Vision(config), Vision(config)
    parallelize_module(model, mesh, model.tensor_plan(False))
    given, labels = torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(2)), torch.arange(4) % 3
    for each in (one, model):
        initialise(each, SEED)
        F.cross_entropy(each(given), labels).backward()
    compare(
        model,
        model(given),
        (one(given).detach(), {name: p.grad for name, p in one.named_parameters()}, one.state_dict()),
    )


def two_ranks():
    images_split()
    for config in (LLAMA, GPT2):
        for sequence in (False, True):
            tensor_parallel(config, sequence)
            staged(replace(config, tied=False), sequence)
        sharded(config, (2,), ("fsdp",), False)


def four_ranks():
    sharded(LLAMA, (2, 2), ("fsdp", "tp"), True)
    sharded(GPT2, (2, 2), ("fsdp", "tp"), False)
    sharded(GPT2, (2, 2), ("dp", "fsdp"), False)


def test_two_ranks_compute_what_one_does():
    gang(2, two_ranks)


def test_shards_of_shards_start_and_compute_alike_on_four_ranks():
    gang(4, four_ranks)
