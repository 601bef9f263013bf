"""The queue of span ends: bounded, in order, and never waited for."""

from __future__ import annotations

import threading

from producer_core.producer.tracing.span_queue import SpanQueue


def test_ends_run_in_their_order_on_one_other_thread():
    queue, seen = SpanQueue(), []
    for number in range(100):
        queue.put(lambda number=number: seen.append((number, threading.get_ident())))

    assert queue.close(30)
    assert [number for number, _ in seen] == list(range(100))
    assert {thread for _, thread in seen}.isdisjoint({threading.get_ident()})
    assert len({thread for _, thread in seen}) == 1


def test_a_full_queue_drops_and_logs_once(caplog):
    queue, blocked, begun, seen = SpanQueue(max_queued=3), threading.Event(), threading.Event(), []

    def block():
        begun.set()
        blocked.wait(60)

    queue.put(block)
    assert begun.wait(30)
    for number in range(10):
        queue.put(lambda number=number: seen.append(number))
    assert not queue.close(0.01)
    blocked.set()

    assert queue.close(30)
    assert seen == [0, 1, 2]
    assert queue.dropped == 7
    assert [record.getMessage() for record in caplog.records] == [
        "trace spans dropped: reason=the span processor is too slow"
    ]


def test_an_end_that_raises_does_not_stop_the_thread(caplog):
    queue, seen = SpanQueue(), []
    queue.put(lambda: 1 / 0)
    queue.put(lambda: seen.append(1))

    assert queue.close(30)
    assert seen == [1]
    assert "trace span not ended" in caplog.text


def test_a_queue_that_was_never_used_has_no_thread():
    before = threading.active_count()

    assert SpanQueue().close(0)
    assert threading.active_count() == before
