"""The importers by name. To add one: a file here and a line below."""

from __future__ import annotations

from muster.core.registry import Registry
from muster.track.importers.base import Importer
from muster.track.importers.optuna import OptunaImporter
from muster.track.importers.ray_tune import RayTuneImporter
from muster.track.importers.tensorboard import TensorBoardImporter
from muster.track.importers.wandb import WandbImporter

IMPORTERS: Registry[Importer] = Registry(
    "tool to import from",
    {
        "wandb": WandbImporter(),
        "ray-tune": RayTuneImporter(),
        "optuna": OptunaImporter(),
        "tensorboard": TensorBoardImporter(),
    },
)
