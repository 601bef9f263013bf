"""Export metrics to Prometheus, with the same names for a process and for a whole store.

Needs the extra `producer-core[prometheus]`. The metrics are listed in `definitions.py` and docs/how-to/metrics.md.
"""

try:
    import prometheus_client  # noqa: F401  # names the extra if it is missing
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Metrics for Prometheus need: pip install 'producer-core[prometheus]'", name=error.name
    ) from error

from producer_core.producer.prometheus.process_reading import ProducerCollector, start_metrics_server
from producer_core.producer.prometheus.server import MetricsServer
from producer_core.producer.prometheus.store_reading import StoreCollector

__all__ = ["MetricsServer", "ProducerCollector", "StoreCollector", "start_metrics_server"]
