"""The checks of `producer-core doctor`: brokers, topics, store and machine, each finding with its fix."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from producer_core._internal.environment_settings import STORE, is_store_disabled
from producer_core._internal.schema_settings import with_registry
from producer_core.diagnostics.doctor.approval_checks import check_approvals
from producer_core.diagnostics.doctor.compression_checks import check_compression
from producer_core.diagnostics.doctor.finding import DoctorFinding
from producer_core.diagnostics.doctor.kafka_checks import (
    DEFAULT_FEATURES,
    check_cluster,
    check_kafka,
    check_settings,
    check_topic,
)
from producer_core.diagnostics.doctor.machine_checks import (
    check_clock,
    check_disk,
    check_java,
    check_locally,
    check_redis,
    check_store,
    java_version,
    ping,
    versions,
)
from producer_core.diagnostics.doctor.schema_checks import check_schemas
from producer_core.kafka.acls import Feature

__all__ = [
    "DEFAULT_FEATURES",
    "DoctorFinding",
    "check_clock",
    "check_cluster",
    "check_disk",
    "check_java",
    "check_locally",
    "check_settings",
    "check_store",
    "check_topic",
    "examine",
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
    schema_registry: str | None = None,
) -> Iterator[DoctorFinding]:
    """Yield each finding as it is made. A failed check is a finding too. `features` determines the required permissions.

    The schema registry of the settings is checked, or the one at `schema_registry`, with the subjects of the topics.
    """
    used = with_registry(settings, schema_registry)
    yield from versions()
    yield from check_kafka(
        servers, used, topics, timeout, features=features, transactional_id=transactional_id
    )
    yield from check_schemas(servers, settings, topics, timeout, url=schema_registry)
    yield from _check_store(store, topics)
    yield from check_redis(redis_url)
    yield check_java(java_version())


def _check_store(store: Path | str | None, topics: Sequence[str]) -> Iterator[DoctorFinding]:
    if store is None and is_store_disabled(os.environ):
        yield DoctorFinding("store", "ok", f"{STORE}=none disables the store.")
        return
    yield from check_store(store, time.time())
    yield from check_approvals(store)
    yield from check_compression(store, topics)
