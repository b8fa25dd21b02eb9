"""A command beside a member's job is isolated as the job is: as root, as a user, as one to whom ids are granted."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from exec_kit import client_of, muster
from isolation_kit import ATTACK, GRANTS, ORDINARY, member, rank_pid, server_of, submit
from live import LiveServer
from muster.core.errors import NotAllowed

HELD = "echo mine >/tmp/mine; echo in $PWD; exec sleep 1000"


@pytest.fixture(scope="module", params=["root", "user", "granted"])
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    Path("/tmp/seen-by-all").touch()
    granted, uid = request.param == "granted", 0 if request.param == "root" else ORDINARY
    config = "[engines.local]\n" + ("use_subuids = true\n" if granted else "")
    with server_of(uid, config, grants=GRANTS if granted else None) as server:
        yield server


def test_it_gets_at_nothing_of_the_servers_or_of_others(server: LiveServer, tmp_path: Path) -> None:
    ada, eve = member(server, "ada"), member(server, "eve", "vision")
    others, admins = submit(server, ada, HELD), submit(server, server.token, HELD)
    own = submit(server, eve, HELD, project="vision", queue="vision")
    pids = [rank_pid(others), rank_pid(admins)]
    assert server.process is not None
    pids.append(server.process.pid)
    rank_pid(own)
    server.wait(own, "running")
    program = ATTACK.replace('os.environ["MUSTER_RANK_DIR"]', 'os.environ["T_RANK_DIR"]')
    rank_dir = str(server.home / "local" / "attempts" / own / "1" / "0" / "rank-0" / "own")
    given = {"T_HOME": str(server.home), "T_USER_HOME": server.env["HOME"], "T_PIDS": json.dumps(pids), "T_MORE": "[]"}
    set_first = f"import os; os.environ.update({ {**given, 'T_RANK_DIR': rank_dir}!r})\n"
    with client_of(server, eve) as client:
        done = client.exec(own, ["python3", "-"], input=(set_first + program).encode())
        assert done.code == 0, done.stderr
        assert json.loads(done.text.removeprefix("COULD ")) == []
        # It is in the same sandbox as the rank, as the same user.
        same = client.exec(
            own, ["sh", "-c", "cat /tmp/mine; ps -A -o args= | grep -c '[s]leep 1000'; id -u"]
        ).text.split()
        assert same[:2] == ["mine", "1"]
        assert same[2] == client.exec(own, ["stat", "-c", "%u", "/tmp/mine"]).text.strip()
        for job in (others, admins):
            with pytest.raises(Exception, match="There is no job"):
                client.exec(job, ["true"])
        assert client.exec(own, ["sh", "-c", "setsid sleep 77 & echo $!"]).code == 0
    home = server.home
    plant = f"ln -s {home}/token /tmp/link; mkdir /tmp/tree; ln -s {home} /tmp/tree/out; echo kept >/tmp/tree/a"
    with client_of(server, eve) as client:
        client.exec(own, ["sh", "-c", plant])
    target = tmp_path / "got"
    for path, words in (
        ("/tmp/link", b"No such file"),
        (f"{server.home}/token", b"No such file"),
        ("/tmp/tree", b"leads out"),
    ):
        copy = muster(server, "cp", f"{own}:{path}", str(target), stderr=subprocess.PIPE, env={"MUSTER_TOKEN": eve})
        assert words in copy.communicate()[1]
        assert copy.returncode == 1
        assert list(tmp_path.iterdir()) == []
    copy = muster(server, "cp", f"{own}:/tmp/tree/a", str(target), env={"MUSTER_TOKEN": eve})
    assert (copy.wait(), target.read_text()) == (0, "kept\n")
    copy = muster(
        server, "cp", str(target), f"{own}:{server.home}/planted", stderr=subprocess.PIPE, env={"MUSTER_TOKEN": eve}
    )
    assert b"there is no folder" in copy.communicate()[1] or copy.returncode == 1
    assert not (server.home / "planted").exists()
    with client_of(server, ada) as client, pytest.raises(NotAllowed, match="server's rights"):
        client.exec(admins, ["true"])
    with client_of(server) as root:
        assert root.exec(own, ["id", "-u"]).text.strip() == same[2]  # an administrator's command too
        assert root.exec(own, ["sh", "-c", "ps -A -o args= | grep -c '[s]leep 77'"]).text == "0\n"
    for job in (others, admins, own):
        server.post(f"/v1/jobs/{job}/stop", {"force": True})
        server.wait(job)
