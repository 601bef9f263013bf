"""The dead letter queue in memory: its limits, statistics and filters."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetterQueue
from producer_core.errors import StoreFull
from producer_core.events import Attempt
from producer_core.messages import Message, MessageStatus
from tests.fixtures.dead_letters import NOW, dead_letter


def message(number=1, topic="q", **fields):
    return Message(f"id-{number}", topic, "key", {"n": number}, datetime(2026, 1, 1, 0, 0, number), **fields)


def test_a_queue_above_its_limit_counts_only_messages_held():
    queue = DeadLetterQueue(max_size=2)
    for number in range(4):
        queue.add_message(message(number), "boom")

    stats = queue.get_stats()

    assert stats["total_messages"] == 2
    assert stats["topic_breakdown"] == {"q": 2}  # regression: it was 4
    assert queue.topic_stats == {"q": 2}
    assert stats["dropped_messages"] == 2


def test_a_message_in_the_queue_has_the_dead_letter_status_and_error():
    queue = DeadLetterQueue()
    queue.add_message(message(1), "broker gone")

    (held,) = queue.messages
    assert (held.id, held.status, held.last_error) == ("id-1", MessageStatus.DLQ, "broker gone")
    assert queue.get_messages_by_topic("q") == [held]
    assert queue.get_messages_by_topic("other") == []


def test_the_statistics_contain_the_oldest_and_newest_message():
    queue = DeadLetterQueue()
    assert queue.get_stats()["oldest_message"] is None

    queue.add_message(message(1), "boom")
    queue.add_message(message(2), "boom")

    stats = queue.get_stats()
    assert (stats["oldest_message"], stats["newest_message"]) == (
        "2026-01-01T00:00:01",
        "2026-01-01T00:00:02",
    )
    json.dumps(stats)


def test_clearing_a_topic_keeps_other_topics():
    queue = DeadLetterQueue()
    for number, topic in enumerate(["a", "b", "a"]):
        queue.add_message(message(number, topic), "boom")

    assert queue.clear_topic("a") == 2
    assert queue.clear_topic("a") == 0
    assert queue.get_stats()["topic_breakdown"] == {"b": 1}


def test_above_the_limit_the_oldest_are_passed_to_overflow_and_not_dropped():
    spilled = []
    queue = DeadLetterQueue(2, overflow=spilled.extend)
    for number in range(4):
        queue.add(dead_letter(number))

    assert [one.message_id for one in spilled] == ["m-0", "m-1"]
    assert [one.message_id for one in queue.dead_letters()] == ["m-2", "m-3"]
    assert (queue.spilled, queue.dropped) == (2, 0)


def test_if_overflow_fails_the_dead_letter_stays_and_the_caller_gets_the_error():
    def full(dead_letters):
        raise StoreFull

    queue = DeadLetterQueue(1, overflow=full)
    queue.add(dead_letter(1))

    with pytest.raises(StoreFull):
        queue.add(dead_letter(2))
    assert [one.message_id for one in queue.dead_letters()] == ["m-1", "m-2"]


def test_the_first_dropped_dead_letter_logs_a_warning(caplog):
    queue = DeadLetterQueue(1)
    for number in range(3):
        queue.add(dead_letter(number))

    assert caplog.messages == ["dead letter queue full, dropping the oldest: max_size=1"]


def test_a_message_that_fails_again_is_held_once_with_all_attempts():
    queue = DeadLetterQueue()
    queue.add(dead_letter(1))
    queue.add(dead_letter(1, failed_at=NOW + 9, attempts=(Attempt(NOW + 9, "Y", "again"),)))

    (held,) = queue.dead_letters()
    assert [attempt.code for attempt in held.attempts] == ["MSG_SIZE_TOO_LARGE", "Y"]
    assert queue.get_stats()["total_messages"] == 1


def test_dead_letters_are_found_as_in_the_store():
    queue = DeadLetterQueue()
    for one in (dead_letter(1), dead_letter(2, topic="refunds"), dead_letter(3)):
        queue.add(one)

    assert [one.message_id for one in queue.find(DeadLetterFilter(topic="orders"))] == ["m-3", "m-1"]
    assert [one.message_id for one in queue.find(DeadLetterFilter(), limit=1, offset=1)] == ["m-2"]
    assert queue.count(DeadLetterFilter(topic="refunds")) == 1
    assert queue.get("m-2").topic == "refunds"
    assert queue.remove(["m-2", "unknown"]) == 1
    assert len(queue) == 2


def test_a_dead_letter_is_returned_as_its_original_message():
    queue = DeadLetterQueue()
    queue.add(dead_letter(1, value=b'{"n": 1}', key=b"k"))
    queue.add(dead_letter(2, value=b"\xff"))

    first, second = queue.messages
    assert (first.key, first.value, first.status) == ("k", {"n": 1}, MessageStatus.DLQ)
    assert second.value == b"\xff"


def test_a_limit_below_one_is_rejected():
    with pytest.raises(ValueError, match="at least 1"):
        DeadLetterQueue(0)
