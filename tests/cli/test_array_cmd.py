"""Job arrays from the command line, on a real server: one line for many tasks, and each of them by its index."""

from __future__ import annotations

from pathlib import Path

from live import until
from muster.client import Client

SHOWS = 'name: shows\nrun: echo "$MUSTER_ARRAY_INDEX of $MUSTER_ARRAY_COUNT, $SLURM_ARRAY_TASK_ID"\n'


def _file(folder: Path, text: str, name: str = "job.yaml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_every_task_runs_with_its_index_and_the_array_ends_with_them(at_home, live, tmp_path):
    found = at_home("submit", "--json", "--array", "2-6:2%2", _file(tmp_path, SHOWS))
    assert found.code == 0, found.err
    (array,) = found.json["jobs"]
    assert array["array"] == {"tasks": 3, "indexes": "2-6:2%2", "limit": 2, "phases": {"queued": 3}}
    assert live.wait(array["id"])["phase"] == "succeeded"
    told = at_home("logs", "shows").out
    for index in (2, 4, 6):
        assert f"==> shows[{index}]" in told
        assert f"{index} of 3, {index}\n" in told
    assert at_home("logs", "shows[4]").out == "4 of 3, 4\n"
    listed = at_home("ls")
    assert "3 succeeded" in listed.out
    assert "shows[4]" not in listed.out
    tasks = at_home("ls", "--json", "--parent", "shows").json["jobs"]
    assert sorted((job["name"], job["index"], job["parent"]) for job in tasks) == [
        (f"shows[{index}]", index, array["id"]) for index in (2, 4, 6)
    ]
    assert "3 (2-6:2%2), at most 2 at once: 3 succeeded" in at_home("status", "shows").out
    assert at_home("status", "shows[3]").code == 1
    assert at_home("status", f"{array['id']}[4]", "--json").json["name"] == "shows[4]"
    with Client(home=live.home) as to:
        written = to.spec("shows[4]")["yaml"]
        assert "array: '4'" in written
        assert "parent" not in written
        assert to.run(tasks[0]["id"]).name == tasks[0]["name"]
    again = at_home("runs", "reproduce", "--dry-run", "--json", tasks[0]["id"])
    assert again.code == 0, again.err
    assert f"array: '{tasks[0]['index']}'" in again.json["yaml"]


def test_stop_and_resume_all_tasks(at_home, live, tmp_path):
    waits = _file(tmp_path, "name: waits-all\nstop_grace: 1\nrun: until test -e go; do sleep 0.05; done\n")
    array = at_home("submit", "--json", "--array", "1-3", waits).json["jobs"][0]["id"]
    until(lambda: live.job(array)["array"]["phases"].get("running"), "a task that runs")
    assert "its tasks are not over" in at_home("why", array).out or "3 of its 3 tasks" in at_home("why", array).out
    assert at_home("logs", "-f", array).code == 2
    stopped = at_home("stop", "--wait", "waits-all")
    assert stopped.code == 0, stopped.err
    assert live.job(array)["phase"] == "stopped"
    assert live.job(array)["array"]["phases"] == {"stopped": 3}
    (tmp_path / "go").touch()
    again = at_home("resume", "waits-all")
    assert again.code == 0, again.err
    assert live.wait(array)["phase"] == "succeeded"
    assert at_home("resume", "waits-all").code == 1


def test_mistakes_are_told(at_home, tmp_path):
    path = _file(tmp_path, SHOWS)
    found = at_home("submit", "--array", "9-1", path)
    assert found.code == 1
    assert "write `1-9`" in found.err
    found = at_home("check", "-o", "array=1-3%0", path)
    assert found.code == 1
    assert "how many may run at once" in found.err
