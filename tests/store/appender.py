"""Appends a random history to a store for ever, and prints the version after each entry once it is durable.

Run by the crash tests as a process of its own: appender.py URL SEED
"""

from __future__ import annotations

import random
import sys

from muster.core.state import State
from muster.store.base import Entry, RunPatch, StreamWrite
from muster.store.registry import open_store
from store_kit import History


def main(url: str, seed: int) -> None:
    store = open_store(url)
    history = History(random.Random(seed), store.state().time)
    while True:
        count = store.run("j").get("count", 0)
        line = f"{count:09}\n".encode()

        def propose(state: State, count: int = count, line: bytes = line) -> Entry:
            write = StreamWrite("j", 1, 0, "log", count * 10, count * 10 + 10, log=line)
            return Entry(history.entry(store), [write], [RunPatch("j", {"count": count + 1})])

        (result,) = store.transact([propose])
        if isinstance(result, Exception):
            raise result
        sys.stdout.write(f"{store.state().version}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
