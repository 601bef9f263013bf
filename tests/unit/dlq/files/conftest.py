"""Two stores: an export leaves one, an import fills the other."""

from __future__ import annotations

import shutil

import pytest

from producer_core.store import Store


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """An empty store; copying it is faster than creating one."""
    store = Store.open(tmp_path_factory.mktemp("empty") / "store.duckdb")
    store.close()
    return store.path


@pytest.fixture
def store(tmp_path, empty):
    return Store.open(shutil.copy(empty, tmp_path / "store.duckdb"))


@pytest.fixture
def other(tmp_path, empty):
    return Store.open(shutil.copy(empty, tmp_path / "other.duckdb"))
