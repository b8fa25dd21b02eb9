"""Batches on their way to the device: buffers that are used again, and not before the copies from them have ended."""

from __future__ import annotations

import numpy as np
import torch

from muster.data.collate import Arrays
from muster.train.prefetch import Buffers, Prefetch


class Event:
    """Notes that it was waited for."""

    def __init__(self) -> None:
        self.waited = 0

    def synchronize(self) -> None:
        self.waited += 1


def _batches(step: int, rows: int = 3) -> list[Arrays]:
    return [
        {"inputs": np.full((rows, 4), 100 * step + micro), "weight": np.full(rows, step / 2, np.float32)}
        for micro in range(2)
    ]


def _addresses(filled: list[dict[str, torch.Tensor]]) -> list[int]:
    return [tensor.data_ptr() for batch in filled for tensor in batch.values()]


def test_two_sets_of_buffers_take_turns() -> None:
    buffers = Buffers(pinned=False)
    filled = [buffers.fill(_batches(step)) for step in range(2)]
    places = [_addresses(each) for each in filled]
    assert not set(places[0]) & set(places[1])
    assert filled[0][1]["inputs"].tolist() == [[1] * 4] * 3  # the set before is left alone
    for step in range(2, 6):
        again = buffers.fill(_batches(step))
        assert _addresses(again) == places[step % 2]
        for micro, batch in enumerate(again):
            assert batch["inputs"].tolist() == [[100 * step + micro] * 4] * 3
            assert batch["weight"].tolist() == [step / 2] * 3


def test_a_set_is_filled_again_when_the_copies_from_it_have_ended() -> None:
    buffers, events = Buffers(pinned=False), [Event() for _ in range(4)]
    for step, event in enumerate(events):
        buffers.fill(_batches(step))
        assert [each.waited for each in events] == [int(number + 2 <= step) for number in range(4)]
        buffers.copying(event)


def test_nothing_changes_while_a_set_is_waited_for() -> None:
    buffers = Buffers(pinned=False)
    first = buffers.fill(_batches(1))
    seen = []

    class Slow:
        def synchronize(self) -> None:
            seen.append(first[0]["inputs"].tolist())

    buffers.copying(Slow())
    buffers.fill(_batches(2))
    buffers.fill(_batches(3))
    assert seen == [[[100] * 4] * 3]


def test_another_shape_gets_another_buffer_and_what_is_not_needed_goes() -> None:
    buffers = Buffers(pinned=False)
    for rows in (3, 3, 5, 5, 3):
        filled = buffers.fill(_batches(1, rows))
        assert [tuple(batch["inputs"].shape) for batch in filled] == [(rows, 4)] * 2
    (only,) = buffers.fill([{"other": np.arange(3)[::-1]}])
    assert only["other"].tolist() == [2, 1, 0]
    assert sorted(buffers._sets[buffers._turn].tensors) == [(0, "other")]


def test_on_a_cpu_the_arrays_are_the_batches() -> None:
    prefetch, batches = Prefetch(torch.device("cpu")), _batches(7)
    prefetch.send(_batches(6))  # asked for, and then not needed
    prefetch.send(batches)
    taken = prefetch.take()
    assert [batch["inputs"].data_ptr() for batch in taken] == [each["inputs"].ctypes.data for each in batches]
    assert prefetch.take() == []
