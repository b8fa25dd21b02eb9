"""The job whose program is a Python function: it is found again by its file and its name, in a process of its own."""

from __future__ import annotations

import inspect
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from muster.core.errors import Invalid
from muster.core.units import mended_name
from muster.wire import TRIAL

HOW: Final = "Write it with `def` at the top level of a .py file, import it from there, and pass it."


def function_job(function: Callable[..., Any], objectives: Sequence[str], workdir: Path, local: bool) -> dict[str, Any]:
    """The name and the command of such a job. `local`: it runs on this machine, with the Python of this program.

    Raises Invalid for a function that another process can't find.
    """
    name, file = _place(function)
    if os.environ.get(TRIAL) is not None:
        raise Invalid(
            f"`tune` was called while trial {os.environ[TRIAL]} loads {file.name} for {name}.",
            'Put the call below `if __name__ == "__main__":`.',
        )
    shown = file.relative_to(workdir) if file.is_relative_to(workdir) else file
    python = sys.executable if local and sys.executable else "python"
    words = [python, "-m", "muster.runtime.function", str(shown), name]
    words += [word for metric in objectives for word in ("--objective", metric)]
    return {"name": mended_name(name), "run": shlex.join(words)}


def _place(function: Callable[..., Any]) -> tuple[str, Path]:
    """The name and the file of a function."""
    if not inspect.isfunction(function):
        _refuse(function, f"it is a {type(function).__name__} and no function")
    name, module = function.__qualname__, sys.modules.get(function.__module__)
    if name.endswith("<lambda>"):
        _refuse(function, "it is a lambda")
    if "<locals>" in name:
        _refuse(function, "it was defined inside of another function")
    if "." in name:
        _refuse(function, "it belongs to a class")
    file, loaded = Path(inspect.unwrap(function).__code__.co_filename), Path(getattr(module, "__file__", None) or "")
    file = loaded if loaded.name == file.name else file  # absolute, whatever the current folder is by now
    if file.suffix != ".py" or not file.is_file():
        _refuse(function, f"it has no file: it was typed into a prompt or a notebook ({file})")
    if module is not None and getattr(module, name, function) is not function:
        _refuse(function, f"{module.__name__}.{name} is another object by now, perhaps since it was decorated")
    _check_parameters(function)
    return name, Path(os.path.abspath(file))  # noqa: PTH100  (links stay as they are)


def _check_parameters(function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind({})
    except TypeError:
        raise Invalid(
            f"{function.__qualname__}{inspect.signature(function)} can't be called with one mapping of parameters.",
            'Write it as `def train(params): lr = params["lr"]; ...; return loss`.',
        ) from None


def _refuse(function: Any, why: str) -> NoReturn:
    name = getattr(function, "__qualname__", repr(function)[:80])
    raise Invalid(f"{name} can't be run in other processes: {why}.", HOW)
