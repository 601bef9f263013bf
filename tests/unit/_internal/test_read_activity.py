"""Reads count as activity, except those of background threads."""

from __future__ import annotations

import os
import threading

import pytest

from producer_core._internal.read_activity import mark_background_thread
from producer_core.store import Store
from tests.fixtures.store_batches import batch

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


def test_reads_count_as_activity_except_on_background_threads(store):
    def long_ago():
        os.utime(store.path.with_name(store.path.name + ".gate"), (1.0, 1.0))

    def evaluate():
        mark_background_thread()
        store.rows("totals")

    long_ago()
    thread = threading.Thread(target=evaluate)
    thread.start()
    thread.join()
    Store.open(store.path).append(batch("p", 0))
    assert not store.recently_read()

    Store.open(store.path).rows("totals")
    assert store.recently_read()
