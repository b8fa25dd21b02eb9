"""The metric store: points are appended in batches, stored by series, and read back as curves."""

from muster.track.metrics.store import Metrics

__all__ = ["Metrics"]
