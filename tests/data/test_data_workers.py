"""Worker processes: the batches of one process for any number of them, also when they are killed or a sample fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from muster.data import Batch, DataError, Loader, Order, Sample, Source


class Squares:
    """Sample i is i, as 64 equal numbers."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self, index: int) -> Sample:
        return {"value": np.full(64, index), "process": os.getpid()}


def _noisy(sample: Sample, seed: int) -> Sample:
    """A decoder that augments: the noise is the sample's own."""
    return {**sample, "noise": np.random.default_rng(seed).random(300)}


def _order(batch: int = 12) -> Order:
    return Order((Source("a", 50, 2.0), Source("b", 31, 1.0)), batch, seed=4)


@contextmanager
def _loader(workers: int, micros: int = 2, decode=_noisy, ahead: int = 2) -> Iterator[Loader]:
    sets = [Squares(50), Squares(31)]
    with Loader(sets, _order(), 1, 0, micros, ahead=ahead, workers=workers, decode=decode) as loader:
        yield loader


def _same(one: list[Batch], two: list[Batch]) -> bool:
    return [each.hash for each in one] == [each.hash for each in two] and all(
        np.array_equal(left.arrays[name], right.arrays[name])
        for left, right in zip(one, two, strict=True)
        for name in ("value", "noise")
    )


def _processes(batches: list[Batch]) -> set[int]:
    return {int(pid) for batch in batches for pid in batch.arrays["process"]}


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_what_one_process_gives_also_after_a_resume(workers: int) -> None:
    with _loader(0) as alone, _loader(workers) as loader:
        seen: set[int] = set()
        for step in (0, 1, 2, 3, 40, 41, 7):
            found = loader.at(step)
            assert _same(found, alone.at(step))
            seen |= _processes(found)
        assert os.getpid() not in seen
        assert len(seen) == workers


def test_arrays_in_shared_memory_stay_as_they_are_and_may_be_written_to() -> None:
    with _loader(2, decode=lambda sample, seed: {"noise": np.full(20_000, seed % 251, np.uint8)}) as loader:
        kept = [batch.arrays["noise"] for step in range(5) for batch in loader.at(step)]
        copies = [array.copy() for array in kept]
        kept[0][:] = 255
        loader.at(5)
    assert all(np.array_equal(one, two) for one, two in zip(kept[1:], copies[1:], strict=True))
    assert (kept[0] == 255).all()


def test_a_killed_worker_is_replaced_and_no_sample_is_lost_or_repeated() -> None:
    with _loader(0) as alone, _loader(2) as loader:
        before = _processes(loader.at(0))
        after: set[int] = set()
        for step in range(1, 12):
            if step in (3, 7):
                for pid in _processes(loader.at(step - 1)):  # also one that has tasks to do
                    os.kill(pid, signal.SIGKILL)
            found = loader.at(step)
            assert _same(found, alone.at(step))
            after |= _processes(found)
    assert after - before


@pytest.mark.parametrize("workers", [1, 2])
def test_samples_that_kill_every_worker_are_named_and_the_others_are_still_read(workers: int) -> None:
    order = _order()
    first = next(step for step in range(9) if 17 in order.at(step).index)

    def crashing(sample: Sample, seed: int) -> Sample:
        if sample["value"][0] == 17:
            os.kill(os.getpid(), signal.SIGKILL)
        return _noisy(sample, seed)

    with _loader(workers, decode=crashing) as loader, _loader(0) as alone:
        for step in range(first):
            assert _same(loader.at(step), alone.at(step))
        for _ in range(2):
            with pytest.raises(
                DataError, match=rf"step {first}, .* worker process \d+ was ended by SIGKILL, .* the 2 before it"
            ):
                loader.at(first)
        later = next(s for s in range(first, 40) if not any(17 in order.at(s + n).index for n in range(4)))
        assert _same(loader.at(later), alone.at(later))


def test_an_error_in_a_worker_names_the_sample_and_the_process() -> None:
    def failing(sample: Sample, seed: int) -> Sample:
        if sample["value"][0] == 9:
            raise OSError("truncated JPEG")
        return sample

    order = _order()
    step = next(s for s in range(9) if 9 in order.at(s).index)
    says = rf"step {step}, position \d+ .* sample 9 of source '.' .* could not be decoded: OSError: truncated JPEG "
    for workers, where in ((0, ""), (2, r"\(in the worker process \d+\)")):
        with _loader(workers, decode=failing) as loader:
            for each in range(step):
                loader.at(each)
            for _ in range(2):
                with pytest.raises(DataError, match=says.rstrip() + " ?" + where):
                    loader.at(step)


def test_a_batch_that_can_not_be_sent_is_an_error_and_no_hang() -> None:
    sets = [Squares(50)]

    def collate(samples: list[Sample]) -> dict[str, np.ndarray]:
        return {"values": (sample for sample in samples)}

    with (
        Loader(sets, Order((Source("a", 50),), 4), collate=collate, workers=1) as loader,
        pytest.raises(DataError, match="step 0, micro-batch 0: its batch can't be sent by the worker process"),
    ):
        loader.at(0)


def test_workers_end_with_their_loader_and_with_the_process_that_made_them() -> None:
    with _loader(2) as loader:
        pids = _processes(loader.at(0)) | _processes(loader.at(1))
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    read, write = os.pipe()
    owner = os.fork()
    if owner == 0:  # a training process that is killed: its workers must not stay
        os.close(read)
        with _loader(2) as loader:
            os.write(write, b"ready" if loader.at(0) else b"")
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(write)
    os.waitpid(owner, 0)
    with os.fdopen(read, "rb") as pipe:  # the workers have inherited the other end: it closes when the last one ends
        assert pipe.read() == b"ready"


def test_too_few_workers_are_refused() -> None:
    with pytest.raises(DataError, match="workers is -1"):
        Loader([Squares(50)], Order((Source("a", 50),), 4), workers=-1)
