"""Spans as an OTLP receiver gets them, and the context that consumers find in the records."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
import uuid
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from producer_core import ReliableKafkaProducer
from producer_core import replay as replays
from producer_core._internal.trace_context import context_of
from producer_core.brokers import embedded
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.fixtures import otlp
from tests.fixtures.replays import dead_letter
from tests.support import ROOT, eventually


@pytest.fixture
def broker():
    with embedded.start(topics={"orders": 2}) as started:
        yield started


def records(servers, topic, count):
    """Return the headers of the first `count` records of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found = []

    def enough():
        found.extend(one.headers() for one in consumer.consume(count, 0.2) if not one.error())
        return len(found) >= count

    try:
        eventually(enough)
    finally:
        consumer.close()
    return found


def parents(headers):
    return [value for name, value in headers if name == "traceparent"]


def ids(span_or_link):
    return span_or_link.trace_id.hex(), span_or_link.span_id.hex()


def carried(headers):
    context = context_of(headers)
    return context.trace_id_text, f"{context.span_id:016x}"


@contextmanager
def exported(exporter):
    """Yield a tracer provider of the SDK, with its defaults, whose spans have all been exported after it."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider
    finally:
        provider.shutdown()


@contextmanager
def receiver(protocol):
    """Yield an exporter of the protocol and what its receiver got."""
    if protocol == "grpc":
        with otlp.over_grpc() as (endpoint, received):
            yield GrpcExporter(endpoint=endpoint, insecure=True), received
    else:
        with otlp.over_http() as (url, received):
            yield HttpExporter(endpoint=f"{url}/v1/traces"), received


def outcome(span):
    return otlp.attributes(span)["producer_core.outcome"]


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_an_otlp_receiver_gets_a_span_for_each_message(protocol, broker):
    with receiver(protocol) as (exporter, received):
        with exported(exporter) as provider:
            with ReliableKafkaProducer(broker.bootstrap_servers, store=None, tracing=provider) as producer:
                message_id = producer.send_message("orders", {"a": 1}, key="k")
                producer.flush(30)
                broker.reject("orders", "POLICY_VIOLATION")
                producer.send_message("orders", {"a": 2})
                producer.flush(30)
                dead_letters = producer.dlq.dead_letters()
            broker.accept("orders")
            (headers,) = records(broker.bootstrap_servers, "orders", 1)

        acknowledged, dead = received.spans
        (scope,) = {scope.schema_url for scope in received.scopes}
    assert scope == "https://opentelemetry.io/schemas/1.44.0"
    assert acknowledged.name == "send orders" and acknowledged.kind == Span.SPAN_KIND_PRODUCER
    assert acknowledged.status.code == Status.STATUS_CODE_UNSET
    found = otlp.attributes(acknowledged)
    assert found["messaging.system"] == "kafka" and found["messaging.operation.name"] == "send"
    assert found["messaging.operation.type"] == "send" and found["messaging.destination.name"] == "orders"
    assert found["messaging.kafka.offset"] == 0 and found["messaging.destination.partition.id"] in ("0", "1")
    assert found["messaging.message.id"] == message_id
    assert found["server.address"] == "127.0.0.1" and found["server.port"] > 0
    assert "messaging.kafka.message.key" not in found
    assert carried(headers) == ids(acknowledged) and len(parents(headers)) == 1
    assert acknowledged.end_time_unix_nano > acknowledged.start_time_unix_nano
    assert dead.status.code == Status.STATUS_CODE_ERROR
    assert otlp.attributes(dead)["error.type"] == "POLICY_VIOLATION"
    assert [event.name for event in dead.events] == ["producer_core.attempt_failed"]
    assert [carried(one.headers) for one in dead_letters] == [ids(dead)]


def test_a_journaled_message_ends_its_span_and_the_next_process_links_to_it(broker, tmp_path):
    options = {"store": None, "journal_dir": tmp_path / "journal"}
    with receiver("grpc") as (exporter, received):
        broker.down()
        with exported(exporter) as provider:
            first = ReliableKafkaProducer(broker.bootstrap_servers, tracing=provider, **options)
            first.send_message("orders", {"a": 1}, key="k")
            assert first.close(0.5).journaled == 1
        (journaled,) = received.spans
        broker.up()
        with exported(exporter_of(exporter)) as provider:
            with ReliableKafkaProducer(broker.bootstrap_servers, tracing=provider, **options) as second:
                second.flush(30)
        (headers,) = records(broker.bootstrap_servers, "orders", 1)
        (delivered,) = received.spans[1:]

    assert outcome(journaled) == "journaled" and outcome(delivered) == "acknowledged"
    assert [ids(link) for link in delivered.links] == [ids(journaled)]
    assert delivered.trace_id != journaled.trace_id and delivered.kind == Span.SPAN_KIND_CLIENT
    assert carried(headers) == ids(journaled) and len(parents(headers)) == 1
    assert "producer_core.probe" in [event.name for event in delivered.events]


def exporter_of(other):
    """Return a new exporter to the same receiver; a provider shuts its exporter down."""
    return GrpcExporter(endpoint=other._endpoint, insecure=True)


def test_a_replay_links_to_the_original_trace_and_the_record_keeps_its_context(broker, tmp_path):
    with receiver("grpc") as (exporter, received):
        with exported(exporter) as provider:
            with ReliableKafkaProducer(
                broker.bootstrap_servers, store=tmp_path / "store.duckdb", tracing=provider,
                cluster_id=broker.cluster_id,
            ) as producer:  # fmt: skip
                broker.reject("orders", "POLICY_VIOLATION")
                producer.send_message("orders", {"a": 1}, key="k")
                producer.flush(30)
                broker.accept("orders")
                eventually(lambda: producer.get_dlq_messages("orders"))
                assert producer.replay_dlq_messages("orders") == 1
        (headers,) = records(broker.bootstrap_servers, "orders", 1)
        dead, replayed = received.spans

    assert (outcome(dead), outcome(replayed)) == ("dead", "acknowledged")
    assert [ids(link) for link in replayed.links] == [ids(dead)]
    assert carried(headers) == ids(dead) and len(parents(headers)) == 1
    assert otlp.attributes(replayed)["messaging.message.id"] == otlp.attributes(dead)["messaging.message.id"]


# programs of their own


def run(program, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


WITH_THE_RELEASED_INSTRUMENTATION = """
    import sys
    from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry import trace

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=sys.argv[1] + "/v1/traces")))
    trace.set_tracer_provider(provider)
    ConfluentKafkaInstrumentor().instrument()

    import confluent_kafka
    from producer_core import ReliableKafkaProducer

    theirs = confluent_kafka.Producer({"bootstrap.servers": sys.argv[2]})
    assert type(theirs).__name__ == "AutoInstrumentedProducer"
    with ReliableKafkaProducer(sys.argv[2], store=None, tracing=True) as producer:
        producer.send_message("orders", {"a": 1})
        producer.send_message("orders", {"a": 2}, headers={"h": "1"})
    theirs.produce("others", b"1")
    theirs.flush(30)
