"""What the pages of the queue, the cluster and submitting ask for: the order in pages, nodes, and job files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from live import LiveServer, live_server, until

CONFIG = "nodes = 2\naccelerators = 'H100:4'\ncpus = 64\n"


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A gang that holds one of two nodes, twelve jobs that want both, and one that waits for another job."""
    with live_server(tmp_path_factory.mktemp("line") / "muster", config=CONFIG) as made:
        made.submit("sleep 3000", name="holder", gpus=4, cpus=1, max_duration="2h", hang="off")
        made.wait("holder", "running")
        made.post("/v1/projects", {"name": "other"})
        for number in range(12):
            project = "other" if number % 3 == 0 else "default"
            made.submit("true", name=f"w{number}", num_nodes=2, gpus=4, cpus=1, priority=number % 2, project=project)
        made.submit("true", name="after", needs=["w1"])
        yield made


def test_pages_of_the_queue_add_up_to_its_order(line: LiveServer) -> None:
    whole = line.get("/v1/queued", limit=1000)
    order = [job["id"] for job in whole["jobs"]]
    assert (whole["total"], whole["next"], len(order)) == (13, None, 13)
    assert order[:-1] == [job["id"] for job in line.get("/v1/queues/default/line", limit=1000)["jobs"]]
    assert [job["place"] for job in whole["jobs"]] == [*range(1, 13), None]
    assert {job["place"] for job in whole["jobs"][:1]} == {
        line.get(f"/v1/jobs/{order[0]}/why", forecast=False)["place"]
    }
    read: list[str] = []
    places: list[int | None] = []
    after = None
    while len(read) < 13:
        page = line.get("/v1/queued", limit=4, **({"after": after} if after else {}))
        read += [job["id"] for job in page["jobs"]]
        places += [job["place"] for job in page["jobs"]]
        after = page["next"]
    assert (read, places, after) == (order, [job["place"] for job in whole["jobs"]], None)


def test_the_queue_is_filtered_and_a_job_that_left_is_no_place_to_go_on_from(line: LiveServer) -> None:
    found = line.get("/v1/queued", project="other")
    assert {job["project"] for job in found["jobs"]} == {"other"}
    assert found["total"] == len(found["jobs"]) == 4
    assert line.get("/v1/queued", user="nobody")["jobs"] == []
    assert [job["id"] for job in line.get("/v1/queued", name="w5")["jobs"]] == ["w5-7"]
    forecast = line.get("/v1/forecast", project="other", limit=200)
    assert [one["job"] for one in forecast["jobs"]] == [job["id"] for job in found["jobs"]]
    with line.http() as http:
        gone = http.get("/v1/queued", params={"after": "holder-1"})
    assert (gone.status_code, gone.json()["error"]["code"]) == (409, "conflict")


def test_a_member_sees_the_jobs_of_its_projects_and_their_true_places(line: LiveServer) -> None:
    with line.http() as root:
        root.put("/v1/projects/other/members/mia", json={"role": "member"}).raise_for_status()
    token = line.post("/v1/tokens", {"user": "mia"})["token"]
    whole = {job["id"]: job["place"] for job in line.get("/v1/queued")["jobs"]}
    with line.http(token) as http:
        found = http.get("/v1/queued").json()
        assert {job["id"]: job["place"] for job in found["jobs"]} == {
            job["id"]: whole[job["id"]] for job in line.get("/v1/queued", project="other")["jobs"]
        }
        assert found["total"] == 4
        holder = next(node for node in http.get("/v1/nodes").json()["nodes"] if node["free"]["accelerators"] == 0)
        assert (holder["jobs"], holder["users"]) == ([], [])


def test_nodes_by_name_with_the_users_of_their_jobs(line: LiveServer) -> None:
    every = line.get("/v1/nodes")["nodes"]
    assert sorted(node["name"] for node in every) == ["local-0", "local-1"]
    assert {tuple(node["users"]) for node in every if node["jobs"]} == {("admin",)}
    assert line.get("/v1/nodes", name=["local-1", "nonesuch"])["nodes"] == [
        node for node in every if node["name"] == "local-1"
    ]


def test_a_dry_run_in_the_stead_of_a_queued_job(line: LiveServer) -> None:
    """The last of the queue stays last behind itself, and moves up by one in its own stead."""
    last = line.get("/v1/queued")["jobs"][-2]["id"]
    file = line.get(f"/v1/jobs/{last}/spec")["yaml"]
    body = {"yaml": file, "dry_run": True}
    behind, instead = line.post("/v1/jobs", body), line.post("/v1/jobs", {**body, "instead_of": last})
    assert [one["reasons"][0]["data"]["ahead"] for one in (behind, instead)] == [12, 11]
    with line.http() as http:
        assert http.post("/v1/jobs", json={"yaml": file, "instead_of": last}).status_code == 400
        assert http.post("/v1/jobs", json={**body, "instead_of": "nonesuch"}).status_code == 404


def test_a_priority_with_its_reason(line: LiveServer) -> None:
    line.post("/v1/jobs/w11-13/priority", {"priority": 0, "reason": "it may wait"})
    (event,) = line.get("/v1/events", job="w11-13", kind="job.priority")["events"]
    assert event["data"] == {"priority": 0, "reason": "it may wait"}
    line.post("/v1/jobs/w11-13/priority", {"priority": 1})
    event = line.get("/v1/events", job="w11-13", kind="job.priority")["events"][-1]
    assert event["data"]["reason"] == "set by admin"


def test_job_files_for_editors(line: LiveServer) -> None:
    assert "num_nodes" in line.get("/v1/schema/job")["properties"]
    text = "run: x  # this\ngpus: 2\n"
    made = line.post("/v1/schema/job", {"yaml": text, "set": {"num_nodes": "4", "resources.accelerators": None}})
    assert made == {"yaml": "run: x  # this\nnum_nodes: 4\n", "fields": {"run": "x", "num_nodes": "4"}}
    with line.http() as http:
        wrong = http.post("/v1/schema/job", json={"yaml": "run: [\n"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "bad_spec")


def test_readings_of_nodes_come_from_the_work_on_them(line: LiveServer) -> None:
    holder = line.job("holder")["nodes"]
    found = until(lambda: line.get("/v1/nodes/readings")["nodes"], "the sample of the holder's node")
    assert [node["name"] for node in found] == holder
    (named,) = line.get("/v1/nodes/readings", name=holder)["nodes"]
    assert named["memory"] > named["available"] > 0
    assert line.get("/v1/nodes/readings", name="nonesuch")["nodes"] == []
