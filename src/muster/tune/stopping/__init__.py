"""The stopping rules by name. To add one: a file with a class as `base.py` describes it, and a line here."""

from __future__ import annotations

from typing import Final

from muster.core.registry import Registry
from muster.tune.stopping.asha import Asha
from muster.tune.stopping.base import Stopping
from muster.tune.stopping.fifo import Fifo
from muster.tune.stopping.halving import Halving
from muster.tune.stopping.hyperband import Hyperband
from muster.tune.stopping.median import Median
from muster.tune.stopping.pbt import Pbt
from muster.tune.stopping.rule import Rule

_ALL: Final[tuple[type[Stopping], ...]] = (Fifo, Median, Halving, Asha, Hyperband, Pbt, Rule)
STOPPING: Final[Registry[type[Stopping]]] = Registry("stopping rule", {one.NAME: one for one in _ALL})
