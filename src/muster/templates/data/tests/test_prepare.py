"""The data job: what it packs can be read back, validation is held out, and parts that are there stay."""

from __future__ import annotations

from pathlib import Path

import prepare
import pytest

from muster.data import DataError, open_dataset

SMALL = ["--parts", "3", "--characters", "3000", "--shard", "1000"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    prepare.main(prepare.parser.parse_args([*SMALL, "--out", str(tmp_path)]))
    return tmp_path


def packed(out: Path, name: str) -> Path:
    (folder,) = out.glob(f"{name}-*")
    return folder


def documents(folder: Path) -> list[str]:
    data = open_dataset("tokens", folder, length=1)
    row = [int(data.read(index)["tokens"][0]) for index in range(len(data))]
    texts: list[list[int]] = [[]]
    for token in row:
        if token == 256:
            texts.append([])
        else:
            texts[-1].append(token)
    return [bytes(one).decode() for one in texts if one]


def test_no_document_is_there_twice_or_in_both(out: Path) -> None:
    train, validation = documents(packed(out, "train")), documents(packed(out, "validation"))
    assert len(train) == len(set(train)) > 10
    assert len(validation) > 10
    assert set(train).isdisjoint(validation)
    assert all(line.endswith(" .") for line in train)


def test_a_second_run_makes_the_same_and_only_what_is_missing(out: Path) -> None:
    kept, before = out / "parts" / "part-00001.jsonl", packed(out, "train")
    written = kept.stat().st_mtime_ns
    (out / "parts" / "part-00002.jsonl").unlink()
    prepare.main(prepare.parser.parse_args([*SMALL, "--out", str(out)]))
    assert kept.stat().st_mtime_ns == written
    assert packed(out, "train") == before
    prepare.main(prepare.parser.parse_args([*SMALL, "--seed", "2", "--out", str(out / "other")]))
    assert packed(out / "other", "train").name != before.name


def test_damage_is_found(out: Path) -> None:
    folder = packed(out, "train")
    shard = next(folder.glob("*.tokens"))
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        open_dataset("tokens", folder, length=1).verify()
