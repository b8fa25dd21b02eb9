"""Shuffled batches of tokens, and of decoded images: the loader beside torch's DataLoader over a memory map, a bare
loop over the same map, and mosaicml-streaming.

All read the same tokens and return `inputs` and `targets` as i64 tensors, in rounds that take turns; figures are
medians over rounds. CPU time counts, of all threads: the judge on a machine that does other things. For streaming:

    pip install --no-deps --target FOLDER mosaicml-streaming brotli zstd python-snappy xxhash cramjam catalogue
    python bench/loader.py --streaming FOLDER

Its modules of named corpora (`streaming.text`, `vision`, `multimodal`) need transformers and torchvision. Nothing here
reads those corpora, so empty modules stand in their place; the dataset, its shuffle and its reader are as published.
"""

from __future__ import annotations

import argparse
import importlib
import io
import itertools
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from _machine import write
from muster.data import Batch, Loader, Order, Sample, Source, next_token, open_dataset, stack
from muster.data.formats import tokens

LENGTH, VOCAB, SHARDS = 1024, 50_257, 4
Pair = tuple[Tensor, Tensor]
Make = Callable[[Path, int], Iterator[Pair]]  # batches without end, from the data in a folder, of so many samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streaming", type=Path, help="the folder that mosaicml-streaming was installed to")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batches", type=int, default=600, help="of a round")
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 64], help="samples of a batch")
    parser.add_argument("--tokens", type=int, default=64 << 20)
    parser.add_argument("--no-images", action="store_true")
    parser.add_argument("--only-print", action="store_true", help="writes no result, as on a busy machine")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        row = np.random.default_rng(0).integers(0, VOCAB, given.tokens).astype(np.uint16)
        tokens.write(folder / "muster", [{"tokens": row}], vocab=VOCAB, shard=given.tokens // SHARDS)
        row.tofile(folder / "plain.bin")
        if given.streaming:
            _write_streaming(given.streaming, folder / "streaming", row)
        result: dict[str, Any] = {"tokens": given.tokens, "length": LENGTH, "shards": SHARDS}
        for size in given.sizes:
            result[f"batch_{size}"] = _tokens(folder, size, bool(given.streaming), given.rounds, given.batches)
        result["resume"] = _resume(folder, given.rounds, bool(given.streaming))
        if not given.no_images:
            result["images"] = _images(given.rounds)
    if given.only_print:
        print(result)
    else:
        write("loader", result)


def _tokens(folder: Path, batch: int, streaming: bool, rounds: int, count: int) -> dict[str, Any]:
    """CPU and wall-clock time of a batch by reader, in µs, and how many times as many batches ours gives."""
    made = {"muster": _muster, "dataloader": _dataloader, "bare": _bare} | (
        {"streaming": _streaming} if streaming else {}
    )
    readers = {name: _started(make, folder, batch, count) for name, make in made.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in readers}
    for _ in range(rounds + 1):
        for name, (pipe, _) in readers.items():
            pipe.send("a round")
            times[name].append(pipe.recv())
    for pipe, process in readers.values():
        pipe.send(None)
        process.join()
    found: dict[str, Any] = {}
    for number, clock in enumerate(("cpu", "wall")):
        medians = {name: statistics.median(each[number] for each in one[1:]) for name, one in times.items()}
        found[f"{clock}_us"] = {name: round(value / count * 1e6, 1) for name, value in medians.items()}
        found[f"{clock}_times"] = {name: round(value / medians["muster"], 2) for name, value in medians.items()}
    return found


def _started(make: Make, folder: Path, batch: int, count: int) -> tuple[Connection, Process]:
    """A reader in a process of its own, whose threads burden nobody else; it sends each round's CPU and wall time."""
    mine, its = Pipe()
    process = Process(target=_rounds, args=(make, folder, batch, count, its), daemon=True)
    process.start()
    its.close()
    return mine, process


def _rounds(make: Make, folder: Path, batch: int, count: int, pipe: Connection) -> None:
    torch.set_num_threads(1)
    reader = make(folder, batch)
    while pipe.recv() is not None:
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(count):
            next(reader)
        pipe.send((time.process_time() - cpu, time.perf_counter() - wall))


def _loader(folder: Path, batch: int) -> Loader:
    dataset = open_dataset("tokens", folder / "muster", length=LENGTH)
    return Loader([dataset], Order((Source("made-up", len(dataset)),), batch, seed=1), collate=next_token)


def _muster(folder: Path, batch: int) -> Iterator[Pair]:
    """As the others, it holds on to no batch that it has given."""

    def pair(found: list[Batch]) -> Pair:
        return torch.from_numpy(found[0].arrays["inputs"]), torch.from_numpy(found[0].arrays["targets"])

    with _loader(folder, batch) as loader:
        for step in itertools.count():
            yield pair(loader.at(step))


class Windows(TorchDataset[Pair]):
    """What people write first: a memory map, and a slice for each sample."""

    def __init__(self, path: Path) -> None:
        self.row = np.memmap(path, np.uint16, "r")

    def __len__(self) -> int:
        return (len(self.row) - 1) // LENGTH

    def __getitem__(self, index: int) -> Pair:
        window = torch.from_numpy(self.row[index * LENGTH : index * LENGTH + LENGTH + 1].astype(np.int64))
        return window[:-1], window[1:]


def _dataloader(folder: Path, batch: int) -> Iterator[Pair]:
    windows = Windows(folder / "plain.bin")
    while True:
        yield from DataLoader(windows, batch, shuffle=True, drop_last=True)


def _bare(folder: Path, batch: int) -> Iterator[Pair]:
    """The least that can be done: one index into overlapping rows, and two conversions. No order that could be resumed,
    no reading ahead, no shards, no checks."""
    row = np.frombuffer(np.memmap(folder / "plain.bin", np.uint16, "r"), np.uint16)
    count = (len(row) - 1) // LENGTH
    windows = np.lib.stride_tricks.as_strided(row, (count, LENGTH + 1), (2 * LENGTH, 2))
    rng = np.random.default_rng(1)
    while True:
        order = rng.permutation(count)
        for start in range(0, count - batch, batch):
            rows = windows[order[start : start + batch]]
            yield torch.from_numpy(rows[:, :-1].astype(np.int64)), torch.from_numpy(rows[:, 1:].astype(np.int64))


def _import_streaming() -> ModuleType:
    for name in ("text", "vision", "multimodal"):
        sys.modules[f"streaming.{name}"] = ModuleType(f"streaming.{name}")
    return importlib.import_module("streaming")


def _write_streaming(installed: Path, out: Path, row: NDArray[np.uint16]) -> None:
    sys.path.append(str(installed))
    columns = {"tokens": f"ndarray:uint16:{LENGTH + 1}"}
    with _import_streaming().MDSWriter(out=str(out), columns=columns, size_limit=2 * len(row) // SHARDS) as writer:
        for index in range((len(row) - 1) // LENGTH):
            writer.write({"tokens": row[index * LENGTH : index * LENGTH + LENGTH + 1]})


def _streaming_batches(dataset: Any, batch: int) -> Iterator[Pair]:
    def pairs(samples: list[dict[str, NDArray[np.uint16]]]) -> Pair:
        rows = np.stack([sample["tokens"] for sample in samples]).astype(np.int64)
        whole = torch.from_numpy(rows)
        return whole[:, :-1].contiguous(), whole[:, 1:].contiguous()

    yield from DataLoader(dataset, batch, collate_fn=pairs, drop_last=True)


def _streaming(folder: Path, batch: int) -> Iterator[Pair]:
    dataset = _import_streaming().StreamingDataset(
        local=str(folder / "streaming"), shuffle=True, batch_size=batch, num_canonical_nodes=1
    )
    while True:
        yield from _streaming_batches(dataset, batch)


def _resume(folder: Path, rounds: int, streaming: bool) -> dict[str, float]:
    """Milliseconds from a new loader to its first batch in the middle of an epoch: median and longest."""
    made = _loader(folder, 8)
    steps = len(made.sources[0]) // 8

    def ours(number: int) -> None:
        with Loader(made.sources, made.order, collate=next_token) as loader:
            loader.at(steps // 2 + 37 * number)

    found = _timed(ours, 5 * rounds, "muster")
    if streaming:
        kind = _import_streaming().StreamingDataset

        def theirs(number: int) -> None:
            dataset = kind(local=str(folder / "streaming"), shuffle=True, batch_size=8, num_canonical_nodes=1)
            state = {"epoch": 0, "sample_in_epoch": 8 * (steps // 2 + 37 * number), "num_canonical_nodes": 1}
            dataset.load_state_dict({**state, "shuffle_seed": dataset.shuffle_seed, "initial_physical_nodes": 1})
            next(_streaming_batches(dataset, 8))

        found |= _timed(theirs, 3, "streaming")
    return found


def _timed(act: Callable[[int], None], rounds: int, name: str) -> dict[str, float]:
    times = []
    for number in range(rounds):
        began = time.perf_counter()
        act(number)
        times.append((time.perf_counter() - began) * 1e3)
    return {f"{name}_ms": round(statistics.median(times), 2), f"{name}_longest_ms": round(max(times), 2)}


class Pictures(TorchDataset[dict[str, Any]]):
    """JPEGs of 320 × 240 in memory, each cut and mirrored at random."""

    def __init__(self, count: int) -> None:
        from PIL import Image

        rng = np.random.default_rng(3)
        smooth = rng.integers(0, 256, (16, 12, 16, 3), np.uint8)
        self.files = []
        for picture in smooth:
            stream = io.BytesIO()
            Image.fromarray(picture).resize((320, 240)).save(stream, "JPEG", quality=90)
            self.files.append(stream.getvalue())
        self.count = count

    def __len__(self) -> int:
        return self.count

    def read(self, index: int) -> Sample:
        return {"jpg": self.files[index % len(self.files)]}

    def __getitem__(self, index: int) -> dict[str, Any]:
        return dict(decoded(self.read(index), index))


def decoded(sample: Sample, seed: int) -> Sample:
    """The pixels of a part of 224 × 224, perhaps mirrored."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    pixels = np.asarray(Image.open(io.BytesIO(sample["jpg"])).convert("RGB"))
    top, left = rng.integers(0, pixels.shape[0] - 224), rng.integers(0, pixels.shape[1] - 224)
    part = pixels[top : top + 224, left : left + 224]
    return {"pixels": np.ascontiguousarray(part[:, ::-1] if rng.random() < 0.5 else part)}


def _images(rounds: int, batch: int = 32, steps: int = 24) -> dict[str, Any]:
    """Decoded images a second, and CPU time of one, with as many workers as cores, from the start of the workers on."""
    pictures, workers = Pictures(batch * 200), len(os.sched_getaffinity(0))

    def ours() -> None:
        order = Order((Source("made-up", len(pictures)),), batch, seed=1)
        with Loader([pictures], order, collate=stack, ahead=2 * workers, workers=workers, decode=decoded) as loader:
            for step in range(steps):
                torch.from_numpy(loader.at(step)[0].arrays["pixels"])

    def theirs() -> None:
        found = iter(DataLoader(pictures, batch, shuffle=True, num_workers=workers))
        for _ in range(steps):
            next(found)["pixels"]
        del found  # ends the workers

    times: dict[str, list[tuple[float, float]]] = {"muster": [], "dataloader": []}
    for _ in range(max(3, rounds)):
        for name, act in (("muster", ours), ("dataloader", theirs)):
            cpu, wall = _cpu(), time.perf_counter()
            act()
            times[name].append((_cpu() - cpu, time.perf_counter() - wall))
    cpus, walls = ({name: statistics.median(each[n] for each in one) for name, one in times.items()} for n in (0, 1))
    count = batch * steps
    return {
        "workers": workers,
        "images_per_s": {name: round(count / wall) for name, wall in walls.items()},
        "cpu_ms": {name: round(cpu / count * 1e3, 2) for name, cpu in cpus.items()},
        "wall_times": round(walls["dataloader"] / walls["muster"], 2),
        "cpu_times": round(cpus["dataloader"] / cpus["muster"], 2),
    }


def _cpu() -> float:
    """Seconds of this process and of the workers that have ended."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main()
