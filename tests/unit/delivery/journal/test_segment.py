"""A segment whose sync failed is never synced successfully again."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from producer_core.delivery.journal.segment import Segment


@pytest.fixture
def segment(tmp_path):
    made = Segment(tmp_path / f"{0:020d}.journal", 7, create=True)
    yield made
    made.close()


def test_of_two_concurrent_syncs_the_second_fails_with_the_first(segment, monkeypatch):
    """The kernel would report the failure to one of them only."""
    started, resume, results = threading.Event(), threading.Event(), iter([OSError(5, "bad disk"), None])

    def sync(file):
        started.set()
        assert resume.wait(20)
        if (error := next(results)) is not None:
            raise error

    monkeypatch.setattr(os, "fdatasync", sync)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(segment.sync)
        assert started.wait(20)
        second = threads.submit(segment.sync)
        resume.set()
        for failed in (first, second):
            with pytest.raises(OSError):
                failed.result(20)
    assert segment.sync_failed


def test_records_written_during_a_sync_are_not_synced(segment, monkeypatch):
    segment.add([(0, b"content of a record" + bytes(40))])
    size = segment.size
    monkeypatch.setattr(os, "fdatasync", lambda file: segment.add([(1, b"content of a record" + bytes(40))]))

    segment.sync()

    assert segment.synced_size == size < segment.size
