"""Trace messages with OpenTelemetry, from `send_message` until the broker acknowledges them or they are dead letters.

Needs the extra `producer-core[otel]`. Imported only by a producer with `tracing=`.
"""

try:
    import opentelemetry.trace  # noqa: F401  # names the extra if it is missing
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("Tracing needs: pip install 'producer-core[otel]'", name=error.name) from error

from producer_core.producer.tracing.traced_replay import TracedReplay
from producer_core.producer.tracing.tracer import MessageTracer
from producer_core.producer.tracing.tracing_enqueuer import TracingEnqueuer

__all__ = ["MessageTracer", "TracedReplay", "TracingEnqueuer"]
