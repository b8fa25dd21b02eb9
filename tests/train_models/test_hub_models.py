"""Weights go to and from transformers: the same logits from the same folder, for GPT-2 and Llama."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from muster.train.errors import ModelFileError
from muster.train.models import Decoder, DecoderConfig, initialise, safetensors
from muster.train.models.hub import load_hub, save_hub, write_hub
from muster.train.models.layers import RopeScaling

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 5_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}
SIZES = {
    "vocab_size": 67,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
    "initializer_range": 0.2,
}
OURS = DecoderConfig(vocab=67, dim=32, layers=3, heads=4, kv_heads=2, ffn=48, context=32)
GPT2 = replace(
    OURS, kv_heads=4, norm="layer", activation="gelu", positions="learned", bias=True, tied=True
)  # fmt: skip


def hub():
    """Takes seconds: not in every process that collects the tests."""
    import transformers  # noqa: PLC0415

    return transformers


def gpt2(**more):
    sizes = {"vocab_size": 67, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 32, "initializer_range": 0.2}
    return stirred(hub().GPT2LMHeadModel(hub().GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, **more)))


def llama(**more):
    return stirred(hub().LlamaForCausalLM(hub().LlamaConfig(**(SIZES | more))))


def stirred(model):
    """No norm at one and no bias at zero, so that a name mixed up shows."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def tokens():
    return torch.randint(0, 67, (3, 32), generator=torch.Generator().manual_seed(6))


def same_logits(ours, theirs):
    with torch.no_grad():
        expected = theirs(tokens()).logits
        assert expected.std() > 0.3  # as wide as this, and with weights mixed up they would differ
        torch.testing.assert_close(ours.eval()(tokens()), expected, rtol=1e-4, atol=1e-5)


CASES = {
    "gpt2": lambda: gpt2(),
    "gpt2 with a narrow FFN, untied": lambda: gpt2(n_inner=40, tie_word_embeddings=False, layer_norm_epsilon=1e-3),
    "llama": lambda: llama(),
    "llama, tied, with biases": lambda: llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    "llama 3": lambda: llama(rope_parameters=LLAMA3_ROPE, rms_norm_eps=1e-3),
    "llama without groups": lambda: llama(
        num_key_value_heads=4, rope_parameters={"rope_theta": 50.0, "rope_type": "default"}
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_their_weights_give_their_logits_and_come_back(case, tmp_path):
    theirs = CASES[case]()
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="30KB")
    config, state = load_hub(tmp_path / "theirs")
    ours = Decoder(config)
    ours.load_state_dict(state)
    same_logits(ours, theirs)
    save_hub(ours, tmp_path / "ours")
    back, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values())
    same_logits(ours, back.eval())
    expected = theirs.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in back.state_dict().items())


@pytest.mark.parametrize(
    "config",
    [
        GPT2,
        replace(OURS, tied=True),
        replace(OURS, rope_theta=7_000.0, rope_scaling=RopeScaling(4.0, 1.0, 4.0, 16)),
    ],
    ids=["gpt2", "llama", "llama 3"],
)
def test_ours_load_there_and_here(config, tmp_path):
    model = Decoder(config)
    initialise(model, 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 10 if parameter.dim() == 2 else 1
    state = dict(model.named_parameters())  # a tied head is not among them
    write_hub(config, state, tmp_path, limit=20_000)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    same_logits(model, hub().AutoModelForCausalLM.from_pretrained(tmp_path).eval())
    again, state = load_hub(tmp_path)
    assert again == config
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_half_precision_stays_what_it_is(tmp_path):
    model = Decoder(OURS).to(torch.bfloat16)
    save_hub(model, tmp_path)
    config, state = load_hub(tmp_path)
    assert {tensor.dtype for tensor in state.values()} == {torch.bfloat16}
    assert hub().AutoModelForCausalLM.from_pretrained(tmp_path).dtype == torch.bfloat16
    assert config == OURS


def test_the_first_files_of_gpt2_load_too(tmp_path):
    """No `transformer.` before the names, and masks among the weights, as in the files that came out in 2019."""
    theirs = gpt2()
    theirs.save_pretrained(tmp_path)
    from_new, expected = load_hub(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    old = {
        name.removeprefix("transformer."): tensor
        for name, tensor in theirs.state_dict().items()
        if name != "lm_head.weight"
    }
    old |= {f"h.{layer}.attn.bias": torch.ones(1, 1, 32, 32) for layer in range(3)}
    write_old(tmp_path / "old", raw, old)
    config, state = load_hub(tmp_path / "old")
    assert config == from_new
    assert set(state) == set(expected)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in state.items())


def test_older_llama_configs_say_rope_otherwise(tmp_path):
    llama(rope_parameters=LLAMA3_ROPE).save_pretrained(tmp_path)
    expected, _ = load_hub(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    rope = raw.pop("rope_parameters")
    raw["rope_theta"] = rope.pop("rope_theta")
    raw["rope_scaling"] = rope
    (tmp_path / "config.json").write_text(json.dumps(raw))
    assert load_hub(tmp_path)[0] == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "mamba"}, "model_type is 'mamba'; gpt2 and llama can be loaded"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu', expected 'silu'"),
        ({"mlp_bias": True}, "mlp_bias is True, expected False"),
        ({"head_dim": 16}, "head_dim is 16, expected 8"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn', expected default or llama3"),
        ({"num_attention_heads": 5}, "head_dim is 8, expected 6"),
        ({"num_key_value_heads": 3}, "kv_heads: got 3, expected a divisor of heads 4"),
        ({"intermediate_size": "48"}, "config.json"),
        ({"intermediate_size": 50}, r"blocks.0.ffn.gate.weight has shape \(48, 32\), expected \(50, 32\).*more"),
        ({"num_hidden_layers": 4}, "blocks.3.* is missing"),
        ({"num_hidden_layers": 2}, "blocks.2.* is not known"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(change, said, tmp_path):
    save_hub(Decoder(OURS), tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw | change))
    with pytest.raises(ModelFileError, match=said):
        load_hub(tmp_path)


def test_folders_without_what_is_needed_are_refused(tmp_path):
    with pytest.raises(ModelFileError, match=r"config.json cannot be read: No such file"):
        load_hub(tmp_path)
    save_hub(Decoder(OURS), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"has no model.safetensors"):
        load_hub(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    del raw["hidden_size"]
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ModelFileError, match="hidden_size is missing"):
        load_hub(tmp_path)


def test_a_stage_or_a_mixed_shape_is_not_saved(tmp_path):
    stage = Decoder(OURS)
    stage.stage(0, 2, True, False)
    with pytest.raises(ModelFileError, match=r"blocks.2.*is missing"):
        save_hub(stage, tmp_path)
    with pytest.raises(ModelFileError, match="neither GPT-2's nor Llama's: norm is 'layer', not 'rms'"):
        save_hub(Decoder(replace(OURS, norm="layer")), tmp_path)
    assert not list(tmp_path.iterdir())


def write_old(folder, config, tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.write(folder / "model.safetensors", tensors)
