"""The Python SDK: `muster.Client` submits jobs, follows them and manages queues, nodes and projects."""

from __future__ import annotations

from muster.client.client import Client
from muster.client.job import Job
from muster.client.run import Run
from muster.client.stream import LogLine
from muster.core.errors import MusterError

__all__ = ["Client", "Job", "LogLine", "MusterError", "Run"]
