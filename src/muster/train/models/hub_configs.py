"""Converts a decoder's shape from and to the config.json of GPT-2 and Llama."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from muster.train.errors import ModelFileError
from muster.train.models.decoder import DecoderConfig
from muster.train.models.layers import RopeScaling

_TANH_GELU: Final = ("gelu_new", "gelu_pytorch_tanh")  # two names of one function


def read_gpt2(raw: Mapping[str, Any]) -> DecoderConfig:
    """Raises ValueError for what the decoder does not do, KeyError for a field that is missing."""
    _expect(raw, "activation_function", _TANH_GELU, "gelu_new")
    _expect(raw, "scale_attn_weights", (True,), True)
    _expect(raw, "scale_attn_by_inverse_layer_idx", (False,), False)
    _expect(raw, "add_cross_attention", (False,), False)
    return DecoderConfig(
        vocab=raw["vocab_size"],
        dim=raw["n_embd"],
        layers=raw["n_layer"],
        heads=raw["n_head"],
        kv_heads=raw["n_head"],
        ffn=raw.get("n_inner") or 4 * raw["n_embd"],
        context=raw["n_positions"],
        norm="layer",
        activation="gelu",
        positions="learned",
        bias=True,
        tied=raw.get("tie_word_embeddings", True),
        eps=raw.get("layer_norm_epsilon", 1e-5),
    )


def read_llama(raw: Mapping[str, Any]) -> DecoderConfig:
    """Raises ValueError for what the decoder does not do, KeyError for a field that is missing."""
    _expect(raw, "hidden_act", ("silu",), "silu")
    bias = raw.get("attention_bias", False)
    _expect(raw, "mlp_bias", (bias,), False)
    heads, dim = raw["num_attention_heads"], raw["hidden_size"]
    if raw.get("head_dim") is not None:
        _expect(raw, "head_dim", (dim // heads,), dim // heads)
    theta, scaling = _read_rope(raw)
    return DecoderConfig(
        vocab=raw["vocab_size"],
        dim=dim,
        layers=raw["num_hidden_layers"],
        heads=heads,
        kv_heads=raw.get("num_key_value_heads") or heads,
        ffn=raw["intermediate_size"],
        context=raw["max_position_embeddings"],
        rope_theta=theta,
        rope_scaling=scaling,
        bias=bias,
        tied=raw.get("tie_word_embeddings", False),
        eps=raw.get("rms_norm_eps", 1e-6),
    )


def write_gpt2(config: DecoderConfig) -> dict[str, Any]:
    """Raises `ModelFileError` for a shape that GPT-2's format can't express."""
    _must(config, norm="layer", activation="gelu", positions="learned", bias=True, kv_heads=config.heads)
    return _common(config, "gpt2", "GPT2LMHeadModel") | {
        "activation_function": "gelu_new",
        "n_embd": config.dim,
        "n_head": config.heads,
        "n_inner": config.ffn,
        "n_layer": config.layers,
        "n_positions": config.context,
        "layer_norm_epsilon": config.eps,
        "attn_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
    }


def write_llama(config: DecoderConfig) -> dict[str, Any]:
    """Raises `ModelFileError` for a shape that Llama's format lacks. Rotary positions are for old and new readers."""
    _must(config, norm="rms", activation="swiglu", positions="rope")
    return _common(config, "llama", "LlamaForCausalLM") | {
        "hidden_act": "silu",
        "hidden_size": config.dim,
        "intermediate_size": config.ffn,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.block.head_dim,
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.eps,
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "attention_dropout": config.dropout,
        "rope_theta": config.rope_theta,
        "rope_scaling": _write_scaling(config.rope_scaling),
        "rope_parameters": {
            "rope_theta": config.rope_theta,
            **(_write_scaling(config.rope_scaling) or {"rope_type": "default"}),
        },
    }


def _common(config: DecoderConfig, kind: str, architecture: str) -> dict[str, Any]:
    # Which tokens begin and end a text belongs to the tokenizer; the defaults of transformers would be a guess.
    return {
        "architectures": [architecture],
        "model_type": kind,
        "vocab_size": config.vocab,
        "tie_word_embeddings": config.tied,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _read_rope(raw: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """From `rope_parameters` of transformers 5, or from `rope_theta` and `rope_scaling` before it."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise ValueError(f"rope_type is {kind!r}, expected default or llama3")
    original = rope["original_max_position_embeddings"]
    return theta, RopeScaling(rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"], original)


def _write_scaling(scaling: RopeScaling | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_context,
    }


def _expect(raw: Mapping[str, Any], name: str, wanted: tuple[Any, ...], default: Any) -> None:
    given = raw.get(name, default)
    if given not in wanted:
        raise ValueError(f"{name} is {given!r}, expected {' or '.join(repr(each) for each in wanted)}")


def _must(config: DecoderConfig, **wanted: Any) -> None:
    wrong = [
        f"{name} is {getattr(config, name)!r}, not {value!r}"
        for name, value in wanted.items()
        if getattr(config, name) != value
    ]
    if wrong:
        raise ModelFileError(f"This shape is neither GPT-2's nor Llama's: {'; '.join(wrong)}.")
