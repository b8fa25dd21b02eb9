"""The server's side of the bridge: a child process with requests and answers as lines of JSON."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from muster.core.errors import EngineError

ANSWER_SECONDS: Final = 30.0
LEAVE_SECONDS: Final = 5.0
TAIL: Final = 4000  # bytes of its log to search for why it ended


@dataclass(slots=True)
class _Call:
    done: threading.Event = field(default_factory=threading.Event)
    answer: dict[str, Any] | None = None


class Link:
    """One bridge process. A change, and the end of the process, call `changed`."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path, changed: Callable[[], None]) -> None:
        self._command, self._env, self._log, self._changed = list(command), dict(env), log, changed
        self._process: subprocess.Popen[bytes] | None = None
        self._calls: dict[int, _Call] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        with os.fdopen(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._env,
                start_new_session=True,  # Ctrl-C in the server's terminal must only reach the server
            )
        threading.Thread(target=self._read, args=(self._process,), name="ray-bridge", daemon=True).start()

    def call(self, do: str, timeout: float = ANSWER_SECONDS, **given: Any) -> Any:
        """Sends a request and returns the answer. Raises EngineError with the message of the bridge or of Ray."""
        call, number = _Call(), next(self._numbers)
        with self._lock:
            if self._process is None or self._process.stdin is None or not self.alive:
                raise self._gone()
            self._calls[number] = call
            try:
                self._process.stdin.write(json.dumps({"id": number, "do": do, **given}).encode() + b"\n")
                self._process.stdin.flush()
            except OSError as error:
                raise self._gone() from error
        try:
            if not call.done.wait(timeout):
                raise EngineError(f"The bridge to Ray did not answer `{do}` within {timeout:g} s.", "Is Ray's head up?")
        finally:
            self._calls.pop(number, None)
        if call.answer is None:
            raise self._gone()
        if "error" in call.answer:
            raise EngineError(f"Ray: {call.answer['error']}".strip(), "See `muster doctor --engine ray`.")
        return call.answer["ok"]

    def close(self) -> None:
        """Ends the bridge; the agents and their workers stay."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        try:
            process.stdin.close()
            process.wait(LEAVE_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                answer = json.loads(line)
                if "changed" in answer:
                    self._changed()
                elif call := self._calls.get(answer["id"]):
                    call.answer = answer
                    call.done.set()
        process.wait()
        for call in list(self._calls.values()):
            call.done.set()
        self._changed()

    def _gone(self) -> EngineError:
        try:
            said = self._log.read_bytes()[-TAIL:].decode(errors="replace").strip().splitlines()
        except OSError:
            said = []
        last = next((line for line in reversed(said) if line.strip()), "it said nothing")
        return EngineError(f"The bridge to Ray has ended: {last[:500]}", f"See {self._log}.")
