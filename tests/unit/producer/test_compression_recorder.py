"""Samples of the payloads in flight, what the store keeps of them, and the codec of the next client."""

from __future__ import annotations

import os

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.config import client_config
from producer_core.delivery.delivery import IN_CLIENT, Delivery
from producer_core.errors import StoreLocked
from producer_core.metrics.compression import TopicCompression
from producer_core.metrics.counters import Metrics
from producer_core.producer.compression_recorder import CompressionRecorder
from producer_core.store import Batch, Store
from producer_core.store.compression_samples import CompressionRow, load_compression, save_compression
from producer_core.testing import FakeClock, InMemoryTransport
from tests.fixtures.recording import row as producer_row
from tests.support import eventually

REPETITIVE = b'{"order": 1, "status": "paid", "currency": "EUR", "customer": "c-1"}'


def order(number):
    return b'{"order": %d, "status": "paid", "currency": "EUR", "customer": "c-%d"}' % (
        number,
        number * 7919 % 1000,
    )


def deliveries(topic="orders", value=REPETITIVE, count=100):
    """Return messages in flight, all with the same value unless it is a function of their number."""
    make = value if callable(value) else lambda number: value
    found = [Delivery(bytes(24), number, topic, b"k", make(number)) for number in range(count)]
    for delivery in found:
        delivery.state = IN_CLIENT
    return found


def recorder(in_flight, *, settings=None, per_batch=50, clock=None):
    return CompressionRecorder(
        client_config("nowhere:9092", {"compression_type": "auto", **(settings or {})}),
        "shop",
        metrics=Metrics(),
        in_flight=in_flight if callable(in_flight) else lambda limit: in_flight[:limit],
        per_batch=lambda: per_batch,
        clock=clock or FakeClock(),
    )


def rows(store, **where):
    return store.rows("compression_by_topic", **where)


def test_a_sample_has_as_many_messages_as_the_clients_batches(store):
    made = recorder(deliveries(), per_batch=7)
    for _ in range(5):
        made.sample()
    made.save(store, "p", "c", closing=False)
    (row,) = rows(store)
    assert (row["topic"], row["samples"], row["messages"], row["codec"]) == ("orders", 5, 35, "lz4")
    record = len(b"k" + REPETITIVE + b"pc-id") + 24
    assert row["bytes"] == 35 * record
    assert row["zstd_bytes"] < row["bytes"]


def test_nothing_in_flight_is_no_sample(store):
    made = recorder([])
    made.sample()
    made.save(store, "p", "c", closing=True)
    assert rows(store) == []


def test_an_error_ends_the_sampling_and_is_logged_once(store, caplog):
    def fail(limit):
        raise RuntimeError("no messages")

    made = recorder(fail)
    made.sample()
    made.sample()
    made.save(store, "p", "c", closing=True)
    assert caplog.text.count("compression is not sampled any more") == 1
    assert rows(store) == []


def test_too_few_samples_are_not_saved(store):
    made = recorder(deliveries(count=1))
    made.sample()
    made.save(store, "p", "c", closing=True)
    assert rows(store) == []


def test_of_a_large_value_only_the_beginning_is_sampled(store):
    made = recorder(deliveries(value=os.urandom(10_000_000), count=3))
    made.sample()
    made.save(store, "p", "c", closing=True)
    (row,) = rows(store)
    assert row["bytes"] <= 65_536
    assert row["zstd_bytes"] == row["bytes"]


def test_values_may_be_null_and_headers_count(store):
    some = deliveries(value=None)
    for delivery in some:
        delivery.headers = (("tenant", b"a" * 100), ("empty", None))
    made = recorder(some)
    for _ in range(5):
        made.sample()
    made.save(store, "p", "c", closing=True)
    assert rows(store)[0]["bytes"] > 5 * 50 * 130


def test_each_topic_gets_its_turn_and_later_samples_are_seldom(store):
    clock = FakeClock()
    made = recorder([*deliveries("a", count=30), *deliveries("b", count=30)], per_batch=20, clock=clock)
    for _ in range(100):
        made.sample()
    made.save(store, "p", "c", closing=False)
    assert {row["topic"]: row["samples"] for row in rows(store)} == {"a": 10, "b": 10}
    clock.advance(15)
    for _ in range(100):
        made.sample()
    made.save(store, "p", "c", closing=True)
    assert {row["topic"]: row["samples"] for row in rows(store)} == {"a": 11, "b": 11}


def test_later_samples_count_more_than_earlier_ones(store):
    clock, current = FakeClock(), [deliveries(value=os.urandom(2000))]
    made = recorder(lambda limit: current[0][:limit], clock=clock)
    for _ in range(100):
        made.sample()
        clock.advance(15)
    current[0] = deliveries(value=REPETITIVE * 30)
    for _ in range(40):
        made.sample()
        clock.advance(15)
    made.save(store, "p", "c", closing=True)
    assert rows(store)[0]["zstd_bytes"] < 0.2 * rows(store)[0]["bytes"]


