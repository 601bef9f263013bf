"""Test the cached reads of the dead letters page."""

from __future__ import annotations

from producer_core.dashboard.views import dead_letter_reads


def test_expensive_reads_are_cached_longer():
    now, read = [0.0], []

    def slow(key):
        read.append(key)
        now[0] += 0.5
        return key

    cache = dead_letter_reads.AdaptiveCache(slow, min_age=1.0, clock=lambda: now[0])
    cache("a")
    now[0] += 4.9
    cache("a")
    assert read == ["a"]
    now[0] += 0.2
    cache("a")
    cache("b")
    assert read == ["a", "a", "b"]
    cache.clear()
    cache("b")
    assert read[-1] == "b" and len(read) == 4
