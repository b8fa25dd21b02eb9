"""Isolates the ranks of a worker from the server, from other jobs and from the user that the launcher runs as.

One bubblewrap process holds the namespaces of a worker: a read-only file system, with Muster's folders and the user's
home hidden, its own /tmp, /run and /dev/shm, and a process tree without other processes. The launcher stays outside and
forks its ranks into these namespaces, so that they are its children as usual: it can signal them and gets their exit
status. If the launcher is root, the ranks also run as another user, one for each project.

`python -m muster.runtime.sandbox [UID]` tries it and prints what is wrong; nothing when it works.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from muster import wire
from muster.inherited import home_of, inherited
from muster.runtime import processes

OPEN_SECONDS: Final = 30.0  # it takes milliseconds on a machine that is not busy
PRIVATE: Final = ("/tmp", "/var/tmp", "/run", "/dev/shm", "/dev/pts")  # noqa: S108  (what is replaced in any case)
WORK: Final = "work"  # in the worker's folder: what the ranks may write to and is not needed afterwards
_ON_DISK: Final = {"/tmp": "tmp", "/var/tmp": "tmp"}  # noqa: S108
_HELD_OFF: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class SandboxError(Exception):
    """Why the ranks can't be isolated on this machine, as a readable sentence."""


class Sandbox:
    """The sandbox of one worker, in its folder. Call `open` in the main thread, before there are others."""

    def __init__(self, isolation: wire.Isolation, folder: Path, shown: Mapping[str, bool]) -> None:
        """`shown`: paths that the ranks see even inside hidden folders → whether they may write there."""
        self._isolation = isolation
        self._folder = folder
        self._shown = dict(shown)
        self._holder: subprocess.Popen[bytes] | None = None
        self._namespaces: list[int] = []
        self._root = os.geteuid() == 0

    def open(self, env: Mapping[str, str]) -> None:
        """Raises SandboxError when this machine does not support it, OSError when it refuses for now."""
        for name in ("tmp", "home", WORK):
            (self._folder / name).mkdir(mode=0o700, exist_ok=True)
            self.give(self._folder / name)
        for path, written in self._shown.items():
            if written:
                self.give(Path(path))
        told, tell = os.pipe()
        try:
            command = [*self._bwrap(), "--info-fd", str(tell), "--", "/bin/sh", "-c", "echo; exec sleep infinity"]
            self._holder = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[tell],
                start_new_session=True, env=dict(env), preexec_fn=_hold_off, cwd="/",
            )  # fmt: skip
        except FileNotFoundError as error:
            raise SandboxError("bubblewrap (bwrap) is not installed") from error
        finally:
            os.close(tell)
        try:
            self._namespaces = self._wait(self._holder, told)
        finally:
            os.close(told)

    @property
    def namespaces(self) -> tuple[int, ...]:
        """Descriptors of its namespaces, for `joined` in a process that inherits them."""
        return tuple(self._namespaces)

    @classmethod
    def joined(cls, isolation: wire.Isolation, folder: Path, namespaces: Sequence[int]) -> Sandbox:
        """A sandbox that the launcher has opened, for `fork` in another process."""
        sandbox = cls(isolation, folder, {})
        sandbox._namespaces = list(namespaces)
        return sandbox

    def close(self) -> None:
        """Ends all processes inside."""
        for fd in self._namespaces:
            os.close(fd)
        self._namespaces = []
        if self._holder is not None:
            self._holder.kill()
            self._holder.communicate()
            self._holder = None

    def fork(self) -> int:
        """Like `os.fork`, but the child is inside the sandbox and runs as the project's user. Raises OSError."""
        told, tell = os.pipe()
        wait, go = os.pipe()
        middle = os.fork()
        if middle == 0:
            self._enter(tell)
            if os.read(wait, 1):  # the launcher is the parent now, and is alive
                processes.die_with_parent()
                for fd in (told, tell, wait, go, *self._namespaces):
                    os.close(fd)
                return 0
            os._exit(1)
        os.close(tell)
        os.close(wait)
        try:
            os.waitpid(middle, 0)
            word = os.read(told, 4096).decode()
            if not word.isdecimal():
                raise OSError(word or "a process could not be started inside the sandbox")
            os.write(go, b"\1")
            return int(word)
        finally:
            os.close(told)
            os.close(go)

    def enters(self, workdir: str) -> str:
        """What the ranks may do in a folder: "write", "read", or "" for nothing."""
        told, tell = os.pipe()
        pid = self.fork()
        if pid == 0:
            word = b""
            with suppress(OSError):
                os.chdir(workdir)
                word = b"write" if os.access(".", os.W_OK) else b"read"
            os.write(tell, word)
            os._exit(0)
        os.close(tell)
        os.waitpid(pid, 0)
        try:
            return os.read(told, 100).decode()
        finally:
            os.close(told)

    def shell(self) -> list[str]:
        """A command for a shell that reads from stdin, in its own sandbox like this one. It must be started with none
        of the job's variables in its environment, because the programs before the shell obey those too."""
        command = [*self._bwrap(), "--chdir", "/", "--"]
        if self._root:
            who = self._isolation
            command += [shutil.which("setpriv") or "/usr/bin/setpriv", f"--reuid={who.uid}", f"--regid={who.gid}"]
            command += ["--clear-groups", "--no-new-privs", "--bounding-set=-all"]
        return [*command, "/bin/sh", "-s"]

    def give(self, path: Path) -> None:
        """Makes the project's user the owner of a folder with all its content, if it is not. A file that another folder
        has too, such as a checkpoint that another run started from, becomes a copy."""
        who = self._isolation
        if not self._root or path.lstat().st_uid == who.uid:
            return
        for _, folders, files, at in os.fwalk(path, follow_symlinks=False):
            for name in (*folders, *files):
                found = os.stat(name, dir_fd=at, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
                    _unshare(name, at)
                os.chown(name, who.uid, who.gid, dir_fd=at, follow_symlinks=False)
        os.chown(path, who.uid, who.gid, follow_symlinks=False)
        path.chmod(0o700)

    def _bwrap(self) -> list[str]:
        command = [shutil.which("bwrap") or "bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc"]
        command += [] if self._root else ["--unshare-user"]
        command += ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
        return [*command, *mounts(self._isolation, self._folder, self._shown, os.environ)]

    def _wait(self, holder: subprocess.Popen[bytes], told: int) -> list[int]:
        """The namespaces, once everything is set up."""
        assert holder.stdout is not None
        assert holder.stderr is not None
        ready, _, _ = select.select([holder.stdout], [], [], OPEN_SECONDS)
        if not ready or not os.read(holder.stdout.fileno(), 1):
            holder.kill()
            why = holder.stderr.read().decode(errors="replace").strip() or "bubblewrap did not answer"
            raise SandboxError(why)
        child = int(json.loads(os.read(told, 4096))["child-pid"])
        kinds = ("mnt", "ipc", "pid") if self._root else ("user", "mnt", "ipc", "pid")
        return [os.open(f"/proc/{child}/ns/{kind}", os.O_RDONLY) for kind in kinds]

    def _enter(self, tell: int) -> None:
        """In the intermediate process: enters the namespaces, forks and exits. Returns in the forked process."""
        try:
            _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # no process inside may trace it before its exec
            for fd in self._namespaces:
                if _LIBC.setns(fd, 0) != 0:
                    raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")
            pid = os.fork()
            if pid:
                os.write(tell, str(pid).encode())
                os._exit(0)
            _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            if self._root:
                who = self._isolation
                os.setgroups([])
                os.setresgid(who.gid, who.gid, who.gid)
                os.setresuid(who.uid, who.uid, who.uid)
        except BaseException as error:
            os.write(tell, f"{error}".encode())
            os._exit(1)


def mounts(isolation: wire.Isolation, folder: Path, shown: Mapping[str, bool], env: Mapping[str, str]) -> Iterator[str]:
    """bubblewrap's options for what is hidden and visible; of two rules the one for the longer path counts."""
    rules: dict[str, list[str]] = {path: ["--tmpfs"] for path in PRIVATE if os.path.isdir(path)}  # noqa: PTH112
    rules |= {path: ["--bind", str(folder / name)] for path, name in _ON_DISK.items() if path in rules}
    hidden = {os.path.realpath(path) for path in (*isolation.hidden, *_always_hidden(folder, env))} - {"/"}
    for path in hidden:
        if os.path.exists(path):  # noqa: PTH110
            rules[path] = ["--tmpfs"] if os.path.isdir(path) else ["--ro-bind", "/dev/null"]  # noqa: PTH112
    if home := home_of(env):
        hidden.add(home)
        rules[home] = ["--bind", str(folder / "home")]
    for path in _programs(env):
        _show(rules, hidden, path, written=False)
    for paths, written in ((isolation.readable, False), (isolation.writable, True)):
        for path in paths:
            _show(rules, hidden, path, written)
    for path, written in shown.items():
        real = os.path.realpath(path)
        rules[real] = ["--bind" if written else "--ro-bind", real]
    ordered = sorted(rules, key=lambda path: (path.count("/"), path))
    made: set[str] = set()
    for path in ordered:
        for above in reversed([str(one) for one in Path(path).parents]):
            if above not in made and any(above.startswith(f"{rule}/") for rule in rules):
                made.add(above)
                yield from ("--perms", "0755", "--dir", above)  # bubblewrap's own would be accessible only to root
        yield from (*rules[path], path)
        made.add(path)
    for path in ordered:  # a path that is only hidden must not be writable
        if rules[path] == ["--tmpfs"] and path != "/dev/shm":  # noqa: S108
            yield from ("--remount-ro", path)


def _show(rules: dict[str, list[str]], hidden: set[str], path: str, written: bool) -> None:
    """Makes a path visible. Does nothing for a path that is itself hidden, does not exist, or is visible anyway."""
    real = os.path.realpath(path)
    covered = written or any(real.startswith(f"{above}/") for above in rules)
    if covered and real not in hidden and os.path.exists(real):  # noqa: PTH110
        rules[real] = ["--bind" if written else "--ro-bind", real]


def _always_hidden(folder: Path, env: Mapping[str, str]) -> Iterator[str]:
    """The launchers' folders, and the home of the user that they run as."""
    yield str(folder.parent)
    yield from (env[name] for name in (wire.SCRATCH, "MUSTER_HOME") if env.get(name))
    with suppress(KeyError):
        yield pwd.getpwuid(os.geteuid()).pw_dir


def _programs(env: Mapping[str, str]) -> Iterator[str]:
    """Programs that may be in a hidden folder: this Python, this package, what is in PATH;
    and the resolver's configuration."""
    yield from {sys.prefix, sys.base_prefix, str(Path(wire.__file__).resolve().parent)}
    for name in env.get("PATH", "").split(os.pathsep):
        above = Path(name).parent
        if not name.startswith("/") or name == "/":
            continue
        whole = any(os.path.exists(above / mark) for mark in ("pyvenv.cfg", "conda-meta"))  # noqa: PTH110
        yield str(above) if whole else name
    if os.path.realpath("/etc/resolv.conf").startswith("/run/"):
        yield "/etc/resolv.conf"


def probe(isolation: wire.Isolation) -> str:
    """Why ranks can't be isolated here, found by trying it; "" when they can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    processes.adopt_orphans()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "worker"
        folder.mkdir()
        (Path(name) / "hidden").mkdir()
        sandbox = Sandbox(isolation, folder, {})
        try:
            sandbox.open(inherited(os.environ))
            if sandbox.enters(f"{name}/hidden"):
                return "a folder that is hidden can be seen"
            return "" if sandbox.enters("/") == "read" else "the file system is not as it should be"
        except (SandboxError, OSError) as error:
            return str(error)
        finally:
            sandbox.close()


def _unshare(name: str, at: int) -> None:
    """Replaces a file by a copy, so that a change of its owner or its mode concerns no other name of it."""
    draft = f".own-{os.urandom(4).hex()}"
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=at)
    with os.fdopen(source, "rb") as old:
        made = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=at)
        with os.fdopen(made, "wb") as new:
            shutil.copyfileobj(old, new, 1 << 20)
            os.fchmod(made, stat.S_IMODE(os.fstat(source).st_mode) & 0o777)
    os.rename(draft, name, src_dir_fd=at, dst_dir_fd=at)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    uid = int(given[0]) if given else 65534
    wrong = probe(wire.Isolation(uid, uid, "nobody"))
    print(wrong)  # noqa: T201
    return 1 if wrong else 0


def _hold_off() -> None:
    """Ignores signals: a cluster that signals all processes of a worker must not end those that hold the namespaces."""
    for signum in _HELD_OFF:
        signal.signal(signum, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
