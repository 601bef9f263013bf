"""The spans of messages: their names, attributes, events and ends, and the context in the records."""

from __future__ import annotations

import threading

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.errors import ConfigError, InvalidMessage, QueueFull, RateLimited
from producer_core.producer.tracing import tracer as tracer_module
from producer_core.testing import InMemoryTransport
from tests.fixtures.tracing import Traced, linked, parent_of, parents
from tests.support import eventually

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def traced():
    return Traced()


def failing_once(code):
    """Fail the first attempt of each message with the code."""
    seen = set()

    def outcome(delivery):
        if delivery.id in seen:
            return None
        seen.add(delivery.id)
        return code

    return outcome


# one message


def test_a_span_ends_when_the_broker_acknowledged_the_message(traced):
    with traced.producer(script=lambda delivery: "hold", cluster_id="c1") as (producer, transport):
        message_id = producer.send_message("orders", {"a": 1}, key="alice@example.com")
        eventually(lambda: transport.held)
        assert traced.spans == ()
        transport.release()

    span = traced.only
    assert span.name == "send orders" and span.kind is SpanKind.PRODUCER
    assert span.status.status_code is StatusCode.UNSET
    assert span.instrumentation_scope.name == "producer_core"
    assert span.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"
    assert dict(span.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "messaging.kafka.cluster.id": "c1",
        "messaging.message.id": message_id,
        "messaging.client.id": producer.config.client_id,
        "server.address": "memory",
        "server.port": 9092,
        "producer_core.outcome": "acknowledged",
    }


def test_the_record_carries_the_context_of_its_span(traced):
    with traced.producer() as (producer, transport):
        producer.send_message("orders", {"a": 1}, headers={"a": "1"})
        producer.send_message("orders", {"a": 2})

    first, second = transport.log["orders"]
    assert [parents(first), parents(second)] == [[parent_of(span)] for span in traced.spans]
    assert ("a", b"1") in first.record_headers


def test_a_span_is_a_child_of_the_callers_current_span(traced):
    tracer = traced.provider.get_tracer("test")
    with traced.producer() as (producer, transport):
        with tracer.start_as_current_span("request") as request:
            producer.send_message("orders", {"a": 1})
        producer.flush()

    (span,) = (one for one in traced.spans if one.name == "send orders")
    assert span.parent.span_id == request.get_span_context().span_id
    assert parents(transport.log["orders"][0]) == [parent_of(span)]


def test_tracestate_is_written_too(traced):
    state = trace.TraceState([("vendor", "1")])
    remote = trace.SpanContext(7, 8, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=state)
    context = trace.set_span_in_context(trace.NonRecordingSpan(remote))
    from opentelemetry.context import attach, detach

    with traced.producer() as (producer, transport):
        token = attach(context)
        producer.send_message("orders", {"a": 1})
        detach(token)

    assert ("tracestate", b"vendor=1") in transport.log["orders"][0].record_headers


def test_a_context_that_the_caller_wrote_stays_and_is_linked(traced):
    with traced.producer() as (producer, transport):
        producer.send_message("orders", {"a": 1}, headers=[("traceparent", PARENT), ("traceparent", PARENT)])

    assert parents(transport.log["orders"][0]) == [PARENT]
    assert linked(traced.only) == [PARENT]
    assert traced.only.kind is SpanKind.CLIENT  # no record carries its context


def test_an_invalid_context_is_replaced(traced):
    with traced.producer() as (producer, transport):
        producer.send_message("orders", {"a": 1}, headers={"traceparent": "no context", "tracestate": "a=1"})

    (record,) = transport.log["orders"]
    assert parents(record) == [parent_of(traced.only)]
    assert "tracestate" not in dict(record.record_headers)


def test_a_tombstone_is_marked_and_no_span_has_the_key(traced):
    with traced.producer() as (producer, _):
        producer.send_message("orders", None, key="alice@example.com")

    assert traced.only.attributes["messaging.kafka.message.tombstone"] is True
    assert "alice" not in traced.only.to_json()


# failures


def test_a_retry_is_an_event_and_the_record_keeps_its_context(traced):
    options = {"retry_config": RetryConfig(initial_delay_ms=1), "script": failing_once("REQUEST_TIMED_OUT")}
    with traced.producer(on_ambiguous="retry", **options) as (producer, transport):
        producer.send_message("orders", {"a": 1})
        producer.flush()

    span = traced.only
    assert parents(transport.log["orders"][0]) == [parent_of(span)]
    failed, probe = span.events
    assert failed.name == "producer_core.attempt_failed"
    assert failed.attributes["error.type"] == "REQUEST_TIMED_OUT"
    assert failed.attributes["producer_core.attempt"] == 1
    assert failed.attributes["producer_core.ambiguous"] is True
    assert failed.attributes["producer_core.retry_in_s"] > 0
    assert (probe.name, dict(probe.attributes)) == (
        "producer_core.probe",
        {"producer_core.probe.result": "not_found"},
    )
    assert span.start_time <= failed.timestamp <= probe.timestamp <= span.end_time
    assert span.attributes["producer_core.outcome"] == "acknowledged"
    assert "error.type" not in span.attributes


