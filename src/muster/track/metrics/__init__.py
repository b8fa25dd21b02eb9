"""The metric store: points are appended in batches as they come, kept by series, and read back as honest curves."""

from muster.track.metrics.store import Metrics

__all__ = ["Metrics"]
