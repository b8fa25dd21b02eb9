"""What a rank says of its run beside its metrics: tags, data, metrics by any name; and what can't be said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.control.decode import Decoded, decode
from muster.runtime.reporter import Reporter
from muster.runtime.spool import SpoolReader


def said(folder: Path) -> Decoded:
    return decode(SpoolReader(folder).read(0, 1 << 30, final=True), {})


def documents(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [doc for doc in said(folder).docs if doc["type"] == kind]


def test_log_takes_any_names_and_mixes_with_report(tmp_path):
    reporter = Reporter(tmp_path)
    for step in range(3):
        reporter.log({"loss/train": 0.5 + step}, step)
        reporter.report(step=step, lr=0.1)
        reporter.log({"loss/train": 1.0, "step": 2.0, "self": float("nan"), "größe µ": 4}, 10 + step)
    columns = said(tmp_path).columns
    assert list(columns["loss/train"].steps) == [0, 10, 1, 11, 2, 12]
    assert list(columns["loss/train"].values) == [0.5, 1.0, 1.5, 1.0, 2.5, 1.0]
    assert list(columns["step"].values) == [2.0, 2.0, 2.0]
    assert set(columns) == {"loss/train", "lr", "step", "self", "größe µ"}


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("values", "step", "error", "words"),
    [
        ({"x": "0.5"}, 1, TypeError, "text is not converted"),
        ({"x": [1, 2]}, 1, TypeError, "'x' got [1, 2]"),
        ({"x": 1.0}, 1.5, TypeError, "expected a whole number"),
        ({"x": 1.0}, 1 << 70, ValueError, "64 bits"),
        ({"y" * 10_240: 1.0}, 1, ValueError, "10240 characters"),
        ({"a\0b": 1.0}, 1, ValueError, "NUL"),
        ({"\ud800": 1.0}, 1, ValueError, "surrogate"),
        ({3: 1.0}, 1, TypeError, "expected text"),
        ({"x": 1.0, 3: 1.0}, 1, TypeError, "expected text"),
        ([("x", 1.0, 2)], 1, TypeError, "expected a mapping"),
        (5, 1, TypeError, None),
    ],
)
def test_a_mistake_in_log_is_told_and_nothing_else_is_lost(tmp_path, warm, values, step, error, words):
    reporter = Reporter(tmp_path)
    if warm:
        reporter.log({"x": 1.0}, 0)
    with pytest.raises(error, match=None if words is None else words.replace("[", r"\[")):
        reporter.log(values, step)
    reporter.log({"x": 2.0}, 1)
    assert list(said(tmp_path).columns["x"].values) == ([1.0, 2.0] if warm else [2.0])


def test_ten_thousand_metrics_in_one_step_are_one_row(tmp_path):
    names = {f"layer/{n}": float(n) for n in range(10_000)}
    reporter = Reporter(tmp_path)
    reporter.log(names, 7)
    columns = said(tmp_path).columns
    assert len(columns) == 10_000
    assert list(columns["layer/9999"].values) == [9999.0]


def test_tags_and_data_become_documents(tmp_path):
    reporter = Reporter(tmp_path)
    reporter.tags(task="pretrain", candidate=None, number=3)
    reporter.data("c4-en", "v3", digest="abc", rows=10, bytes=20, uri="s3://b/c4", shuffled=True)
    reporter.data("tokens", role="output")
    (tags,) = documents(tmp_path, "tags")
    assert tags["values"] == {"task": "pretrain", "candidate": None, "number": "3"}
    first, second = documents(tmp_path, "data")
    wanted = {"name": "c4-en", "version": "v3", "digest": "abc", "rows": 10, "bytes": 20, "uri": "s3://b/c4"}
    assert {key: first[key] for key in wanted} == wanted
    assert (first["role"], first["about"]) == ("input", {"shuffled": True})
    assert (second["role"], "version" in second) == ("output", False)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda reporter: reporter.tags(**{"k" * 251: "v"}), "1 to 250 characters"),
        (lambda reporter: reporter.tags(k="v" * 8001), "8000 at most"),
        (lambda reporter: reporter.params(**{"": 1}), "1 to 250 characters"),
        (lambda reporter: reporter.params(**{"a\0": 1}), "without NUL"),
        (lambda reporter: reporter.data(""), "1 to 250 characters"),
        (lambda reporter: reporter.data("x", role="both"), "'input' or 'output'"),
    ],
)
def test_what_can_not_be_stored_is_refused_at_the_call(tmp_path, call, words):
    reporter = Reporter(tmp_path)
    with pytest.raises(ValueError, match=words):
        call(reporter)
    reporter.tags(fine="yes")
    assert len(documents(tmp_path, "tags")) == 1
