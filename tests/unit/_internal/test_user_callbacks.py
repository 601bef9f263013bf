"""Functions of the user: their exceptions, and their values in messages."""

from __future__ import annotations

import threading

import pytest

from producer_core._internal.user_callbacks import call_both, is_containable, short_repr


def test_on_the_main_thread_an_interrupt_is_raised_and_an_exception_is_contained():
    assert is_containable(ValueError())
    assert not is_containable(KeyboardInterrupt())
    assert not is_containable(SystemExit())


def test_on_other_threads_every_exception_is_contained():
    found = []
    thread = threading.Thread(target=lambda: found.append(is_containable(SystemExit())))
    thread.start()
    thread.join()

    assert found == [True]


def test_both_callbacks_are_called_in_order():
    calls = []
    both = call_both(lambda event: calls.append(("ours", event)), lambda event: calls.append(("user", event)))

    both("error")

    assert calls == [("ours", "error"), ("user", "error")]


def test_without_a_user_callback_the_internal_one_is_returned():
    def ours(event):
        """Do nothing."""

    assert call_both(ours, None) is ours


def test_an_exception_of_the_users_callback_is_logged(caplog):
    def failing(event):
        raise ValueError("user code")

    call_both(lambda event: None, failing)("error")

    assert "a callback from the client's settings failed" in caplog.text


def test_an_interrupt_of_the_users_callback_is_raised():
    def interrupted(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_both(lambda event: None, interrupted)("error")


def test_a_long_repr_is_truncated_and_a_failing_one_is_replaced_by_the_type_name():
    class Broken:
        def __repr__(self):
            raise RuntimeError

    assert short_repr("abc") == "'abc'"
    assert short_repr("x" * 100, limit=5) == "'xxxx"
    assert short_repr(Broken()) == "a value of type Broken"
    assert short_repr(10**5000) == "a value of type int"
