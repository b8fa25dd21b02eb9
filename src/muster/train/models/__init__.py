"""The built-in models: a language decoder and a small image model, with readers and writers of their weights."""

from __future__ import annotations

from muster.train.models.decoder import Decoder, DecoderConfig
from muster.train.models.initial import initialise
from muster.train.models.parts import Divisible
from muster.train.models.shapes import SHAPES, shape
from muster.train.models.vision import Vision, VisionConfig

__all__ = ["SHAPES", "Decoder", "DecoderConfig", "Divisible", "Vision", "VisionConfig", "initialise", "shape"]
