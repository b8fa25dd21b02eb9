"""The one exception of `muster.data`: what is wrong with data or with how it is asked for, with the numbers."""

from __future__ import annotations


class DataError(ValueError):
    """Says which file, source or sample it is, what was found there, what was expected and what to do."""
