"""Test when an expensive page is read again."""

from __future__ import annotations

import time

import pytest

from producer_core.dashboard.views import adaptive_cache
from producer_core.dashboard.views.adaptive_cache import CachedRead, is_due


def test_the_first_read_and_another_request_are_due_at_once():
    assert is_due(None, "5 min", 100.0)
    assert is_due(CachedRead("5 min", "page", 100.0, 1.0), "15 min", 100.0)


@pytest.mark.parametrize(
    ("took", "reused_for"), [(0.0, 0.0), (0.1, 1.0), (1.0, 10.0), (3.0, 30.0), (1000.0, 30.0)]
)
def test_a_read_is_reused_for_ten_times_its_duration_up_to_half_a_minute(took, reused_for):
    last = CachedRead("5 min", "page", 100.0, took)

    assert is_due(last, "5 min", 100.0 + reused_for)
    if reused_for:
        assert not is_due(last, "5 min", 100.0 + reused_for - 0.01)


def test_an_expired_read_is_repeated_and_keeps_its_value_until_then(monkeypatch):
    state = {"page": CachedRead("view", "earlier", time.monotonic(), 1.0)}
    monkeypatch.setattr(adaptive_cache.st, "session_state", state)
    adaptive_cache.expire("page")
    adaptive_cache.expire("another page")

    assert is_due(state["page"], "view", time.monotonic()) and state["page"].value == "earlier"
