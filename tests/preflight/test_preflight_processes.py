"""Programs that hang, die, print, fork or raise: a check says so in a sentence, and the caller is left as it was."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from live import until
from muster.train import preflight
from muster.train.preflight.nests import changed, count_rows, digest, rows, tensors
from muster.train.preflight.program import Program
from muster.train.preflight.rung import run_checks
from muster.train.preflight.unit import UNIT
from preflight_kit import Hook, classifier, gpt, perceptron, points

SHORT = 5.0  # seconds; a hang takes as long


def hang(*_: Any) -> Any:
    while True:
        signal.pause()


def killed(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def exits(*_: Any) -> Any:
    sys.exit(3)


def needs_a_gpu(*_: Any) -> Any:
    raise RuntimeError("CUDA error: no kernel image\nis available for execution on the device")


@pytest.mark.parametrize(
    ("loss", "status", "words"),
    [
        (hang, "unknown", f"did not end in {SHORT:g} s"),
        (killed, "failed", "killed by SIGKILL"),
        (exits, "failed", "exit(3)"),
        (needs_a_gpu, "failed", "RuntimeError: is available for execution on the device"),
        (lambda model, batch: 3.0, "failed", "loss returned float"),
        (lambda model, batch: model(batch["x"]), "failed", "shape [8, 4]"),
    ],
)
def test_what_a_program_does_instead_is_told(loss: Callable[..., Any], status: str, words: str) -> None:
    skip = ["modes", "optimizer", "devices"]
    report = preflight.check(**classifier(loss=loss, step=None, outputs=None), limit=SHORT, skip=skip)
    found = report.of("loss")
    assert found.status == status, str(report)
    assert words in found.finding.detail
    assert "Traceback" not in str(report)
    assert report.of("overfit").status == "unknown"
    assert "loss" in report.of("overfit").finding.detail


@pytest.mark.parametrize("what", ["build", "batch"])
def test_a_program_that_can_not_even_begin(what: str) -> None:
    report = preflight.check(**classifier(**{what: needs_a_gpu}))
    assert report.of("weights" if what == "build" else "batch").status == "failed", str(report)
    assert not report.passed


def test_after_three_hangs_the_rest_is_left_out() -> None:
    report = preflight.check(**classifier(build=hang, batch=hang), limit=0.2)
    late = [each.name for each in report.results if "did not end in 0.2 s" in each.finding.detail]
    assert len(late) == 3, str(report)
    assert (
        "3 checks did not end in time" in report.of("repeat").finding.detail or report.of("repeat").status == "unknown"
    )


def test_what_a_program_starts_ends_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    def forking(model: Any, batch: Any) -> Any:
        child = os.fork()
        if child == 0:
            hang()
        with pids.open("a") as file:
            file.write(f"{child}\n")
        return hang()

    preflight.check(**classifier(loss=forking, step=None, outputs=None), limit=SHORT, skip=["modes"])
    started = [int(line) for line in pids.read_text().split()]
    assert started
    assert until(lambda: not any(_lives(pid) for pid in started))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_caller_is_left_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    model = perceptron()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    before = digest([dict(model.state_dict()), torch.get_rng_state(), np.random.get_state()[1]])
    drawn = random.getstate()

    def build() -> Any:
        sys.stdout.write("building\n")
        return model, optimizer

    report = preflight.check(**classifier(build=build))
    assert report.of("gradients").status == "ok", str(report)
    assert digest([dict(model.state_dict()), torch.get_rng_state(), np.random.get_state()[1]]) == before
    assert random.getstate() == drawn
    assert not optimizer.state
    assert model.training
    assert "building" not in capfd.readouterr().out


@pytest.mark.parametrize(("make", "failed"), [(classifier, []), (gpt, [])])
def test_checks_say_the_same_in_the_callers_process(make: Callable[[], Hook], failed: list[str]) -> None:
    """As on a machine with a GPU, which a fork can't use."""
    program = Program(**make())
    before = torch.get_rng_state()
    here = run_checks("unit", program, UNIT, 60.0, {}, forks=False)
    there = run_checks("unit", program, UNIT, 60.0, {}, forks=True)
    assert [(each.name, each.finding.status) for each in here] == [(each.name, each.finding.status) for each in there]
    assert [each.name for each in here if each.status == "failed"] == failed
    assert torch.equal(before, torch.get_rng_state())


def test_the_limit_holds_in_the_callers_process() -> None:
    began = time.monotonic()
    results = run_checks("unit", Program(**classifier(loss=hang, outputs=None)), UNIT[:3], SHORT, {}, forks=False)
    assert time.monotonic() > began
    assert results[2].status == "unknown"
    assert f"did not end in {SHORT:g} s" in results[2].finding.detail


def test_a_name_that_is_no_check_is_refused() -> None:
    with pytest.raises(ValueError, match="'futur' is no check; expected some of batch"):
        preflight.check(**classifier(), skip=["futur"])


def test_the_report_for_programs_is_json_whatever_the_numbers() -> None:
    finding = preflight.Finding("failed", "it rises", "stop", {"end": float("inf"), "by": np.float32(2.0)})
    report = preflight.Report("p", [preflight.Result("unit", "overfit", "It falls.", finding)])
    found = json.loads(report.to_json(), parse_constant=lambda text: pytest.fail(text))
    assert found["checks"][0]["numbers"] == {"end": "inf", "by": 2.0}
    assert (found["passed"], report.exit_status) == (False, 1)


def test_batches_of_any_shape() -> None:
    nest = {"x": torch.arange(6).view(3, 2), "more": (torch.zeros(3), [torch.ones(1)]), "name": "text"}
    assert [where for where, _ in tensors(nest)] == ["batch['x']", "batch['more'][0]", "batch['more'][1][0]"]
    assert count_rows(nest) == 3
    part = rows(nest, 1, 3)
    assert part["x"].tolist() == [[2, 3], [4, 5]]
    assert part["more"][1][0].tolist() == [1.0]
    twin = changed(nest, lambda where, each: each.clone())
    assert digest(twin) == digest(nest)
    twin["x"][0, 0] = 9
    assert digest(twin) != digest(nest)
    assert digest(points(1)) == digest(points(1))