def test_a_message_found_by_a_probe_is_acknowledged_with_its_offset(traced):
    with traced.producer(script=lambda delivery: "+REQUEST_TIMED_OUT") as (producer, _):
        producer.send_message("orders", {"a": 1})
        producer.flush()

    assert [event.name for event in traced.only.events][-1] == "producer_core.probe"
    assert traced.only.attributes["messaging.kafka.offset"] == 0
    assert traced.only.attributes["producer_core.outcome"] == "acknowledged"


def test_the_span_of_a_dead_letter_is_an_error_with_its_type(traced):
    with traced.producer(script=lambda delivery: "MSG_SIZE_TOO_LARGE") as (producer, _):
        producer.send_message("orders", {"a": 1})
        producer.flush()
        (dead_letter,) = producer.dlq.dead_letters()

    span = traced.only
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "MSG_SIZE_TOO_LARGE"
    assert span.attributes["producer_core.outcome"] == "dead"
    assert span.attributes["producer_core.verdict"] == dead_letter.verdict
    assert dict(dead_letter.headers)["traceparent"] == parent_of(span)
    assert "messaging.kafka.offset" not in span.attributes


def test_the_description_of_an_error_is_masked(traced):
    with traced.producer() as (producer, _):
        with pytest.raises(InvalidMessage):
            producer._enqueuer._enqueuer.accept = refuse
            producer.send_message("orders", {"a": 1})

    assert "s3cret" not in traced.only.to_json()
    assert traced.only.attributes["error.type"] == "InvalidMessage"
    assert traced.only.attributes["producer_core.outcome"] == "not_accepted"


def refuse(delivery, max_block=None):
    raise InvalidMessage("cannot reach kafka://user:s3cret@broker:9092")


def test_a_message_without_room_is_not_accepted(traced):
    options = {"capacity": 1, "script": lambda delivery: "hold"}
    with traced.producer({"max_block_ms": 20}, **options) as (producer, transport):
        producer.send_message("orders", {"a": 1})
        eventually(lambda: transport.held)
        with pytest.raises(QueueFull):
            producer.send_message("orders", {"a": 2})
        transport.release()

    assert {span.attributes["producer_core.outcome"] for span in traced.spans} == {
        "acknowledged",
        "not_accepted",
    }


def test_duplicates_end_as_such(traced):
    with traced.producer(enable_deduplication=True) as (producer, _):
        for _ in range(2):
            producer.send_message("orders", {"a": 1}, dedup_key="1")
            producer.flush()

    assert [span.attributes["producer_core.outcome"] for span in traced.spans] == [
        "acknowledged",
        "duplicate",
    ]


# batches


def test_a_batch_has_one_span_whose_context_every_record_carries(traced):
    with traced.producer() as (producer, transport):
        result = producer.send_batch("orders", [{"a": number} for number in range(5)])

    assert result["sent"] == 5
    span = traced.only
    assert span.attributes["messaging.batch.message_count"] == 5
    assert span.attributes["producer_core.outcome"] == "acknowledged"
    assert "messaging.message.id" not in span.attributes
    assert [parents(record) for record in transport.log["orders"]] == [[parent_of(span)]] * 5


def test_the_span_of_a_batch_counts_its_failures(traced):
    def second_fails(delivery):
        return "MSG_SIZE_TOO_LARGE" if delivery.value == b'{"a":1}' else None

    with traced.producer(script=second_fails) as (producer, _):
        producer.send_batch("orders", [{"a": 0}, {"a": 1}, {"a": 2}])

    span = traced.only
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "MSG_SIZE_TOO_LARGE"
    assert span.attributes["producer_core.batch.failed_count"] == 1
    assert [event.name for event in span.events] == ["producer_core.attempt_failed"]


def test_a_journaled_batch_carries_one_context_too(traced, tmp_path):
    with traced.producer(journal_dir=tmp_path / "journal") as (producer, transport):
        producer.send_batch("orders", [{"a": 0}, {"a": 1}])

    assert [parents(record) for record in transport.log["orders"]] == [[parent_of(traced.only)]] * 2


# sampling


class Asked(Sampler):
    """Samples nothing, and counts."""

    def __init__(self):
        self.asked = []

    def should_sample(self, parent_context, trace_id, name, kind=None, attributes=None, links=None, **others):
        self.asked.append((name, dict(attributes)))
        return ALWAYS_OFF.should_sample(parent_context, trace_id, name)

    def get_description(self):
        return "asked"


def test_an_unsampled_message_costs_one_question_to_the_sampler_and_keeps_no_object():
    sampler = Asked()
    traced = Traced(sampler)
    with traced.producer(script=lambda delivery: "hold") as (producer, transport):
        producer.send_message("orders", {"a": 1})
        eventually(lambda: transport.held)
        (delivery,) = producer._engine.pending.values()
        assert delivery.callbacks is None and delivery.span is None
        transport.release()

    assert [name for name, _ in sampler.asked] == ["send orders"]
    assert (
        sampler.asked[0][1]["messaging.destination.name"] == "orders"
    )  # before the span, for samplers that use it
    assert traced.spans == ()


