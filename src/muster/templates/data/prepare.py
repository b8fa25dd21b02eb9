"""A data job: makes documents, drops doubles, packs token shards for training and validation, and reads them back.

Run it with `python prepare.py`, or under Muster with `muster run job.yaml`. A part that is there is not made again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from grammar import text

from muster import runtime
from muster.data import open_dataset
from muster.data.build import tokens

VALIDATION = 8  # one part of so many is for validation

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or "shards"))
parser.add_argument("--parts", type=int, default=16)
parser.add_argument("--characters", type=int, default=100_000, help="of text a part")
parser.add_argument("--shard", type=int, default=1 << 20, help="tokens a file")
parser.add_argument("--seed", type=int, default=1)


def main(args: argparse.Namespace) -> None:
    out, count = args.out, min(args.parts, runtime.preflight_steps() or args.parts)
    if rung := runtime.preflight_rung():
        out = out / f"preflight-{rung}"  # a test does not touch the data
    runtime.params(**{name: str(value) for name, value in vars(args).items()})
    parts = [out / "parts" / f"part-{number:05d}.jsonl" for number in range(count)]
    for number, part in enumerate(parts):
        if not part.is_file():
            write_part(part, args.characters, args.seed * 1_000_003 + number)
        runtime.progress(number + 1, total=args.parts, unit="part")
        if runtime.should_stop():
            print(f"asked to stop: {number + 1} of {count} parts are there", flush=True)
            return
    held_out = parts[::VALIDATION]
    seen = {line for part in held_out for line in part.read_text().splitlines()}  # is not trained on
    train = out / "parts" / "train.jsonl"
    train.write_text("".join(line + "\n" for line in distinct(parts, seen)))
    pack("train", [train], out, args)
    pack("validation", held_out, out, args)


def write_part(part: Path, characters: int, seed: int) -> None:
    """A document a line. The file has its name only when it is whole."""
    part.parent.mkdir(parents=True, exist_ok=True)
    documents = text(characters, seed)[0].split("\n")[:-1]  # the last one is cut off
    draft = part.with_suffix(".draft")
    draft.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    draft.replace(part)


def distinct(parts: list[Path], seen: set[str]) -> Iterator[str]:
    """Each document once, without those of `seen`."""
    for part in parts:
        for line in part.read_text().splitlines():
            if line not in seen:
                seen.add(line)
                yield line


def pack(name: str, files: list[Path], out: Path, args: argparse.Namespace) -> None:
    """Token shards in a folder with their digest in its name: what a training reads is never written over."""
    draft = out / f"{name}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    made = tokens(files, draft, shard=args.shard)
    open_dataset("tokens", draft, length=64).verify()  # reads all of it again
    digest = hashlib.sha256((draft / "index.json").read_bytes()).hexdigest()  # it has the checksum of each shard
    folder = out / f"{name}-{digest[:12]}"
    shutil.rmtree(draft) if folder.exists() else draft.rename(folder)
    size = sum(file.stat().st_size for file in folder.iterdir())
    runtime.data(
        f"grammar-{name}", digest[:12], digest=f"sha256:{digest}", uri=str(folder.resolve()), role="output",
        rows=made.documents, bytes=size, tokens=made.tokens,
    )  # fmt: skip
    print(f"{name}: {made.documents:,} documents, {made.tokens:,} tokens, {size:,} bytes in {folder}", flush=True)


if __name__ == "__main__":
    try:
        main(parser.parse_args())
    except KeyboardInterrupt:
        print("interrupted: run it again to go on with the parts that are missing", flush=True)
        sys.exit(130)  # what a shell gives for Ctrl-C
