"""Data loading for training: data formats, one global order that is computed and not stored, and a ledger of reads.

    dataset = open_dataset("tokens", folder, length=1024)
    order = Order([Source("web", len(dataset))], batch=64, seed=1)
    with Loader([dataset], order, world=4, rank=0, micros=2, collate=next_token) as loader:
        micro_batches = loader.at(step)

Needs only NumPy and the standard library. `Loader(workers=8, decode=...)` decodes in processes of its own.
"""

from muster.data.cache import ShardCache
from muster.data.collate import Collate, next_token, stack
from muster.data.dataset import Arrays, Dataset, Gathers, Sample, Stored
from muster.data.errors import DataError
from muster.data.formats import FORMATS, open_dataset
from muster.data.formats.base import Format
from muster.data.loader import Batch, Loader
from muster.data.order import Order, Samples, Source
from muster.data.world import share

__all__ = [
    "FORMATS",
    "Arrays",
    "Batch",
    "Collate",
    "DataError",
    "Dataset",
    "Format",
    "Gathers",
    "Loader",
    "Order",
    "Sample",
    "Samples",
    "ShardCache",
    "Source",
    "Stored",
    "next_token",
    "open_dataset",
    "share",
    "stack",
]
