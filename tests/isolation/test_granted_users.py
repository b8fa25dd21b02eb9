"""Members' jobs of a server that is not root and has ids granted in /etc/subuid: whose they are, that the next server
goes on with them and removes what they saved, and what is said where something is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolation_kit import GRANTED, GRANTS, ORDINARY, as_user, member, program, rank_pid, server_of, submit
from live import LiveServer, until

CONFIG = "[engines.local]\nuse_subuids = true\n"
HELD = "exec sleep 1000"
# It reports once more when it finds a file in its /tmp.
SAVES = textwrap.dedent("""
    import pathlib, time
    from muster import runtime
    with runtime.checkpoint(3) as folder:
        (folder / "state").write_text("three")
    runtime.report(step=3, loss=0.5)
    print("saved", flush=True)
    while not pathlib.Path("/tmp/go").exists():
        time.sleep(0.05)
    runtime.report(step=4, loss=0.25)
    pathlib.Path("/tmp/told").touch()
    time.sleep(1000)
""")


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with server_of(ORDINARY, CONFIG, grants=GRANTS) as server:
        yield server


def ids(pid: int, what: str = "Uid") -> set[int]:
    """The user (or group) ids of a process as this machine counts them."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {int(word) for line in lines if line.startswith(f"{what}:") for word in line.split()[1:]}


def folder_of(server: LiveServer, job: str) -> Path:
    return server.home / "local" / "attempts" / job / "1" / "0"


def launcher_pid(server: LiveServer, job: str) -> int:
    return int(json.loads((folder_of(server, job) / "launcher.json").read_text())["pid"])


def stop(server: LiveServer, *jobs: str) -> None:
    for job in jobs:
        server.post(f"/v1/jobs/{job}/stop", {"force": True})
        server.wait(job)


def test_two_projects_are_two_users_and_neither_is_the_servers(server: LiveServer) -> None:
    ada, eve = member(server, "ada"), member(server, "eve", "vision")
    first, second = submit(server, ada, HELD), submit(server, eve, HELD, project="vision", queue="vision")
    admins = submit(server, server.token, HELD)
    assert [ids(rank_pid(job)) for job in (first, second, admins)] == [{GRANTED[0]}, {GRANTED[1]}, {ORDINARY}]
    assert [ids(rank_pid(job), "Gid") for job in (first, second)] == [{GRANTED[0]}, {GRANTED[1]}]
    assert [ids(rank_pid(job), "Groups") for job in (first, second)] == [set(), set()]
    own = Path("/proc/self/ns/user").readlink()
    spaces = [Path(f"/proc/{launcher_pid(server, job)}/ns/user").readlink() for job in (first, second, admins)]
    assert len({*spaces, own}) == 3
    assert spaces[2] == own, "an administrator's job is in no namespace"
    maps = Path(f"/proc/{launcher_pid(server, second)}/uid_map").read_text().split()
    assert maps[1::3] == [str(ORDINARY), str(GRANTED[1])], "a launcher has the ids of its project alone"
    stop(server, first, second, admins)


def test_a_project_past_the_granted_ids_fails_and_says_why(server: LiveServer) -> None:
    eve = member(server, "eve", "late")
    numbers = server.home / "users.json"
    known = json.loads(numbers.read_text()) if numbers.exists() else {}
    numbers.write_text(json.dumps({**known, "late": 1 + len(GRANTED)}))
    os.chown(numbers, ORDINARY, ORDINARY)
    ended = server.wait(submit(server, eve, "true", project="late", queue="late"))
    assert ended["reason"]["code"] == "not_isolated"
    words = f"/etc/subuid grants {len(GRANTED)} ids to nobody, and this is project number {1 + len(GRANTED)}"
    assert f"{words}; type `usermod --add-subuids {GRANTED.stop}-" in json.dumps(ended["reason"])


def test_the_next_server_goes_on_with_them_and_removes_what_they_saved(server: LiveServer) -> None:
    ada = member(server, "ada")
    jobs = [submit(server, ada, program(SAVES), retry={"on": ["worker"]}) for _ in range(2)]
    for job in jobs:
        until(lambda job=job: "saved" in server.output(job), "its checkpoint")
    ranks = [rank_pid(job) for job in jobs]
    left = left_over(server.home / "local" / "trash" / "job-9.1")
    server.kill()
    for job in jobs:  # what they say now, only the next server hears
        (folder_of(server, job) / "tmp" / "go").touch()
        until((folder_of(server, job) / "tmp" / "told").exists, "a report that nobody takes")
    os.kill(launcher_pid(server, jobs[1]), signal.SIGKILL)  # another launcher reads what the ranks wrote
    server.start()
    assert server.wait(jobs[1])["reason"]["code"] == "launcher_lost"
    until(lambda: not Path(f"/proc/{ranks[1]}").exists(), "the end of its rank")  # which init buries
    assert Path(f"/proc/{ranks[0]}").exists()
    server.post(f"/v1/jobs/{jobs[0]}/stop")
    assert server.wait(jobs[0])["phase"] == "stopped"
    for job in jobs:
        assert server.metric(job, "loss") == {1: ([3, 4], [0.5, 0.25])}
        assert server.output(job).count("saved") == 1
        saved = server.home / "local" / "checkpoints" / job
        assert (saved.stat().st_uid, saved.stat().st_mode & 0o777) == (GRANTED[0], 0o700)
        with server.http() as http:
            assert http.delete(f"/v1/runs/{job}", params={"purge": True}).status_code == 200
        assert not saved.exists()
    places = [server.home / "local" / name for name in ("attempts", "trash")]
    until(lambda: not [path for place in places for path in place.glob("*")], "what the jobs left to be removed")
    assert not left.exists()