"""


def test_a_record_carries_one_context_with_the_released_instrumentation_active(broker):
    with otlp.over_http() as (url, received):
        run(WITH_THE_RELEASED_INSTRUMENTATION, url, broker.bootstrap_servers)
        ours = [span for span in received.spans if span.name == "send orders"]
        others = [span.name for span in received.spans if span.name != "send orders"]
    found = records(broker.bootstrap_servers, "orders", 2)

    assert others == ["others send"]  # the application's own client is still instrumented
    assert [len(parents(headers)) for headers in found] == [1, 1]
    assert sorted(map(carried, found)) == sorted(map(ids, ours))


EXITS_WITHOUT_CLOSE = """
    import sys
    from producer_core import ReliableKafkaProducer
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    import producer_core.producer.producer  # registers its exit function before the provider does

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=sys.argv[1] + "/v1/traces")))
    producer = ReliableKafkaProducer(sys.argv[2], store=None, tracing=provider)
    producer.send_message("orders", {"a": 1})
"""


def test_a_program_that_ends_without_close_exports_its_spans(broker):
    with otlp.over_http() as (url, received):
        run(EXITS_WITHOUT_CLOSE, url, broker.bootstrap_servers)
        (span,) = received.spans

    assert outcome(span) == "acknowledged"
    assert len(records(broker.bootstrap_servers, "orders", 1)) == 1


def test_a_producer_without_tracing_does_not_import_opentelemetry(broker):
    run(
        """
        import sys
        from producer_core import ReliableKafkaProducer
        with ReliableKafkaProducer(sys.argv[1], store=None) as producer:
            producer.send_message("orders", {"a": 1})
        assert not [name for name in sys.modules if name.startswith("opentelemetry")]
        """,
        broker.bootstrap_servers,
    )
    assert parents(records(broker.bootstrap_servers, "orders", 1)[0]) == []


# the real Kafka


KILLED_AFTER_SENDING = """
    import os, sys
    from opentelemetry.sdk.trace import TracerProvider
    from producer_core import ReliableKafkaProducer

    producer = ReliableKafkaProducer(
        sys.argv[1], {"linger_ms": 2_000}, store=None, journal_dir=sys.argv[3], delivery=sys.argv[4],
        tracing=TracerProvider(),
    )
    producer.send_message(sys.argv[2], {"a": 1}, key="k")
    os._exit(0)
