"""What SQLAlchemy loads for an address `muster://`: Optuna then keeps its studies in Muster, in unmodified scripts.

Optuna takes every storage that is given as text for the address of a database: `create_study(storage="muster://")`, the
command `optuna`, and its dashboard all make an `RDBStorage` of it, whose constructor asks SQLAlchemy for an engine. At
this moment SQLAlchemy loads this module, in every process where Muster is installed, imported or not. Muster is no
database. So the `RDBStorage` that is being constructed becomes an `OptunaStorage`, and what is left of its constructor
works on an empty database in memory, which nothing uses.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Final

from sqlalchemy import URL, Engine, Pool, StaticPool
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import ConnectArgsType

from muster.core.errors import ConfigError

_MODULE: Final = "optuna.storages._rdb.storage"


class MusterDialect(SQLiteDialect_pysqlite):
    """An empty database in memory."""

    supports_statement_cache = True

    @classmethod
    def get_dialect_cls(cls, url: URL) -> type[Dialect]:
        storage = _under_construction(sys._getframe())
        if storage is None:
            raise ConfigError(
                "muster:// is no database.",
                "It is a storage for Optuna, `optuna.create_study(storage='muster://')`, and a tracking server for "
                "MLflow.",
            )
        _turn(storage)
        return cls

    def create_connect_args(self, url: URL) -> ConnectArgsType:
        return (":memory:",), {"check_same_thread": False}

    @classmethod
    def get_pool_class(cls, url: URL) -> type[Pool]:
        return StaticPool

    @classmethod
    def engine_created(cls, engine: Engine) -> None:
        """Makes Optuna's tables, which the rest of the constructor looks at, also if it was told to make none."""
        sys.modules["optuna.storages._rdb.models"].BaseModel.metadata.create_all(engine)


def _under_construction(frame: FrameType | None) -> Any:
    """The `RDBStorage` whose constructor called."""
    kind = getattr(sys.modules.get(_MODULE), "RDBStorage", None)
    while kind is not None and frame is not None:
        if isinstance(found := frame.f_locals.get("self"), kind):
            return found
        frame = frame.f_back
    return None


def _turn(storage: Any) -> None:
    from muster.client.optuna import Backend, OptunaStorage, Place  # noqa: PLC0415

    if storage.heartbeat_interval is not None:
        raise ConfigError("muster:// has no heartbeats of trials.", "Leave `heartbeat_interval` out.")
    if storage.engine_kwargs:
        raise ConfigError("muster:// is no database, and has no engine.", "Leave `engine_kwargs` out.")
    storage.__class__ = OptunaStorage
    storage.__init__(Backend(Place.of(storage.url)))
