"""Servers whose members' jobs are kept apart, as root and as a user with and without granted ids, and a job that tries
to get out."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

import muster
from live import LiveServer, stop_everything, until

ORDINARY = 65534  # nobody
GRANTED = range(3_000_000, 3_000_100)  # ids of no user, for that one
GRANTS = f"nobody:{GRANTED[0]}:{len(GRANTED)}\n"  # as /etc/subuid has it
HELD_BY_SERVER = {"AWS_SECRET_ACCESS_KEY": "sentinel-cloud", "PGPASSWORD": "sentinel-database", "HF_HOME": "/models"}

# Prints what it could do of all that it must not be able to; a line of JSON. T_HOME, T_USER_HOME: the server's folder
# and its user's home. T_PIDS: processes of others. T_MORE: further files that hold a token.
ATTACK = textwrap.dedent("""
    import glob, json, os, pathlib, signal
    done = []
    def tries(what, work):
        try:
            if work():
                done.append(what)
        except (OSError, ValueError, IndexError):
            pass
    home, person = os.environ["T_HOME"], os.environ["T_USER_HOME"]
    guessed = os.environ["MUSTER_RANK_DIR"].split("/local/")[0]
    for name in ("token", "key", "muster.db", "config.toml", "server.log"):
        tries(name, lambda: open(f"{home}/{name}", "rb").read(4))
        tries(f"guessed {name}", lambda: open(f"{guessed}/{name}", "rb").read(4))
    for path in json.loads(os.environ["T_MORE"]):
        tries(path, lambda: open(path, "rb").read(4))
    tries("launch.json", lambda: glob.glob(f"{home}/local/attempts/*/*/*/launch.json"))
    tries("gang.json", lambda: glob.glob(f"{home}/slurm/attempts/*/*/gang.json"))
    tries("own launch.json", lambda: open(os.environ["MUSTER_RANK_DIR"] + "/../../launch.json").read())
    tries("variables", lambda: [name for name, value in os.environ.items() if "sentinel" in value])
    for path in glob.glob("/proc/[0-9]*/environ"):
        tries(f"{path} is read", lambda: b"sentinel" in open(path, "rb").read())
    for pid in json.loads(os.environ["T_PIDS"]):
        comm = pathlib.Path(f"/proc/{pid}/cmdline")
        tries(f"process {pid} is seen", lambda: b"muster" in comm.read_bytes() or b"sleep" in comm.read_bytes())
        tries(f"process {pid} is killed", lambda: b"T_PIDS" not in open(f"/proc/{pid}/environ", "rb").read()
              and os.kill(pid, signal.SIGKILL) is None)
    for folder in (home, f"{home}/local", f"{home}/local/attempts", "/etc", "/usr/local/bin", "/opt"):
        tries(f"{folder} is written", lambda: pathlib.Path(f"{folder}/planted-by-a-job").write_text("x"))
    try:
        pathlib.Path(f"{person}/.bashrc").write_text("planted")  # a file of its own, if any
    except OSError:
        pass
    tries("docker.sock", lambda: os.listdir("/run"))
    tries("terminals", lambda: os.listdir("/dev/pts"))
    tries("the files of others in /tmp", lambda: set(os.listdir("/tmp")) & {"seen-by-all"})
    tries("root", lambda: os.getuid() == 0)
    print("COULD", json.dumps(done))
""")


TRAINS = textwrap.dedent("""
    import os, pathlib, signal, sys
    from muster import runtime
    attempt = int(os.environ["MUSTER_ATTEMPT"])
    runtime.report(step=attempt, loss=float(attempt))
    made = pathlib.Path("/tmp/made"); made.write_text("made"); big = pathlib.Path.home() / "big"
    big.write_bytes(b"x" * 1_000_000)
    if attempt == 1:
        with runtime.checkpoint(7) as folder:
            (folder / "state").write_text("seven")
        os.kill(os.getpid(), signal.SIGKILL)
    runtime.artifact(made, "made.txt")
    runtime.artifact(big, "big.bin")
    found = runtime.last_checkpoint()
    print("goes on from", found.name, (found / "state").read_text())
""")


def attack(server: LiveServer, token: str, pids: list[int], person: Path, more: list[str], **spec: Any) -> list[str]:
    """What a member's job could do."""
    envs = {"T_HOME": str(server.home), "T_USER_HOME": str(person), "T_PIDS": json.dumps(pids)}
    envs["T_MORE"] = json.dumps(more)
    job = submit(server, token, program(ATTACK), envs=envs, **spec)
    ended = server.wait(job)
    printed = server.output(job)
    assert ended["phase"] == "succeeded", printed
    line = next(line for line in printed.splitlines() if line.startswith("COULD "))
    found: list[str] = json.loads(line.removeprefix("COULD "))
    return found


