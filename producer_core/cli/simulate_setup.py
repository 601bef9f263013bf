"""The set-up of `simulate`: shop settings, a connected producer, and generated records."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer_core._internal.environment_settings import is_store_disabled
from producer_core.cli import open_store, output
from producer_core.cli.lazy_group import Failed

if TYPE_CHECKING:
    from producer_core.simulate.config import DataGenerationConfig
    from producer_core.simulate.generator import ECommerceDataGenerator
    from producer_core.simulate.orchestrator import DataGenerationOrchestrator

TYPES = ("transactions", "user-events", "product-updates")


def shop_of(path: Path | None) -> DataGenerationConfig:
    from producer_core.simulate.config import DataGenerationConfig

    if path is None:
        return DataGenerationConfig()
    try:
        shop = DataGenerationConfig.from_json(path.read_text())
        problems = shop.validate()
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{path} cannot be read: {error}.") from error
    except (TypeError, AttributeError) as error:
        raise Failed(f"A setting in {path} has the wrong type: {error}.") from error
    if problems:
        raise Failed(f"{path}: {'; '.join(problems)}.")
    return shop


def store_of(path: Path | None, no_store: bool) -> Any:
    disabled = no_store or (path is None and is_store_disabled(os.environ))
    return None if disabled else open_store.opened(path)


@contextlib.contextmanager
def orchestrator(
    shop: DataGenerationConfig, address: str, client: dict[str, Any], store: Any, seed: int | None
) -> Iterator[DataGenerationOrchestrator]:
    """Yield an orchestrator with a connected producer. Print its totals at the end; exit with 1 after dead letters."""
    from producer_core.config import client_config
    from producer_core.kafka.cluster import Cluster
    from producer_core.producer.producer import ReliableKafkaProducer
    from producer_core.simulate.orchestrator import DataGenerationOrchestrator

    cluster_id = Cluster(client_config(address, client)).view(timeout=10.0).cluster_id
    producer = ReliableKafkaProducer(address, client, store=store, cluster_id=cluster_id or None)
    generation = DataGenerationOrchestrator(shop, producer=producer, seed=seed)
    try:
        yield generation
    finally:
        generation.close()
        report = producer.close(30)
        snapshot = producer.metrics.snapshot()
        output.table(
            ("topic", "acknowledged", "retried", "dead"),
            [
                (topic, counters.acknowledged, counters.retried, counters.dead)
                for topic, counters in sorted(snapshot.topics.items())
            ],
            right=("acknowledged", "retried", "dead"),
        )
    if report.dead or report.lost:
        raise SystemExit(1)


def plan(
    shop: DataGenerationConfig,
    topics: list[str],
    duration: float,
    multiplier: float,
    rate: float | None,
    seed: int | None,
) -> None:
    from producer_core.simulate.generator import ECommerceDataGenerator
    from producer_core.simulate.rates import Rates
    from producer_core.simulate.traffic import TrafficSource

    generator = ECommerceDataGenerator(shop, seed=seed)
    source, rates = (
        TrafficSource(generator, purchases=False),
        Rates(generator, topics, multiplier=multiplier, total=rate),
    )
    output.say(f"Plan for {output.duration(duration)}; nothing is sent (--dry-run). Rates for this hour:")
    output.table(
        ("topic", "messages/s", "messages"),
        [(topic, rates.of(topic), round(rates.of(topic) * duration)) for topic in topics],
        right=("messages/s", "messages"),
    )
    for topic in topics:
        output.say(f"\n{topic}: {json.dumps(source.next(topic))}")


def records_of(
    generator: ECommerceDataGenerator, kind: str, count: int, start: datetime, end: datetime
) -> Iterator[dict[str, Any]]:
    makers = {
        "transactions": generator.iter_transactions,
        "user-events": generator.iter_user_events,
        "product-updates": generator.iter_product_updates,
    }
    if kind != "all":
        yield from makers[kind](count, start, end)
        return
    for index, topic in enumerate(TYPES):
        share = count // 3 + (index < count % 3)
        for record in makers[topic](share, start, end):
            yield {"topic": topic, **record}
