"""Whether an artifact could act when it is loaded, by its content: no name is trusted, and nothing is loaded."""

from __future__ import annotations

import io
import tempfile
from typing import BinaryIO, Final, cast

from muster.scan import archives, formats
from muster.scan.findings import MOST, Finding
from muster.scan.limits import BOMB_BYTES, DEPTH, Broken, Budget, TooMuch
from muster.scan.pickles import TORCH_MAGIC, Report, follow
from muster.scan.reader import Reader, Source

VERSION: Final = 1  # of what is looked for: raised, artifacts count as not scanned
USE_SAFETENSORS: Final = (
    "Save the weights alone: `safetensors.torch.save_file(model.state_dict(), 'model.safetensors')`."
)
UNPACK: Final = "Upload it unpacked, or as gzip, zip or tar."
# What people and programs load as a pickle.
_PICKLED: Final = (
    ".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".joblib", ".dill", ".sav",
)  # fmt: skip
_IN_MEMORY: Final = 64 << 20
_SPOOLED: Final = 1 << 30  # bytes of an archive within an archive


def look_at_artifact(file: BinaryIO, size: int, name: str, budget: Budget | None = None) -> list[Finding]:
    """What makes it unsafe, and what could not be looked at; [] if it is safe to load as what it is."""
    scan = _Scan(budget or Budget())
    scan.file(file, size, name, 0)
    return scan.found[:MOST]


