"""Fixtures of the notebook tests: a store in which ten of a hundred messages failed."""

from __future__ import annotations

import shutil
import time

import pytest

from producer_core.dlq import DeadLetters
from producer_core.events import Attempt, DeadLetter
from producer_core.kafka.classify import fingerprint
from producer_core.metrics.histogram import bucket_of
from producer_core.store import Batch, LatencyRow, ProducerRow, StatisticsRow, Store

HOSTILE = "<img src=x onerror=alert(1)>"


def dead_letter(
    number, *, topic="orders", failed_at, code="POLICY_VIOLATION", text="Policy violation", verdict="rejected"
):
    return DeadLetter(
        message_id=f"m-{number}", cluster_id="c", producer_id="p", topic=topic, key=b"k", value=b'{"card":"4111 1111 1111 1111"}',
        headers=(), partition=None, timestamp_ms=None, verdict=verdict, verdict_reason="Refused.", kind="permanent",
        code=code, error_text=text, fingerprint=fingerprint(code, text),
        attempts=(Attempt(failed_at, code, text),), accepted_at=failed_at, failed_at=failed_at,
    )  # fmt: skip


def filled(store, now):
    """Add ninety acknowledged and ten failed messages on `orders`, by a producer that counts as running for a minute."""
    producer = ProducerRow(
        "p", "c", "shop", "host", 7, "0.1", now - 60, now + 60, None, True, None, 3, 1, 4, 100_000, 2**27, None, True,
        "at_least_once", "{}",
    )  # fmt: skip
    statistics = StatisticsRow(int(now) - 5, "c", "p", "orders", 100, 90, 10, 10, 0, 0, 0, 0, 10, 0.1)
    latencies = (LatencyRow(int(now) - 5, "c", "p", "orders", bucket_of(0.02), 90),)
    store.append(Batch("p", 1, (statistics,), latencies, (), producer))
    DeadLetters(store).add([dead_letter(number, failed_at=now - 5) for number in range(10)])
    return store


_template = {}
"""A filled store and its time; tests copy it until it is 15 seconds old."""


@pytest.fixture
def now(tmp_path_factory):
    """Return the time of the store; a new store is made when it is old, because the page uses the real clock."""
    if time.time() - _template.get("now", 0.0) > 15:
        path, now = tmp_path_factory.mktemp("template") / "store.duckdb", float(int(time.time()))
        filled(Store.open(path), now).close()
        _template.update(path=path, now=now)
    return _template["now"]


@pytest.fixture
def store(tmp_path, now):
    shutil.copy(_template["path"], tmp_path / "store.duckdb")
    return Store.open(tmp_path / "store.duckdb")


@pytest.fixture
def displayed(monkeypatch):
    """Record the displayed bundles and their options."""
    shown = []

    class Handle:
        def update(self, value, **options):
            shown.append((value, {**options, "update": True}))

    def display(value, **options):
        shown.append((value, options))
        return Handle() if options.get("display_id") is True else None

    monkeypatch.setattr("IPython.display.display", display)
    return shown
