"""Reports: what goes in comes back, mistakes are told, and no death of the process loses any."""

from __future__ import annotations

import json
import math
import mmap
import random
import signal
import subprocess
import threading
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from rank_kit import documents, recovered, run, start, stream

from components import small_disk
from live import until
from muster import wire
from muster.runtime import writer
from muster.runtime.reporter import PROGRESS_SECONDS, Reporter


def test_rows_come_back_as_reported(tmp_path):
    reporter = Reporter(tmp_path)
    for step in range(1000):
        reporter.report(step=step, loss=1 / (1 + step))
        if step % 10 == 0:
            reporter.report(step, loss=-1.0, lr=step * 1e-3)
    columns = recovered(tmp_path).columns
    expected = [pair for step in range(1000) for pair in [(step, 1 / (1 + step)), (step, -1.0)][: 1 + (step % 10 == 0)]]
    assert list(zip(columns["loss"].steps, columns["loss"].values, strict=True)) == expected
    assert list(columns["lr"].steps) == list(range(0, 1000, 10))
    assert list(columns["loss"].times) == sorted(columns["loss"].times)
    assert abs(columns["loss"].times[-1] - time.time()) < 3600  # seconds since 1970, and not since the start


def test_the_row_is_the_one_of_the_contract(tmp_path):
    reporter = Reporter(tmp_path)
    reporter.report(step=7, a=1.5, b=2.5)
    reporter.report(step=8, a=3.5, b=4.5)
    layout = wire.row_struct(2)
    kind, shape, size, step, _, *values = layout.unpack(stream(tmp_path)[-layout.size :])
    assert (kind, shape, size, step, values) == (wire.KIND_ROW, 0, layout.size, 8, [3.5, 4.5])


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (3, 3.0),
        (True, 1.0),
        (Fraction(1, 4), 0.25),
        (np.float32(0.5), 0.5),
        (np.int64(-2), -2.0),
        (np.array(2.5), 2.5),
        (torch.tensor(1.25), 1.25),
        (torch.tensor([7]), 7.0),
        (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
        (math.inf, math.inf),
        (-math.inf, -math.inf),
    ],
)
def test_every_kind_of_number_is_taken(tmp_path, value, stored):
    reporter = Reporter(tmp_path)
    for step in (np.int32(0), torch.tensor(1), True):  # the first goes another way than the rest
        reporter.report(step=step, x=value)
    column = recovered(tmp_path).columns["x"]
    assert list(column.values) == [stored] * 3
    assert list(column.steps) == [0, 1, 1]


def test_not_a_number_is_a_value(tmp_path):
    Reporter(tmp_path).report(step=0, loss=math.nan)
    assert math.isnan(recovered(tmp_path).columns["loss"].values[0])


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("step", "metrics", "error", "words"),
    [
        (3, {"loss": "0.5"}, TypeError, "report\\(step=3\\): metric 'loss' got '0.5' \\(str\\)"),
        (3, {"loss": None}, TypeError, "metric 'loss' got None"),
        (3, {"a": 1.0, "b": [1.0]}, TypeError, "metric 'b' got \\[1.0\\] \\(list\\)"),
        (3, {"loss": 1j}, TypeError, "'loss'"),
        (3, {"a": 1.0, "b": torch.ones(2)}, TypeError, "metric 'b' .* expected one number"),
        (3, {"loss": 10**400}, ValueError, "'loss' is past the range"),
        (3.5, {"loss": 1.0}, TypeError, "step got 3.5 \\(float\\); expected a whole number"),
        ("3", {"loss": 1.0}, TypeError, "step got '3'"),
        (1 << 63, {"loss": 1.0}, ValueError, "64 bits"),
    ],
)
def test_a_mistake_is_told_and_leaves_nothing_behind(tmp_path, warm, step, metrics, error, words):
    reporter = Reporter(tmp_path)
    good = dict.fromkeys(metrics, 1.0)
    if warm:
        reporter.report(step=0, **good)
    with pytest.raises(error, match=words):
        reporter.report(step=step, **metrics)
    reporter.report(step=1, **good)
    for column in recovered(tmp_path).columns.values():
        assert list(column.steps) == ([0, 1] if warm else [1])


