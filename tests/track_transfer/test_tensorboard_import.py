"""TensorBoard's log folders as its own writers, and PyTorch's, make them; whole, growing and damaged."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.foreign import tbevent
from muster.foreign.tfrecord import Damage, framed
from muster.track.exporters import EXPORTERS
from muster.track.exporters.base import Facts as RunFacts
from muster.track.importers import IMPORTERS
from muster.track.importers.base import Ended, Facts, ImportedMedium, Item, LeftOut, Rows
from transfer_kit import PNG, GivenRun, series

READER = IMPORTERS.get("tensorboard")
NAN, INF = float("nan"), float("inf")


def read(path: Path) -> list[Item]:
    (found,) = READER.find(path)
    return list(READER.read(found))


def points(items: Sequence[Item], name: str) -> list[tuple[int, float]]:
    rows = [item for item in items if isinstance(item, Rows) and item.names == (name,)]
    return [(step, values[0]) for row in rows for step, values in zip(row.steps, row.values, strict=True)]


def shown(items: Sequence[Item], name: str) -> list[ImportedMedium]:
    return [item for item in items if isinstance(item, ImportedMedium) and item.name == name]


def event_file(folder: Path, *events: bytes, name: str = "events.out.tfevents.0000000001.host") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(b"".join(framed(event) for event in (tbevent.first_event(1.0), *events)))
    return path


def scalars(*values: float) -> list[bytes]:
    return [tbevent.event(10.0 + step, step, tbevent.scalar("loss", value)) for step, value in enumerate(values)]


def test_what_pytorch_writes(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

        writer = SummaryWriter(str(tmp_path / "run"))
        for step in range(5000):
            writer.add_scalar("loss/train", 1 / (step + 1), step, walltime=1.7e9 + step)
        writer.add_scalar("odd", NAN, -3)
        writer.add_scalar("odd", INF, 2**40)
        writer.add_histogram("weights", np.arange(100.0), 7)
        writer.add_image("pic", np.zeros((3, 2, 2), np.uint8), 8)
        writer.add_text("said", "hello", 9)
        writer.close()
    items = read(tmp_path)
    loss = points(items, "loss/train")
    assert [step for step, _ in loss] == list(range(5000))
    assert np.allclose([value for _, value in loss], 1 / np.arange(1, 5001))
    (nan, infinity) = points(items, "odd")
    assert nan[0] == -3
    assert math.isnan(nan[1])
    assert infinity == (2**40, INF)
    (weights,) = shown(items, "weights")
    assert sum(weights.data["counts"]) == 100
    assert (weights.data["edges"][0], weights.data["edges"][-1]) == (0.0, 99.0)
    assert len(weights.data["edges"]) == len(weights.data["counts"]) + 1
    (pic,) = shown(items, "pic")
    assert (pic.kind, pic.mime, pic.content is not None and pic.content[:4]) == ("image", "image/png", b"\x89PNG")
    (said,) = shown(items, "said/text_summary")
    assert said.data == {"text": "hello"}
    assert isinstance(items[-1], Ended)


def test_what_tensorboards_newer_plugins_write(tmp_path: Path) -> None:
    def event(step: int, summary: Any) -> bytes:
        message = event_pb2.Event(wall_time=5.0, step=step, summary=summary)
        return bytes(message.SerializeToString())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.compat.proto import event_pb2  # noqa: PLC0415
        from tensorboard.plugins.histogram.summary_v2 import histogram_pb  # noqa: PLC0415
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb  # noqa: PLC0415
        from tensorboard.plugins.text.summary_v2 import text_pb  # noqa: PLC0415

        summaries = [scalar_pb("s", 0.25), histogram_pb("h", np.arange(10.0), buckets=5), text_pb("t", "words")]
    event_file(tmp_path, *(event(step, summary) for step, summary in enumerate(summaries)))
    items = read(tmp_path)
    assert points(items, "s") == [(0, 0.25)]
    (histogram,) = shown(items, "h")
    assert sum(histogram.data["counts"]) == 10
    assert shown(items, "t")[0].data == {"text": "words"}


def test_what_muster_exported_comes_back(tmp_path: Path) -> None:
    facts = RunFacts(
        "gpt-17", "p", created_at=1.7e9, started_at=1.7e9, ended_at=1.7e9 + 9, phase="failed",
        params={"lr": "3e-4", "opt": "adam", "amp": "True"},
    )  # fmt: skip
    list(EXPORTERS.get("tensorboard").export([GivenRun(facts, [series("loss", range(9), range(9))])], tmp_path))
    items = read(tmp_path)
    assert points(items, "loss") == [(step, float(step)) for step in range(9)]
    params = {key: value for item in items if isinstance(item, Facts) for key, value in item.params.items()}
    assert params == {"lr": 3e-4, "opt": "adam", "amp": True}
    assert items[-1] == Ended("failed", 1.7e9 + 9)


def test_every_folder_with_event_files_is_a_run(tmp_path: Path) -> None:
    event_file(tmp_path / "logs" / "a", *scalars(1))
    event_file(tmp_path / "logs" / "b" / "train", *scalars(2), name="events.out.tfevents.0000000002.host")
    (tmp_path / "logs" / "notes.txt").write_text("no events")
    found = READER.find(tmp_path / "logs")
    assert {one.name for one in found} == {"logs/a", "logs/b/train"}
    assert len({one.key for one in found}) == 2
    assert READER.find(tmp_path / "logs" / "notes.txt") == []


def test_a_run_that_moves_or_grows_stays_the_same_run(tmp_path: Path) -> None:
    path = event_file(tmp_path / "a", *scalars(1))
    (before,) = READER.find(tmp_path / "a")
    mark = before.fingerprint()
    path.write_bytes(path.read_bytes() + framed(scalars(1, 2)[1]))
    (tmp_path / "a").rename(tmp_path / "b")
    (after,) = READER.find(tmp_path / "b")
    assert after.key == before.key
    assert after.fingerprint() != mark
    assert points(list(READER.read(after)), "loss") == [(0, 1.0), (1, 2.0)]


class TestDamage:
    def whole(self, folder: Path) -> bytes:
        return event_file(folder, *scalars(1, 2, 3)).read_bytes()

    @pytest.mark.parametrize("cut", [1, 4, 10, 30])
    def test_a_tail_that_is_cut_off_is_said(self, tmp_path: Path, cut: int) -> None:
        path = tmp_path / "events.out.tfevents.1.host"
        path.write_bytes(self.whole(tmp_path / "whole")[:-cut])
        items = read(path)
        assert points(items, "loss") == [(0, 1.0), (1, 2.0)]
        (damage,) = [item for item in items if isinstance(item, Damage)]
        assert "cut off" in str(damage)
        assert str(path) in str(damage)

    def test_a_flipped_bit_costs_one_record(self, tmp_path: Path) -> None:
        raw = bytearray(self.whole(tmp_path / "whole"))
        size = len(framed(scalars(1)[0]))
        raw[-size - 8] ^= 1  # in the value of the second of three
        path = tmp_path / "events.out.tfevents.1.host"
        path.write_bytes(raw)
        items = read(path)
        assert points(items, "loss") == [(0, 1.0), (2, 3.0)]
        (damage,) = [item for item in items if isinstance(item, Damage)]
        assert "checksum" in str(damage)
        assert (damage.offset, damage.lost) == (len(raw) - 2 * size, size)

    def test_a_record_that_is_no_event(self, tmp_path: Path) -> None:
        path = event_file(tmp_path, b"\xff\xff\xff", *scalars(1))
        items = read(path)
        assert points(items, "loss") == [(0, 1.0)]
        assert any("no event" in str(item) for item in items if isinstance(item, Damage))

    def test_an_empty_file_is_no_run(self, tmp_path: Path) -> None:
        (tmp_path / "events.out.tfevents.1.host").write_bytes(b"")
        assert READER.find(tmp_path) == []

    def test_what_is_not_taken_over_is_counted(self, tmp_path: Path) -> None:
        graph = tbevent.event(1.0, 0) + b"\x22\x03abc"
        pr_curve = b"\x0a\x01p" + b"\x42\x02\x08\x01" + b"\x4a\x0d\x0a\x0b\x0a\x09pr_curves"
        event_file(tmp_path, graph, graph, tbevent.event(1.0, 0, pr_curve))
        left = [item.what for item in read(tmp_path) if isinstance(item, LeftOut)]
        assert left == ["2 graphs", "1 values of the plug-in 'pr_curves'"]


def test_an_image_keeps_its_bytes_and_size(tmp_path: Path) -> None:
    event_file(tmp_path, tbevent.event(1.0, 1, tbevent.image("pic", PNG, 2, 2)))
    (pic,) = shown(read(tmp_path), "pic")
    assert pic.content == PNG
    assert pic.about == {"height": 2, "width": 2}
