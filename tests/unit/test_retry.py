"""A retry: whether, when, and that it really happens."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from producer_core.config import RetryConfig
from producer_core.delivery.retry import GiveUp, RetryAfter, RetryManager, decide, delay
from producer_core.errors import ConfigError
from producer_core.kafka.classify import known_failures, lookup
from tests.support import eventually

EXACT = RetryConfig(max_delay_ms=1000, jitter=False)


@dataclass(frozen=True)
class Item:
    topic: str = "orders"
    number: int = 0
    retry_count: int = 0


class KafkaTimeoutError(Exception):
    """Named as kafka-python's."""


class OurTimeoutError(KafkaTimeoutError):
    """A subclass that nobody listed."""


# the decision


@pytest.mark.parametrize("failure", known_failures(), ids=lambda failure: failure.code)
def test_only_what_may_pass_by_itself_is_tried_again(failure):
    decision = decide(failure, 1, EXACT)
    client_broke = failure.code in (
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "UNKNOWN_PRODUCER_ID",
        "_FATAL",
        "_INCONSISTENT",
    )
    assert isinstance(decision, RetryAfter) == (failure.kind in ("temporary", "timed_out") or client_broke)


def test_the_retries_are_counted_and_then_given_up():
    config = RetryConfig(max_retries=2, jitter=False)
    decisions = [decide(lookup("REQUEST_TIMED_OUT"), attempt, config) for attempt in (1, 2, 3)]
    assert decisions == [RetryAfter(0.1), RetryAfter(0.2), GiveUp("all 2 retries failed")]


def test_no_retries_means_none():
    assert isinstance(decide(lookup("REQUEST_TIMED_OUT"), 1, RetryConfig(max_retries=0)), GiveUp)


def test_a_list_of_the_users_own_names_the_only_errors_that_are_retried():
    config = RetryConfig(retriable_errors=["NotLeaderOrFollowerException"])
    assert isinstance(decide(lookup("NOT_LEADER_FOR_PARTITION"), 1, config), RetryAfter)
    assert isinstance(decide(lookup("REQUEST_TIMED_OUT"), 1, config), GiveUp)


def test_the_default_list_in_another_order_is_still_the_default():
    config = RetryConfig(retriable_errors=list(reversed(RetryConfig().retriable_errors)))
    assert isinstance(decide(lookup("NOT_ENOUGH_REPLICAS"), 1, config), RetryAfter)


def test_listing_an_error_that_does_not_pass_does_not_make_it_retriable():
    config = RetryConfig(retriable_errors=["MSG_SIZE_TOO_LARGE"])
    assert isinstance(decide(lookup("MSG_SIZE_TOO_LARGE"), 1, config), GiveUp)


def test_an_unknown_name_is_an_error_when_the_manager_is_made():
    with pytest.raises(ConfigError, match="Did you mean"):
        RetryManager(RetryConfig(retriable_errors=["KafkaTimeuotError"]))


# the delay


