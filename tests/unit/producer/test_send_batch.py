"""Results of the public API: batches, callbacks, statistics, retries and dead letters."""

from __future__ import annotations

import datetime
import threading

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError

from producer_core import Message, MessageStatus, ReliableKafkaProducer, RetryConfig, RetryManager, Store
from producer_core.cli import main
from producer_core.errors import ConfigError, DeliveryFailed
from producer_core.testing import InMemoryTransport
from tests.fixtures.enqueueing import counts, memory_producer, quick_producer
from tests.support import eventually

REFUSED = "TOPIC_AUTHORIZATION_FAILED"


def producer_of(store=None, *, cluster="here", made=None, **options):
    def script(delivery):
        return REFUSED if delivery.topic == "refused" else None

    options = {"run_replays": False, "health_check_interval": 3600, **options}
    transport = InMemoryTransport.factory(made if made is not None else [], script=script)
    return ReliableKafkaProducer("memory:1", store=store, cluster_id=cluster, transport=transport, **options)


# batches


def test_a_batch_reports_the_outcome_of_each_input():
    with producer_of(enable_deduplication=True) as producer:
        result = producer.send_batch("orders", [{"n": 1}, {"n": object()}, {"n": 1}, {"n": 2}])

        entries = result["results"]
        assert [entry.status for entry in entries] == ["sent", "failed", "duplicate", "sent"]
        assert "At value['n']" in entries[1].error
        assert entries[1].verdict == "not_sent"
        assert result["message_ids"] == [entries[0].message_id, entries[3].message_id]
        assert {name: result[name] for name in ("total", "sent", "failed", "duplicate")} == {
            "total": 4, "sent": 2, "failed": 1, "duplicate": 1,
        }  # fmt: skip


def test_a_dead_letter_of_a_batch_has_its_id_reason_and_verdict():
    with producer_of() as producer:
        result = producer.send_batch("refused", [{"n": 1}])

        (entry,) = result["results"]
        assert (entry.status, entry.verdict) == (
            "failed",
            "rejected",
        ) or entry.verdict == "possibly_persisted"
        assert "authorization" in entry.error.lower()
        assert producer.get_message_status(entry.message_id) is MessageStatus.DLQ


def test_a_held_copy_that_proves_a_duplicate_counts_as_one_and_has_no_message_id():
    made = []
    transport = InMemoryTransport.factory(made, script=lambda delivery: "hold")
    with ReliableKafkaProducer(
        "memory:1", store=None, transport=transport, enable_deduplication=True, health_check_interval=3600
    ) as producer:
        results = []
        sender = threading.Thread(
            target=lambda: results.append(producer.send_batch("orders", [{"n": 1}, {"n": 1}]))
        )
        sender.start()
        eventually(lambda: producer.pending_count == 2 and made[0].held, timeout=60)
        first, copy = sorted(producer.pending_messages, key=lambda text: int(text.rpartition("-")[2]))
        made[0].release()
        sender.join(60)

        assert [entry.status for entry in results[0]["results"]] == ["sent", "duplicate"]
        assert results[0]["message_ids"] == [first]
        assert producer.get_message_status(copy) is MessageStatus.DUPLICATE


# callbacks


def test_a_failed_message_passes_an_exception_and_the_number_of_retries_to_its_callback():
    calls = []
    with producer_of(retry_config=RetryConfig(max_retries=0)) as producer:
        producer.send_message("refused", {"n": 1}, callback=lambda *about: calls.append(about))
        producer.flush()
        (dead_letter,) = producer.get_dlq_messages()

    ok, message, error = calls[0]
    assert not ok
    assert isinstance(error, DeliveryFailed)
    assert (str(error), error.code) == (message.last_error, REFUSED)
    assert message.retry_count == dead_letter.retry_count == 0


# statistics


def test_statistics_have_an_aware_start_time_and_the_last_hundred_latencies():
    with producer_of() as producer:
        producer.send_batch("orders", [{"n": number} for number in range(150)])
        stats = producer.get_stats()

    assert len(stats["latency_history"]) == 100
    assert stats["start_time"].utcoffset() == datetime.timedelta(0)


def test_a_write_into_the_statistics_raises_an_error():
    with producer_of() as producer:
        with pytest.raises(TypeError, match="get_stats"):
            producer.stats["messages_sent"] = 5
        with pytest.raises(TypeError, match="get_stats"):
            producer.stats.update(messages_sent=5)
        assert producer.stats["messages_sent"] == 0


# retries


