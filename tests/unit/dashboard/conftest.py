"""Fixtures of all dashboard tests: the path of a store, the time, and no state of earlier tests."""

from __future__ import annotations

import time

import pytest

from producer_core.dashboard.auth import access
from producer_core.dashboard.server import doctor_run
from producer_core.dashboard.views import dead_letter_reads, reads
from tests.fixtures import errors, fleet, latency, overview


@pytest.fixture
def path(tmp_path):
    """The path of the store."""
    return tmp_path / "store.duckdb"


@pytest.fixture
def now():
    return float(int(time.time()))


@pytest.fixture(autouse=True)
def start_of_the_test(request):
    """Set `NOW` of test modules and helper modules that define it as 0 to the start of the test.

    Pages use the real clock, so a time from the import would be too old in a long run.
    """
    now = float(int(time.time()))
    with pytest.MonkeyPatch.context() as patch:
        for module in (request.module, errors, fleet, latency, overview):
            if getattr(module, "NOW", None) == 0.0:
                patch.setattr(module, "NOW", now)
        yield


@pytest.fixture(autouse=True)
def no_state_of_earlier_tests(monkeypatch):
    """Start each test without a sign-in, cached reads, doctor runs and alert settings."""
    monkeypatch.setattr(access, "_guards", [access.AccessGuard()])
    monkeypatch.setattr(doctor_run, "_latest", {})
    monkeypatch.delenv("PRODUCER_CORE_ALERTS", raising=False)
    monkeypatch.delenv("PRODUCER_CORE_ALERT_WEBHOOK", raising=False)
    monkeypatch.delenv("PRODUCER_CORE_ALERTMANAGER", raising=False)
    reads.clear()
    dead_letter_reads.clear()
    dead_letter_reads.clusters.clear()
    dead_letter_reads.clear_records()