def test_a_new_measurement_replaces_the_producers_earlier_one(store):
    clock = FakeClock()
    made = recorder(deliveries(), clock=clock)
    for _ in range(3):
        for _ in range(5):
            made.sample()
        clock.advance(60)
        made.save(store, "p", "c", closing=False)
    other = recorder(deliveries())
    for _ in range(5):
        other.sample()
    other.save(store, "q", "c", closing=True)
    with store.borrow() as connection:
        found = connection.execute(
            "SELECT producer_id, count(*) FROM compression_samples GROUP BY 1 ORDER BY 1"
        ).fetchall()
    assert found == [("p", 1), ("q", 1)]


def test_the_measurement_sets_the_codec_of_the_next_client_and_not_of_the_present_one(store):
    clock = FakeClock()
    made = recorder(deliveries(value=order), clock=clock)
    choice = made._client.compression
    assert choice() == "lz4"
    for _ in range(5):
        made.sample()
    made.save(store, "p", "c", closing=False)
    assert (choice.used, choice.codec) == ("lz4", "zstd")
    assert rows(store)[0]["codec"] == "lz4"
    assert choice() == "zstd"


def remember(store, producer_id="p", *, client_id="shop-1", application="shop", zstd=0.3, seen_at=1.0):
    store.append(
        Batch(
            producer_id,
            0,
            producer=producer_row(seen_at)._replace(
                producer_id=producer_id, client_id=client_id, application=application
            ),
        )
    )
    save_compression(
        store,
        [CompressionRow(producer_id, "c", "orders", 1.0, "lz4", 10.0, 10, 100, 10_000, 5_000, int(10_000 * zstd), 0.1e-6, 0.1e-6)],
    )  # fmt: skip


def test_the_first_client_gets_the_codec_that_the_store_remembers(store):
    remember(store)
    made = recorder([])
    made.choose(store)
    assert made._client.compression() == "zstd"


def test_the_store_remembers_by_application(store):
    remember(store, application="billing")
    assert load_compression(store, application="shop") == []
    (found,) = load_compression(store, application="billing")
    assert isinstance(found, TopicCompression)
    assert found.share("zstd") == 0.3


def test_the_producers_that_were_seen_last_decide(store):
    for number in range(10):
        remember(store, f"new-{number}", zstd=0.45, seen_at=100.0 + number)
    remember(store, "old", zstd=0.01, seen_at=1.0)
    (found,) = load_compression(store, application="shop")
    assert found.share("zstd") == 0.45


@pytest.mark.slow
def test_a_producer_samples_what_it_sends_and_the_next_one_starts_with_the_better_codec(tmp_path):
    path, made = tmp_path / "s.duckdb", []
    options = {"store": path, "application": "shop"}
    held = InMemoryTransport.factory(made, script=lambda delivery: "hold")
    with ReliableKafkaProducer(
        "nowhere:9092", {"compression_type": "auto"}, transport=held, **options
    ) as producer:
        for number in range(1000):
            producer.send_message("orders", {"order": number, "status": "paid", "currency": "EUR"})
        eventually(lambda: producer._components.dead_letter_backend._compression._changed)
        made[0].release()
    (row,) = rows(Store.open(path))
    assert (row["topic"], row["codec"]) == ("orders", "lz4")
    assert row["zstd_bytes"] < 0.8 * row["lz4_bytes"]
    second = ReliableKafkaProducer(
        "nowhere:9092", {"compression_type": "auto"}, transport=InMemoryTransport.factory([]), **options
    )
    with second:
        assert second.config.compression.codec == "zstd"


def test_auto_without_a_store_is_lz4():
    """A command without a store may share a producer's file."""
    with ReliableKafkaProducer(
        "nowhere:9092", {"compression_type": "auto"}, store=None, transport=InMemoryTransport.factory([])
    ) as producer:
        assert producer.config.compression() == "lz4"


def test_a_store_that_takes_no_samples_is_tried_again_a_minute_later_and_is_no_trouble(store, caplog):
    """Regression: each attempt waited for the locked store, and fired the alert of an unavailable store."""
    clock, attempts = FakeClock(), []
    made = recorder(deliveries(), clock=clock)
    for _ in range(5):
        made.sample()

    class Locked:
        def with_current_schema(self, work):
            attempts.append(clock.now)
            raise StoreLocked("in use")

    for _ in range(130):
        made.save(Locked(), "p", "c", closing=False)
        clock.advance(1)
    assert len(attempts) == 3
    assert "compression samples not stored" in caplog.text
    made.save(store, "p", "c", closing=True)
    assert len(rows(store)) == 1
