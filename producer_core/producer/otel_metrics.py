"""Export the metrics of this process's producers through OpenTelemetry, with the names and numbers that Prometheus gets.

Needs the extras `producer-core[otel,prometheus]`: both exports read the same collector, so there is no second count.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

try:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Metrics through OpenTelemetry need: pip install 'producer-core[otel,prometheus]'", name=error.name
    ) from error

from producer_core import __version__
from producer_core._internal.user_callbacks import short_repr
from producer_core.errors import ConfigError
from producer_core.producer.prometheus import ProducerCollector
from producer_core.producer.prometheus.arguments import check_producer
from producer_core.producer.prometheus.definitions import METRICS, MetricDefinition
from producer_core.producer.prometheus.families import TOPICS

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Sample

    from producer_core.producer.prometheus.process_reading import MeasuredProducer

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

_NAMES = {"messaging_client_sent_messages_total": "messaging.client.sent.messages"}
"""The names that the semantic conventions define. All other names begin with `producer_core.`."""
_ATTRIBUTES = {
    "messaging_system": "messaging.system",
    "messaging_operation_name": "messaging.operation.name",
    "messaging_destination_name": "messaging.destination.name",
    "error_type": "error.type",
}
_UNITS = {"_bytes": "By", "_seconds": "s", "_messages": "{message}"}
_PARTS = {"sum": "s", "count": "1"}
"""The parts of a summary, which OpenTelemetry observes as two counters, with their units."""


class MetricsObserver:
    """Observes the metrics of producers whenever a reader of the meter provider collects. Safe in threads.

    One observer per meter provider: `add` observes a further producer. The totals of a closed producer remain.
    """

    def __init__(
        self, *producers: MeasuredProducer, meter_provider: MeterProvider | None = None, topics: int = TOPICS
    ) -> None:
        _check(producers, meter_provider)
        self._collector = ProducerCollector(*producers, topics=topics)
        self._lock = threading.Lock()  # guards the fields below
        self._families: Mapping[str, Metric] = {}
        self._observed: set[str] = set()  # instruments that have observed these families
        self._meter = get_meter("producer_core", __version__, meter_provider, SCHEMA_URL)
        for name, definition in METRICS.items():
            if "process" in definition.sources:
                self._create(name, definition)

    def add(self, producer: MeasuredProducer) -> None:
        """Observe another producer of this process too."""
        check_producer(producer, "observer.add(producer)")
        self._collector.add(producer)

    def _create(self, name: str, definition: MetricDefinition) -> None:
        given, unit = otel_name(name), _unit(name)
        callbacks = [partial(self._observe, name, "")]
        match definition.type:
            case "counter":
                self._meter.create_observable_counter(given, callbacks, unit, definition.help)
            case "gauge":
                self._meter.create_observable_gauge(given, callbacks, unit, definition.help)
            case "summary":
                for part, unit in _PARTS.items():
                    callbacks = [partial(self._observe, name, part)]
                    self._meter.create_observable_counter(f"{given}.{part}", callbacks, unit, definition.help)
            case "histogram":  # OpenTelemetry cannot observe one; see docs/how-to/metrics.md
                pass

    def _observe(self, name: str, part: str, options: CallbackOptions) -> Iterable[Observation]:
        """Return the present values of an instrument."""
        family = self._current(f"{name} {part}").get(name.removesuffix("_total"))
        samples: Iterable[Sample] = () if family is None else family.samples
        return [
            Observation(
                sample.value, {_ATTRIBUTES.get(key, key): value for key, value in sample.labels.items()}
            )
            for sample in samples
            if not part or sample.name.endswith(f"_{part}")
        ]

    def _current(self, instrument: str) -> Mapping[str, Metric]:
        """Return the families of this collection. An instrument that asks again begins a new one."""
        with self._lock:
            if not self._families or instrument in self._observed:
                self._families = {family.name: family for family in self._collector.collect()}
                self._observed.clear()
            self._observed.add(instrument)
            return self._families


def observe_metrics(
    *producers: MeasuredProducer, meter_provider: MeterProvider | None = None, topics: int = TOPICS
) -> MetricsObserver:
    """Observe the metrics of these producers through the meter provider, by default the global one.

    The first `topics` topics have a name of their own, the others share `other`. Raises ConfigError without a producer,
    and for anything but producers and a meter provider.
    """
    return MetricsObserver(*producers, meter_provider=meter_provider, topics=topics)


def _check(producers: Iterable[MeasuredProducer], meter_provider: object) -> None:
    for producer in producers:
        check_producer(producer, "observe_metrics(producer, another_producer)")
    fits = not isinstance(meter_provider, type) and hasattr(meter_provider, "get_meter")
    if meter_provider is not None and not fits:
        raise ConfigError(
            f"meter_provider= must be a MeterProvider, not {short_repr(meter_provider)}.",
            fix="Pass an opentelemetry.sdk.metrics.MeterProvider, or leave it out for the global one.",
        )


def otel_name(name: str) -> str:
    """Return OpenTelemetry's name of a metric, which the translation for Prometheus turns back into `name`."""
    return _NAMES.get(name) or "producer_core." + name.removeprefix("producer_core_").removesuffix("_total")


def _unit(name: str) -> str:
    return next(
        (unit for suffix, unit in _UNITS.items() if name.removesuffix("_total").endswith(suffix)), "1"
    )