def program(text: str) -> str:
    """A command that runs this Python, without a file."""
    return f"{sys.executable} - <<'THE-END'\n{text}\nTHE-END"


def submit(server: LiveServer, token: str, run: str, **spec: Any) -> str:
    """A job whose name, and so whose id, no other server on this machine has: its processes are looked for by it."""
    body = {"spec": {"name": f"job-{secrets.token_hex(4)}", "run": run, "workdir": "/", **spec}}
    with server.http(token) as http:
        answer = http.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def member(server: LiveServer, user: str, project: str = "default") -> str:
    """A token of somebody who may submit jobs in this project, and nothing more."""
    with server.http() as http:
        if project != "default":
            for path, body in (("projects", {"name": project}), ("queues", {"name": project, "project": project})):
                made: httpx.Response = http.post(f"/v1/{path}", json=body)
                assert made.status_code in (201, 409), made.text
        assert http.put(f"/v1/projects/{project}/members/{user}", json={"role": "member"}).status_code == 200
        made = http.post("/v1/tokens", json={"user": user, "name": "test", "role": "member"})
        assert made.status_code == 201, made.text
        return str(made.json()["token"])


@contextmanager
def server_of(
    uid: int, config: str = "", env: Mapping[str, str] | None = None, *options: str, grants: str | None = None
) -> Iterator[LiveServer]:
    """A server of this user's, with a home of theirs that a file in it tells from an empty one."""
    base = Path(tempfile.mkdtemp(prefix="muster-isolation-", dir="/var/tmp"))
    person, home = base / "person", base / "muster"
    for folder in (person, home):
        folder.mkdir(mode=0o700)
    (person / ".bashrc").write_text("untouched")
    for path in (base, person, home, person / ".bashrc"):
        os.chown(path, uid, uid)
    around = () if uid == 0 else as_user(uid, grants)
    given = {**HELD_BY_SERVER, "HOME": str(person), "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
    server = LiveServer(home, options, f"cpus = 32\n{config}", env=given, around=around)
    try:
        server.start()
        yield server
        assert (person / ".bashrc").read_text() == "untouched"
        planted = [at for at, _, names in os.walk(base) if "planted-by-a-job" in names]  # folders may go meanwhile
        assert planted == []
    finally:
        stop_everything(server)
        shutil.rmtree(base, ignore_errors=True)


def as_user(uid: int, grants: str | None = None, first: Sequence[str] = ()) -> tuple[str, ...]:
    """Runs a command as this user, who sees this Python and this Muster even where they are in somebody's home.
    `grants`: what /etc/subuid and /etc/subgid hold for this command alone. `first`: lines of shell before it."""
    needed = {Path(sys.prefix), Path(sys.base_prefix), Path(muster.__file__).resolve().parents[1]}
    closed = {at for path in needed if (at := _closed(path)) is not None}
    lines = ["set -e"]
    kept = [path for path in needed if any(path.is_relative_to(at) for at in closed)]
    for number, path in enumerate(kept):  # held elsewhere while what is above them is covered
        lines.append(f"mkdir -p /mnt/kept/{number} && mount --bind {shlex.quote(str(path))} /mnt/kept/{number}")
    lines += [f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(at))}" for at in closed]
    for number, path in enumerate(kept):
        place = shlex.quote(str(path))
        lines.append(f"mkdir -p {place} && mount --bind /mnt/kept/{number} {place} && umount /mnt/kept/{number}")
    if kept:
        lines.insert(1, "mount -t tmpfs tmpfs /mnt")
        lines.append("umount /mnt")
    if grants is not None:
        lines += ["mount -t tmpfs -o mode=755 tmpfs /mnt", f"printf %s {shlex.quote(grants)} >/mnt/granted"]
        lines += [
            "chmod 644 /mnt/granted",
            *(f"mount --bind /mnt/granted /etc/{name}" for name in ("subuid", "subgid")),
        ]
        lines.append("umount -l /mnt")
    lines += first
    lines.append(f'exec setpriv --reuid={uid} --regid={uid} --clear-groups "$@"')
    return ("unshare", "--mount", "sh", "-c", "\n".join(lines), "sh")


def _closed(path: Path) -> Path | None:
    """The first folder above that others can't pass."""
    return next((at for at in reversed((path, *path.parents)) if not at.stat().st_mode & 0o001), None)


def rank_pid(job: str) -> int:
    """Of the first rank of a job that `submit` made, seen from outside."""
    mark = f"MUSTER_JOB={job}".encode()

    def found() -> int:
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if mark in words and b"RANK=0" in words:
                return int(path.parent.name)
        return 0

    return until(found, f"a rank of {job}")