def test_names_may_be_anything_that_can_be_stored(tmp_path):
    names = ["self", "train/loss", "µ", "n" * wire.NAME_MAX, "名前", "a b"]
    reporter = Reporter(tmp_path)
    reporter.report(step=0, **dict.fromkeys(names, 1.0))
    reporter.report(step=0)  # nothing to say is not a mistake
    assert list(recovered(tmp_path).columns) == names
    for bad in ("", "n" * (wire.NAME_MAX + 1), "a\0b", "\ud800"):
        with pytest.raises(ValueError, match="name"):
            reporter.report(step=0, **{bad: 1.0})


def test_too_many_sets_of_names_are_refused_and_the_known_ones_go_on(tmp_path):
    reporter = Reporter(tmp_path)
    for number in range(wire.SHAPES_MAX):
        reporter.report(step=0, **{f"m{number}": 1.0})
    with pytest.raises(ValueError, match="Don't put a step"):
        reporter.report(step=0, one_more=1.0)
    reporter.report(step=1, m5=2.0)
    assert list(recovered(tmp_path).columns["m5"].values) == [1.0, 2.0]


def test_progress_is_thinned_but_its_ends_and_turns_are_not(tmp_path):
    reporter = Reporter(tmp_path)
    began = time.monotonic()
    for step in range(1, 5001):
        reporter.progress(step, total=5000, tokens=np.int64(step * 10))
    reporter.progress(5001, total=6000)
    seen = documents(tmp_path, "progress")
    assert [doc["step"] for doc in seen[:1] + seen[-2:]] == [1, 5000, 5001]
    assert (seen[-2]["total"], seen[-2]["unit"], seen[-2]["tokens"]) == (5000, "step", 50000)
    assert len(seen) <= 4 + (time.monotonic() - began) / PROGRESS_SECONDS


def test_progress_that_was_held_back_is_written_at_the_end(tmp_path):
    reporter = Reporter(tmp_path)
    for step in range(100):
        reporter.progress(step, unit="batch")
    reporter.flush()
    assert documents(tmp_path, "progress")[-1]["step"] == 99
    reporter.progress(100, total=math.inf, unit="batch")
    assert documents(tmp_path, "progress")[-1]["total"] is None
    with pytest.raises(TypeError, match=r"step got 1\.5"):
        reporter.progress(1.5)
    with pytest.raises(ValueError, match="set by Muster"):
        reporter.progress(1, **{"time": 3})


def test_parameters_become_what_json_can_hold(tmp_path):
    knot = []
    knot.append(knot)
    values = {"lr": 3e-4, "path": Path("a/b"), "seed": np.int64(7), "nan": math.nan, "bad": "a\0\ud800", "knot": knot}
    reporter = Reporter(tmp_path)
    reporter.params(**values, type="adam", tensor=torch.tensor(2), dims=(1, 2), dtype=torch.float32)
    reporter.note("checked")
    (params,) = documents(tmp_path, "params")
    assert params["values"].pop("knot")
    assert params["values"] == {
        "lr": 3e-4,
        "path": "a/b",
        "seed": 7,
        "nan": "nan",
        "bad": "a\ufffd?",
        "type": "adam",
        "tensor": 2,
        "dims": [1, 2],
        "dtype": "torch.float32",
    }
    assert [doc["text"] for doc in documents(tmp_path, "note")] == ["checked"]
    with pytest.raises(ValueError, match="Save what is large as a file"):
        reporter.note("x" * wire.DOC_MAX)


def test_threads_lose_nothing_and_keep_their_order(tmp_path):
    reporter = Reporter(tmp_path)
    each, count = 20_000, 6

    def work(name: str) -> None:
        for step in range(each):
            reporter.report(step=step, **{name: step})

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    columns = recovered(tmp_path).columns
    assert {name: list(column.steps) == list(range(each)) for name, column in columns.items()} == {
        f"t{i}": True for i in range(count)
    }


