"""Builds datasets from text and JSONL files."""

from muster.data.build.text import Progress, tokens

__all__ = ["Progress", "tokens"]
