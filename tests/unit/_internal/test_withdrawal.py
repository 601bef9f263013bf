"""The withdrawal of a message whose call was cancelled."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from producer_core._internal.withdrawal import Withdrawal, check_withdrawn


def run(withdrawal, function):
    """Run a function as `run_in_thread` does."""
    return contextvars.copy_context().run(withdrawal.run, function)


def test_a_request_ends_the_next_step_of_a_wait():
    withdrawal = Withdrawal()

    def wait():
        check_withdrawn()
        withdrawal.request()
        check_withdrawn()

    with pytest.raises(asyncio.CancelledError):
        run(withdrawal, wait)


def test_a_call_that_was_cancelled_before_it_began_does_not_begin():
    withdrawal, begun = Withdrawal(), []
    withdrawal.request()

    with pytest.raises(asyncio.CancelledError):
        run(withdrawal, lambda: begun.append(1))
    assert not begun


def test_another_call_is_not_withdrawn():
    withdrawal = Withdrawal()
    withdrawal.request()

    assert run(Withdrawal(), lambda: check_withdrawn() or "sent") == "sent"
    check_withdrawn()
