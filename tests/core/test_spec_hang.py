"""How `hang` is written in a job file."""

from __future__ import annotations

import pytest

from muster.core.errors import SpecError
from muster.core.parse import parse_job
from muster.core.spec import Hang, dump_job


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("off", Hang(action="off")),
        ("false", Hang(action="off")),
        ("on", Hang()),
        ("true", Hang()),
        ("report", Hang(action="report")),
        ("{action: off}", Hang(action="off")),
        ("{patience: 10m}", Hang(patience=600.0)),
        ("{action: report, least: 2m}", Hang(action="report", least=120.0)),
    ],
)
def test_each_form_means_one_thing_and_is_written_back(written: str, meant: Hang) -> None:
    spec = parse_job(f"run: python train.py\nhang: {written}\n")
    assert spec.hang == meant
    assert parse_job(dump_job(spec)) == spec


@pytest.mark.parametrize("written", ["never", "{patience: soon}", "{action: kill}", "[off]"])
def test_anything_else_is_refused_with_what_was_expected(written: str) -> None:
    with pytest.raises(SpecError, match="hang"):
        parse_job(f"run: python train.py\nhang: {written}\n")
