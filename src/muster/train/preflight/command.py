"""Preflight of a task from a shell:

    python -m muster.train.preflight config.yaml [key=value ...]                 the rungs unit and resume
    python -m muster.train.preflight config.yaml --level unit                    one of them
    python -m muster.train.preflight config.yaml --json report.json              the report for programs, too

The model is made small, on the CPU. Exit codes: 0 all that applies is ok; 1 a check failed or could not decide; 2 a
mistake in the configuration or its data.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from typing import Final

from muster.data.errors import DataError
from muster.train.config import read_config
from muster.train.errors import ConfigError, TrainError
from muster.train.preflight.finish import finish
from muster.train.preflight.hook import LIMIT
from muster.train.preflight.task import check_task
from muster.train.preflight.task_resume import check_task_resume

FAILED: Final = 1
MISTAKEN: Final = 2
LEVELS: Final = {"unit": check_task, "resume": check_task_resume}


def main(words: Sequence[str] | None = None) -> int:
    args = _arguments(words)
    gc.freeze()  # forked processes need not copy what was imported
    levels = list(LEVELS) if args.level == "all" else [args.level]
    try:
        config = read_config(args.config, args.overrides)
        reports = [
            LEVELS[level](config, full_size=args.full_size, skip=args.skip, limit=args.limit) for level in levels
        ]
    except (ConfigError, DataError) as error:
        sys.stderr.write(f"muster: {type(error).__name__}: {error}\n")
        return MISTAKEN
    except TrainError as error:
        sys.stderr.write(f"muster: {type(error).__name__}: {error}\n")
        return FAILED
    return finish(*reports, file=args.json)


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m muster.train.preflight",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", help="a .yaml, .toml or .json file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings that replace the file's")
    parser.add_argument("--level", choices=[*LEVELS, "all"], default="all", help="the rung; default: all")
    parser.add_argument("--full-size", action="store_true", help="leave the model and the batch as they are")
    parser.add_argument("--skip", action="append", default=[], metavar="CHECK", help="leave a check out")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="for each check")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON")
    return parser.parse_args(words)
