"""Lets a launcher without root switch users: as root of a user namespace whose ids /etc/subuid and /etc/subgid grant.

The setuid programs newuidmap and newgidmap (Debian's package uidmap) write the namespace's id maps: the launcher's own
user is root in it, and the project's user is one of the granted ids. Inside, the launcher isolates ranks as root does.

`python -m muster.runtime.namespace probe UID` tries it; it prints what is wrong, and on a second line what to type.
`python -m muster.runtime.namespace remove FOLDER` removes a folder in which ranks have saved files as granted users.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from muster import wire
from muster.runtime import sandbox
from muster.runtime.sandbox import SandboxError

SUBUID: Final = Path("/etc/subuid")
SUBGID: Final = Path("/etc/subgid")
MAP_SECONDS: Final = 30.0  # it takes milliseconds, unless accounts come from a directory service that is away
_CLONE_NEWUSER: Final = 0x10000000
_PR_GET_NO_NEW_PRIVS: Final = 39
_MAPPED: Final = b"mapped"
# Kernel settings that close user namespaces, with the value that does.
_SWITCHES: Final = {
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "user.max_user_namespaces": ("0", "10000"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
}
_LIBC: Final = ctypes.CDLL(None, use_errno=True)

Map = tuple[int, int, int]  # the first id inside, the first id outside, how many


class NamespaceError(SandboxError):
    """`remedy`: the command that provides what is missing; "" when there is none."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(f"{why}; type `{remedy}`" if remedy else why)
        self.why, self.remedy = why, remedy


def enter(isolation: wire.Isolation) -> None:
    """Makes this process root of a new user namespace that has, besides its own, only the ids of the given project.
    This process must have one thread. Raises NamespaceError; this process is of no use for a second try."""
    uids, gids = _granted()
    uid, gid = _pick(uids, isolation.subid, SUBUID), _pick(gids, isolation.subid, SUBGID)
    _unshare([(isolation.uid, uid, 1)], [(isolation.gid, gid, 1)])


def in_each(isolation: wire.Isolation, work: Callable[[], bool]) -> bool:
    """Calls `work` in every user namespace that has processes of the project, in a process of its own; True when each
    call returned True. Only the user who made a namespace may enter it, from outside: call it before `enter`."""
    user, spaces = _pick(_granted()[0], isolation.subid, SUBUID), dict[str, int]()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if f"\nUid:\t{user}\t" in (place / "status").read_text():
                spaces.setdefault(str((place / "ns" / "user").readlink()), int(place.name))
    answers = [_in(pid, work) for pid in spaces.values()]
    return all(answers)


def remove(folder: Path) -> None:
    """Enters a namespace with all granted ids and removes a folder. Raises NamespaceError, OSError."""
    uids, gids = _granted()
    _unshare([(ids[0], ids[0], len(ids)) for ids in uids], [(ids[0], ids[0], len(ids)) for ids in gids])
    shutil.rmtree(folder)


def probe(isolation: wire.Isolation) -> tuple[str, str]:
    """Why ranks can't be isolated here, and what to type; found by trying it. Empty when they can."""
    try:
        enter(isolation)
    except NamespaceError as error:
        return error.why, error.remedy
    wrong = sandbox.probe(isolation)
    return wrong, _closed_by() if wrong and shutil.which("bwrap") else ""


def main(arguments: Sequence[str] | None = None) -> int:
    what, word = sys.argv[1:] if arguments is None else arguments
    if what == "remove":
        try:
            remove(Path(word))
        except (NamespaceError, OSError) as error:
            print(error, file=sys.stderr)  # noqa: T201
            return 1
        return 0
    why, remedy = probe(wire.Isolation(int(word), int(word), "nobody", subid=1))
    print(f"{' '.join(why.split())}\n{remedy}")  # noqa: T201
    return 1 if why else 0


