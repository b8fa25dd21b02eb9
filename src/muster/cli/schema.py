"""`muster schema`: the JSON Schema of a job file or a policy file, for editors."""

from __future__ import annotations

import json as json_lib
import sys
from typing import Annotated

import typer

from muster.cli.call import Json
from muster.cli.output import emit
from muster.core.policy_schema import policy_schema
from muster.core.schema import muster_schema
from muster.sched.policies import POLICIES


def schema(
    policy: Annotated[bool, typer.Option("--policy", help="Of a policy file.")] = False, json: Json = False
) -> None:
    """Print the JSON Schema of a job file, or of a policy file."""
    found = policy_schema(list(POLICIES)) if policy else muster_schema()
    if json:
        emit(found)
    else:
        sys.stdout.write(json_lib.dumps(found, indent=2) + "\n")
