"""Calls a Python function as the program of a trial: `python -m muster.runtime.function FILE NAME --objective loss`.

The function gets the trial's parameters as a mapping. A number that it returns is reported as the objective, a sequence
as the objectives in their order, a mapping by its names; None is for one that reported everything itself. Its file is
loaded under its own name and not as `__main__`, so that what stands below `if __name__ == "__main__":` does not run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, SupportsIndex

from muster.runtime import rank_info, reporter, signals, trials
from muster.runtime.checks import Number


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m muster.runtime.function", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("name")
    parser.add_argument("--objective", action="append", default=[], help="metric of a number that it returns")
    given = parser.parse_args(words)
    steps = _Steps()
    result = find(given.file.absolute(), given.name)(trials.trial_params())
    # A function that left because it was asked to has no result yet.
    if result is not None and rank_info.rank() == 0 and not signals.should_stop():
        reporter.shared.log(values_of(result, given.objective, given.name), steps.next)
    return 0


def find(file: Path, name: str) -> Callable[[dict[str, Any]], Any]:
    """The function of that name in a file."""
    module = load(file)
    found = getattr(module, name, None)
    if not callable(found):
        _leave(f"{file} has no function {name!r} any more. Start the study again with the function that is there.")
    function: Callable[[dict[str, Any]], Any] = found
    return function


def load(file: Path) -> ModuleType:
    """The module of a file, imported as `python FILE` would find its neighbours, or as a part of its package."""
    if not file.is_file():
        _leave(f"{file} is not there: the folder of the study has changed, or is on another machine.")
    package, root = [file.stem] if file.stem != "__init__" else [], file.parent
    while (root / "__init__.py").is_file():
        package, root = [root.name, *package], root.parent
    sys.path.insert(0, str(root))
    if len(package) > 1 or file.stem == "__init__":
        return import_module(".".join(package))
    name = file.stem if file.stem not in sys.modules else f"{file.stem}_"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        _leave(f"{file} is no file of Python.")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def values_of(result: Any, objectives: Sequence[str], name: str) -> dict[str, Number]:
    """What a function returned, by metric."""
    if isinstance(result, Mapping):
        return {str(metric): value for metric, value in result.items()}
    several = list(result) if isinstance(result, list | tuple) else [result]
    if len(several) != len(objectives):
        _leave(
            f"{name} returned {len(several)} values, and the study has {len(objectives)} objectives: "
            f"{', '.join(objectives)}. Return as many, or a mapping such as {{{objectives[0]!r}: ...}}."
        )
    return dict(zip(objectives, several, strict=True))


class _Steps:
    """Notes the steps that the function reports: what it returns is reported at the next one."""

    def __init__(self) -> None:
        self.next = 1
        self._report, self._log = reporter.shared.report, reporter.shared.log
        for place in (reporter, reporter.shared):
            for name in ("report", "log"):
                setattr(place, name, getattr(self, name))

    def report(self, /, step: SupportsIndex, **metrics: Number) -> None:
        self._report(step, **metrics)
        self.next = max(self.next, int(step) + 1)

    def log(self, values: Mapping[str, Number], step: SupportsIndex) -> None:
        self._log(values, step)
        self.next = max(self.next, int(step) + 1)


def _leave(message: str) -> NoReturn:
    sys.stderr.write(f"{message}\n")
    sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