INTERRUPTED = """
import json, signal
import muster.runtime as muster

class Interrupt(Exception):
    pass

handled, armed, told, done = 0, False, [], []

def handler(number, frame):
    global handled
    handled += 1
    mine = handled
    muster.report(step=mine, handler=1.0)
    told.append(mine)
    if armed and mine % 3 == 0:
        raise Interrupt

muster.report(step=0, loss=0)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
step = 0
while handled < 1500:
    step += 1
    try:
        armed = True
        muster.report(step=step, loss=step)
        done.append(step)
        armed = False
    except Interrupt:
        armed = False
signal.setitimer(signal.ITIMER_REAL, 0)
muster.report(step=0, last=1.0)
print(json.dumps([done, told, step, handled]))
"""


def test_a_signal_handler_may_report_and_may_raise_in_the_midst_of_a_report(tmp_path):
    done, told, tried, handled = json.loads(run(INTERRUPTED, tmp_path))
    columns = recovered(tmp_path).columns
    steps, handlers = list(columns["loss"].steps), list(columns["handler"].steps)
    assert len(steps) == len(set(steps))
    assert {0, *done} <= set(steps) <= set(range(tried + 1))
    assert len(handlers) == len(set(handlers))
    assert set(told) <= set(handlers) <= set(range(handled + 1))
    assert list(columns["last"].steps) == [0]


KILLED = """
import mmap, sys
import muster.runtime as muster
with open(sys.argv[1], "r+b") as file:
    count = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
step = 0
while True:
    muster.report(step=step, loss=step / 2)
    step += 1
    count[0] = step
"""


@pytest.mark.parametrize("round_", range(3))
def test_a_killed_rank_loses_nothing(tmp_path, round_):
    counter = tmp_path / "counter"
    counter.write_bytes(bytes(8))
    folder = tmp_path / "rank-0"
    folder.mkdir()
    with counter.open("rb") as file, mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ) as count:
        child = start(KILLED, folder, counter)
        target = random.Random(round_).randrange(1, 300_000)  # two segments' worth
        until(lambda: int.from_bytes(count[:8], "little") >= target)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        reported = int.from_bytes(count[:8], "little")
    column = recovered(folder).columns["loss"]
    assert len(column.steps) - reported in (0, 1)  # the last one may have been written and not yet counted
    assert list(column.steps) == list(range(len(column.steps)))
    assert list(column.values) == [step / 2 for step in column.steps]


def test_a_full_disk_does_not_stop_training_and_loses_nothing(tmp_path):
    with small_disk(tmp_path / "disk", "9m") as disk:  # two segments and a little
        reporter = Reporter(disk)
        ballast = disk / "ballast"
        for step in range(100_000):
            reporter.report(step=step, loss=step)
        ballast.write_bytes(bytes((1 << 20) - 65536))
        for step in range(100_000, 300_000):
            reporter.report(step=step, loss=step)
        assert len(recovered(disk).columns["loss"].steps) < 300_000
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        reporter.report(step=300_000, loss=300_000, lr=1)
        reporter.flush()
        found = recovered(disk)
    assert list(found.columns["loss"].steps) == list(range(300_001))
    assert not [doc for doc in found.docs if doc["type"] == "note"]


LIMITED = """
import resource, sys
import muster.runtime as muster
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
for step in range(1000):
    muster.report(step=step, loss=step)
if sys.argv[1] == "mended":
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
"""


def test_what_was_kept_in_memory_is_written_at_exit(tmp_path):
    said = run(LIMITED, tmp_path, "mended")
    assert said.count("kept in memory") == 1
    assert list(recovered(tmp_path).columns["loss"].steps) == list(range(1000))


def test_what_could_not_be_written_in_the_end_is_told(tmp_path):
    assert "1001 reports could not be written" in run(LIMITED, tmp_path, "never")


def test_past_the_bound_reports_are_dropped_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "BACKLOG_BYTES", 1 << 20)
    folder, hidden = tmp_path / "rank-0", tmp_path / "hidden"
    folder.mkdir()
    reporter = Reporter(folder)
    reporter.report(step=0, loss=0)
    folder.rename(hidden)  # no new segment can be made; the present one goes on
    step = 0
    while not reporter._writer._dropped:  # memory is full
        step += 1
        reporter.report(step=step, loss=step)
    reporter.report(step=step, new=1.0)  # a shape is kept in any case: later rows need it
    hidden.rename(folder)
    reporter.flush()
    reporter.report(step=step + 1, loss=1, new=2)
    reporter.report(step=step + 1, new=2.0)
    found = recovered(folder)
    (note,) = [doc for doc in found.docs if doc["type"] == "note"]
    assert note["dropped"] == 1
    assert list(found.columns["loss"].steps) == [*range(step), step + 1]
    assert list(found.columns["new"].values) == [1.0, 2.0, 2.0]


