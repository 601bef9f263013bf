"""Dead letters that wait in memory for their publication."""

from __future__ import annotations

import threading

from producer_core.producer.dead_letter_topic import direct_publications
from producer_core.producer.dead_letter_topic.direct_publications import DirectPublications
from tests.fixtures.replays import dead_letter


def publications(limit):
    unused = dict.fromkeys(("published", "refused"), lambda places: None)
    return DirectPublications(None, None, **unused, stopping=lambda: False, limit=limit)


def test_large_dead_letters_beyond_the_bound_of_bytes_are_left_to_the_store(monkeypatch):
    monkeypatch.setattr(direct_publications, "_WAITING_BYTES", 100)
    waiting = publications(limit=10)
    waiting.add(dead_letter(number, value=b"x" * 40) for number in range(5))
    assert len(waiting) == 2

    waiting.add([dead_letter(0, value=b"y" * 40)])
    waiting.discard([dead_letter(1).message_id])
    waiting.add([dead_letter(7, value=b"x" * 40)])
    assert {one.value[:1] for one in waiting.all()} == {b"x", b"y"} and len(waiting) == 2


def test_a_signal_handler_adds_a_dead_letter_while_its_thread_holds_the_lock():
    waiting = publications(limit=10)

    def interrupted():  # as by a signal in the middle of `add`
        yield dead_letter(1)
        thread = threading.current_thread()
        assert thread is threading.main_thread() and waiting._lock.acquire(timeout=5)
        waiting._lock.release()
        waiting.add([dead_letter(2)])
        yield dead_letter(3)

    waiting.add(interrupted())
    assert len(waiting) == 3
