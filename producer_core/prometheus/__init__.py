"""Export metrics to Prometheus, with the same names for a process and for a whole store.

Needs the extra `producer-core[prometheus]`. The metrics are listed in `definitions.py` and docs/how-to/metrics.md.
"""

from producer_core.prometheus.store_reading import StoreCollector

__all__ = ["StoreCollector"]