class _Scan:
    def __init__(self, budget: Budget) -> None:
        self.budget, self.found = budget, list[Finding]()

    def file(self, file: BinaryIO, size: int, place: str, depth: int) -> None:
        """A file that can be read anywhere."""
        try:
            self._file(file, size, place, depth)
        except (Broken, TooMuch) as error:
            self._not_scanned(place, str(error))
        except archives.ERRORS as error:
            self._not_scanned(place, f"it is broken: {str(error)[:200] or type(error).__name__}")

    def _file(self, file: BinaryIO, size: int, place: str, depth: int) -> None:
        if depth > DEPTH:
            raise TooMuch(f"archives are nested deeper than {DEPTH} times")
        file.seek(0)
        head = file.read(1024)
        zipped = archives.has_zip(file, head)
        packed = zipped or archives.is_tar(head)
        if not (zipped and head.startswith(archives.ZIP)):  # else no reader takes it for anything but a zip
            self._plain(file, size, head, place, depth, claimed=not packed)
        if zipped:
            for member in archives.zip_members(file, size, self.budget):
                self._member(member, place, depth)
        elif archives.is_tar(head):
            file.seek(0)
            for member in archives.tar_members(file, self.budget):
                self._member(member, place, depth)

    def _plain(self, file: BinaryIO, size: int, head: bytes, place: str, depth: int, claimed: bool) -> None:
        file.seek(0)
        content = archives.unpacked(file, head)
        if content is not None:
            return self._compressed(archives.Weighed(content, size), place, depth)
        return self._stream(file, size, head, place, claimed)

    def _compressed(self, content: archives.Weighed, place: str, depth: int) -> None:
        """What was packed alone; a tar in it is read as it comes, and another archive from a copy."""
        reader = Reader(content, self.budget)
        head = reader.peek(1024)
        inner = f"{place} (unpacked)"
        if archives.is_tar(head):
            for member in archives.tar_members(cast(BinaryIO, _Forward(reader)), self.budget, streamed=True):
                self._member(member, inner, depth)
        else:
            self._inner(reader, head, None, inner, depth)
            if not self.found:
                while reader.read(1 << 20):  # a bomb, or a stream that breaks
                    if content.size > BOMB_BYTES:
                        break

    def _member(self, member: archives.Member, place: str, depth: int) -> None:
        reader = Reader(member.file, self.budget)
        if member.numbers:
            return
        where = f"{member.name[:200]} in {place}"
        try:
            self._inner(reader, reader.peek(1024), member.size, where, depth)
        except Broken as error:
            self._not_scanned(where, str(error))
        if len(self.found) >= MOST:
            raise TooMuch("there are too many findings")

    def _inner(self, reader: Reader, head: bytes, size: int | None, place: str, depth: int) -> None:
        """A file within another: archives are copied first, the others are read as they come."""
        forward = _Forward(reader)
        packed = archives.unpacked(io.BytesIO(head), head) is not None
        if head.startswith(archives.ZIP) or archives.is_tar(head) or packed or (size is not None and size <= 1 << 20):
            with tempfile.SpooledTemporaryFile(_IN_MEMORY) as copy:
                count = 0
                while data := forward.read(1 << 20):
                    count += len(data)
                    if count > _SPOOLED:
                        raise TooMuch("it has a larger archive within it than is looked into")
                    copy.write(data)
                self.file(cast(BinaryIO, copy), count, place, depth + 1)
        else:
            self._stream(forward, size, head, place)

    def _stream(self, file: Source, size: int | None, head: bytes, place: str, claimed: bool = True) -> None:
        """Content that is no archive, read forwards. Not `claimed`: its name says nothing, since it is one too."""
        reader = Reader(file, self.budget)
        sealed = next((kind for start, kind in archives.SEALED.items() if head.startswith(start)), None)
        if sealed is not None:
            self.found.append(Finding("not_scanned", place, f"it is packed with {sealed}, which is not opened", UNPACK))
        elif head.startswith(formats.NPY):
            if formats.npy_holds_objects(reader):
                self._pickles(reader, place, claimed=True)
        elif head.startswith(formats.HDF5) or place.split(" in ")[0].endswith("config.json"):
            if formats.has_lambda(reader):
                self._unsafe(place, "a Lambda layer of Keras, which holds code")
        elif formats.is_safetensors(head, size):
            formats.check_safetensors(reader, size)
        elif _named(place, (".safetensors",)):
            self._pickles(reader, place, claimed=False)
            if not self.found:
                raise Broken("it has no header of safetensors")
        elif head:
            self._pickles(reader, place, claimed=claimed and _named(place, _PICKLED))

    # --- pickles ------------------------------------------------------------------------------------------------------
    def _pickles(self, reader: Reader, place: str, claimed: bool) -> None:
        """Every pickle of a file, one after the other. `claimed`: it must be one."""
        marked = reader.peek(2)[:1] == b"\x80"
        count = old = 0
        while not reader.end():
            report = follow(reader, self.budget)
            self._judge(report, place, claimed or (marked and report.names > 0), count)
            count += 1
            if report.broken or report.bad or self.found:
                return
            if not (marked or claimed):
                return  # text that happens to be a pickle of plain values
            if count == 1 and report.value == TORCH_MAGIC:
                old = 5  # the magic number, version, system, object and storages; raw bytes follow
            if count == old:
                return

    def _judge(self, report: Report, place: str, claimed: bool, before: int) -> None:
        whole = not report.broken
        if report.bad and (whole or report.acts or claimed):
            names = ", ".join(report.bad[:5]) + (f" and {len(report.bad) - 5} more" if len(report.bad) > 5 else "")
            self._unsafe(place, f"a pickle that could run code when it is loaded: {names}")
        elif report.broken and claimed:
            what = "bytes follow its pickle that are none" if before else f"it is no whole pickle: {report.broken}"
            self._not_scanned(place, what)
        for inner in report.nested:
            self.budget.nested()
            self.file(io.BytesIO(inner), len(inner), f"{place} (nested)", 1)

    def _unsafe(self, place: str, what: str) -> None:
        self.found.append(Finding("unsafe", place, what, USE_SAFETENSORS))

    def _not_scanned(self, place: str, why: str) -> None:
        self.found.append(Finding("not_scanned", place, why, "Upload it again, whole and unpacked."))


class _Forward:
    """What is left of a reader, as a file."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, count: int = -1, /) -> bytes:
        return self._reader.read(count if count >= 0 else 1 << 20)


def _named(place: str, suffixes: tuple[str, ...]) -> bool:
    return place.split(" in ")[0].removesuffix(" (unpacked)").removesuffix(" (nested)").lower().endswith(suffixes)
