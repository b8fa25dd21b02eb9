"""Trainings that lose a part of their state when they are resumed in a new process, and some that lose nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from muster.train import preflight
from preflight_kit import perceptron, points

DATA = [points(number) for number in range(40)]


class Training:
    """Complete: weights with batch norm, Adam, a schedule, dropout, and an order of data that is drawn."""

    def __init__(self) -> None:
        torch.manual_seed(5)
        random.seed(5)
        self.model = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.Dropout(0.2), nn.Linear(24, 4))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 20)
        self.order = torch.randperm(len(DATA)).tolist()
        self.place = 0

    def step(self) -> Any:
        self.batch = DATA[self.order[self.place]]
        self.place += 1
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.batch["x"]), self.batch["y"])
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return {"loss": loss, "samples": 8}

    def save(self, path: str) -> None:
        torch.save(self.state(), path)

    def load(self, path: str) -> None:
        self.take(torch.load(path, weights_only=False))

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "torch": torch.get_rng_state(),
            "python": random.getstate(),
            "order": self.order,
            "place": self.place,
        }

    def take(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"], strict=False)
        if "optimizer" in state:
            self.optimizer.load_state_dict(state["optimizer"])
        if "schedule" in state:
            self.schedule.load_state_dict(state["schedule"])
        if "torch" in state:
            torch.set_rng_state(state["torch"])
        random.setstate(state["python"])
        self.order, self.place = state["order"], state.get("place", 0)


def without(*lost: str) -> Callable[[], Training]:
    class Losing(Training):
        def state(self) -> dict[str, Any]:
            return {name: value for name, value in super().state().items() if name not in lost}

    return Losing


class Half(Training):
    """Saves parameters, not buffers."""

    def state(self) -> dict[str, Any]:
        return {**super().state(), "model": dict(self.model.named_parameters())}


class Smoothed(Training):
    """Reports an average that it does not save."""

    average = 0.0

    def step(self) -> float:
        self.average = 0.9 * self.average + 0.1 * float(super().step()["loss"].detach())
        return self.average


class Drawing(Training):
    """Draws random numbers when it saves."""

    def save(self, path: str) -> None:
        torch.rand(1)
        super().save(path)


class Silent(Training):
    def save(self, path: str) -> None:
        """Saves nothing."""


class Forgetful(Training):
    def load(self, path: str) -> None:
        raise KeyError("model")


class Plain:
    """SGD without momentum, in order, nothing random."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.net = perceptron().eval()
        self.sgd = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.number = 0

    def step(self) -> Tensor:
        batch = DATA[self.number]
        self.number += 1
        self.sgd.zero_grad()
        loss = F.cross_entropy(self.net(batch["x"]), batch["y"])
        loss.backward()
        self.sgd.step()
        return loss

    def save(self, path: str) -> None:
        torch.save((self.net.state_dict(), self.number), path)

    def load(self, path: str) -> None:
        weights, self.number = torch.load(path)
        self.net.load_state_dict(weights)


LOST: dict[str, tuple[Callable[[], Any], set[str]]] = {
    "the optimizer's state": (without("optimizer"), {"optimizer", "schedule"}),
    "the schedule": (without("schedule"), {"schedule"}),
    "random numbers": (without("torch"), {"generators"}),
    "the place in the data": (without("place"), {"data"}),
    "buffers": (Half, {"weights"}),
    "an average that is reported": (Smoothed, {"metrics"}),
    "random numbers by the save": (Drawing, {"steady"}),
    "everything": (Silent, {"save"}),
    "the load": (Forgetful, {"load"}),
}


@pytest.mark.parametrize("what", LOST)
def test_what_is_lost_is_named(what: str) -> None:
    start, expected = LOST[what]
    report = preflight.check_resume(start, name=what)
    assert set(report.named("failed")) == expected, str(report)
    assert report.exit_status == 1
    assert all(report.of(each).finding.hint for each in expected)


@pytest.mark.parametrize("start", [Training, Plain])
def test_a_training_that_loses_nothing_passes(start: Callable[[], Any]) -> None:
    report = preflight.check_resume(start)
    assert report.passed, str(report)
    assert {"save", "load", "steady", "weights", "metrics"} <= set(report.named("ok"))
    complete = {"optimizer", "schedule", "generators", "data"}
    assert (complete <= set(report.named("ok"))) == (start is Training)
