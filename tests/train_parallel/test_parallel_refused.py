"""What is not offered is refused before a step, with the numbers or the reason; what any model may use works."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from equal_kit import DEEP, LLAMA, TIED, VISION, Case, build, loss_sum, prepare, share
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel

from gang_kit import gang
from muster.train.errors import MeshError
from muster.train.mesh import DIMS, Layout, Mesh, make_mesh
from muster.train.optim import measure
from muster.train.parallel import Micro, ParallelSettings, check, parallelize, state_dicts
from muster.train.parallel.pipeline import check_micros, spans
from muster.train.precision import Precision

S = ParallelSettings


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (Case("", {"tp": 3}), "4 heads don't divide by tp 3"),
        (Case("", {"tp": 4}), "2 KV heads don't divide by tp 4"),
        (Case("", {"pp": 5}, config=DEEP), "4 layers can't make pp 5 stages"),
        (Case("", {"pp": 2}, config=TIED), "a tied head would need the embedding on the first and the last of pp 2"),
        (Case("", {"dp": 2}, S(sequence=True)), "parallel.sequence is on, but the mesh is dp 2"),
        (Case("", {"tp": 3}, S(sequence=True), config=replace(LLAMA, heads=3, dim=24, kv_heads=3)), "8 tokens"),
        (Case("", {"dp": 2}, S(offload=True)), "parallel.offload is on, but the mesh is dp 2"),
        (Case("", {}, S(offload=True)), "the mesh is one process: it moves shards; give fsdp 2 or more"),
        (Case("", {"tp": 2}, S(sequence=True), config=VISION), "can't be split so"),
        (Case("", {"dp": 2, "tp": 2}, precision=Precision("float8")), "precision is fp8, but the mesh is dp 2 x tp 2"),
    ],
)
def test_a_combination_is_refused(case: Case, words: str) -> None:
    with pytest.raises(MeshError, match=words):
        check(build(case), _imagined(case.layout), case.settings, sequence=8, precision=case.precision)


def test_a_model_of_no_parts_is_refused() -> None:
    with pytest.raises(MeshError, match="tp 2: Linear can't be cut into tp or pp parts"):
        check(nn.Linear(2, 2), _imagined({"tp": 2}), S())
    with pytest.raises(MeshError, match=r"parallel\.checkpointing is full, but Linear has no `blocks`"):
        check(nn.Linear(2, 2), _imagined({}), S(checkpointing="full"))
    with pytest.raises(MeshError, match="precision is fp8, but Linear has no `blocks` with linear layers"):
        check(nn.Linear(2, 2), _imagined({}), S(), precision=Precision("float8"))


def test_compiled_blocks_take_no_styles_of_dtensors(monkeypatch: pytest.MonkeyPatch) -> None:
    model, mesh = build(Case("")), _imagined({"fsdp": 2, "tp": 2})
    plan = model.tensor_plan(False) | {"blocks.1.ffn.up": ColwiseParallel()}
    check(model, mesh, S(compile=True))
    monkeypatch.setattr(model, "tensor_plan", lambda sequence: plan)
    check(model, mesh, S())
    with pytest.raises(MeshError, match=r"fsdp 2 x tp 2 and blocks\.1\.ffn\.up is split by ColwiseParallel"):
        check(model, mesh, S(compile=True))


def test_devices_without_8_bits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100-SXM4-80GB")
    mesh = replace(_imagined({}), device=torch.device("cuda", 0))
    for has, refused in (((8, 0), True), ((8, 9), False), ((9, 0), False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, has=has: has)
        if not refused:
            check(build(Case("")), mesh, S(), precision=Precision("float8"))
            continue
        with pytest.raises(MeshError, match=r"A100-SXM4-80GB has compute capability 8\.0, and 8\.9 is needed"):
            check(build(Case("")), mesh, S(), precision=Precision("float8"))


def test_too_few_blocks_and_micro_batches_are_refused() -> None:
    with pytest.raises(MeshError, match="pp 4 x 2 stages a process = 8 stages, but the model has 4 blocks"):
        spans(4, _imagined({"pp": 4}), S(schedule="interleaved"))
    with pytest.raises(
        MeshError, match="pp 4 with schedule 1f1b needs 4 micro-batches a step or more, but there are 2"
    ):
        check_micros(2, _imagined({"pp": 4}), S())
    with pytest.raises(MeshError, match="takes 2 rounds for 5 micro-batches a step"):
        check_micros(5, _imagined({"pp": 2}), S(schedule="interleaved"))
    check_micros(2, _imagined({"pp": 4}), S(schedule="gpipe"))


def test_a_step_of_nothing_is_refused() -> None:
    prepared = prepare(Case(""), make_mesh(Layout(), "cpu"))
    with pytest.raises(MeshError, match="one micro-batch or more, but there are none"):
        prepared.forward_backward([], loss_sum, 1)


def test_a_model_without_memory_needs_weights() -> None:
    with torch.device("meta"):
        model = build(Case(""))
    with pytest.raises(MeshError, match="on the meta device, so `initialise` must fill its weights"):
        parallelize(model, make_mesh(Layout(), "cpu"))


def test_stages_share_the_blocks_evenly() -> None:
    places = [replace(_imagined({"pp": 2}), place={"pp": rank}) for rank in (0, 1)]
    found = [[(s.index, s.first, s.end) for s in spans(6, place, S(schedule="interleaved"))] for place in places]
    assert found == [[(0, 0, 2), (2, 4, 5)], [(1, 2, 4), (3, 5, 6)]]


def uneven() -> str:
    prepared = prepare(Case("", {"tp": 2}, S(sequence=True)), make_mesh(Layout(tp=2), "cpu"))
    odd = Micro((torch.zeros(2, 7, dtype=torch.int64),), torch.zeros(2, 7, dtype=torch.int64))
    with pytest.raises(MeshError) as caught:
        prepared.forward_backward([odd], loss_sum, 14)
    return str(caught.value)


def ragged() -> str:
    prepared = prepare(Case("", {"pp": 2}, micros=2), make_mesh(Layout(pp=2), "cpu"))
    micros = [Micro((torch.zeros(rows, 8, dtype=torch.int64),), None) for rows in (2, 1)]
    with pytest.raises(MeshError) as caught:
        prepared.forward_backward(micros, loss_sum, 24)
    return str(caught.value)


class Plain(nn.Module):
    """A user's model that knows nothing of ours. The running mean is a buffer that is saved."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) * self.scale