def _in(pid: int, work: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if _LIBC.setns(os.open(f"/proc/{pid}/ns/user", os.O_RDONLY), _CLONE_NEWUSER) == 0 and work():
                status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _granted() -> tuple[list[range], list[range]]:
    """The user and group ids that are granted to this process's user. Raises NamespaceError if something is missing."""
    for tool in ("newuidmap", "newgidmap"):
        if shutil.which(tool) is None:
            raise NamespaceError(f"{tool} is not installed", "apt-get install uidmap")
    if _LIBC.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1:
        why = "the server was started with no_new_privs, so that newuidmap has no effect"
        raise NamespaceError(f"{why}: take NoNewPrivileges= out of its service")
    uids, gids = _ranges(SUBUID, os.getuid()), _ranges(SUBGID, os.getgid())
    for path, ids in ((SUBUID, uids), (SUBGID, gids)):
        if not ids:
            raise NamespaceError(f"{path} grants no ids to {_login()}", _usermod(not uids, not gids))
    return uids, gids


def _ranges(path: Path, own: int) -> list[range]:
    """The ids in this file for this process's user, without ranges that contain root's or the process's own id."""
    found = []
    for owner, ids in _lines(path):
        if owner in (_login(), str(os.getuid())) and len(ids) and ids[0] > 0 and own not in ids:
            found.append(ids)
    return found


def _lines(path: Path) -> list[tuple[str, range]]:
    found = []
    with suppress(OSError):
        for line in path.read_text().splitlines():
            owner, _, numbers = line.strip().partition(":")
            first, _, count = numbers.partition(":")
            if first.isdecimal() and count.isdecimal():
                found.append((owner, range(int(first), int(first) + int(count))))
    return found


def _pick(granted: Sequence[range], number: int, path: Path) -> int:
    """The id of the project with this number, counted from 1."""
    left = number - 1
    for ids in granted:
        if left < len(ids):
            return ids[left]
        left -= len(ids)
    why = f"{path} grants {sum(map(len, granted))} ids to {_login()}, and this is project number {number}"
    raise NamespaceError(why, _usermod(path == SUBUID, path == SUBGID))


def _usermod(uids: bool, gids: bool) -> str:
    """The command that grants ids that nobody else has."""
    first = max(100_000, *(1 + ids[-1] for path in (SUBUID, SUBGID) for _, ids in _lines(path) if len(ids)), 0)
    wanted = [option for option, needed in (("--add-subuids", uids), ("--add-subgids", gids)) if needed]
    return f"usermod {' '.join(f'{option} {first}-{first + 65_535}' for option in wanted)} {_login()}"


def _login() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _unshare(uids: Sequence[Map], gids: Sequence[Map]) -> None:
    """Enters a new user namespace. A child outside writes its maps, because setuid programs have no effect inside."""
    maps = {"newuidmap": [(0, os.getuid(), 1), *uids], "newgidmap": [(0, os.getgid(), 1), *gids]}
    told, tell = os.pipe()
    wait, go = os.pipe()
    target, helper = os.getpid(), os.fork()
    if helper == 0:
        os.close(told)
        os.close(go)
        _write_maps(target, maps, wait, tell)
    os.close(tell)
    os.close(wait)
    try:
        refused = ctypes.get_errno() if _LIBC.unshare(_CLONE_NEWUSER) != 0 else 0
        if not refused:
            with suppress(BrokenPipeError):  # then there is no answer either
                os.write(go, b"\1")
        os.close(go)
        os.waitpid(helper, 0)
        answer = os.read(told, 4096)
    finally:
        os.close(told)
    if refused:
        raise NamespaceError(f"the kernel refused a user namespace: {os.strerror(refused)}", _closed_by())
    if answer != _MAPPED:
        raise NamespaceError(answer.decode(errors="replace").strip() or "newuidmap and newgidmap ended unexpectedly")


def _write_maps(target: int, maps: dict[str, list[Map]], wait: int, tell: int) -> NoReturn:
    """In the child: waits for the namespace, and runs nothing if there is none."""
    try:
        if os.read(wait, 1):
            for tool, lines in maps.items():
                words = [tool, str(target), *(str(number) for line in lines for number in line)]
                done = subprocess.run(
                    words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MAP_SECONDS, check=False
                )
                if done.returncode != 0:
                    raise OSError(done.stderr.strip() or f"{tool} failed with status {done.returncode}")
            os.write(tell, _MAPPED)
    except BaseException as error:
        os.write(tell, str(error).encode()[:4096])
    finally:
        os._exit(0)


def _closed_by() -> str:
    """The command for a kernel setting that closes user namespaces; "" when none does."""
    for name, (closed, opened) in _SWITCHES.items():
        with suppress(OSError):
            if Path("/proc/sys", *name.split(".")).read_text().strip() == closed:
                return f"sysctl -w {name}={opened}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
