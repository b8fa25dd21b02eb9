"""A thread that repeats a step beside the control loop. It logs a step that fails, and goes on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from muster.core.errors import MusterError

log = logging.getLogger("muster.control")


class Background:
    def __init__(
        self, name: str, step: Callable[[], None], may_act: Callable[[], bool], pause: Callable[[float], float]
    ) -> None:
        """`pause` returns the seconds until the next step, given the seconds that the last one took."""
        self._name, self._step, self._may_act, self._pause = name, step, may_act, pause
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, once_more: bool = False) -> None:
        """Waits for the step in progress; `once_more` runs one last step."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
            if once_more:
                self._try()

    def _run(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            self._try()
            self._stopped.wait(self._pause(time.monotonic() - began))

    def _try(self) -> None:
        try:
            if self._may_act():
                self._step()
        except MusterError as error:
            log.warning("%s: nothing could be recorded, it is tried again: %s", self._name, error)
        except Exception:
            log.exception("%s failed; it is tried again", self._name)
