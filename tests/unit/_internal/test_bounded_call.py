"""Calls that end in time, whatever the function does."""

from __future__ import annotations

import threading

import pytest

from producer_core._internal.bounded_call import call_within


def test_the_result_and_the_exception_reach_the_caller():
    assert call_within(30, lambda: 7, name="test") == 7
    with pytest.raises(ZeroDivisionError):
        call_within(30, lambda: 1 / 0, name="test")


def test_a_function_that_does_not_end_is_left_alone():
    release = threading.Event()
    with pytest.raises(TimeoutError):
        call_within(0.05, lambda: release.wait(60), name="test")
    release.set()
