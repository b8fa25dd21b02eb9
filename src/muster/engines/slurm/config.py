"""Builds the Slurm adapter from its settings: `[engines.NAME]` with `kind = "slurm"` in the server's config.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.engines.describe import Home
from muster.engines.slurm.adapter import SlurmAdapter
from muster.engines.slurm.rest import Rest
from muster.engines.slurm.settings import check
from muster.engines.slurm.tools import Tools, clean_environment


def read(name: str, settings: Mapping[str, Any], home: Home) -> SlurmAdapter:
    """The adapter that the settings describe. Raises ConfigError; connects to nothing."""
    found = check(name, settings, home)
    environment = clean_environment(found.environment, found.conf)
    tools = Tools(environment, found.tools)
    client = Rest(found, environment, tools) if found.rest else tools
    return SlurmAdapter(found, home, client, tools)
