"""The objects that every step of a delivery shares."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from producer_core._internal.wakeup import Wakeup
from producer_core.config import ClientConfig, RetryConfig
from producer_core.delivery.connection_state import ConnectionState
from producer_core.delivery.dedup.duplicates import DuplicateGuard
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.hooks import HookDispatcher
from producer_core.delivery.ordering import Lanes, Ordering
from producer_core.delivery.prober import OnAmbiguous
from producer_core.delivery.retry import RetryManager
from producer_core.delivery.transport import Transport


@dataclass(frozen=True)
class DeliverySettings:
    """How messages are delivered. `clock` returns seconds since 1970."""

    client: ClientConfig
    retry: RetryConfig
    ordering: Ordering = "key"
    on_ambiguous: OnAmbiguous = "retry"
    clock: Callable[[], float] = time.time


@dataclass(frozen=True)
class DeliveryContext:
    """Made once by the engine and passed to each step.

    `pending` holds every message that is accepted and not settled, by its id. Threads that wait for room, or for the end of
    their messages, wait on `settled`: it is notified after each batch of delivery reports.
    """

    settings: DeliverySettings
    transport: Transport
    pending: dict[bytes, Delivery]
    lanes: Lanes
    duplicates: DuplicateGuard
    retries: RetryManager
    hooks: HookDispatcher
    connection: ConnectionState
    settled: Wakeup