FORKING = """
import os, pathlib, sys
import muster.runtime as muster
if os.fork() == 0:  # before anything was opened
    muster.should_stop()
    muster.report(step=100, early=1)
    os._exit(0)
os.wait()
muster.report(step=0, loss=0)
segment = pathlib.Path(os.environ["MUSTER_RANK_DIR"], "spool.0")
for how in ("exit", "_exit"):
    before = segment.read_bytes()
    pid = os.fork()
    if pid == 0:
        muster.report(step=100, loss=1)
        muster.report(step=100, other=1)
        muster.progress(100)
        muster.note("from the child")
        muster.flush()
        assert not muster.should_stop()
        sys.exit(0) if how == "exit" else os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert segment.read_bytes() == before
    muster.report(step=1, loss=1)
"""


def test_a_forked_child_writes_nothing(tmp_path):
    run(FORKING, tmp_path)
    found = recovered(tmp_path)
    assert list(found.columns) == ["loss"]
    assert list(found.columns["loss"].steps) == [0, 1, 1]
    assert [doc["type"] for doc in found.docs] == ["started"]


def test_a_second_process_beside_the_first_is_told_and_one_after_it_goes_on(tmp_path):
    script = "import muster.runtime as m, sys\nfor i in range(3): m.report(step=i, **{sys.argv[1]: 1})"
    first = start("import sys\n" + script + "\nprint('ready', flush=True); sys.stdin.read()", tmp_path, "first")
    assert first.stdout.readline() == "ready\n"
    assert "another one reports for this rank already" in run(script, tmp_path, "beside")
    first.communicate("")
    run(script, tmp_path, "after")
    columns = recovered(tmp_path).columns
    assert {name: len(column.steps) for name, column in columns.items()} == {"first": 3, "after": 3}
    assert sorted(path.name for path in tmp_path.glob("spool.*")) == ["spool.0", "spool.1"]


LIGHT = """
import signal, sys
before = {number: signal.getsignal(number) for number in signal.valid_signals()}
import muster.runtime as muster
heavy = {"muster.wire", "muster.runtime.reporter", "dataclasses", "json", "mmap", "threading", "pathlib"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
muster.report(step=0, loss=1)
muster.should_stop()
assert before == {number: signal.getsignal(number) for number in signal.valid_signals()}
assert callable(muster.report) and callable(muster.checkpoint) and set(muster.__all__) <= set(dir(muster))
for name in muster.__all__:
    assert callable(getattr(muster, name)), name
"""


def test_the_import_is_light_and_touches_no_signal(tmp_path):
    run(LIGHT, tmp_path)


ALONE = """
import muster.runtime as muster
assert not muster.active() and muster.job() is None and muster.checkpoint_dir() is None
assert (muster.rank(), muster.world_size(), muster.local_rank(), muster.attempt()) == (0, 1, 0, 1)
assert muster.last_checkpoint() is None and muster.checkpoint_every() is None and muster.stop_deadline() is None
muster.params(lr=1, model=object)
for step in range(3):
    muster.report(step=step, loss=1.0)
    muster.progress(step, total=3)
    assert not muster.should_stop() and not muster.should_save()
    with muster.checkpoint(step) as folder:
        (folder / "state").write_text(str(step))
assert (muster.last_checkpoint() / "state").read_text() == "2"
muster.note("done")
"""


def test_the_same_script_runs_alone(tmp_path):
    assert run(ALONE, None, cwd=tmp_path) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_a_folder_that_cannot_be_used_is_told_and_training_goes_on(tmp_path):
    said = run("import muster.runtime as m\nm.report(step=0, loss=1)\nm.report(step=1, loss=1)", tmp_path / "none")
    assert said.count("reports are not recorded") == 1
    (tmp_path / "spool.0").write_bytes(b"garbage")
    assert "reports are not recorded" in run("import muster.runtime as m\nm.note('hello')", tmp_path)
    assert (tmp_path / "spool.0").read_bytes() == b"garbage"
