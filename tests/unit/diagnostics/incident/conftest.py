"""A store with an incident, and its bundles."""

from __future__ import annotations

import time

import pytest

from producer_core.diagnostics.incident import IncidentWindow, export_incident
from producer_core.store import Store
from tests.fixtures import incidents
from tests.support import copied_store

WHO = {"who": "ann@host", "origin": "cli"}


@pytest.fixture(scope="session")
def window():
    since = float(int(time.time()) - 7200)
    return IncidentWindow(since, since + incidents.LENGTH)


@pytest.fixture(scope="session")
def template(tmp_path_factory, window):
    """The path of the store and of its masked and its raw bundle; copying a store is faster than creating one."""
    folder = tmp_path_factory.mktemp("incident")
    made = Store.open(folder / "store.duckdb")
    incidents.fill(made, window.since)
    (folder / "bundles").mkdir()
    export_incident(made, folder / "bundles" / "masked.zip", window, **WHO)
    made.close()
    return folder


@pytest.fixture
def store(template, tmp_path):
    return Store.open(copied_store(template / "store.duckdb", tmp_path))


@pytest.fixture(scope="session")
def masked(template):
    """The path of a masked bundle."""
    return template / "bundles" / "masked.zip"


@pytest.fixture
def raw(store, window, tmp_path):
    """The path of a raw bundle of `store`."""
    export_incident(store, tmp_path / "raw.zip", window, raw=True, **WHO)
    return tmp_path / "raw.zip"
