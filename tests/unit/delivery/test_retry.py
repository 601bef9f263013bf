"""The retry decision, the delay, and the retry queue."""

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
    """Has the name of kafka-python's exception."""


class CustomTimeoutError(KafkaTimeoutError):
    """A subclass that is not in the error table."""


# the decision


@pytest.mark.parametrize("failure", known_failures(), ids=lambda failure: failure.code)
def test_only_transient_failures_are_retried(failure):
    decision = decide(failure, 1, EXACT)
    client_broke = failure.code in (
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "UNKNOWN_PRODUCER_ID",
        "_FATAL",
        "_INCONSISTENT",
    )
    assert isinstance(decision, RetryAfter) == (failure.kind in ("temporary", "timed_out") or client_broke)


def test_a_message_that_fails_because_a_token_ended_is_retried():
    """The client fails requests that are queued while a login is refused. They were not sent."""
    failure = lookup("_AUTHENTICATION")
    assert failure.verdict == "not_sent"
    assert isinstance(decide(failure, 1, RetryConfig()), RetryAfter)


def test_the_message_is_given_up_after_max_retries():
    config = RetryConfig(max_retries=2, jitter=False)
    decisions = [decide(lookup("REQUEST_TIMED_OUT"), attempt, config) for attempt in (1, 2, 3)]
    assert decisions == [RetryAfter(0.1), RetryAfter(0.2), GiveUp("all 2 retries failed")]


def test_a_single_retry_is_named_in_the_singular():
    decision = decide(lookup("REQUEST_TIMED_OUT"), 2, RetryConfig(max_retries=1))
    assert decision == GiveUp("the only retry failed")


def test_zero_max_retries_disables_retries():
    assert isinstance(decide(lookup("REQUEST_TIMED_OUT"), 1, RetryConfig(max_retries=0)), GiveUp)


def test_a_custom_list_names_the_only_errors_that_are_retried():
    config = RetryConfig(retriable_errors=["NotLeaderOrFollowerException"])
    assert isinstance(decide(lookup("NOT_LEADER_FOR_PARTITION"), 1, config), RetryAfter)
    assert isinstance(decide(lookup("REQUEST_TIMED_OUT"), 1, config), GiveUp)


def test_the_default_list_in_another_order_is_still_the_default():
    config = RetryConfig(retriable_errors=list(reversed(RetryConfig().retriable_errors)))
    assert isinstance(decide(lookup("NOT_ENOUGH_REPLICAS"), 1, config), RetryAfter)


def test_a_permanent_error_in_the_list_is_not_retried():
    config = RetryConfig(retriable_errors=["MSG_SIZE_TOO_LARGE"])
    assert isinstance(decide(lookup("MSG_SIZE_TOO_LARGE"), 1, config), GiveUp)


def test_an_unknown_error_name_is_refused_when_the_manager_is_created():
    with pytest.raises(ConfigError, match="Did you mean"):
        RetryManager(RetryConfig(retriable_errors=["KafkaTimeuotError"]))


# the delay


def test_delays_double_and_stop_at_the_cap():
    assert [delay(attempt, EXACT) for attempt in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert [RetryManager(EXACT).calculate_delay(count) for count in range(5)] == [0.1, 0.2, 0.4, 0.8, 1.0]


def test_the_third_delay_with_jitter_is_between_half_and_all_of_it():
    manager = RetryManager(RetryConfig())
    assert all(0.2 <= manager.calculate_delay(2) <= 0.4 for _ in range(200))


@given(
    attempt=st.integers(1, 10**6),
    initial=st.integers(0, 10**6),
    cap=st.integers(0, 10**6),
    growth=st.floats(1, 1e6),
    jitter=st.none() | st.floats(0, 1),
)
def test_a_delay_is_never_above_its_cap_or_below_half_of_itself(attempt, initial, cap, growth, jitter):
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


def test_a_due_message_is_sent_and_not_dropped():
    handed = []
    manager = RetryManager(send=handed.append)
    manager.start()

    manager.schedule(Item(number=1), 0)

    eventually(lambda: handed == [Item(number=1)])
    assert manager.pending == 0
    manager.stop()


def test_messages_are_sent_in_the_order_of_their_due_times():
    handed = []
    manager = RetryManager(send=handed.append)
    for number, seconds in ((2, 0.02), (1, 0.01), (3, 0.03), (4, 0.03)):
        manager.schedule(Item(number=number), seconds)
    manager.start()

    eventually(lambda: len(handed) == 4)
    assert [item.number for item in handed] == [1, 2, 3, 4]
    manager.stop()


def test_a_message_that_is_due_sooner_is_sent_first():
    handed = []
    manager = RetryManager(send=handed.append)
    manager.start()
    manager.schedule(Item(number=1), 3600)
    manager.schedule(Item(number=2), 0)

    eventually(lambda: handed == [Item(number=2)])
    assert manager.stop() == [Item(number=1)]


def test_a_very_long_delay_does_not_block_messages_that_are_due_sooner():
    handed = []
    manager = RetryManager(send=handed.append)
    manager.start()
    manager.schedule(Item(number=1), 1e15)  # longer than threading.TIMEOUT_MAX
    manager.schedule(Item(number=2), 0.01)

    eventually(lambda: handed == [Item(number=2)])
    assert manager.stop() == [Item(number=1)]


def test_an_exception_while_a_message_is_sent_does_not_stop_the_next(caplog):
    handed = []
    manager = RetryManager(send=lambda item: handed.append(1 / item.number))
    manager.start()
    manager.schedule(Item(number=0), 0)
    manager.schedule(Item(number=1), 0)

    eventually(lambda: handed == [1.0])
    assert "retry failed" in caplog.text
    manager.stop()


def test_stop_returns_the_waiting_messages_and_ends_the_thread():
    manager = RetryManager(send=lambda item: None)
    manager.start()
    manager.start()  # a second start has no effect
    manager.schedule(Item(number=2), 7200)
    manager.schedule(Item(number=1), 3600)

    assert [item.number for item in manager.stop()] == [1, 2]
    assert not any(thread.name == "producer-core-retry" for thread in threading.enumerate())


# the public interface


def test_the_first_scheduled_delay_is_the_initial_delay():
    manager = RetryManager(EXACT, clock=lambda: 1000.0)
    manager.schedule_retry(Item(), KafkaTimeoutError())
    ((due, item),) = manager.retry_queues["orders"]
    assert (due, item) == (1000.1, Item())  # regression: it was 0.2 s


def test_a_subclass_of_a_listed_error_is_retried():
    assert RetryManager().should_retry(CustomTimeoutError(), 0)


def test_an_error_unrelated_to_kafka_is_not_retried():
    assert not RetryManager().should_retry(ValueError("boom"), 0)


def test_a_kafka_exception_is_judged_by_its_code():
    manager = RetryManager()
    assert manager.should_retry(KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT)), 0)
    assert not manager.should_retry(KafkaException(KafkaError(KafkaError.POLICY_VIOLATION)), 0)


@pytest.mark.parametrize(("count", "expected"), [(0, True), (2, True), (3, False), (9, False)])
def test_a_retry_is_allowed_up_to_max_retries(count, expected):
    assert RetryManager(RetryConfig(max_retries=3)).should_retry(KafkaTimeoutError(), count) is expected


def test_a_message_that_is_not_retriable_is_counted_and_logged(caplog):
    manager = RetryManager()
    assert not manager.schedule_retry(Item(), ValueError("boom"))
    assert "message not retriable" in caplog.text
    assert manager.get_stats()["failed_retries"] == 1


def test_the_statistics_count_scheduled_and_settled_retries():
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