def test_an_unsampled_record_tells_its_readers_so():
    traced = Traced(ParentBased(TraceIdRatioBased(0)))
    with traced.producer() as (producer, transport):
        producer.send_message("orders", {"a": 1})
        producer.send_batch("orders", [{"a": 2}, {"a": 3}])

    contexts = [parents(record) for record in transport.log["orders"]]
    assert all(len(found) == 1 and found[0].startswith(b"00-") for found in contexts)
    assert all(int(found[0][-2:], 16) & 1 == 0 for found in contexts)
    assert contexts[1] == contexts[2] != contexts[0]


def test_without_a_configured_sdk_records_are_unchanged(monkeypatch):
    made = []
    with ReliableKafkaProducer(
        "memory:9092",
        store=None,
        tracing=trace.NoOpTracerProvider(),
        transport=InMemoryTransport.factory(made),
    ) as producer:
        producer.send_message("orders", {"a": 1})

    assert [name for name, _ in made[0].log["orders"][0].record_headers] == ["pc-id"]


def test_a_producer_without_tracing_has_no_step_for_it():
    with ReliableKafkaProducer("memory:9092", store=None, transport=InMemoryTransport.factory()) as producer:
        assert producer._enqueuer is producer._engine.enqueuer


@pytest.mark.parametrize("wrong", [1, "otel", None, object()])
def test_a_wrong_value_is_refused_at_the_start(wrong):
    with pytest.raises(ConfigError, match="tracing="):
        ReliableKafkaProducer("memory:9092", store=None, tracing=wrong)


# exporters that block, and limits


class Blocking(SpanExporter):
    """Blocks in `export` until it is released."""

    def __init__(self):
        self.entered, self.free = threading.Event(), threading.Event()
        self.spans = []

    def export(self, spans):
        self.entered.set()
        self.free.wait(60)
        self.spans += spans
        return SpanExportResult.SUCCESS


def test_an_exporter_that_blocks_delays_no_delivery_and_no_close():
    exporter = Blocking()
    traced = Traced(exporter=exporter)
    with traced.producer() as (producer, _):
        producer.send_message("orders", {"a": 0})
        assert exporter.entered.wait(30)
        for number in range(1, 500):
            producer.send_message("orders", {"a": number})
        producer.flush(30)
        assert producer.get_basic_stats()["messages_sent"] == 500
        report = producer.close(10)
        assert report.acknowledged == 500
        assert not exporter.free.is_set()
    exporter.free.set()
    eventually(lambda: len(exporter.spans) == 500)


def test_more_open_spans_than_the_limit_end_at_acceptance(monkeypatch, traced):
    monkeypatch.setattr(tracer_module, "MAX_OPEN", 2)
    with traced.producer(script=lambda delivery: "hold") as (producer, transport):
        for number in range(4):
            producer.send_message("orders", {"a": number})
        eventually(lambda: transport.held == 4)
        eventually(lambda: len(traced.spans) == 2)
        transport.release()

    outcomes = [span.attributes["producer_core.outcome"] for span in traced.spans]
    assert sorted(outcomes) == ["acknowledged", "acknowledged", "untracked", "untracked"]
    assert sorted(parents(record)[0] for record in transport.log["orders"]) == sorted(
        map(parent_of, traced.spans)
    )


def test_a_span_processor_that_raises_stops_nothing(traced, caplog):
    class Broken(Blocking):
        def export(self, spans):
            raise SystemExit

    broken = Traced(exporter=Broken())
    with broken.producer() as (producer, _):
        for number in range(3):
            producer.send_message("orders", {"a": number})
        producer.flush(30)
        assert producer.get_basic_stats()["messages_sent"] == 3


def test_a_message_that_a_rate_limit_refuses_has_a_span(traced):
    with traced.producer({"max_messages_per_second": 0.001}) as (producer, _):
        producer.send_message("orders", 1)
        with pytest.raises(RateLimited):
            producer.send_message("orders", 2)
        assert not producer.try_send("orders", 3)

    refused = [span for span in traced.spans if span.status.status_code is StatusCode.ERROR]
    assert len(traced.spans) == 3 and len(refused) == 2
    assert {span.attributes["producer_core.outcome"] for span in refused} == {"not_accepted"}
    assert {span.attributes["error.type"] for span in refused} == {"RateLimited"}


def test_a_refused_message_gives_back_what_it_took(traced):
    """Regression: the bytes of its `traceparent` were given back without having been taken."""
    config = {"max_bytes_per_second": 1, "rate_limit_burst_ms": 1_000_000}
    with traced.producer(config, script=lambda delivery: "hold", capacity=1) as (producer, transport):
        producer.send_message("orders", b"x" * 500)
        bucket = producer._components.rate_limiter._all_topics[0]._bytes
        eventually(lambda: transport.held)
        before = bucket._full_at
        assert not producer.try_send("orders", b"2")  # the queue is full

        assert bucket._full_at == pytest.approx(before, abs=0.001)
        transport.release()
