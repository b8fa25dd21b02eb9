"""The spare process of a worker: a Python that has imported the large libraries and becomes the next attempt's ranks.

It is started as a rank is, with the job's own command, and gets here from `rank_site` before the command's program is
read. It imports what the ranks before it had imported of `rank_site.LARGE`, waits, and forks one rank for each request
of its launcher. In the rank, `serve` returns, and Python goes on with the program as after any other start.

It forks only while it has one thread and has opened no device. Standard library only, for every Python 3, and run in a
namespace of its own: nothing of it is left in the rank's modules.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import socket
import sys
from typing import Any

PAD = "MUSTER_SPARE_PAD"  # room for the ranks' environment in the memory that /proc/PID/environ shows
POOL = "TORCH_WARM_POOL"  # of PyTorch: "0" keeps its compiler from starting processes and threads when it is imported
OPENS_DEVICES = ("torch._inductor",)  # modules that open the device when they are imported, seen with PyTorch 2.11
LOST_IN_FORKS = (
    b"jemalloc_bg_thd",
)  # threads by name: jemalloc (of pyarrow) locks itself before a fork and goes on after it
REQUEST_BYTES = 128 << 10
_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def serve(fd: int, site: dict[str, Any], known: set[str]) -> None:
    """Imports, waits and forks; returns in the ranks alone. `site`: the namespace of `rank_site`. `known`: the modules
    that a Python has at this point."""
    link = socket.socket(fileno=fd)
    names = json.loads(link.recv(REQUEST_BYTES))["import"]
    _import(names)
    own = os.path.dirname(os.path.abspath(site["__file__"]))  # noqa: PTH100, PTH120
    before, here = _libraries(own), set(sys.modules) - known
    problem = _problem()
    link.send(json.dumps({"ready": not problem, "why": problem}).encode())
    while True:
        text, fds, _, _ = socket.recv_fds(link, REQUEST_BYTES, 4)
        if not text:  # the launcher has ended
            os._exit(0)
        asked = json.loads(text)
        problem = _problem() or ("a library was changed" if _libraries(own) != before else "") or _shadowed(here)
        if problem:
            link.send(json.dumps({"why": problem}).encode())
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            link.close()
            _become(asked, fds, site)
            return
        for each in fds:
            os.close(each)
        link.send(json.dumps({"pid": pid}).encode())


def _import(names: list[str]) -> None:
    """Imports what can be. Of PyTorch's compiler only the part that opens no device and starts no thread."""
    given = os.environ.get(POOL)
    os.environ[POOL] = "0"
    for name in names:
        if name.startswith(OPENS_DEVICES):
            continue
        try:
            importlib.import_module(name)
        except BaseException:  # noqa: S112  (the program meets the same error, if it still imports it)
            continue
    if given is None:
        del os.environ[POOL]
    else:
        os.environ[POOL] = given


def _problem() -> str:
    """Why no rank can be forked from this process; "" if one can."""
    if "muster" in sys.modules:
        return "a library has imported muster"
    if _environment_memory()[0] == 0:
        return "the kernel does not say where the environment is"
    if _threads() > 1:
        pid = os.fork()  # libraries with a pool of threads that may be forked (OpenBLAS) end it before a fork
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        if _threads() > 1:
            return "a library has started a thread"
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            place = os.readlink("/proc/self/fd/" + name)  # noqa: PTH115
        except OSError:
            continue
        if place.startswith("/dev/") and place not in ("/dev/null", "/dev/urandom", "/dev/random"):
            return "a library has opened " + place
    return ""


def _threads() -> int:
    """The threads of this process, without those that may be lost in a fork."""
    count = 0
    for each in os.listdir("/proc/self/task"):  # noqa: PTH208
        try:
            with open("/proc/self/task/" + each + "/comm", "rb") as file:  # noqa: PTH123
                count += file.read().strip() not in LOST_IN_FORKS
        except OSError:  # it has ended
            continue
    return count


def _libraries(own: str) -> dict[str, tuple[int, int] | None]:
    """What changes when a package is installed, removed or replaced: the folders that modules are imported from.
    Without `own`, which is of the attempt."""
    found: dict[str, tuple[int, int] | None] = {}
    for place in [sys.executable, *sys.path]:
        if place == own:
            continue
        try:
            status = os.stat(place or ".")  # noqa: PTH116
            found[place] = (status.st_ino, status.st_mtime_ns)
        except OSError:
            found[place] = None
    return found


def _shadowed(names: set[str]) -> str:
    """A module beside the program that it would import in place of one that is imported already."""
    program = sys.argv[0]
    folder = os.getcwd() if program == "-m" else os.path.dirname(os.path.realpath(program))  # noqa: PTH109, PTH120
    tops = {name.partition(".")[0] for name in names}
    try:
        for entry in os.listdir(folder):  # noqa: PTH208
            if entry.partition(".")[0] in tops:
                return entry + " beside the program has the name of a module that a library uses"
    except OSError:
        return "the program's folder can't be read"
    return ""


def _become(asked: dict[str, Any], fds: list[int], site: dict[str, Any]) -> None:
    """In the new rank: takes its place, environment and output, and waits for the word to start."""
    output, start = fds
    os.setsid()
    sys.stdout.flush()
    sys.stderr.flush()
    printed = os.pread(1, 1 << 20, 0)  # what the libraries printed while they were imported
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    for name in asked["unset"]:
        os.environ.pop(name, None)
    os.environ.update(asked["set"])
    _show_environment()
    _take_path(asked["package"], site)
    _reseed()
    os.chdir(asked["workdir"])
    if os.read(start, 1) != b"\1":
        os._exit(1)
    os.close(start)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != asked["parent"]:
        os._exit(1)
    if printed:
        os.write(2, printed)


def _show_environment() -> None:
    """Writes the environment where /proc/PID/environ reads it: processes are found by it."""
    begin, end = _environment_memory()
    block = b"".join(name + b"=" + value + b"\0" for name, value in os.environb.items())
    if len(block) > end - begin:
        os._exit(1)
    # From here on no variable may be in that memory: setting each once more copies it.
    for name, value in list(os.environb.items()):
        os.environb[name] = value
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, block, len(block))


def _environment_memory() -> tuple[int, int]:
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[47]), int(fields[48])  # env_start, env_end


def _take_path(package: str, site: dict[str, Any]) -> None:
    """Puts the new attempt's package folder in the place of the last one's."""
    old = os.path.dirname(os.path.abspath(site["__file__"]))  # noqa: PTH100, PTH120
    sys.path[:] = [package if os.path.abspath(each) == old else each for each in sys.path]  # noqa: PTH100
    sys.path_importer_cache.pop(old, None)
    site["__file__"] = os.path.join(package, "sitecustomize.py")  # noqa: PTH118
    if site.get("__spec__") is not None:
        site["__spec__"].origin = site["__file__"]
        site["__spec__"].cached = site["__cached__"] = importlib.util.cache_from_source(site["__file__"])
    if site.get("__loader__") is not None:
        site["__loader__"].path = site["__file__"]


def _reseed() -> None:
    """State that is random in every new process, and would be the same in all ranks."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
