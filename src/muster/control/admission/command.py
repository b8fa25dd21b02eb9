"""Where jobs run on this machine, a plain command that can't be found is refused before it costs a launch."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from muster.control.admission.base import Context
from muster.control.admission.pools import here
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec

# Only a first word that the shell would take as it stands is judged; anything cleverer is left to the shell.
_PLAIN = re.compile(r"[\w./+@%-]+\Z")
_SHELL_WORDS = re.compile(
    r"(?:[.:]|\[\[?|alias|bg|break|builtin|case|cd|command|compgen|continue|declare|dirs|echo|enable|eval|exec|exit|export"
    r"|false|fg|for|function|getopts|hash|help|history|if|jobs|kill|let|local|mapfile|popd|printf|pushd|pwd|read|readonly"
    r"|return|select|set|shift|shopt|source|test|time|times|trap|true|type|typeset|ulimit|umask|unalias|unset|until|wait"
    r"|while)\Z"
)


def check(spec: JobSpec, context: Context) -> Reason | None:
    words = spec.run.split(maxsplit=1)
    if not words or not _PLAIN.match(words[0]) or _SHELL_WORDS.match(words[0]) or not here(spec, context):
        return None
    word, folder = words[0], Path(spec.workdir or "/")
    if "/" in word:
        found = (folder / word).exists()
    else:
        found = shutil.which(word, path=spec.envs.get("PATH", os.environ.get("PATH"))) is not None
    if found or not folder.is_dir() or f"{word}()" in spec.run:
        return None
    where = f"in {folder}" if "/" in word else "on the PATH that the job would have"
    return reason("no_command", f"`{word}` does not exist {where}", command=word)
