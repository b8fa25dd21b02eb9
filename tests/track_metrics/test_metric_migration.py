"""Points of the schema before this one are in the tail afterwards, with the summaries that they would have had."""

from __future__ import annotations

import math
import zlib
from pathlib import Path

import pytest
import sqlalchemy
from alembic import command
from alembic.config import Config

import muster.store
from metric_kit import MetricStore, Point, column, expected_points, metric_store
from muster.store.connect import connect

OLD = [  # attempt, rank, name, points; in the order of arrival
    (1, 1, "loss", [(0, 9.0, 8.0)]),
    (1, 0, "loss", [(i, 100.0 + i, i / 7) for i in range(300)]),
    (1, 0, "acc é", [(5, 1.0, math.nan), (4, 2.0, math.inf)]),
    (1, 0, "loss", [(300, 400.0, -math.inf), (301, 401.0, math.nan)]),
    (2, 0, "loss", [(200, 500.0, 0.25), (201, 501.0, 0.5)]),
]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def test_old_points_move_into_the_tail(url: str, tmp_path: Path) -> None:
    make_old(url)
    with metric_store(url) as moved, metric_store(f"sqlite:///{tmp_path}/new.db") as new:
        for attempt, rank, name, points in OLD:
            new.add("j", attempt, rank, **{name: column(points)})
        for name in ("loss", "acc é"):
            assert moved.seen("j", name) == new.seen("j", name) != []
        assert moved.seen("j", "loss", superseded=False) == new.seen("j", "loss", superseded=False)
        assert repr(moved.metrics.series("j")) == repr(new.metrics.series("j"))
        assert moved.count("metric_tail", "j") == len(OLD)
        with moved.db.reading() as connection:
            assert not sqlalchemy.inspect(connection).has_table("metric_chunks")
        assert moved.metrics.compact() == sum(len(points) for *_, points in OLD)
        check_goes_on(moved)


def check_goes_on(moved: MetricStore) -> None:
    moved.add("j", 3, 0, loss=column([(7, 600.0, 1.0)]))
    expected = expected_points(1, [(i, 100.0 + i, i / 7) for i in range(7)]) + expected_points(3, [(7, 600.0, 1.0)])
    assert moved.seen("j", "loss", superseded=False) == expected


def make_old(url: str) -> None:
    database = connect(sqlalchemy.make_url(url))
    config = Config()
    folder = Path(muster.store.__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    insert = sqlalchemy.text(
        "INSERT INTO metric_chunks (job, attempt, rank, name, step_min, step_max, n, data)"
        " VALUES ('j', :attempt, :rank, :name, 0, 0, :n, :data)"
    )
    with database.writing() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        for attempt, rank, name, points in OLD:
            row = {"attempt": attempt, "rank": rank, "name": name, "n": len(points), "data": packed(points)}
            connection.execute(insert, row)
    database.close()


def packed(points: list[Point]) -> bytes:
    """As the store wrote them then: compressed where that was smaller."""
    columns = column(points)
    raw = columns.steps.tobytes() + columns.times.tobytes() + columns.values.tobytes()
    small = zlib.compress(raw, 1) if len(raw) >= 128 else raw
    return small if len(small) < len(raw) else raw
