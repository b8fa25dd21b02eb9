"""Every error that the training runtime raises to a user.

TrainError                  what happened, with the numbers, and what to do
├── ConfigError             a configuration with mistakes: all of them at once, before any device time
├── MeshError               a layout that fits neither the processes nor the model
├── CheckpointError         a checkpoint that could not be saved, found or loaded
│   ├── CheckpointFull      no room for it
│   ├── CheckpointDamaged   files that are not as they were saved
│   ├── CheckpointMismatch  a checkpoint of another model or of another data order
│   ├── CheckpointHeld      another run writes to the same store
│   ├── NoGoodCheckpoint    the run has saved checkpoints, and none of them can be loaded
│   └── StartMissing        the checkpoint of another run that the job starts from can't be had
├── ModelFileError          a file or folder with a model's weights that is damaged or of a kind not known here
├── NotExact                `exact` is on, and something can't be repeated to the bit
├── Diverged                a guard stopped the run: NaN, an exploding gradient or a loss spike
└── ReplicasDiffer          data-parallel replicas whose weights are not the same

Problems of data are `muster.data.errors.DataError`, which doesn't need torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a configuration: the field, the given and the expected value, and a hint."""

    where: str
    given: str
    expected: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: got {self.given}, expected {self.expected}. {self.hint}".rstrip()


class TrainError(Exception):
    """The base class of the training runtime's errors."""


class ConfigError(TrainError):
    """All mistakes of one configuration."""

    def __init__(self, problems: Sequence[Problem], source: str = "the configuration") -> None:
        self.problems = list(problems)
        self.source = source
        count = "one mistake" if len(self.problems) == 1 else f"{len(self.problems)} mistakes"
        super().__init__("\n".join([f"{source} has {count}.", *(f"  - {each}" for each in self.problems)]))


class MeshError(TrainError):
    """A layout that fits neither the processes nor the model."""


class CheckpointError(TrainError):
    """A checkpoint that could not be saved, found or loaded."""


class CheckpointFull(CheckpointError):
    """No room for a checkpoint; those before it are intact."""


class CheckpointDamaged(CheckpointError):
    """Files of a checkpoint that are not as they were saved."""


class CheckpointMismatch(CheckpointError):
    """A checkpoint of another model or of another data order."""


class CheckpointHeld(CheckpointError):
    """Another run writes to the same store."""


class NoGoodCheckpoint(CheckpointError):
    """The run has saved checkpoints, and none of them can be loaded."""


class StartMissing(CheckpointError):
    """The checkpoint of another run that the job starts from can't be had."""


class ModelFileError(TrainError):
    """A file or folder with a model's weights that is damaged or of a kind that is not known here."""


class NotExact(TrainError):
    """`exact` is on, and something of the run can't be repeated to the bit."""


class Diverged(TrainError):
    """A guard stopped the run."""


class ReplicasDiffer(TrainError):
    """Data-parallel replicas whose weights are not the same: a silent fault of a device, a link or the program."""
