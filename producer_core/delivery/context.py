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
    """Settings of the delivery. `clock` returns seconds since 1970."""

    client: ClientConfig
    retry: RetryConfig
    ordering: Ordering = "key"
    on_ambiguous: OnAmbiguous = "retry"
    clock: Callable[[], float] = time.time


@dataclass(frozen=True)
class DeliveryContext:
    """Holds what the steps of a delivery share; the engine creates it once.

    `pending` maps ids to the messages that are accepted and not settled. Threads wait on `settled` for room, or until their
    messages are settled: it is notified after each batch of delivery reports.
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
