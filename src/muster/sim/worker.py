"""A process that replays for another one: asks come through a pipe, answers and progress go back.

It is a program of its own (`main` with the number of the pipe), not a fork, so that threads and files of the process
that starts it are none of its concern. It ends when the pipe does: at the latest when it next tells how far it is.
"""

from __future__ import annotations

import os
import pickle
from multiprocessing.connection import Connection
from typing import Literal, NamedTuple

from muster.sim.answers import Ask, Packed, answer, pack
from muster.sim.partial import Partial

Kind = Literal["partial", "done", "failed"]


class Message(NamedTuple):
    kind: Kind
    body: Partial | Packed | Exception


def main(descriptor: int) -> None:
    pipe = Connection(descriptor)
    try:
        trace, worlds = pipe.recv()
        while True:
            ask: Ask = pipe.recv()
            try:
                found = answer(trace, worlds, ask, lambda partial: pipe.send(Message("partial", partial)))
                pipe.send(Message("done", pack(found)))
            except OSError:
                raise
            except Exception as error:
                pipe.send(Message("failed", sendable(error)))
    except (EOFError, OSError):
        os._exit(0)  # whoever asked is gone


def sendable(error: Exception) -> Exception:
    """The error itself, where it survives the way."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  (bytes of our own)
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
