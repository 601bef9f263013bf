"""Tracing of commands by the environment of OpenTelemetry's SDK: when it is on, and with which exporter."""

from __future__ import annotations

import subprocess
import sys

import pytest

from producer_core._internal.log_queue import QUEUE
from producer_core.producer.environment_tracing import exporter_names, tracing_from_environment

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
TRACES_ENDPOINT = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}
HTTP = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    for name in (
        "OTEL_TRACES_EXPORTER",
        "OTEL_SDK_DISABLED",
        *ENDPOINT,
        *TRACES_ENDPOINT,
        *HTTP,
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    ):
        monkeypatch.delenv(name, raising=False)
    tracing_from_environment.cache_clear()
    yield
    tracing_from_environment.cache_clear()


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, ()),
        (HTTP, ()),
        (ENDPOINT, ("otlp_proto_grpc",)),
        (TRACES_ENDPOINT | HTTP, ("otlp_proto_http",)),
        (ENDPOINT | HTTP | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, ("otlp_proto_grpc",)),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ("console", "otlp_proto_grpc")),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, ()),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": ""}, ("otlp_proto_grpc",)),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "TRUE"}, ()),
    ],
)
def test_the_environment_names_the_exporters(environment, names):
    assert exporter_names(environment) == names


def test_a_missing_exporter_is_logged_and_the_replay_is_not_traced(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    assert tracing_from_environment() is False
    QUEUE.drain(10)
    (line,) = caplog.messages
    assert line.startswith("replays are not traced: reason=The trace exporter 'zipkin' is not installed.")


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"])
def test_an_unknown_protocol_is_logged_with_the_protocols_that_exist(monkeypatch, caplog, variable):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv(variable, "foo")

    assert tracing_from_environment() is False
    QUEUE.drain(10)
    assert caplog.messages == [
        f"replays are not traced: reason={variable} is 'foo', which is not a protocol., "
        "fix=Set it to grpc or http/protobuf."
    ]


def test_without_the_variables_nothing_of_opentelemetry_is_imported():
    code = (
        "import sys, producer_core.producer.environment_tracing as tracing\n"
        "assert tracing.tracing_from_environment() is False\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_provider_has_the_service_name_of_the_environment_or_ours():
    code = (
        "from producer_core.producer.environment_tracing import tracing_from_environment\n"
        "print(tracing_from_environment().resource.attributes['service.name'])"
    )
    for given, name in (({}, "producer-core"), ({"OTEL_SERVICE_NAME": "orders"}, "orders"),
                        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=shop"}, "shop"),
                        ({"PRODUCER_CORE_APPLICATION": "checkout"}, "checkout"),
                        ({"PRODUCER_CORE_APPLICATION": "checkout", "OTEL_SERVICE_NAME": "orders"}, "orders")):  # fmt: skip
        environment = {"OTEL_TRACES_EXPORTER": "console", "PATH": "", **given}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env=environment | {"PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip
        assert done.stdout.strip() == name


def test_a_global_provider_of_the_process_is_used():
    code = (
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "trace.set_tracer_provider(TracerProvider())\n"
        "from producer_core.producer.environment_tracing import tracing_from_environment\n"
        "assert tracing_from_environment() is True"
    )
    environment = {"OTEL_TRACES_EXPORTER": "console", "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
