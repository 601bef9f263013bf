"""A function runs periodically while a block runs."""

from __future__ import annotations

import threading

import pytest

from producer_core._internal.periodic import run_periodically


def test_the_function_runs_on_a_named_thread_until_the_block_ends():
    calls, twice = [], threading.Event()

    def work():
        calls.append(threading.current_thread().name)
        if len(calls) == 2:
            twice.set()

    with run_periodically(work, 0.005, name="refresh"):
        assert twice.wait(10)
    count = len(calls)

    assert set(calls) == {"refresh"}
    assert "refresh" not in {thread.name for thread in threading.enumerate()}
    assert len(calls) == count


def test_the_first_call_comes_after_the_interval():
    calls = []

    with run_periodically(lambda: calls.append(1), 60.0, name="refresh"):
        pass

    assert calls == []


def test_a_function_that_returns_false_is_not_called_again():
    calls, ended = [], threading.Event()

    def work():
        calls.append(threading.current_thread())
        ended.set()
        return False

    with run_periodically(work, 0.005, name="refresh"):
        assert ended.wait(10)
        calls[0].join(10)
        assert not calls[0].is_alive()

    assert len(calls) == 1


def test_an_exception_in_the_block_ends_the_calls():
    with pytest.raises(ZeroDivisionError), run_periodically(lambda: None, 0.005, name="refresh"):
        raise ZeroDivisionError

    assert "refresh" not in {thread.name for thread in threading.enumerate()}
