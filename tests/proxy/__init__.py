"""A TCP proxy between clients and Kafka brokers that injects network faults; for tests and benchmarks."""

from tests.proxy.proxy import FaultProxy
from tests.proxy.rules import (
    APIS,
    BlackHole,
    Delay,
    Hold,
    Partition,
    Refuse,
    Reset,
    Rewrite,
    Rule,
    Slow,
    Swallow,
    Tap,
)

__all__ = [
    "APIS", "BlackHole", "Delay", "FaultProxy", "Hold", "Partition", "Refuse", "Reset", "Rewrite", "Rule", "Slow",
    "Swallow", "Tap",
]  # fmt: skip
