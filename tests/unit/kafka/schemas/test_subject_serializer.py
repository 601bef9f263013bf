"""Messages of topics whose schema is cached go on; others wait for the registry once, and never where they must not."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError

from producer_core import (
    CircuitBreaker,
    CircuitOpen,
    ConfigError,
    InvalidMessage,
    RetryConfig,
    SchemaUnavailable,
)
from tests.fixtures.enqueueing import quick_producer
from tests.support import eventually

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'


class Subjects:
    """Responds with a schema for each subject. `hold` lets every further request wait; `answer` replaces the response."""

    def __init__(self, serve):
        self.held, self.answer, self.number = threading.Event(), None, 7
        self.url, self.asked = serve(self._respond)

    def _respond(self, path, release):
        if self.held.is_set():
            release.wait(60)
        if self.answer is not None:
            return self.answer
        subject = path.split("/")[2]
        return 200, {"subject": subject, "version": 1, "id": self.number, "schema": ORDER}

    def producer(self, script=None, *, config=None, **options):
        settings = {
            "schema.registry.url": self.url,
            "value.serializer": "avro",
            "schema.registry.timeout": 30,
            **(config or {}),
        }
        return quick_producer(script, config=settings, **options)


@pytest.fixture
def subjects(serve):
    return Subjects(serve)


def schema_id(producer, transport, topic):
    producer.flush()
    return int.from_bytes(transport.log[topic][-1].value[1:5], "big")


# 1 and 2: a response of something else


@pytest.mark.parametrize("config", [{}, {"value.schema": ORDER}], ids=["latest", "given"])
@pytest.mark.parametrize("body", [b"<html>Please log in</html>", b"null", {}], ids=str)
def test_a_registry_that_responds_with_something_else_accepts_and_refuses_no_message(subjects, body, config):
    subjects.answer = (200, body)
    producer, _ = subjects.producer(config=config)
    with producer:
        for topic in ("orders", "payments"):
            with pytest.raises(SchemaUnavailable, match="response cannot be used"):
                producer.send_message(topic, {"id": 1})
        assert producer.get_stats()["messages_sent"] == 0


# 3 and 6: the wait


def test_a_response_that_is_sent_byte_by_byte_holds_a_message_for_the_bound_only(serve):
    def dripping(release):
        while not release.wait(0.01):
            yield b" "

    url, _ = serve(lambda path, release: (200, dripping(release)))
    settings = {"schema.registry.url": url, "value.serializer": "avro", "schema.registry.timeout": 0.2,
                "schema.registry.max.retries": 0}  # fmt: skip
    producer, _ = quick_producer(config=settings)
    with producer, pytest.raises(SchemaUnavailable, match=r"did not respond within 0\.2 s"):
        producer.send_message("orders", {"id": 1})


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 10.2),
        ({"url": "http://a,http://b"}, 10.0),
        ({"url": "http://a,http://b, http://c"}, 10.0),
        ({"timeout": 3}, 6.2),
        ({"timeout": 3, "max.retries": 0}, 3.0),
        ({"timeout": 1, "max.retries": 2, "retries.wait.ms": 1000}, 6.0),
        ({"url": "http://a,http://b", "timeout": 3}, 6.0),
    ],
)
def test_the_longest_wait_follows_from_the_settings(settings, seconds):
    given = {"url": "http://a", **settings}
    config = {f"schema.registry.{name}": value for name, value in given.items()}
    producer, _ = quick_producer(config={"value.serializer": "avro", **config})
    with producer:
        assert producer._serializers._registry.longest_wait == pytest.approx(seconds)


def test_a_batch_asks_a_registry_that_fails_once(subjects):
    subjects.answer = (503, {"error_code": 50301, "message": "later"})
    producer, _ = subjects.producer(config={"schema.registry.max.retries": 0})
    with producer:
        report = producer.send_batch("orders", [{"id": number} for number in range(5)])
    assert (report["failed"], len(subjects.asked)) == (5, 1)


# 4: the time to live


def test_messages_with_a_cached_schema_do_not_wait_while_the_registry_hangs(subjects):
    producer, transport = subjects.producer(config={"schema.registry.cache.latest.ttl.sec": 0})
    with producer:
        producer.send_message("orders", {"id": 1})
        subjects.held.set()
        for number in range(5):
            producer.send_message("orders", {"id": number})  # returns: the test's registry never responds
        eventually(lambda: len(subjects.asked) == 2)
        assert schema_id(producer, transport, "orders") == 7


@pytest.mark.parametrize("answer", [(200, {}), (200, b"<html>"), (503, {})], ids=str)
def test_a_later_version_that_cannot_be_had_leaves_the_cached_one_in_use(subjects, answer, caplog):
    producer, transport = subjects.producer(
        config={"schema.registry.cache.latest.ttl.sec": 0, "schema.registry.max.retries": 0}
    )
    with producer:
        producer.send_message("orders", {"id": 1})
        subjects.answer = answer
        producer.send_message("orders", {"id": 2})
        eventually(lambda: "the cached schema stays in use" in caplog.text)
        producer.send_message("orders", {"id": 3})
        assert schema_id(producer, transport, "orders") == 7
        assert len(subjects.asked) == 2, "a failed lookup is not repeated at once"


def test_a_later_version_is_used_once_the_registry_has_sent_it(subjects):
    producer, transport = subjects.producer(config={"schema.registry.cache.latest.ttl.sec": 0})
    with producer:
        producer.send_message("orders", {"id": 1})
        subjects.number = 8

        def new():
            producer.send_message("orders", {"id": 2})
            return schema_id(producer, transport, "orders") == 8

        eventually(new)


# 5: send_async


def test_send_async_to_a_cached_topic_does_not_queue_behind_uncached_ones(subjects):
    producer, transport = subjects.producer()

    async def send():
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        await producer.send_async("orders", {"id": 1})
        subjects.held.set()
        waiting = [
            asyncio.create_task(producer.send_async(f"t{number % 9}", {"id": 1})) for number in range(200)
        ]
        while len(subjects.asked) < 9:
            await asyncio.sleep(0.01)
        report = await asyncio.wait_for(producer.send_async("orders", {"id": 2}), 20)
        await asyncio.wait_for(loop.run_in_executor(None, list), 20)
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        return report

    with producer:
        assert asyncio.run(send()).error is None
    assert len(transport.log["orders"]) == 2


def test_send_async_waits_for_the_schema_of_the_key_and_of_the_value(subjects):
    producer, transport = subjects.producer(config={"key.serializer": "avro"})
    with producer:
        asyncio.run(producer.send_async("orders", {"id": 1}, {"id": 2}))
        asyncio.run(producer.send_async("payments", None, {"id": 2}))
        with pytest.raises(InvalidMessage, match="not a topic name"):
            asyncio.run(producer.send_async("no topic", {"id": 1}))
    assert [path.split("/")[2] for path in subjects.asked] == ["orders-key", "orders-value", "payments-key"]
    assert len(transport.log["orders"]) == 1


# 9 and 10: where a message must not wait


def test_a_send_in_a_delivery_callback_to_an_uncached_topic_raises_at_once_and_starts_the_lookup(subjects):
    producer, _ = subjects.producer()
    errors, called = [], threading.Event()

    def forward(ok, message, report):
        try:
            producer.send_message("payments", {"id": 1})
        except SchemaUnavailable as error:
            errors.append(str(error))
        called.set()

    with producer:
        producer.send_message("orders", {"id": 1})
        subjects.held.set()
        producer.send_message("orders", {"id": 2}, callback=forward)
        assert called.wait(20)
        assert "a delivery callback cannot wait" in errors[0]
        eventually(lambda: len(subjects.asked) == 2)


def test_an_open_circuit_refuses_a_message_before_its_schema_is_looked_up(subjects):
    breaker = CircuitBreaker(minimum_number_of_calls=2, wait_duration_in_open_state_s=600)
    producer, _ = subjects.producer(
        circuit_breaker=breaker,
        script=lambda delivery: KafkaError._MSG_TIMED_OUT,
        retry=RetryConfig(max_retries=0),
    )
    with producer:
        for _ in range(2):
            producer.send_message("orders", b"written by the application")
        producer.flush(20)
        assert producer.circuits.times_opened
        for send in (producer.send_message, producer.try_send):
            with pytest.raises(CircuitOpen):
                send("payments", {"id": 1})
        with pytest.raises(CircuitOpen):
            asyncio.run(producer.send_async("payments", {"id": 1}))
    assert not subjects.asked


def test_close_ends_the_wait_of_a_message(subjects):
    subjects.held.set()
    producer, _ = subjects.producer()
    errors = []

    def send():
        try:
            producer.send_message("orders", {"id": 1})
        except Exception as error:
            errors.append(type(error).__name__)

    thread = threading.Thread(target=send)
    thread.start()
    eventually(lambda: subjects.asked)
    producer.close()
    thread.join(20)
    assert errors == ["ProducerClosed"]


# 12


def test_a_misfit_names_the_part_of_the_message(subjects):
    producer, _ = subjects.producer(config={"key.serializer": "avro"})
    with producer:
        with pytest.raises(InvalidMessage, match=r"^At key\['id'\]: "):
            producer.send_message("orders", {"id": 1}, {"id": "x"})
        with pytest.raises(InvalidMessage, match=r"^At value\['id'\]: "):
            producer.send_message("orders", {"id": "x"}, {"id": 1})


# 16


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("avro", '{"type": "rec'),
        ("avro", '{"type": "record", "name": "Order", "fields": [{"name": "a", "type": "absent"}]}'),
        ("json", '{"type": "obj'),
        ("json", '{"type": 5}'),
    ],
)
@pytest.mark.parametrize("part", ["value", "key"])
def test_a_schema_of_the_settings_that_is_not_one_raises_at_the_start(subjects, form, text, part):
    config = {"value.serializer": form, f"{part}.serializer": form, f"{part}.schema": text}
    with pytest.raises(ConfigError, match=rf"{part}\.schema is not a valid"):
        subjects.producer(config=config)
    assert not subjects.asked