def left_over(folder: Path) -> Path:
    """An attempt's folder that was not removed, because the server ended before."""
    own = folder / "0" / "rank-0" / "own"
    own.mkdir(parents=True)
    (own / "spool.0").touch()
    for path in (folder.parent, folder, *folder.rglob("*")):
        user = GRANTED[5] if path.is_relative_to(own) else ORDINARY
        os.chown(path, user, user)
    return own


def probed(*first: str, grants: str = GRANTS, **env: str) -> list[str]:
    """What a probe says is wrong, and what to type."""
    words = [*as_user(ORDINARY, grants, first), sys.executable, "-P", "-m", "muster.runtime.namespace"]
    words += ["probe", "2000000"]
    done = subprocess.run(words, env={**os.environ, **env}, cwd="/", capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.strip().splitlines()


# A process of a namespace is found by its mark in that namespace alone, and killed there.
KILLS = textwrap.dedent("""
    import os, signal
    from muster import wire
    from muster.runtime import namespace, processes
    def kills():
        left = processes.marked("a/1/0@x")
        processes.kill(left)
        return not left
    project = wire.Isolation(2000001, 2000001, "a", subid=1)
    told, tell = os.pipe()
    os.set_inheritable(tell, True)
    pid = os.fork()
    if pid == 0:
        namespace.enter(project)
        os.setresuid(2000001, 2000001, 2000001)
        os.execve("/bin/sh", ["sh", "-c", f"echo >&{tell}; exec sleep 1000"], {"MUSTER_GANG": "a/1/0@x"})
    os.read(told, 1)
    print(kills(), namespace.in_each(project, kills), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(namespace.in_each(project, kills), os.getuid())
""")


def test_what_is_left_in_the_namespace_of_a_dead_launcher_is_killed() -> None:
    words = [*as_user(ORDINARY, f"nobody:{GRANTED[50]}:1\n"), sys.executable, "-P", "-c", KILLS]
    done = subprocess.run(words, cwd="/", capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"True False -9\nTrue {ORDINARY}\n", "")


def test_it_works_and_says_nothing() -> None:
    assert probed() == []


@pytest.mark.parametrize("tool", ["newuidmap", "newgidmap"])
def test_a_helper_that_is_missing_is_named(tool: str) -> None:
    found = probed(f"mount --bind /dev/null $(command -v {tool})")
    assert found == [f"{tool} is not installed", "apt-get install uidmap"]


@pytest.mark.parametrize(
    ("grants", "first"),
    [
        ("", 100_000),
        ("root:100000:65536\nlxd:165536:65536\n", 231_072),
        ("nobody:0:65536\n", 100_000),  # root among them
        ("nobody:65000:65536\n", 130_536),  # the server's own user among them
        ("nobody:many:ids\n", 100_000),
    ],
)
def test_ids_that_nobody_has_are_asked_for_where_none_are_granted(grants: str, first: int) -> None:
    free = f"{first}-{first + 65535}"
    words = ["/etc/subuid grants no ids to nobody", f"usermod --add-subuids {free} --add-subgids {free} nobody"]
    assert probed(grants=grants) == words


def test_a_namespace_that_is_refused_leaves_nothing_behind_and_runs_no_helper(tmp_path: Path) -> None:
    """In a changed root the kernel gives a user no namespace."""
    tmp_path.chmod(0o777)
    for path in (tmp_path, *tmp_path.parents):
        path.chmod(path.stat().st_mode | 0o001)
    for tool in ("newuidmap", "newgidmap"):
        (tmp_path / tool).write_text(f"#!/bin/sh\necho {tool} >>{tmp_path}/ran\n")
        (tmp_path / tool).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    away = ("mount --rbind / /mnt", 'exec chroot --userspec=65534:65534 --groups= /mnt "$@"')
    assert probed(*away, PATH=path)[0] == "the kernel refused a user namespace: Operation not permitted"
    assert not (tmp_path / "ran").exists()
    probed(PATH=path)  # where it is not refused, they are run
    assert (tmp_path / "ran").read_text().split() == ["newuidmap", "newgidmap"]


def test_a_service_that_may_gain_no_privileges_is_told_so() -> None:
    (why,) = probed('set -- setpriv --no-new-privs "$@"')
    assert "take NoNewPrivileges= out of its service" in why


# This check alone: the others look at the whole machine.
DOCTOR = textwrap.dedent("""
    import pathlib, sys
    from muster.cli.check_server import isolation
    for check in isolation(pathlib.Path(sys.argv[1])):
        print(check.status, check.detail, check.hint, sep="\\n")
""")


def test_members_are_refused_and_told_what_to_type_and_so_does_the_doctor() -> None:
    command = "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 nobody"
    with server_of(ORDINARY, CONFIG, grants="") as server:
        assert f"/etc/subuid grants no ids to nobody; type `{command}`; they are refused" in server.log()
        with server.http(member(server, "ada")) as http:
            answer = http.post("/v1/jobs", json={"spec": {"name": "job", "run": "id -u", "workdir": "/"}})
        assert answer.status_code == 409, answer.text
        (why,) = answer.json()["error"]["reasons"]
        assert why["code"] == "isolation_missing"
        assert command in why["message"]
        assert server.wait(server.submit("id -u", workdir="/")["id"])["phase"] == "succeeded"
        env = {**os.environ, **server.env, "MUSTER_HOME": str(server.home)}
        words = [*server.around, sys.executable, "-P", "-c", DOCTOR, str(server.home)]
        done = subprocess.run(words, env=env, cwd="/", capture_output=True, text=True, check=True)
        status, detail, hint = done.stdout.splitlines()
        assert (status, hint) == ("warn", f"Type `{command}`.")
        assert "/etc/subuid grants no ids to nobody; they are refused" in detail
