"""What every engine must pass, on a real Slurm with four nodes."""

from __future__ import annotations

import pytest

from cluster_suite import ClusterContract
from rigs.slurm_rig import SlurmRig


@pytest.mark.component("slurm")
class TestSlurm(ClusterContract):
    make = SlurmRig
