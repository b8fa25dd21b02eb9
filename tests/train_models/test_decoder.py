"""The decoder alone: shapes, causality, initial weights, ties, types, compilation, and its refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from muster.train.config import read_config
from muster.train.errors import ConfigError, MeshError
from muster.train.models import SHAPES, Decoder, DecoderConfig, initialise, shape
from muster.train.models.layers import Rope, RopeScaling, norm
from muster.train.models.parts import divisible
from muster.train.task import make
from muster.train.tasks.language import Language

LLAMA = DecoderConfig(vocab=61, dim=32, layers=2, heads=4, kv_heads=2, ffn=48, context=16)
GPT2 = replace(
    LLAMA, kv_heads=4, norm="layer", activation="gelu", positions="learned", bias=True, tied=True, eps=1e-6
)  # fmt: skip
BOTH = pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])


def built(config, seed=3):
    model = Decoder(config)
    initialise(model, seed)
    return model


def tokens(rows=2, seq=16):
    return torch.randint(0, 61, (rows, seq), generator=torch.Generator().manual_seed(1))


@BOTH
def test_no_token_sees_a_later_one(config):
    model, given = built(config), tokens()
    changed = given.clone()
    changed[:, 9] = (changed[:, 9] + 1) % 61
    before, after = model(given), model(changed)
    assert before.shape == (2, 16, 61)
    torch.testing.assert_close(before[:, :9], after[:, :9])
    assert (before[:, 9:] - after[:, 9:]).abs().amax(-1).min() > 1e-5


@BOTH
def test_the_order_of_earlier_tokens_matters(config):
    model, given = built(config), tokens()
    swapped = given.clone()
    swapped[:, [2, 5]] = given[:, [5, 2]]
    assert (model(given)[:, -1] - model(swapped)[:, -1]).abs().max() > 1e-6


def test_rotary_attention_depends_on_distance_alone():
    rope = Rope(8, 64, 10_000.0, None)
    q, k = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(2)).expand(2, 1, 64, 1, 8)
    scores = torch.einsum("bqhd,bkhd->qk", rope(q), rope(k))
    for distance in (0, 1, 17):
        diagonal = scores.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-5)
    assert scores[0, 0] != pytest.approx(scores[17, 0].item(), abs=1e-3)


def test_rotary_positions_follow_what_they_turn():
    rope = Rope(8, 64, 10_000.0, None)
    assert rope(torch.empty(1, 4, 2, 8, device="meta")).device.type == "meta"
    assert torch.equal(rope(torch.ones(1, 4, 2, 8)), Rope(8, 64, 10_000.0, None)(torch.ones(1, 4, 2, 8)))


def test_stretched_rotary_positions_leave_short_waves_alone():
    plain = Rope(32, 8, 500_000.0, None)
    stretched = Rope(32, 8, 500_000.0, RopeScaling(8.0, 1.0, 4.0, 64))
    torch.testing.assert_close(stretched.table[..., 0], plain.table[..., 0])  # shortest wave: 2 pi tokens
    slow, slower = plain.table[1, :, -1].asin(), stretched.table[1, :, -1].asin()
    torch.testing.assert_close(slower, slow / 8.0)


@BOTH
def test_it_learns(config):
    model, given = built(config), tokens(4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = F.cross_entropy(model(given[:, :-1]).flatten(0, 1), given[:, 1:].flatten())
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[0] == pytest.approx(torch.tensor(61.0).log().item(), rel=0.05)
    assert losses[-1] < 0.3 * losses[0]


@BOTH
def test_a_model_from_meta_equals_one_made_in_place(config):
    with torch.device("meta"):
        model = Decoder(config)
    with pytest.raises(ValueError, match=r"embed.weight has no storage: call model.to_empty"):
        initialise(model, 3)
    model.to_empty(device="cpu")
    initialise(model, 3)
    expected = built(config)
    assert torch.equal(model(tokens()), expected(tokens()))
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in expected.named_parameters()]


def test_initial_weights_depend_on_seed_and_name_alone():
    ours, deeper, other = built(LLAMA), built(replace(LLAMA, layers=5)), built(LLAMA, seed=4)
    q = ours.blocks["1"].attention.q.weight
    assert torch.equal(q, deeper.blocks["1"].attention.q.weight)
    assert not torch.equal(q, other.blocks["1"].attention.q.weight)
    assert not torch.equal(q, ours.blocks["0"].attention.q.weight)
    assert q.std().item() == pytest.approx(0.02, rel=0.1)
    assert ours.blocks["1"].attention.out.weight.std().item() == pytest.approx(0.02 / 2, rel=0.1)
    assert torch.equal(ours.norm.weight, torch.ones(32))


def test_any_module_can_be_initialised():
    model = nn.Sequential(nn.Linear(400, 50), nn.LayerNorm(50))
    initialise(model, 1)
    first, again = model[0].weight.clone(), nn.Sequential(nn.Linear(400, 50), nn.LayerNorm(50))
    initialise(again, 1)
    assert torch.equal(first, again[0].weight)
    assert first.std().item() == pytest.approx(1 / 20, rel=0.05)
    assert torch.equal(model[0].bias, torch.zeros(50))
    assert torch.equal(model[1].weight, torch.ones(50))


def test_a_tied_head_stays_tied_through_moves():
    with torch.device("meta"):
        model = Decoder(GPT2)
    assert model.to_empty(device="cpu").to(torch.bfloat16).head.weight is model.embed.weight
    assert "head.weight" not in dict(model.named_parameters())


def test_bfloat16_weights_keep_exact_positions():
    model = built(LLAMA).to(torch.bfloat16)
    logits = model(tokens())
    assert logits.dtype == torch.bfloat16
    assert model.blocks["0"].attention.rope.table.dtype == torch.float32
    torch.testing.assert_close(logits.float(), built(LLAMA)(tokens()), rtol=0.05, atol=0.02)


@BOTH
def test_autocast_computes_products_in_bfloat16(config):
    model = built(config)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(tokens())
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), model(tokens()), rtol=0.05, atol=0.02)


@BOTH
def test_the_stream_is_bfloat16_under_autocast_to_it_alone(config):
    seen = {}
    for given in (torch.bfloat16, torch.float16, None):
        model, types = built(config), []
        for block in model.blocks.values():
            block.register_forward_hook(lambda _, __, output, types=types: types.append(output.dtype))
            block.ffn_norm.register_forward_hook(lambda _, __, output, types=types: types.append(output.dtype))
        with torch.autocast("cpu", given, enabled=given is not None):
            model(tokens())
        seen[given] = set(types)
    assert seen == {torch.bfloat16: {torch.bfloat16}, torch.float16: {torch.float32}, None: {torch.float32}}


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norms_compute_in_float32_under_autocast_and_as_torch_does_without(kind):
    ours = norm(replace(GPT2, norm=kind).block)
    theirs = (nn.RMSNorm(32, eps=1e-6) if kind == "rms" else nn.LayerNorm(32, eps=1e-6)).requires_grad_(False)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for mine, same in zip(ours.parameters(), theirs.parameters(), strict=True):
            same.copy_(mine.copy_(torch.randn(32, generator=draw)))
    x = 3 * torch.randn(4, 7, 32, generator=draw)
    assert torch.equal(ours(x), theirs(x))
    assert ours.to("meta")(x.to("meta")).shape == x.shape
    ours.to_empty(device="cpu").load_state_dict(theirs.state_dict())
    half = x.bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found, wide = ours(half), ours(x)
    assert torch.equal(found, theirs(half.float()).bfloat16())
    assert torch.equal(wide, theirs(x))


@BOTH
def test_it_compiles_as_one_graph_under_autocast(config):
    torch._dynamo.reset()
    model, given = built(config), tokens()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    found = []
    for run in (compiled, model):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            logits = run(given)
        logits.float().square().sum().backward()
        found.append((logits, model.embed.weight.grad, model.norm.weight.grad))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.02)


@BOTH
def test_it_compiles_as_one_graph(config):
    torch._dynamo.reset()
    model = built(config)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    given = tokens()
    logits = compiled(given)
    logits.sum().backward()
    gradient = model.embed.weight.grad.clone()
    model.zero_grad()
    expected = model(given)
    expected.sum().backward()
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(gradient, model.embed.weight.grad)


@pytest.mark.filterwarnings("ignore")  # the compiler's own: of what it imports, and of gradients that it looks for
def test_the_compiled_loss_is_the_loss():
    torch._dynamo.reset()
    draw = torch.Generator().manual_seed(4)
    logits = (3 * torch.randn(2, 8, 61, generator=draw)).bfloat16()
    targets = torch.randint(0, 61, (2, 8), generator=draw)
    targets[1, 3:] = -100
    found = []
    for compiled in (False, True):
        given = {"shape": "tiny-llama", "sequence": 8}
        config = read_config({"task": "language", "steps": 1, "model": given, "parallel": {"compile": compiled}})
        task, leaf = make(config, []), logits.clone().requires_grad_()
        assert isinstance(task, Language)
        with torch.autocast("cpu", torch.bfloat16):
            loss = task.loss(leaf, {"targets": targets})
        loss.backward()
        found.append((loss, leaf.grad, hasattr(task._entropy, "_torchdynamo_orig_callable")))
    (plain, slope, off), (ours, our_slope, on) = found
    assert (off, on) == (False, True)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(our_slope, slope, rtol=1e-2, atol=1e-5)
    expected = F.cross_entropy(logits[targets != -100].float(), targets[targets != -100], reduction="sum")
    torch.testing.assert_close(ours, expected)


def test_dropout_works_in_training_alone():
    model = built(replace(GPT2, dropout=0.5))
    given = tokens()
    assert not torch.equal(model(given), model(given))
    model.eval()
    assert torch.equal(model(given), model(given))
    assert torch.equal(model(given), built(GPT2)(given))


@pytest.mark.parametrize("name", [name for name, config in SHAPES.items() if config.parameters < 1e10])
def test_counts_of_parameters_are_those_of_the_model(name):
    with torch.device("meta"):
        model = Decoder(SHAPES[name])
    assert divisible(model) is model
    assert sum(parameter.numel() for parameter in model.parameters()) == SHAPES[name].parameters


def test_known_sizes():
    sizes = {name: round(config.parameters / 1e6) for name, config in SHAPES.items()}
    assert (sizes["gpt2"], sizes["gpt2-xl"], sizes["llama-886m"]) == (124, 1558, 886)
    assert (sizes["llama-2-7b"], sizes["llama-3.2-1b"], sizes["llama-3.1-8b"]) == (6738, 1236, 8030)


def test_operations_follow_the_stated_formula():
    config = shape("llama-886m")
    with torch.device("meta"):
        model = Decoder(config)
    weights = config.parameters - config.vocab * config.dim
    expected = 6 * weights + 6 * 16 * 4096 * 2048
    assert model.flops_per_token(4096) == expected
    model.stage(4, 8, False, False)
    assert model.flops_per_token(4096) == expected
    with torch.device("meta"):
        tied, untied = Decoder(GPT2), Decoder(replace(GPT2, tied=False))
    assert tied.flops_per_token(16) == untied.flops_per_token(16)


def test_a_sequence_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="17 tokens in a sequence; the model takes 16 at most"):
        built(LLAMA)(tokens(seq=17))


def test_a_shape_with_mistakes_names_them_all():
    with pytest.raises(ConfigError) as caught:
        Decoder(replace(LLAMA, heads=5, kv_heads=3, vocab=0, dropout=1.5))
    assert [problem.where for problem in caught.value.problems] == ["heads", "kv_heads", "dropout", "vocab"]
    with pytest.raises(ConfigError, match="even width"):
        Decoder(replace(LLAMA, dim=12, heads=4))
    with pytest.raises(ConfigError, match="Did you mean llama-886m"):
        shape("lama-886m")


def test_splits_that_cannot_be_are_refused_with_the_numbers():
    model = Decoder(replace(GPT2, layers=2, dropout=0.1))
    with pytest.raises(MeshError) as caught:
        model.check(tp=5, pp=3, sequence=16)
    for part in (
        "4 heads don't divide by tp 5",
        "4 KV heads",
        "48 FFN columns",
        "dropout 0.1",
        "2 layers can't make pp 3",
    ):
        assert part in str(caught.value)
    for part in ("tied head", "16 tokens don't divide by tp 5"):
        assert part in str(caught.value)
    Decoder(LLAMA).check(tp=2, pp=2, sequence=16)
    with pytest.raises(MeshError, match="2 KV heads don't divide by tp 4"):
        Decoder(LLAMA).check(tp=4)
    with pytest.raises(MeshError, match="tp 0"):
        Decoder(LLAMA).check(tp=0)
    with pytest.raises(MeshError, match="blocks 1 to 2 was asked of a model with blocks 0 to 1"):
        Decoder(LLAMA).stage(1, 3, False, True)


def test_a_stage_keeps_the_names_of_the_whole():
    whole = dict(built(LLAMA).named_parameters())
    first, last = Decoder(LLAMA), Decoder(LLAMA)
    first.stage(0, 1, True, False)
    last.stage(1, 2, False, True)
    for stage in (first, last):
        initialise(stage, 3)
        assert all(torch.equal(parameter, whole[name]) for name, parameter in stage.named_parameters())
    assert {*dict(first.named_parameters()), *dict(last.named_parameters())} == set(whole)
    assert set(first.tensor_plan(False)).isdisjoint(last.tensor_plan(False))
    assert torch.equal(last(first(tokens())), built(LLAMA)(tokens()))
