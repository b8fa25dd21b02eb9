"""The other tools that reports can be mirrored to: W&B, which must be installed, and TensorBoard, which need not be."""

from __future__ import annotations

import importlib
import netrc
import os
import socket
import time
from pathlib import Path
from typing import Any, BinaryIO, Final

from muster.foreign import tbevent
from muster.foreign.tfrecord import framed
from muster.runtime.rank_info import attempt, job

_WANDB_HOST: Final = "api.wandb.ai"


class WandbSink:
    name = "wandb"

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._wandb: Any = None
        self._run: Any = None

    def open(self) -> None:
        try:
            self._wandb = importlib.import_module("wandb")
        except ImportError:
            raise RuntimeError("wandb is not installed; run `pip install wandb`") from None
        given: dict[str, Any] = {"name": _label(), "group": job(), "settings": self._wandb.Settings(console="off")}
        if "WANDB_MODE" not in os.environ and not _has_key():
            given["mode"] = "offline"
        # A W&B run can't go back to an earlier step, so every attempt is a separate run.
        if job() is not None:
            given["id"] = f"{job()}-attempt-{attempt()}"
        self._run = self._wandb.init(**{**given, **self._settings})

    def row(self, step: int, time: float, values: dict[str, float]) -> None:
        self._run.log({**values, "_timestamp": time}, step=step)

    def document(self, doc: dict[str, Any]) -> None:
        kind = doc.get("type")
        if kind == "params":
            self._run.config.update(doc["values"], allow_val_change=True)
        elif kind == "tags":
            named = {f"{key}:{value}" if value else key for key, value in doc["values"].items() if value is not None}
            self._run.tags = tuple(sorted({*(self._run.tags or ()), *(tag[:64] for tag in named)}))
        elif kind == "note":
            self._run.notes = "\n".join(filter(None, (self._run.notes, doc["text"])))
        elif kind == "media" and "data" in doc and (value := self._medium(doc)) is not None:
            self._run.log({doc["name"]: value}, step=doc["step"])

    def flush(self) -> None:
        """Nothing to do: W&B's own process writes."""

    def close(self) -> None:
        self._run.finish()

    def _medium(self, doc: dict[str, Any]) -> Any:
        data = doc["data"]
        if doc["kind"] == "histogram":
            return self._wandb.Histogram(np_histogram=(data["counts"], data["edges"]))
        if doc["kind"] == "table":
            return self._wandb.Table(columns=data["columns"], data=data["rows"])
        if doc["kind"] == "text":
            return _text(data)
        return None


class TensorBoardSink:
    name = "tensorboard"

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) / _label()
        self._file: BinaryIO | None = None
        self._params: dict[str, tbevent.Param] = {}

    def open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.muster"
        self._file = (self._folder / name).open("wb")
        self._write(tbevent.first_event(time.time()))

    def row(self, step: int, time: float, values: dict[str, float]) -> None:
        self._write(tbevent.event(time, step, *(tbevent.scalar(name, value) for name, value in values.items())))

    def document(self, doc: dict[str, Any]) -> None:
        kind, when = doc.get("type"), doc["time"]
        if kind == "params":
            self._params |= {key: _param(value) for key, value in doc["values"].items()}
            self._write(tbevent.event(when, 0, tbevent.session_start(self._params, _label(), when)))
        elif kind == "note":
            self._write(tbevent.event(when, 0, tbevent.text("notes", doc["text"])))
        elif kind == "media" and "data" in doc:
            data, name = doc["data"], doc["name"]
            if doc["kind"] == "histogram" and data["counts"]:
                self._write(tbevent.event(when, doc["step"], tbevent.histogram(name, data["edges"], data["counts"])))
            elif doc["kind"] == "text":
                self._write(tbevent.event(when, doc["step"], tbevent.text(name, _text(data))))

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, event: bytes) -> None:
        if self._file is not None:
            self._file.write(framed(event))


def _label() -> str:
    named = job()
    return f"{named}-{attempt()}" if named is not None else time.strftime("run-%Y%m%d-%H%M%S")


def _has_key() -> bool:
    """Whether W&B could log in without asking the user."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(_WANDB_HOST) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _param(value: Any) -> tbevent.Param:
    return value if isinstance(value, bool | float | str) else float(value) if isinstance(value, int) else str(value)


def _text(data: Any) -> str:
    return str(data["text"]) if isinstance(data, dict) and "text" in data else str(data)
