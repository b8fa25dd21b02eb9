"""`muster schema`: the JSON Schema of a job file, for editors that check and complete it."""

from __future__ import annotations

import json as json_lib
import sys

from muster.cli.call import Json
from muster.cli.output import emit
from muster.core.schema import muster_schema


def schema(json: Json = False) -> None:
    """Print the JSON Schema of a job file."""
    if json:
        emit(muster_schema())
    else:
        sys.stdout.write(json_lib.dumps(muster_schema(), indent=2) + "\n")
