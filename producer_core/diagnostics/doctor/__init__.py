"""The doctor: what stands between a producer and its broker, each finding with its fix."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from producer_core.diagnostics.doctor.finding import DoctorFinding
from producer_core.diagnostics.doctor.kafka_checks import (
    DEFAULT_FEATURES,
    examine_kafka,
    judge_cluster,
    judge_settings,
    judge_topic,
)
from producer_core.diagnostics.doctor.machine_checks import (
    check_redis,
    check_store,
    java,
    java_version,
    judge_clock,
    judge_disk,
    ping,
    versions,
)
from producer_core.kafka.acls import Feature

__all__ = [
    "DEFAULT_FEATURES",
    "DoctorFinding",
    "check_store",
    "examine",
    "java",
    "judge_clock",
    "judge_cluster",
    "judge_disk",
    "judge_settings",
    "judge_topic",
    "ping",
]


def examine(
    servers: str,
    settings: Mapping[str, Any],
    *,
    topics: Sequence[str] = (),
    store: Path | str | None = None,
    redis_url: str | None = None,
    timeout: float = 10.0,
    features: Sequence[Feature] = DEFAULT_FEATURES,
    transactional_id: str | None = None,
) -> Iterator[DoctorFinding]:
    """Every finding, as it is made; whatever fails is a finding too. `features` is what permissions are for."""
    yield from versions()
    yield from examine_kafka(
        servers, settings, topics, timeout, features=features, transactional_id=transactional_id
    )
    yield from check_store(store, time.time())
    yield from check_redis(redis_url)
    yield java(java_version())
