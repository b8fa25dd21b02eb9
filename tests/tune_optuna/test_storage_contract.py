"""Optuna's own tests of storages, on the storage of the SDK and on the one that `storage="muster://"` makes."""

from __future__ import annotations

from itertools import count

import optuna
import pytest
from optuna.storages import BaseStorage
from optuna.testing.pytest_storages import StorageTestCase

import muster

_JOURNALS = count(1)


class TestStorageOfTheSdk(StorageTestCase):
    @pytest.fixture
    def storage(self) -> BaseStorage:
        return muster.optuna_storage(journal=f"sdk-{next(_JOURNALS)}")


class TestStorageByName(StorageTestCase):
    @pytest.fixture
    def storage(self) -> BaseStorage:
        return optuna.storages.get_storage(f"muster://?journal=name-{next(_JOURNALS)}")
