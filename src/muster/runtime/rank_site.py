"""Lets the launcher ask any Python process of a rank for its stacks, whether it uses `muster.runtime` or not.

The launcher links this file as `sitecustomize.py` into a folder of the ranks' PYTHONPATH, so Python runs it at its
start. It registers a handler in C that writes the stacks of all threads to a file, without the GIL and without running
Python code; then it runs the `sitecustomize` that Python would have found without it. It has to work on every Python 3,
to be quick, and to change nothing else.

For the spare process of the next attempt (`spare`) it also notes which modules of large libraries a rank imports; and
in that process it waits here, until the process becomes a rank. When a rank of several imports PyTorch it starts
`rank_collectives`.
"""

import os
import sys

SIGNAL = 28  # SIGWINCH: a process without a handler ignores it, so it can't be killed by it
FILE = "stacks"  # in the rank's folder; every process of the rank appends to it

DESCRIPTOR = 500  # the lowest number of its descriptor

COLLECTIVES = "torch.distributed.distributed_c10d"  # the module that has the process groups

SPARE = "MUSTER_SPARE"  # the descriptor by which a spare process talks to its launcher
IMPORTS = "imports"  # in the rank's folder, if they are wanted: the modules of these libraries, one a line
LARGE = frozenset((
    "numpy", "scipy", "pandas", "sklearn", "torch", "torchvision", "torchaudio", "transformers", "tokenizers",
    "safetensors", "einops",
))  # fmt: skip

_file = None  # kept open for the handler


def register() -> None:
    """Registers the handler, once, if this is a process of a rank."""
    global _file
    folder = os.environ.get("MUSTER_RANK_DIR")
    if not folder or _file is not None:
        return
    try:
        # Here, because not every Python has them. `signal` itself would import much.
        import _signal  # type: ignore[import-not-found]  # noqa: PLC0415
        import faulthandler  # noqa: PLC0415
        import fcntl  # noqa: PLC0415

        if _signal.getsignal(SIGNAL) != _signal.SIG_DFL:
            return  # the program that started this one ignores it
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        low = os.open(os.path.join(folder, FILE), flags, 0o600)  # noqa: PTH118
        try:  # a high number, which programs that close descriptors leave alone
            _file = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, DESCRIPTOR)
        finally:
            os.close(low)
        faulthandler.register(SIGNAL, file=_file, all_threads=True, chain=False)
    except Exception:  # noqa: S110  (the program is more important than its stacks)
        pass


class ImportNotes:
    """Stands before the finders of modules, finds none, and notes what is looked for."""

    def __init__(self, file: int) -> None:
        self._file = file

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in LARGE:
            try:
                os.write(self._file, (name + "\n").encode())
            except OSError:
                pass


def note_imports() -> None:
    """Notes imports if the launcher has made the file for them."""
    try:
        place = os.path.join(os.environ["MUSTER_RANK_DIR"], IMPORTS)  # noqa: PTH118
        file = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        sys.meta_path.insert(0, ImportNotes(file))
    except (KeyError, OSError):
        pass


class CollectivesStart:
    """Stands before the finders of modules, finds none, and has collectives counted when PyTorch is imported."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == COLLECTIVES:
            count_collectives()


def count_collectives() -> None:
    """Starts the thread of `rank_collectives`."""
    try:
        run_file("rank_collectives")["start"](COLLECTIVES)  # type: ignore[operator]
    except Exception:  # noqa: S110  (the program is more important)
        pass


def watch_collectives() -> None:
    """Has them counted, now or when PyTorch is imported, if this rank is one of several."""
    if "MUSTER_RANK_DIR" not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
        return
    if COLLECTIVES in sys.modules:  # the rank was a spare process
        count_collectives()
    else:
        sys.meta_path.insert(0, CollectivesStart())


def be_spare() -> None:
    """In a spare process: waits, and returns when it has become a rank."""
    known, fd = set(sys.modules), int(os.environ.pop(SPARE))
    try:
        run_file("spare")["serve"](fd, globals(), known)  # type: ignore[operator]
    except BaseException:
        os._exit(1)


def run_file(name: str) -> "dict[str, object]":
    """Runs a file beside this one, and returns its names. Nothing of it is left among the rank's modules."""
    place = os.path.join(os.path.dirname(os.path.realpath(__file__)), name + ".py")  # noqa: PTH118, PTH120
    with open(place, encoding="utf-8") as file:  # noqa: PTH123
        names = {"__name__": name, "__file__": place}
        exec(compile(file.read(), place, "exec"), names)  # noqa: S102
    return names  # type: ignore[return-value]


def run_next() -> None:
    """Imports the `sitecustomize` that this file stands before, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    own, path = sys.modules.pop("sitecustomize"), sys.path[:]
    sys.path[:] = [each for each in path if os.path.abspath(each) != here]  # noqa: PTH100
    left = sys.path[:]
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)
        if sys.path == left:  # else it has changed the path, and that is kept
            sys.path[:] = path
        else:
            sys.path.append(here)


if __name__ == "sitecustomize":
    if SPARE in os.environ:
        be_spare()
    register()
    note_imports()
    watch_collectives()
    run_next()
