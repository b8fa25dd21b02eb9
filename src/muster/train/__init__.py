"""Training with PyTorch: one loop, any parallelism from one mesh, asynchronous checkpoints, bit-exact resume.

    from muster.train import read_config, train

    result = train(read_config("config.yaml"))

The same from a shell: `python -m muster.train config.yaml`, `torchrun -m muster.train config.yaml`, or as a Muster job.
Importing this package does not import torch; the first use of a name in it does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.train.config import Config, read_config
    from muster.train.errors import ConfigError, ReplicasDiffer, TrainError
    from muster.train.loop import Result, train
    from muster.train.replicas import check_replicas
    from muster.train.task import Data, Task

__all__ = [
    "Config", "ConfigError", "Data", "ReplicasDiffer", "Result", "Task", "TrainError", "check_replicas", "read_config",
    "train",
]  # fmt: skip

_HOMES = {
    "Config": "config",
    "ConfigError": "errors",
    "Data": "task",
    "ReplicasDiffer": "errors",
    "Result": "loop",
    "Task": "task",
    "TrainError": "errors",
    "check_replicas": "replicas",
    "read_config": "config",
    "train": "loop",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
