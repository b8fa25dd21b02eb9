"""Parser of `srun` and `torchrun` calls in a script line: their options, and where the program begins."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from muster.foreign.shell import Word, commands, names

# Long options of srun (slurm.schedmd.com/srun.html) and of its container plug-in that take no value, or only one after
# an equals sign.
_SRUN_FLAGS: Final = names(
    """contiguous container-mount-home container-readonly container-remap-root container-writable disable-status exact
    exclusive external help hold immediate interactive kill-on-bad-exit label multi-prog nice no-container-entrypoint
    no-container-mount-home no-container-remap-root no-kill overcommit overlap oversubscribe preserve-env propagate pty
    quiet reboot requeue resv-ports send-libs spread-job test-only unbuffered usage use-min-nodes verbose version
    wait-for-children whole x11"""
)
_SRUN_SHORT: Final = {
    "A": "account", "c": "cpus-per-task", "C": "constraint", "D": "chdir", "e": "error", "G": "gpus", "i": "input",
    "J": "job-name", "L": "licenses", "m": "distribution", "n": "ntasks", "N": "nodes", "o": "output",
    "p": "partition", "q": "qos", "r": "relative", "t": "time", "T": "threads", "w": "nodelist", "W": "wait",
    "x": "exclude", "S": "core-spec", "B": "extra-node-info", "d": "dependency", "M": "clusters", "b": "begin",
}  # fmt: skip
_SRUN_SHORT_FLAGS: Final = {"l": "label", "u": "unbuffered", "K": "kill-on-bad-exit", "O": "overcommit", "v": "verbose",
                            "Q": "quiet", "E": "preserve-env", "X": "disable-status", "s": "oversubscribe",
                            "k": "no-kill", "I": "immediate", "H": "hold", "Z": "no-allocate"}  # fmt: skip
# Options of torchrun that take no value. `-m` says that the program is a module.
_TORCHRUN_FLAGS: Final = names("standalone use-env no-python module run-path virtual-local-rank help")
_TORCHRUN_SHORT: Final = {"m": "module", "r": "redirects", "t": "tee"}
TORCHRUN_MODULES: Final = ("torch.distributed.run", "torch.distributed.launch")
_REFERENCE: Final = re.compile(r'"?\$\{?([A-Za-z_]\w*)(?:\[[@*]\])?\}?"?')


@dataclass(slots=True)
class Launch:
    """A launcher's options. `program` is the index of the first word after them; past the end if there is none."""

    program: int
    options: dict[str, str] = field(default_factory=dict)
    unclear: str = ""  # a word that may hold options but can't be resolved


def read_srun(words: Sequence[Word], first: int) -> Launch:
    """Parses a call of srun; `first` is the index of the word after `srun`."""
    found, at = Launch(first), first
    while at < len(words) and words[at].bare.startswith("-") and words[at].bare != "--":
        name, value, at = _option(words, at, _SRUN_FLAGS, {**_SRUN_SHORT, **_SRUN_SHORT_FLAGS})
        found.options[name] = value
    found.program = at + 1 if at < len(words) and words[at].bare == "--" else at
    return found


def read_torchrun(words: Sequence[Word], first: int, assigned: Mapping[str, str]) -> Launch:
    """Parses a call of torchrun; `assigned` are the script's variables, since options are often kept in one."""
    found, at = Launch(first), first
    while at < len(words):
        text = words[at].text
        if text.startswith("-"):
            name, value, at = _option(words, at, _TORCHRUN_FLAGS, _TORCHRUN_SHORT)
            found.options[name] = value
        elif reference := _REFERENCE.fullmatch(text):
            held = _held(assigned.get(reference[1]))
            inner = read_torchrun(held, 0, {}) if held else None
            if inner is None or inner.program < len(held) or inner.unclear:
                found.unclear = text
                break
            found.options.update(inner.options)
            at += 1
        else:
            break
    found.program = at
    return found


def is_torchrun(words: Sequence[Word], at: int) -> int:
    """The number of words from `at` on that call torchrun; 0 if they don't."""
    name = PurePosixPath(words[at].bare).name
    if name == "torchrun":
        return 1
    if re.fullmatch(r"python[\d.]*", name):
        for number in range(at + 1, min(at + 5, len(words))):
            if words[number].bare == "-m" and number + 1 < len(words) and words[number + 1].bare in TORCHRUN_MODULES:
                return number + 2 - at
    return 0


def python_of(words: Sequence[Word], at: int) -> str:
    """The Python that belongs to this torchrun."""
    path = words[at].text
    return re.sub(r"torchrun(?=[\"']?$)", "python", path)


def _option(words: Sequence[Word], at: int, flags: frozenset[str], short: Mapping[str, str]) -> tuple[str, str, int]:
    """The option's name, its value, and the index after it."""
    bare = words[at].bare
    if bare.startswith("--"):
        name, equals, value = bare[2:].partition("=")
        name = name.replace("_", "-")
        if equals or name in flags:
            return name, value, at + 1
    else:
        name, value = short.get(bare[1:2], bare[1:2]), bare[2:].removeprefix("=")
        if value or name in flags or name == "no-allocate":
            return name, value, at + 1
    following = words[at + 1].bare if at + 1 < len(words) else ""
    return name, following, at + 2


def _held(value: str | None) -> list[Word]:
    """The words in a variable's value, `"--a b"` or `(--a b)`."""
    if value is None or len(value) < 2:
        return []
    inside = value[1:-1] if (value[0], value[-1]) in (("(", ")"), ('"', '"'), ("'", "'")) else value
    return [word for command in commands(inside.replace("\n", " ")) for word in command.words]
