"""The exporters by name. To add one: a file here and a line below; `tests/contracts/test_exporter.py` tests it."""

from __future__ import annotations

from muster.core.registry import Registry
from muster.track.exporters.base import Exporter
from muster.track.exporters.csv import CsvExporter
from muster.track.exporters.parquet import ParquetExporter
from muster.track.exporters.tensorboard import TensorBoardExporter
from muster.track.mlflow.exporting import MlrunsExporter

EXPORTERS: Registry[Exporter] = Registry(
    "export format",
    {
        "csv": CsvExporter(),
        "mlflow": MlrunsExporter(),
        "parquet": ParquetExporter(),
        "tensorboard": TensorBoardExporter(),
    },
)