def users_model() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("dp", "fsdp"):
        torch.manual_seed(1)
        mesh = make_mesh(Layout.parse({name: 2}), "cpu")
        prepared = parallelize(Plain(), mesh)
        data, targets = torch.randn(8, 6), torch.arange(8) % 3
        rows = slice(mesh.data_rank * 4, mesh.data_rank * 4 + 4)
        loss = prepared.forward_backward([Micro((data[rows],), targets[rows])], loss_sum, 8)
        found[name] = (float(loss), float(measure(prepared.parts, mesh, None)[0]), sorted(state_dicts(prepared)[0]))
    return found


def steps_of_other_shapes() -> bool:
    """A pipeline meets micro-batches of other numbers and shapes, and goes back to the first."""
    case = Case("", {"pp": 2}, micros=2)
    mesh = make_mesh(Layout(pp=2), "cpu")
    prepared = prepare(case, mesh)
    losses = []
    for rows, micros in ((8, 2), (8, 4), (4, 2), (8, 2)):
        tokens = torch.arange(rows * 8).view(rows, 8) % LLAMA.vocab
        prepared.parts[0].zero_grad()
        several = [Micro((a,), b) for a, b in zip(tokens.chunk(micros), tokens.chunk(micros), strict=True)]
        losses.append(float(prepared.forward_backward(several, loss_sum, rows * 8)))
    assert share(case, mesh, torch.zeros(16, 8), torch.zeros(16, 8))
    return losses[0] == losses[3] and abs(losses[0] - losses[1]) < 1e-5


def in_pairs() -> dict[str, Any]:
    return {
        "uneven": uneven(),
        "ragged": ragged(),
        "user": users_model(),
        "shapes": steps_of_other_shapes(),
    }


def test_in_a_gang() -> None:
    first, second = gang(2, in_pairs)
    assert first == second
    assert first["uneven"] == "parallel.sequence: sequences of 7 tokens don't divide by tp 2."
    assert "micro-batches of one shape are needed" in first["ragged"]
    assert first["shapes"]
    torch.manual_seed(1)
    model = Plain()
    loss = loss_sum(model(torch.randn(8, 6)), torch.arange(8) % 3) / 8
    loss.backward()
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), float("inf")))
    names = ["layers.0.bias", "layers.0.weight", "layers.2.bias", "layers.2.weight", "scale"]
    for name in ("dp", "fsdp"):
        found = first["user"][name]
        assert found[:2] == (pytest.approx(float(loss.detach())), pytest.approx(norm))
        assert found[2] == names


def _imagined(layout: dict[str, int]) -> Mesh:
    """A mesh of processes that don't exist, as a check before the launch has it."""
    return Mesh(Layout.parse(layout), torch.device("cpu"), None, dict.fromkeys(DIMS, 0))
