"""Converts the commands of an sbatch script into a job's command, which every rank runs. Removes calls that start
ranks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, Literal

from muster.foreign.sbatch_shape import RANK_NAMES, Message, Shape
from muster.foreign.sbatch_steps import Launch, is_torchrun, python_of, read_srun, read_torchrun
from muster.foreign.shell import ASSIGNMENT, Command, Word, commands, line_of, names

# What starts the ranks: `torchrun` and `srun` are removed, `own` is another launcher, which stays, "" is nothing.
Starter = Literal["torchrun", "srun", "own", ""]
_KEYWORDS: Final = names("if then else elif while until do ! { } time exec nohup")
_DECLARE: Final = names("export declare local readonly typeset")
_OWN: Final = names("mpirun mpiexec mpirun_rsh accelerate deepspeed horovodrun")
_TOOLS: Final = names("scontrol squeue sacct scancel sbatch salloc sbcast sinfo sstat sattach")
_BLOCK: Final = re.compile(r"(?m)^\s*(if|while|until|for|case|select|function)\b|[{(]\s*$")
_WITHIN: Final = re.compile(r"(?:\$\(|`)\s*(?:srun|scontrol|squeue|sacct|sinfo)\b[^)`\n]{0,60}")
_FIRST_NODE: Final = re.compile(r"scontrol\s+show\s+hostnames?|srun\b[^)`]*\bhostname\b|hostlist", re.DOTALL)


@dataclass(slots=True)
class Body:
    text: str = ""
    starter: Starter = ""
    nproc: str = ""  # value of torchrun's --nproc-per-node
    nnodes: str = ""
    image: str = ""
    image_line: int = 0
    workdir: str = ""
    modules: bool = False
    steps: int = 0  # number of srun calls
    outside: bool = False  # whether some command runs without srun
    carried: list[Message] = field(default_factory=list)
    lost: list[Message] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)


def read_body(text: str, shape: Shape) -> Body:
    reader = _Reader(text, shape, blocks=bool(_BLOCK.search(text)))
    reader.scan(text, 0)
    reader.body.text = _edited(text, reader.edits)
    for found in _WITHIN.finditer(reader.body.text):
        told = "stands in a substitution, and talks to Slurm: it works on the engine `slurm` alone. Take it out."
        reader.body.lost.append(Message(0, found[0].strip("$(` "), told))
    return reader.body


@dataclass(slots=True)
class _Reader:
    """Reads the script once and collects the edits."""

    text: str
    shape: Shape
    blocks: bool  # whether the script has blocks: a line can't just be removed there, because a block must not be empty
    body: Body = field(default_factory=Body)
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    assigned: dict[str, str] = field(default_factory=dict)

    def scan(self, text: str, base: int) -> None:
        """Reads the commands of `text`, which is at offset `base`: the script, or the quoted text of a `bash -c`."""
        for command in commands(text):
            words = [Word(word.start + base, word.end + base, word.text) for word in command.words]
            self._command(Command(words, command.after))

    def _command(self, command: Command) -> None:
        words, first = command.words, 0
        while first < len(words) and words[first].bare in _KEYWORDS:
            first += 1
        at = first
        while at < len(words) and ASSIGNMENT.match(words[at].text):
            at += 1
        if at == len(words):
            self._assignments(command, first, first)
            return
        self._assigned(words[first:at])
        for word in words[first:at]:
            if _name(word) in RANK_NAMES:
                self._take_out(word)
        name = PurePosixPath(words[at].bare).name
        if name in _DECLARE:
            self._assignments(command, at, at + 1)
        elif name == "srun":
            self._srun(command, first, at)
        else:
            self._program(command, at)

    def _program(self, command: Command, at: int, under: bool = False) -> None:
        words = command.words
        name = PurePosixPath(words[at].bare).name
        if name in ("bash", "sh", "zsh") and self._inner(words, at):
            return
        if count := is_torchrun(words, at):
            self._torchrun(command, at, count)
        elif name in _OWN:
            self.body.starter = "own"
            told = f"starts ranks of its own: Muster starts one on each node (`nproc: 1`), and {name} the others."
            self._note(words[at], name, f"{told} Better: run the program itself; its ranks get torchrun's names.")
        elif name in _TOOLS:
            told = "talks to Slurm: it works on the engine `slurm` alone. Take it out if it can be spared."
            self.body.lost.append(Message(self._line(words[at]), self._shown(words[at:]), told))
        elif name in ("module", "ml"):
            if not self.body.modules:
                self._note(words[at], self._shown(words[at:]), "is kept: every rank loads its modules itself.")
            self.body.modules = True
        elif name not in _QUIET and not under:
            self.body.outside = True

    def _inner(self, words: Sequence[Word], at: int) -> bool:
        """For `bash -c '...'`: reads the quoted text like the script. False if the command has another form."""
        for number in range(at + 1, len(words) - 1):
            if not words[number].text.startswith("-"):
                return False
            quoted = words[number + 1]
            if words[number].text.endswith("c") and quoted.text[:1] in ("'", '"') and len(quoted.text) > 1:
                self.scan(quoted.text[1:-1], quoted.start + 1)
                return True
        return False

    def _srun(self, command: Command, first: int, at: int) -> None:
        words, found = command.words, read_srun(command.words, at + 1)
        if found.program >= len(words) or "multi-prog" in found.options:
            told = "names no program that every rank runs: write what each of them does as `run`."
            self.body.lost.append(Message(self._line(words[at]), self._shown(words[at:]), told))
            return
        self.body.steps += 1
        if self.body.starter in ("", "srun"):
            self.body.starter = "srun"
        self.edits.append((words[at].start, words[found.program].start, ""))
        self._step(command, first, at, found)
        self._program(command, found.program, under=True)

    def _step(self, command: Command, first: int, at: int, found: Launch) -> None:
        """Converts the options of an srun call."""
        word, options = command.words[at], dict(found.options)
        if image := options.pop("container-image", ""):
            self.body.image, self.body.image_line = image, self._line(word)
        if workdir := options.pop("container-workdir", "") or options.pop("chdir", ""):
            self.body.workdir = workdir
            self.body.carried.append(Message(self._line(word), f"srun --chdir={workdir}", "workdir"))
        if mounts := options.pop("container-mounts", ""):
            told = "has no place: on Kubernetes it is `kubernetes.volumes`, elsewhere the image sees what the node has."
            self.body.lost.append(Message(self._line(word), f"srun --container-mounts={mounts}", told))
        self._note(word, "srun", "is taken out: Muster's launcher starts every rank on every node itself.", once=True)
        total = self.shape.nodes * self.shape.tasks
        if options.get("ntasks") == "1" and total > 1:
            start = command.words[first].start
            self.edits.append((start, start, '[ "$RANK" != 0 ] || '))
            self._note(word, "srun --ntasks=1", "is done by rank 0 alone; the others don't wait for it.")
        if command.after == "&":
            told = "runs beside others in the background: every rank starts all of them. Make jobs of them instead."
            self.body.lost.append(Message(self._line(word), self._shown(command.words[at:]), told))
        if options := {name: value for name, value in options.items() if name not in ("ntasks", "nodes")}:
            words = " ".join(f"--{name}={value}" if value else f"--{name}" for name, value in options.items())
            self.body.lost.append(Message(self._line(word), f"srun {words}", "is srun's own, and has no place."))

    def _torchrun(self, command: Command, at: int, count: int) -> None:
        words = command.words
        found = read_torchrun(words, at + count, self.assigned)
        if found.unclear or found.program >= len(words):
            self.body.starter = "own"
            what = (
                f"has its options in {found.unclear}, which can't be read here" if found.unclear else "names no program"
            )
            self._note(words[at], "torchrun", f"{what}: it stays, one on each node (`nproc: 1`), and starts the ranks.")
            return
        self.body.starter = "torchrun"
        options = found.options
        self.body.nproc = options.get("nproc-per-node", "1")
        self.body.nnodes = options.get("nnodes", "")
        start = f"{python_of(words, at) if count == 1 else words[at].text} -u "
        start = "" if "no-python" in options else f"{start}-m " if "module" in options else start
        self.edits.append((words[at].start, words[found.program].start, start))
        told = "is taken out: Muster's launcher starts the ranks, with the same names in their environment."
        self._note(words[at], "torchrun", f"{told} Its rendezvous, ports and restarts are Muster's (`retry`).")
        if words[at + count - 1].bare.endswith("launch") and "use-env" not in options:
            told = "gave the program --local-rank: add `--local-rank=$LOCAL_RANK` if it reads that, not LOCAL_RANK."
            self._note(words[at], "torch.distributed.launch", told)

    def _assignments(self, command: Command, start: int, first: int) -> None:
        """Edits a command that only assigns variables.

        Assignments of names that Muster sets are removed; assignments of the first node's address get a new value.
        """
        words = command.words
        self._assigned(words[first:])
        gone = [word for word in words[first:] if _name(word) in RANK_NAMES]
        whole = bool(gone) and len(gone) == len([word for word in words[first:] if not word.text.startswith("-")])
        if whole:
            alone = command.after in ("\n", "") and start == 0 and not self.blocks
            self.edits.append((words[start].start, words[-1].end, "" if alone else ":"))
        for word in gone:
            self._take_out(word, edit=not whole)
        for word in words[first:]:
            found = ASSIGNMENT.match(word.text)
            if found and word not in gone and _FIRST_NODE.search(word.text[found.end() :]):
                value = '("$MASTER_ADDR")' if word.text[found.end() :].startswith("(") else '"$MASTER_ADDR"'
                self.edits.append((word.start + found.end(), word.end, value))
                told = f"asks Slurm for the nodes: {found[1]} is now $MASTER_ADDR, the first, which is all ranks know."
                self._note(word, self._shown([word]), told)

    def _take_out(self, word: Word, edit: bool = True) -> None:
        self._note(word, self._shown([word]), "is taken out: Muster sets it on every rank.")
        if edit:
            blank = re.compile(r"[ \t]*").match(self.text, word.end)
            self.edits.append((word.start, blank.end() if blank else word.end, ""))

    def _assigned(self, words: Sequence[Word]) -> None:
        for word in words:
            if found := ASSIGNMENT.match(word.text):
                self.assigned[found[1]] = word.text[found.end() :]

    def _line(self, word: Word) -> int:
        return line_of(self.text, word.start)

    def _note(self, word: Word, what: str, told: str, once: bool = False) -> None:
        if not once or not any(note.what == what for note in self.body.notes):
            self.body.notes.append(Message(self._line(word), what, told))

    def _shown(self, words: Sequence[Word]) -> str:
        text = " ".join(" ".join(word.text for word in words).split())
        return text if len(text) < 70 else f"{text[:67]}..."


# Commands that are harmless if every rank runs them.
_QUIET: Final = names(
    "cd echo printf set shopt source . unset ulimit umask trap wait date hostname pwd : true test [ [[ fi done esac "
    "case for } conda micromamba mamba nvidia-smi env which ls cat eval sleep exit return free lscpu uname"
)


def _name(word: Word) -> str:
    found = ASSIGNMENT.match(word.text)
    return found[1] if found else ""


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    lines = [line.rstrip() if not line.strip() else line for line in text.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
