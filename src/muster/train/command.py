"""Trains from a shell:

    python -m muster.train config.yaml [key=value ...]                       one process
    torchrun --nproc-per-node 2 -m muster.train config.yaml [key=value ...]  several
    run: python -m muster.train config.yaml                                  in a job file, under Muster

    python -m muster.train config.yaml --check                               reads and checks, trains nothing
    python -m muster.train config.yaml --export model.safetensors            the newest checkpoint as one file

It resumes from the newest checkpoint if there is one. Exit codes: 0 complete; 1 failed; 2 a mistake in the
configuration or its data; 75 stopped on request before the end, with everything saved: start it again to continue.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from muster import runtime
from muster.data.errors import DataError
from muster.train.checkpoint import export, newest
from muster.train.config import Config, read_config
from muster.train.errors import CheckpointError, ConfigError, TrainError
from muster.train.loop import train
from muster.train.plan import make_plan
from muster.train.readings import say
from muster.train.session import where

FAILED: Final = 1
MISTAKEN: Final = 2
STOPPED: Final = 75  # EX_TEMPFAIL of sysexits.h: not done, try again


def main(words: Sequence[str] | None = None, imports: float | None = None) -> int:
    args = _arguments(words)
    try:
        config = read_config(args.config, args.overrides)
        if args.check:
            make_plan(config, args.world or runtime.world_size())
            say(f"{args.config} is in order")
            return 0
        if args.export:
            return _export(config, Path(args.export))
        checked = _checked(config)
        if checked is not None:
            return checked
        return STOPPED if train(config, imports).stopped else 0
    except (ConfigError, DataError) as error:
        return _print_error(error, MISTAKEN)
    except TrainError as error:
        return _print_error(error, FAILED)


def _checked(config: Config) -> int | None:
    """In a job of the rungs `unit` and `resume` of `muster preflight`: the exit status of their checks, which run on
    the first rank. None elsewhere."""
    rung = runtime.preflight_rung()
    if rung not in ("unit", "resume"):
        return None
    if runtime.rank():
        return 0
    # Only here: a training does not wait for the import of the checks.
    from muster.train.preflight import check_task, check_task_resume, finish  # noqa: PLC0415

    return finish((check_task if rung == "unit" else check_task_resume)(config))


def _export(config: Config, file: Path) -> int:
    found = newest(where(config))
    if found is None:
        raise CheckpointError(f"there is no checkpoint in {where(config)} to make {file} from.")
    export(found, file)
    say(f"{file}: the model after step {found.step} ({found.path})")
    return 0


def _print_error(error: Exception, code: int) -> int:
    """Prints an error that the user can fix, without a traceback."""
    rank = f"rank {runtime.rank()}: " if runtime.world_size() > 1 else ""
    sys.stderr.write(f"muster: {rank}{type(error).__name__}: {error}\n")
    return code


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m muster.train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", help="a .yaml, .toml or .json file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings that replace the file's")
    parser.add_argument("--check", action="store_true", help="only check the configuration, the model and the data")
    parser.add_argument("--world", type=int, help="of --check: for so many processes")
    parser.add_argument("--export", metavar="FILE", help="write the newest checkpoint as one safetensors file")
    return parser.parse_args(words)
