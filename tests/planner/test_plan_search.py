"""Predictions: the facts of an H200, which layouts fit, and what the answer is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.planner.catalogue import BUILT_IN, GIB, chosen, computes, find, read_catalogue
from muster.planner.compare import compared, corrected, factors
from muster.planner.memory import peak
from muster.planner.search import layouts, lightest, predict, search
from muster.planner.setups import Layout, Setup, read_setup, setup_of
from muster.planner.shapes import SHAPES, PlanError, shape_of_hub, shape_of_model

ONE = Layout()
H200 = BUILT_IN["H200"]
MODEL = Setup(SHAPES["llama-886m"], 4_096, 8, compute="bfloat16", compile=True)
DEVICES = list(BUILT_IN.values())


@pytest.mark.parametrize(
    ("changes", "rate", "gib"),
    [
        ({}, 92_441, 46),
        ({"narrow_stream": False, "fused_loss": False}, 88_320, 56),
        ({"narrow_stream": False, "compile": False}, 69_350, 69),
        ({"compute": "fp8"}, 112_765, 35),
    ],
)
def test_the_measured_steps_of_an_h200_are_predicted(changes: dict[str, Any], rate: float, gib: float) -> None:
    found = predict(replace(MODEL, **changes), ONE, H200)
    assert found.step.rate == pytest.approx(rate, rel=0.03)
    assert found.memory.allocated / GIB == pytest.approx(gib, rel=0.02)


def test_attention_takes_what_was_measured() -> None:
    """With `exact` it has a backward pass of its own, and memory for that; for lengths that it does not take, flash."""
    attention = predict(MODEL, ONE, H200).step.attention / 16
    assert attention == pytest.approx((1.006 + 3.158) / 1e3, rel=0.03)
    exact = predict(replace(MODEL, exact=True), ONE, H200)
    assert exact.step.attention / 16 == pytest.approx((1.006 + 3.158 * 3.3 / 2.886) / 1e3, rel=0.03)
    assert exact.memory.allocated - predict(MODEL, ONE, H200).memory.allocated == 8 * 16 * 4096**2 * 2
    odd = replace(MODEL, sequence=4000)
    flash = predict(replace(odd, exact=True), ONE, H200).step.attention
    assert flash == pytest.approx(2 * predict(odd, ONE, H200).step.attention)


def test_a_vocabulary_that_is_no_multiple_of_64_slows_the_step_where_the_head_is_not_padded() -> None:
    slower = {}
    for compute in ("bfloat16", "float32"):
        odd = Setup(SHAPES["gpt2"], 1_024, 32, compute=compute, compile=True)
        even = replace(odd, model=replace(SHAPES["gpt2"], vocab=50_304))
        slower[compute] = predict(odd, ONE, H200).step.seconds / predict(even, ONE, H200).step.seconds
    assert slower["bfloat16"] == pytest.approx(1, abs=0.01)
    assert slower["float32"] > 1.05


setups = st.builds(
    lambda name, batch, compute, recompute, compiled: Setup(
        SHAPES[name], 1_024, batch, compute=compute, recompute=recompute, compile=compiled
    ),
    st.sampled_from(["gpt2", "gpt2-xl", "llama-886m", "llama-2-7b", "llama-3.1-8b"]),
    st.sampled_from([1, 2, 8, 24, 64]), st.sampled_from(["float32", "bfloat16", "float16"]),
    st.sampled_from(["none", "selective", "full"]), st.booleans(),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(setups, st.sampled_from([2, 4, 8]))
def test_sharding_recomputing_and_smaller_batches_never_need_more(setup: Setup, count: int) -> None:
    setup = replace(setup, batch=setup.batch * count)
    replicas, shards = peak(setup, Layout(dp=count)), peak(setup, Layout(fsdp=count))
    assert shards.optimizer * count == pytest.approx(replicas.optimizer)
    half = peak(replace(setup, micro_batch=max(1, setup.batch // count // 2)), Layout(dp=count))
    assert half.activations + half.loss <= replicas.activations + replicas.loss or half.allocated <= replicas.allocated
    full = peak(replace(setup, recompute="full"), Layout(dp=count))
    assert full.allocated <= peak(replace(setup, recompute="none"), Layout(dp=count)).allocated
    assert all(size >= 0 for size in (*replicas.parts().values(), *shards.parts().values()))


@settings(max_examples=25, deadline=None)
@given(setups, st.sampled_from(DEVICES), st.sampled_from([1, 2, 8, 16]))
def test_every_option_fits_and_every_refusal_says_why(setup: Setup, device: Any, count: int) -> None:
    found = search(setup, [device], [count], 1e9)
    assert len(found.options) + len(found.refused) == len(list(layouts(count, setup, device)))
    assert all(each.memory.total <= device.memory and each.layout.devices == count for each in found.options)
    assert all(
        each.why.endswith(".") and (each.why[0].isupper() or each.why[0] in "`123456789") for each in found.refused
    )
    assert (found.simplest is not None) == bool(found.options)


def test_the_answer_is_the_simplest_within_the_limits() -> None:
    setup = replace(MODEL, batch=64)
    free = search(setup, DEVICES, [1, 2, 4, 8], 20e9)
    assert free.simplest is not None
    assert free.simplest.layout == ONE
    soon = search(setup, [H200], [1, 2, 4, 8], 20e9, deadline=86_400)
    assert soon.simplest is not None
    assert soon.simplest.seconds <= 86_400
    assert soon.simplest.layout.devices > 1
    assert search(setup, [H200], [1, 2], 20e9, budget=1).simplest is None
    assert free.cheapest is not None
    assert free.cheapest.cost == min(each.cost for each in free.options)


def test_a_cheaper_card_is_named_with_what_lets_it_do() -> None:
    setup = Setup(SHAPES["llama-2-7b"], 2_048, 8, compute="bfloat16", compile=True)
    found = search(setup, chosen("L4,H200", BUILT_IN), [1], 1e9)
    assert [each.device.name for each in found.options] == ["H200"]
    (told,) = found.cheaper
    assert told.startswith("L4: 1 do with one device")
    assert "LoRA 16, which trains adapters and not the model" in told
    assert any(each.why.startswith("It needs") and each.device == "L4" for each in found.refused)


def test_adding_devices_stops_paying_where_the_network_is_slow() -> None:
    setup = Setup(SHAPES["gpt2-xl"], 1_024, 64, compute="bfloat16", compile=True)
    slow = replace(BUILT_IN["A100-80GB"], network=0.2)
    assert search(setup, [slow], [1, 2, 4, 8, 16, 32, 64], 1e9).stops["A100-80GB"].startswith("beyond 8: 16 take")


def test_devices_without_bfloat16_compute_in_float16_and_none_without_fp8_in_fp8() -> None:
    assert computes(BUILT_IN["T4"], MODEL).compute == "float16"
    refused = search(replace(MODEL, compute="fp8"), [BUILT_IN["A100-40GB"]], [1], 1e9).refused
    assert [each.why for each in refused] == ["A100-40GB does not compute in fp8."]
    assert lightest(MODEL, ONE, H200, 1e9).setup.recompute == "none"


@pytest.mark.parametrize(
    ("asked", "name"),
    [("A100", "A100-40GB"), ("NVIDIA H200", "H200"), ("h100-sxm5-80gb", "H100"), ("A100-SXM4-80GB", "A100-80GB"),
     ("nvidia-l4", "L4"), ("Tesla T4", "T4"), ("L40S", None), ("GPU", None), ("", None)],
)  # fmt: skip
def test_devices_are_found_by_the_names_that_nodes_have(asked: str, name: str | None) -> None:
    found = find(asked)
    assert (found.name if found else None) == name


def test_a_catalogue_changes_devices_and_adds_some(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("H200: {price: 4.2}\nMI300X: {like: H200, memory_gib: 191.5}\n")
    made = read_catalogue(path)
    assert (made["H200"].price, made["MI300X"].memory_gib, made["MI300X"].bandwidth) == (4.2, 191.5, 4_800)
    for wrong, told in {
        "X: {price: 1}": "needs `like`", "H200: {prize: 1}": "'prize'", "H200: {price: -1}": "a number from 0",
        "H200: 3": "a mapping",
    }.items():  # fmt: skip
        path.write_text(wrong)
        with pytest.raises(PlanError, match=told):
            read_catalogue(path)
    with pytest.raises(PlanError, match="Did you mean H200"):
        chosen("H20O", BUILT_IN)


def test_hugging_face_configurations_are_read() -> None:
    llama = {
        "model_type": "llama", "vocab_size": 32_000, "hidden_size": 2_048, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 5_632,
        "max_position_embeddings": 4_096,
    }  # fmt: skip
    assert shape_of_hub(llama) == SHAPES["llama-886m"]
    gpt = {"model_type": "gpt2", "vocab_size": 50_257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1_024}
    assert shape_of_hub(gpt) == SHAPES["gpt2"]
    mixtral = {
        **llama, "model_type": "mixtral", "hidden_size": 4_096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "intermediate_size": 14_336, "num_local_experts": 8, "num_experts_per_tok": 2,
    }  # fmt: skip
    assert shape_of_hub(mixtral).parameters == pytest.approx(46.7e9, rel=0.001)  # as its authors say
    qwen = {**llama, "model_type": "qwen2"}
    assert shape_of_hub(qwen).parameters == SHAPES["llama-886m"].parameters + 16 * (2_048 + 2 * 1_024)
    with pytest.raises(PlanError, match="expected gpt2"):
        shape_of_hub({"model_type": "mamba"})
    with pytest.raises(PlanError, match="has no 'vocab_size'"):
        shape_of_hub({"model_type": "llama"})


@pytest.mark.parametrize(
    ("text", "told"),
    [("[1]", "expected a mapping"), ("model: {shape: gpt3}", "expected one of"), ("model: {dim: 4}", "lacks"),
     ("model: {shape: gpt2}\ndata: {batch: 0}", "data.batch"), ("model: {shape: gpt2}\nprecision: fp4", "precision"),
     ("a: &x [1]\nb: *x", "aliases"), ("a: [", "can't be read"), ("task: mine:Task", "--task"),
     ("model: {shape: gpt2}\nparallel: {checkpointing: some}", "checkpointing"),
     ("model: {shape: gpt2}\nmesh: 3", "`mesh`")],
)  # fmt: skip
def test_mistakes_in_a_configuration_are_told(text: str, told: str) -> None:
    with pytest.raises(PlanError, match=told):
        read_setup(text, ".yaml")


def test_a_mesh_fills_the_devices() -> None:
    setup = setup_of({"model": {"shape": "gpt2"}, "mesh": {"dp": "auto", "tp": 2}, "data": {"batch": 8}})
    assert setup.layout(8) == Layout(dp=4, tp=2)
    assert setup_of({"model": {"shape": "gpt2"}}).layout(4) == Layout(dp=4)
    with pytest.raises(PlanError, match="does not fill"):
        setup.layout(3)
    assert shape_of_model({"shape": "gpt2", "layers": 6}).layers == 6


def test_runs_are_compared_with_what_is_predicted_of_them_and_correct_it() -> None:
    params = {"task": "language", "model.shape": "llama-886m", "data.batch": "8", "precision.compute": "bfloat16",
              "parallel.compile": "true", "world_size": "1", "mesh.dp": "-1"}  # fmt: skip
    found = [
        compared("r-1", params, {"step_s": seconds, "memory": 46 * GIB}, "H200", BUILT_IN)
        for seconds in (0.35, 0.4, 0.7)
    ]
    past = [each for each in found if each is not None]
    assert len(past) == 3
    assert past[0].measured_gib == pytest.approx(past[0].predicted_gib, rel=0.02)
    by_device = factors(past)
    assert by_device == {"H200": pytest.approx(0.4 / past[0].predicted_s)}
    now = predict(MODEL, ONE, corrected(BUILT_IN, by_device)["H200"])
    assert now.step.seconds == pytest.approx(0.4)
    assert compared("r-2", {"task": "mine:Task", "world_size": "1"}, {}, "H200", BUILT_IN) is None
    assert compared("r-3", params, {}, "GPU", BUILT_IN) is None
