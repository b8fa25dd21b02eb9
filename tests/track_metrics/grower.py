"""Appends rows to a run for ever and compacts it now and then; prints how many rows are durable after each.

Run by the tests of compaction as a process of its own: grower.py URL. Row n has step n in two series.
"""

from __future__ import annotations

import sys
import threading

from metric_kit import MetricStore, curve_of

ROWS = 7  # at a time


def main(url: str) -> None:
    metric_store = MetricStore(url)
    metric_store.open()
    count = len(metric_store.metrics.points("r", "a"))
    threading.Thread(target=compact_for_ever, args=(metric_store,), daemon=True).start()
    while True:
        steps = range(count, count + ROWS)
        metric_store.add("r", 1, 0, a=curve_of(steps), b=curve_of(steps, 0.1))
        count += ROWS
        sys.stdout.write(f"{count}\n")
        sys.stdout.flush()


def compact_for_ever(metric_store: MetricStore) -> None:
    settle = False
    while True:
        metric_store.metrics._compaction.compact("r", settle)
        settle = not settle


if __name__ == "__main__":
    main(sys.argv[1])
