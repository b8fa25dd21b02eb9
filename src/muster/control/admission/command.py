"""Refuses a plain command that can't be found, before it costs a launch. Only for jobs that run on this machine."""

from __future__ import annotations

import shlex
from typing import Final

from muster.control.admission.base import Context
from muster.control.admission.pools import here
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec

_SHOWN: Final = 200  # characters of a command that a hint shows


def check(spec: JobSpec, context: Context) -> Reason | None:
    word, instead = context.file_findings.missing, context.file_findings.instead
    if not word or not here(spec, context):
        return None
    if "/" in word:
        return reason("no_command", f"`{word}` does not exist in {spec.workdir or '/'}", command=word)
    message = f"`{word}` does not exist on the PATH that the job would have"
    if not instead:
        return reason("no_command", message, command=word)
    rest = spec.run.split(maxsplit=1)[1:]
    first_line = " ".join([shlex.quote(instead), *rest]).splitlines()[0]
    return reason("no_command", message, f"Write `{_shortened(first_line)}`.", command=word, instead=instead)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"
