"""What was detected and repaired is in the logbook by itself, and does not fill it."""

from __future__ import annotations

from muster.core.reasons import reason
from record_kit import Record


def test_a_charge_to_a_node_is_told(light: Record) -> None:
    job = light.submit()
    light.start(job)
    light.restart(job, 1)
    light.start(job, 2)
    light.events(light.of(job, "node.charged", 2, name="n7", failed=1, cause="user_error"))
    kind, text = light.notes(job)[-1]
    assert kind == "system"
    assert text.startswith("The error of attempt 1 is charged to node n7: attempt 2 went on without that node.")


def test_damaged_checkpoints_are_told_once_for_all_ranks(light: Record) -> None:
    job = light.submit()
    light.start(job, nodes=["n0", "n1"])
    doc = {"type": "restore", "step": 1200, "skipped": [{"path": "/c/step-2", "what": "a: its checksum is 0"}]}
    for rank in (1, 0):
        light.report(job, doc, rank=rank)
    told = [text for kind, text in light.notes(job) if kind == "system"]
    assert told == [
        "Checkpoint /c/step-2 is damaged and is not used: a: its checksum is 0. It goes on from step 1,200."
    ]


def test_a_report_that_makes_no_sense_is_a_problem_and_no_note(light: Record) -> None:
    job = light.submit()
    light.start(job)
    light.report(job, {"type": "restore", "skipped": [7]}, {"type": "restore"}, {"type": "waiting", "text": ["x"]})
    assert len(light.track.runs.need(job).problems) == 2
    assert len([kind for kind, _ in light.notes(job) if kind == "system"]) == 1


def test_many_preemptions_write_few_notes_and_every_failure_one(light: Record) -> None:
    job = light.submit()
    why = reason("preempted").to_dict()
    for number in range(1, 222):
        charge = "preempted" if number != 150 else "node"
        light.start(job, number)
        light.events(
            light.of(job, "job.stopping", number, reason=why, then="queued", grace=30.0),
            light.of(job, "attempt.ended", number, outcome="stopped", reason=why),
            light.of(job, "job.requeued", number, reason=why, charge=charge, not_before=0.0),
        )
    kinds = [kind for kind, _ in light.notes(job)]
    assert kinds.count("preemption") == kinds.count("start") == 20 + 2
    assert kinds.count("restart") == 20 + 2 + 1


def test_a_straggler_is_told_and_so_is_its_end(light: Record) -> None:
    job = light.submit()
    light.start(job)
    slow = reason("straggler", "rank 3 on n2 works 62% longer in each step than the others").to_dict()
    light.events(
        light.of(job, "attempt.straggler", 1, reason=slow, verdict={"ranks": [3]}, nodes=["n2"]),
        light.of(job, "attempt.steady", 1),
    )
    assert light.notes(job)[-2:] == [
        ("alert", "Attempt 1 has a straggler: rank 3 on n2 works 62% longer in each step than the others."),
        ("alert", "Attempt 1 has no straggler any more."),
    ]
