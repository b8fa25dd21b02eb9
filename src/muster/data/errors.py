"""The one exception of `muster.data`: what is wrong with the data or the arguments, with the numbers."""

from __future__ import annotations


class DataError(ValueError):
    """The message says which file, source or sample, what was found, what was expected and what to do."""
