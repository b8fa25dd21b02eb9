"""How the words of `muster run` are split: its own options, a job file, and the command."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from muster.cli.call import Usage


class RunCommand(TyperCommand):
    """Takes options before a command, and options on both sides of a job file.

    What follows the first word of a command belongs to the command: `muster run python train.py --lr 3e-4`. After a job
    file, only what follows `--` does: `muster run job.yaml -o envs.LR=1e-3 -- python other.py`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        own = args[: args.index("--")] if "--" in args else args
        words = self._words(ctx, own)
        if words and is_job_file(words[0]):
            ctx.allow_interspersed_args = True
            words = self._words(ctx, own)
            if len(words) > 1:
                message = f"{words[1]!r} after the job file {words[0]} is neither an option nor behind `--`."
                hint = f"Write `muster run {words[0]} -- COMMAND`; for several job files use `muster submit`."
                raise Usage(message, hint)
        return super().parse_args(ctx, args)

    def _words(self, ctx: Any, args: Sequence[str]) -> list[str]:
        """Those that are no options."""
        return list(self.make_parser(ctx).parse_args(list(args))[0].get("words") or ())


def is_job_file(word: str) -> bool:
    return Path(word).suffix in (".yaml", ".yml")


def command_line(words: Sequence[str]) -> str:
    """The words of a command as a line for the shell.

    Several words reach the command exactly as they were typed. One word is a shell line, as for `sh -c`, unless it is
    the path of a file.
    """
    if len(words) == 1 and not Path(words[0]).exists() and shutil.which(words[0]) is None:
        return words[0]
    return shlex.join(words)