"""


@pytest.mark.kafka
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_message_of_a_killed_process_gets_a_span_linked_to_its_first_trace(delivery, kafka, tmp_path):
    topic = f"traced-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=2)
    run(KILLED_AFTER_SENDING, kafka.bootstrap_servers, topic, str(tmp_path / "journal"), delivery)
    options = {"store": None, "journal_dir": tmp_path / "journal", "delivery": delivery}
    with receiver("grpc") as (exporter, received):
        with exported(exporter) as provider:
            with ReliableKafkaProducer(kafka.bootstrap_servers, tracing=provider, **options) as producer:
                producer.send_message(topic, {"a": 2}, key="k")
                producer.flush(60)
        first, second = records(kafka.bootstrap_servers, topic, 2)
        spans = {span.kind: span for span in received.spans}

    resumed, new = spans[Span.SPAN_KIND_CLIENT], spans[Span.SPAN_KIND_PRODUCER]
    assert [ids(link) for link in resumed.links] == [carried(first)]
    assert carried(second) == ids(new) and not new.links
    assert [len(parents(one)) for one in (first, second)] == [1, 1]
    assert [outcome(resumed), outcome(new)] == ["acknowledged", "acknowledged"]
    assert otlp.attributes(new)["messaging.kafka.offset"] > otlp.attributes(resumed)["messaging.kafka.offset"]


@pytest.mark.kafka
def test_a_transactional_replay_has_one_span_with_links_to_the_traces_of_its_records(kafka, tmp_path):
    topic = f"traced-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=1, config={"max.message.bytes": "100"})
    with receiver("grpc") as (exporter, received):
        with exported(exporter) as provider:
            with ReliableKafkaProducer(
                kafka.bootstrap_servers, store=tmp_path / "store.duckdb", tracing=provider
            ) as producer:
                for number in range(3):
                    producer.send_message(topic, {"a": "x" * 500, "number": number})
                producer.flush(60)
                eventually(lambda: len(producer.get_dlq_messages(topic)) == 3)
                widen(kafka, topic)
                assert producer.replay_dlq_messages(topic) == 3
        found = records(kafka.bootstrap_servers, topic, 3)
        dead, (replay,) = received.spans[:3], received.spans[3:]

    assert [outcome(span) for span in dead] == ["dead"] * 3
    assert replay.name == f"send {topic}" and replay.kind == Span.SPAN_KIND_CLIENT
    assert otlp.attributes(replay)["messaging.batch.message_count"] == 3
    assert {ids(link) for link in replay.links} == {ids(span) for span in dead} == set(map(carried, found))
    assert [len(parents(headers)) for headers in found] == [1, 1, 1]


def widen(kafka, topic):
    """Let the topic accept records of any size again."""
    entry = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for done in client.incremental_alter_configs([resource]).values():
        done.result(30)


# replays from the command line and from the dashboard's server


def planted(store, broker):
    """Add a dead letter whose record carries a context, and return the context."""
    context = f"00-{uuid.uuid4().hex}-{uuid.uuid4().hex[:16]}-01"
    DeadLetters(Store.open(store)).add(
        [
            dead_letter(
                1, topic="orders", cluster_id="", accepted_at=time.time() - 900, failed_at=time.time() - 900,
                headers=(("traceparent", context.encode()),),
            )
        ]
    )  # fmt: skip
    return context


def sdk(endpoint, protocol):
    return {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_INSECURE": "true", "PYTHONPATH": str(ROOT)}  # fmt: skip


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_dlq_replay_is_traced_as_the_environment_of_the_sdk_says(protocol, broker, tmp_path):
    store = tmp_path / "store.duckdb"
    context = planted(store, broker)
    with otlp.over_grpc() if protocol == "grpc" else otlp.over_http() as (endpoint, received):
        command = [sys.executable, "-m", "producer_core", "dlq", "replay", "--topic", "orders", "--yes"]
        done = subprocess.run(
            [*command, "--store", str(store), "-b", broker.bootstrap_servers],
            cwd=ROOT, env=sdk(endpoint, protocol), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (span,) = received.spans
    (headers,) = records(broker.bootstrap_servers, "orders", 1)

    (link,) = span.links
    assert (span.name, outcome(span)) == ("send orders", "acknowledged")
    assert f"00-{link.trace_id.hex()}-{link.span_id.hex()}-01" == context == parents(headers)[0].decode()


def test_an_unreachable_collector_delays_no_replay(broker, tmp_path):
    store = tmp_path / "store.duckdb"
    planted(store, broker)
    command = [sys.executable, "-m", "producer_core", "dlq", "replay", "--topic", "orders", "--yes"]
    done = subprocess.run(
        [*command, "--store", str(store), "-b", broker.bootstrap_servers],
        cwd=ROOT, env=sdk("http://127.0.0.1:1", "http/protobuf"), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.kafka
def test_a_transactional_replay_from_the_command_line_is_traced(kafka, tmp_path):
    topic = f"traced-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=1)
    store = tmp_path / "store.duckdb"
    now = time.time()
    DeadLetters(Store.open(store)).add(
        [
            dead_letter(n, topic=topic, cluster_id="", accepted_at=now - 900, failed_at=now - 900)
            for n in range(3)
        ]
    )
    with otlp.over_http() as (endpoint, received):
        command = [sys.executable, "-m", "producer_core", "dlq", "replay", "--topic", topic, "--yes"]
        done = subprocess.run(
            [*command, "--store", str(store), "-b", kafka.bootstrap_servers],
            cwd=ROOT, env=sdk(endpoint, "http/protobuf"), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        spans = received.spans
    assert sum(otlp.attributes(span)["messaging.batch.message_count"] for span in spans) == 3


def test_the_replay_worker_of_the_dashboard_is_traced(broker, tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    context = planted(store.path, broker)
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={broker.bootstrap_servers}\n")
    program = textwrap.dedent("""
        import sys
        from pathlib import Path
        from producer_core.dashboard.server.replay_worker import ReplayWorker, worker_settings
        worker = ReplayWorker(Path(sys.argv[1]), worker_settings())
        worker.start()
        sys.stdin.readline()
        worker.stop()
    """)
    with otlp.over_http() as (endpoint, received):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(store.path)], cwd=ROOT, stdin=subprocess.PIPE, text=True,
            env={**sdk(endpoint, "http/protobuf"), "PRODUCER_CORE_CONFIG": str(file)},
        )  # fmt: skip
        eventually(lambda: replays.runners(store, time.time()))
        planned = replays.plan(store, DeadLetterFilter(topic="orders"), who="test", origin="dashboard")
        eventually(lambda: replays.get(store, planned.operation_id).ended)
        process.communicate("\n", timeout=60)
        (span,) = received.spans
    (link,) = span.links
    assert f"00-{link.trace_id.hex()}-{link.span_id.hex()}-01" == context
