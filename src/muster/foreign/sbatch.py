"""Parser of sbatch scripts, as Slurm reads them: the options of the `#SBATCH` lines, and the rest of the script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

# Options of sbatch (slurm.schedmd.com/sbatch.html) by their long names: `=` takes a value, `?` may take one after an
# equals sign, the others take none.
_LONG: Final = """
account= acctg-freq= array= batch= bb= bbf= begin= burst-buffer= chdir= cluster-constraint= clusters= comment=
constraint= consolidate-segments container= container-id= contiguous core-spec= cores-per-socket= cpu-freq=
cpus-per-gpu= cpus-per-task= deadline= delay-boot= dependency= distribution= error= exclude= exclusive? export=
export-file= external-launcher extra= extra-node-info= get-user-env? gid= gpu-bind= gpu-freq= gpus= gpus-per-node=
gpus-per-socket= gpus-per-task= gres= gres-flags= help hint= hold ignore-pbs input= job-name= kill-on-invalid-dep=
licenses= mail-type= mail-user= mcs-label= mem= mem-bind= mem-per-cpu= mem-per-gpu= mincpus= network= nice? no-kill?
no-requeue nodefile= nodelist= nodes= ntasks= ntasks-per-core= ntasks-per-gpu= ntasks-per-node= ntasks-per-socket=
open-mode= oom-kill-step? output= overcommit oversubscribe parsable partition= power= prefer= priority= profile=
propagate? qos= quiet reboot requeue reservation= resv-ports? segment= signal= sockets-per-node= spread-job stepmgr
switches= tasks-per-node= test-only thread-spec= threads-per-core= time= time-min= tmp= tres-bind= tres-per-task= uid=
usage use-min-nodes verbose version wait wait-all-nodes= wckey= wrap= x11?
"""
_SHORT: Final = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "h": "help",
    "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters", "m": "distribution",
    "N": "nodes", "n": "ntasks", "O": "overcommit", "o": "output", "p": "partition", "Q": "quiet", "q": "qos",
    "S": "core-spec", "s": "oversubscribe", "t": "time", "v": "verbose", "V": "version", "W": "wait",
    "w": "nodelist", "x": "exclude",
}  # fmt: skip
_KINDS: Final = {name.rstrip("=?"): name[-1] if name[-1] in "=?" else "" for name in _LONG.split()}
_OTHER_NAMES: Final = {"tasks-per-node": "ntasks-per-node", "workdir": "chdir"}
_DIRECTIVE: Final = re.compile(r"#SBATCH(?:\s+(.*))?$")
_COMPONENTS: Final = ("hetjob", "packjob")


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `name` is its long name, "" if Slurm has no such option."""

    name: str
    value: str
    line: int  # from 1
    written: str


@dataclass(slots=True)
class Script:
    """An sbatch script. `interpreter` is the one that its first line names.

    `body` is the script without that line and the directives. They are empty lines in it, so that line numbers stay
    those of the file.
    """

    interpreter: str = ""
    options: list[Option] = field(default_factory=list)
    others: list[list[Option]] = field(default_factory=list)  # options of further components of a heterogeneous job
    late: list[Option] = field(default_factory=list)  # options after the first command, which Slurm ignores
    body: str = ""

    @property
    def last(self) -> dict[str, Option]:
        """The options by name. If an option is given twice, the last one counts, as in Slurm."""
        return {option.name: option for option in self.options if option.name}


def parse_script(text: str) -> Script:
    script, kept, begun = Script(), list[str](), False
    lines = text.replace("\r\n", "\n").split("\n")
    if lines and lines[0].startswith("#!"):
        script.interpreter = lines[0][2:].strip()
        lines[0] = ""
    target = script.options
    for number, line in enumerate(lines, start=1):
        found = _DIRECTIVE.match(line)
        if found and (found[1] or "").split("#")[0].strip() in _COMPONENTS and not begun:
            target = []
            script.others.append(target)
        elif found:
            options = list(_options(found[1] or "", number))
            (script.late if begun else target).extend(options)
        else:
            begun = begun or bool(line.strip() and not line.lstrip().startswith("#"))
        kept.append("" if found or (number == 1 and script.interpreter) else line)
    script.body = "\n".join(kept)
    return script


def split_options(words: Sequence[str], line: int) -> Iterator[Option]:
    """Parses options like getopt: `-N2`, `-N 2`, `--nodes=2`, `--nodes 2`, and unambiguous prefixes of long names."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.startswith("--"):
            given, equals, value = word[2:].partition("=")
            name = _long(given)
            if name and _KINDS[name] == "=" and not equals and at < len(words):
                value, at = words[at], at + 1
                word = f"{word} {value}"
            yield Option(_OTHER_NAMES.get(name, name), value, line, word)
        elif word.startswith("-") and len(word) > 1:
            name = _SHORT.get(word[1], "")
            value = word[2:].removeprefix("=")
            if name and _KINDS[name] == "=" and not value and at < len(words):
                value, at = words[at], at + 1
                word = f"{word} {value}"
            yield Option(name, value, line, word)
        else:
            yield Option("", "", line, word)


def _options(text: str, line: int) -> Iterator[Option]:
    try:
        words = shlex.split(text, comments=True)
    except ValueError:  # an open quote: Slurm would refuse the line, so its words are listed unchanged
        words = text.split()
    return split_options(words, line)


def _long(given: str) -> str:
    """The full name of a long option; "" if it is unknown or ambiguous."""
    if given in _KINDS or given in _OTHER_NAMES:
        return _OTHER_NAMES.get(given, given)
    found = [name for name in _KINDS if name.startswith(given)] if given else []
    return found[0] if len(found) == 1 else ""
