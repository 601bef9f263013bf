"""Metrics through OpenTelemetry's SDK: the same names and numbers as on /metrics."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader

from producer_core import ReliableKafkaProducer
from producer_core.errors import ConfigError
from producer_core.producer.otel_metrics import MetricsObserver, observe_metrics, otel_name
from producer_core.producer.prometheus import ProducerCollector
from producer_core.producer.prometheus.definitions import METRICS
from producer_core.testing import InMemoryTransport
from tests.fixtures import otlp


@pytest.fixture
def producer():
    def outcome(delivery):
        return "MSG_SIZE_TOO_LARGE" if delivery.value == b'{"a":3}' else None

    with ReliableKafkaProducer(
        "memory:9092", store=None, transport=InMemoryTransport.factory(script=outcome)
    ) as opened:
        for number in range(5):
            opened.send_message("orders" if number % 2 else "returns", {"a": number})
        opened.flush()
        yield opened


def points(reader):
    """Return the value of each point of a collection, by the name of its metric and its attributes."""
    data = reader.get_metrics_data()
    return {
        (metric.name, tuple(sorted(point.attributes.items()))): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


NAMES = {"messaging.system": "messaging_system", "messaging.operation.name": "messaging_operation_name",
         "messaging.destination.name": "messaging_destination_name", "error.type": "error_type"}  # fmt: skip


def test_every_number_is_the_one_of_the_prometheus_collector(producer):
    collector, reader = ProducerCollector(producer), InMemoryMetricReader()
    observe_metrics(producer, meter_provider=MeterProvider([reader], shutdown_on_exit=False))

    found = points(reader)

    expected = {}
    for family in collector.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if family.type == "histogram":
            continue
        for sample in family.samples:
            part = f".{sample.name.rpartition('_')[2]}" if family.type == "summary" else ""
            labels = {
                next((a for a, b in NAMES.items() if b == key), key): value
                for key, value in sample.labels.items()
            }
            expected[otel_name(name) + part, tuple(sorted(labels.items()))] = sample.value
    assert found == expected
    sent = {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.destination.name": "returns",
    }
    assert found["messaging.client.sent.messages", tuple(sorted(sent.items()))] == 3


def test_the_translation_for_prometheus_gives_the_names_of_the_endpoint():
    for name, definition in METRICS.items():
        suffix = "_total" if definition.type == "counter" else ""
        if "process" in definition.sources and definition.type in ("counter", "gauge"):
            assert otel_name(name).replace(".", "_") + suffix == name


def test_each_collection_reads_the_producers_once_and_shows_the_present(producer, monkeypatch):
    reader = InMemoryMetricReader()
    observer = MetricsObserver(producer, meter_provider=MeterProvider([reader], shutdown_on_exit=False))
    read, collect = [], observer._collector.collect
    monkeypatch.setattr(observer._collector, "collect", lambda: read.append(1) or collect())

    points(reader)
    producer.send_message("orders", {"a": 9})
    producer.flush()
    totals = [
        value for (name, _), value in points(reader).items() if name == "messaging.client.sent.messages"
    ]

    assert sum(totals) == 5
    assert len(read) == 2


def test_a_further_producer_adds_to_the_same_metrics(producer):
    reader = InMemoryMetricReader()
    observer = observe_metrics(producer, meter_provider=MeterProvider([reader], shutdown_on_exit=False))
    with ReliableKafkaProducer("memory:9092", store=None, transport=InMemoryTransport.factory()) as other:
        observer.add(other)
        other.send_message("orders", {"a": 1})
        other.flush()
    producer.close()

    found = points(reader)

    assert found["producer_core.producers", ()] == 0
    assert sum(value for (name, _), value in found.items() if name == "messaging.client.sent.messages") == 5


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_an_otlp_receiver_gets_the_metrics(protocol, producer):
    with otlp.over_grpc() if protocol == "grpc" else otlp.over_http() as (address, received):
        if protocol == "grpc":
            exporter = GrpcExporter(endpoint=address, insecure=True)
        else:
            exporter = HttpExporter(endpoint=f"{address}/v1/metrics")
        provider = MeterProvider([PeriodicExportingMetricReader(exporter)], shutdown_on_exit=False)
        observe_metrics(producer, meter_provider=provider)
        provider.force_flush()
        sent = received.metrics["messaging.client.sent.messages"]
        provider.shutdown()

    assert sent.unit == "{message}" or sent.unit == "1"
    assert sent.sum.is_monotonic
    values = {
        otlp.attributes(one)["messaging.destination.name"]: one.as_int or one.as_double
        for one in sent.sum.data_points
    }
    assert values == {"returns": 3, "orders": 1}


@pytest.mark.parametrize("given", ["x", 5, MeterProvider, False], ids=repr)
def test_anything_but_a_meter_provider_is_an_error_with_a_fix(producer, given):
    with pytest.raises(ConfigError, match="meter_provider= must be a MeterProvider, not ") as raised:
        observe_metrics(producer, meter_provider=given)

    assert "leave it out for the global one" in raised.value.fix


@pytest.mark.parametrize("given", [None, "p", ReliableKafkaProducer], ids=repr)
def test_anything_but_a_producer_is_an_error_that_names_this_function(given):
    with pytest.raises(ConfigError, match="is not a producer") as raised:
        observe_metrics(given)

    assert raised.value.fix == "Pass instances: observe_metrics(producer, another_producer)."


def test_without_opentelemetry_the_error_names_the_extra():
    code = "import sys; sys.modules['opentelemetry'] = None; import producer_core.producer.otel_metrics"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install 'producer-core[otel,prometheus]'" in done.stderr