def test_delays_double_and_stop_at_the_cap():
    assert [delay(attempt, EXACT) for attempt in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert [RetryManager(EXACT).calculate_delay(count) for count in range(5)] == [0.1, 0.2, 0.4, 0.8, 1.0]


def test_the_third_delay_with_jitter_lies_between_its_half_and_itself():
    manager = RetryManager(RetryConfig())
    assert all(0.2 <= manager.calculate_delay(2) <= 0.4 for _ in range(200))


@given(
    attempt=st.integers(1, 10**6),
    initial=st.integers(0, 10**6),
    cap=st.integers(0, 10**6),
    growth=st.floats(1, 1e6),
    jitter=st.none() | st.floats(0, 1),
)
def test_a_delay_never_exceeds_its_cap_and_is_never_below_half_of_itself(
    attempt, initial, cap, growth, jitter
):
    config = RetryConfig(
        initial_delay_ms=initial, max_delay_ms=cap, backoff_multiplier=growth, jitter=jitter is not None
    )
    exact = delay(
        attempt,
        RetryConfig(initial_delay_ms=initial, max_delay_ms=cap, backoff_multiplier=growth, jitter=False),
    )
    seconds = delay(attempt, config, jitter=lambda: jitter)
    assert exact / 2 <= seconds <= exact <= cap / 1000


# the queue


def test_a_due_message_is_handed_out_and_not_dropped():
    handed = []
    manager = RetryManager(send=handed.append)
    manager.start()

    manager.schedule(Item(number=1), 0)

    eventually(lambda: handed == [Item(number=1)])
    assert manager.pending == 0
    manager.stop()


def test_messages_are_handed_out_in_the_order_of_their_time():
    handed = []
    manager = RetryManager(send=handed.append)
    for number, seconds in ((2, 0.02), (1, 0.01), (3, 0.03), (4, 0.03)):
        manager.schedule(Item(number=number), seconds)
    manager.start()

    eventually(lambda: len(handed) == 4)
    assert [item.number for item in handed] == [1, 2, 3, 4]
    manager.stop()


def test_a_message_that_is_due_sooner_overtakes_one_that_waits():
    handed = []
    manager = RetryManager(send=handed.append)
    manager.start()
    manager.schedule(Item(number=1), 3600)
    manager.schedule(Item(number=2), 0)

    eventually(lambda: handed == [Item(number=2)])
    assert manager.stop() == [Item(number=1)]


def test_a_delay_of_ages_does_not_stop_what_is_due_sooner():
    handed = []
    manager = RetryManager(send=handed.append)
    manager.start()
    manager.schedule(Item(number=1), 1e15)  # longer than a thread can be told to wait
    manager.schedule(Item(number=2), 0.01)

    eventually(lambda: handed == [Item(number=2)])
    assert manager.stop() == [Item(number=1)]


def test_a_message_that_cannot_be_handed_out_does_not_stop_the_next(caplog):
    handed = []
    manager = RetryManager(send=lambda item: handed.append(1 / item.number))
    manager.start()
    manager.schedule(Item(number=0), 0)
    manager.schedule(Item(number=1), 0)

    eventually(lambda: handed == [1.0])
    assert "retry failed" in caplog.text
    manager.stop()


def test_stop_gives_back_what_still_waits_and_ends_the_thread():
    manager = RetryManager(send=lambda item: None)
    manager.start()
    manager.start()  # a second start changes nothing
    manager.schedule(Item(number=2), 7200)
    manager.schedule(Item(number=1), 3600)

    assert [item.number for item in manager.stop()] == [1, 2]
    assert not any(thread.name == "producer-core-retry" for thread in threading.enumerate())


# the contract


def test_the_first_scheduled_delay_is_the_initial_delay():
    manager = RetryManager(EXACT, clock=lambda: 1000.0)
    manager.schedule_retry(Item(), KafkaTimeoutError())
    ((due, item),) = manager.retry_queues["orders"]
    assert (due, item) == (1000.1, Item())  # it was 0.2 s


def test_a_subclass_of_a_listed_error_is_retried():
    assert RetryManager().should_retry(OurTimeoutError(), 0)


def test_an_error_that_has_nothing_to_do_with_kafka_is_not_retried():
    assert not RetryManager().should_retry(ValueError("boom"), 0)


def test_the_librarys_own_exception_is_judged_by_its_code():
    manager = RetryManager()
    assert manager.should_retry(KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT)), 0)
    assert not manager.should_retry(KafkaException(KafkaError(KafkaError.POLICY_VIOLATION)), 0)


@pytest.mark.parametrize(("count", "expected"), [(0, True), (2, True), (3, False), (9, False)])
def test_a_retry_is_allowed_while_fewer_than_max_retries_were_made(count, expected):
    assert RetryManager(RetryConfig(max_retries=3)).should_retry(KafkaTimeoutError(), count) is expected


def test_what_is_not_retriable_is_counted_and_said(caplog):
    manager = RetryManager()
    assert not manager.schedule_retry(Item(), ValueError("boom"))
    assert "message not retriable" in caplog.text
    assert manager.get_stats()["failed_retries"] == 1


def test_the_statistics_move():
    manager = RetryManager()
    for number in range(3):
        manager.schedule(Item(number=number, topic="a" if number else "b"), 3600)
    manager.settled(Item(), True)
    manager.settled(Item(), False)

    assert manager.get_stats() == {
        "total_retries": 3,
        "successful_retries": 1,
        "failed_retries": 1,
        "dlq_messages": 1,
        "pending_retries": 3,
        "retry_queues": {"a": 2, "b": 1},
    }
    assert manager.stats == manager.get_stats()
