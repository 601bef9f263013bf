"""Export metrics to Prometheus, from a process or from a store. Needs the extra `producer-core[prometheus]`."""

from producer_core.producer.prometheus import (
    MetricsServer,
    ProducerCollector,
    StoreCollector,
    start_metrics_server,
)

__all__ = ["MetricsServer", "ProducerCollector", "StoreCollector", "start_metrics_server"]
