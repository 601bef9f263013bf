"""Trace the replays of a command or the dashboard, as the environment variables of OpenTelemetry's SDK say."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.config import ClientConfig
from producer_core.errors import ConfigError
from producer_core.producer.application import VARIABLE

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import TracerProvider

    from producer_core.replay.strategy import ReplayStrategy

logger = queued_logger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_EXPORTERS = {"": "otlp_proto_grpc", "grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
"""The entry point of the OTLP exporter by its protocol. Python's default is gRPC."""
_SERVICE = "producer-core"


@functools.cache
def tracing_from_environment() -> bool | TracerProvider:
    """Return the option `tracing=` for a producer: the same for all producers of the process.

    It is False unless `OTEL_TRACES_EXPORTER` or an OTLP endpoint is set. It is True where a global tracer provider
    exists, for example under `opentelemetry-instrument`. Otherwise it is a provider of the SDK, whose exporter,
    resource and sampler follow the environment. A package that is missing, or a wrong value, is logged and means False.
    """
    try:
        names = exporter_names(os.environ)
        return _provider(names) if names else False
    except ConfigError as error:
        logger.warning(**with_fields("replays are not traced", reason=error.what, fix=error.fix))
        return False
    except Exception as error:  # noqa: BLE001  an exporter may raise anything for a wrong value
        logger.warning(**with_fields("replays are not traced", reason=str(error), fix=_FIX))
        return False


_FIX = "pip install 'producer-core[otel]' opentelemetry-sdk opentelemetry-exporter-otlp"


def exporter_names(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the entry points of the exporters that the environment names; none of them without tracing.

    Raises ConfigError for a protocol that does not exist.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    default = "otlp" if any(environment.get(name) for name in _ENDPOINTS) else "none"
    given = (environment.get("OTEL_TRACES_EXPORTER") or default).split(",")
    names = [name.strip() for name in given if name.strip() not in ("", "none")]
    return tuple(_otlp(environment) if name == "otlp" else name for name in names)


def _otlp(environment: Mapping[str, str]) -> str:
    variable = next(filter(environment.get, _PROTOCOLS), _PROTOCOLS[-1])
    protocol = environment.get(variable, "").strip()
    if protocol not in _EXPORTERS:
        known = " or ".join(filter(None, _EXPORTERS))
        raise ConfigError(f"{variable} is {protocol!r}, which is not a protocol.", fix=f"Set it to {known}.")
    return _EXPORTERS[protocol]


def _provider(names: tuple[str, ...]) -> bool | TracerProvider:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return True
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: os.environ.get(VARIABLE) or _SERVICE}))
    provider = TracerProvider(resource=resource)  # the interpreter's exit shuts it down
    for name in names:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    return provider


def _exporter(name: str) -> SpanExporter:
    found = next(iter(entry_points(group="opentelemetry_traces_exporter", name=name)), None)
    if found is None:
        raise LookupError(f"The trace exporter {name!r} is not installed.")
    exporter: SpanExporter = found.load()()
    return exporter


class ReplayTracing:
    """Traces the transactions of a replay runner that belongs to no producer. Without tracing it does nothing."""

    def __init__(self, config: ClientConfig, cluster: Callable[[], str]) -> None:
        self._tracer = None
        tracing = tracing_from_environment()
        if tracing is not False:
            from producer_core.producer.tracing import MessageTracer

            self._tracer = MessageTracer(None if tracing is True else tracing, config, cluster=cluster)

    @property
    def traced(self) -> Callable[[ReplayStrategy], ReplayStrategy] | None:
        """The argument `traced` of `ReplayRunner`."""
        if self._tracer is None:
            return None
        from producer_core.producer.tracing import TracedReplay

        return functools.partial(TracedReplay, tracer=self._tracer)

    def close(self, timeout: float = 1.0) -> None:
        """End the spans, within `timeout` seconds."""
        if self._tracer is not None:
            self._tracer.close(timeout)
