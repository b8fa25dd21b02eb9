"""Cohorts: trials that are compared with each other alone. The next one begins when the last is full and over.

The cohort of a trial is its `bracket`. A trial that the platform lost leaves its place to the one that repeats it.
"""

from __future__ import annotations

from muster.tune.tables import Tables


def newest_cohort(tables: Tables) -> int:
    return max((bracket for _, bracket, _ in tables.keys("member")), default=0)


def is_full(tables: Tables, cohort: int, size: int) -> bool:
    return len(tables.rows("member", cohort)) >= size