def test_a_send_that_reschedules_itself_stops_at_max_retries():
    message = Message("7", "orders", None, {}, datetime.datetime.now())
    attempts, given_up = [], threading.Event()

    def send(item):
        attempts.append(item)
        # the message it started with, not the one passed to it
        if not manager.schedule_retry(message, "REQUEST_TIMED_OUT"):
            given_up.set()

    manager = RetryManager(RetryConfig(max_retries=3, initial_delay_ms=1, jitter=False), send=send)
    manager.start()
    manager.schedule_retry(message, "REQUEST_TIMED_OUT")
    assert given_up.wait(60)
    manager.stop()

    assert [item.retry_count for item in attempts] == [1, 2, 3]
    assert {item.status for item in attempts} == {MessageStatus.RETRYING}
    assert manager.get_stats()["total_retries"] == 3


# dead letters


@pytest.mark.slow
def test_a_message_can_be_added_to_the_dead_letters_of_a_store(tmp_path):
    with producer_of(tmp_path / "s.duckdb") as producer:
        producer.dlq.add_message(Message("own-id", "orders", "k", {"n": 1}, datetime.datetime.now()), "boom")

        (dead_letter,) = producer.get_dlq_messages()
        assert (dead_letter.id, dead_letter.topic, dead_letter.last_error) == ("own-id", "orders", "boom")
        assert producer.dlq.get_stats()["topic_breakdown"] == {"orders": 1}


# settings and explanations


@pytest.mark.parametrize(
    "changes",
    [{"keep_secondss": 5}, {"keep_hours": 0}, {"keep_hours": "3d"}, {"keep_hours": float("nan")}, {"dlq_max_size": -1}, {"dlq_max_size": True}],
    ids=str,
)  # fmt: skip
def test_the_python_api_rejects_the_store_settings_that_the_command_rejects(tmp_path, changes):
    store = Store.open(tmp_path / "s.duckdb")
    with pytest.raises(ConfigError):
        store.change_settings(changes, who="ada", origin="python")
    assert store.settings() == {}


@pytest.mark.parametrize(
    ("code", "exit_code", "expected"),
    [
        ("99999999999999999999", 2, "There is no error code"),
        ("9" * 5000, 2, "There is no error code"),
        ("UnknownProducerException", 0, "UNKNOWN_PRODUCER_ID"),
        ("ValueError", 0, "ConfigError or InvalidMessage"),
        ("QueueFull", 0, "The queue had no room"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_explain_accepts_every_name_that_a_traceback_shows(code, exit_code, expected):
    result = CliRunner().invoke(main, ["explain", code])
    assert (result.exit_code, isinstance(result.exception, SystemExit | None)) == (exit_code, True)
    assert expected in " ".join(result.output.split())


def test_a_message_of_a_slow_generator_is_sent_before_the_next_one(tmp_path):
    """Regression: messages waited until the generator had yielded five hundred."""
    producer, transport = memory_producer(tmp_path)

    def slow():
        for number in range(3):
            yield {"n": number}
            eventually(lambda: len(transport.log["orders"]) == number + 1)  # before the next iteration

    assert producer.send_batch("orders", slow())["sent"] == 3
    producer.close()


def test_messages_that_a_generator_sends_keep_their_order(tmp_path):
    producer, transport = memory_producer(tmp_path)

    def sending_generator():
        yield {"n": 1}
        producer.send_message("orders", {"n": 2})
        yield {"n": 3}

    assert producer.send_batch("orders", sending_generator())["sent"] == 2
    assert [delivery.value for delivery in transport.log["orders"]] == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    producer.close()


def test_messages_before_an_exception_in_a_generator_are_sent(tmp_path):
    producer, transport = memory_producer(tmp_path)

    def broken():
        yield {"n": 1}
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        producer.send_batch("orders", broken())
    producer.flush(10)
    assert len(transport.log["orders"]) == 1
    producer.close()


@pytest.mark.slow
def test_the_result_of_a_batch_counts_failures_and_duplicates(tmp_path):
    producer, _ = memory_producer(
        tmp_path,
        lambda delivery: KafkaError.POLICY_VIOLATION if b"bad" in delivery.value else None,
        enable_deduplication=True,
    )

    first = producer.send_batch("orders", [{"n": 1}, {"n": 1}, {"n": "bad"}, {"n": float("nan")}])
    second = producer.send_batch("orders", [{"n": 1}, {"n": 2}, {"n": "bad"}])

    assert counts(first) == {"total": 4, "sent": 1, "failed": 2, "duplicate": 1}
    assert counts(second) == {"total": 3, "sent": 1, "failed": 1, "duplicate": 1}
    producer.close()


def test_send_batch_counts_acknowledged_messages():
    producer, _ = quick_producer(
        lambda delivery: KafkaError.POLICY_VIOLATION if b"bad" in delivery.value else None
    )

    result = producer.send_batch(
        "orders", [{"n": 1}, {"n": "bad"}, {"n": float("nan")}], key_extractor=lambda row: str(row["n"])
    )

    assert {name: result[name] for name in ("total", "sent", "failed", "duplicate")} == {
        "total": 3,
        "sent": 1,
        "failed": 2,
        "duplicate": 0,
    }
    assert len(result["message_ids"]) == 2
    producer.close()
