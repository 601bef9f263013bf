"""The `demo` command: demonstrate the producer without setting up a broker."""

from __future__ import annotations

import click

_PARTS = ("basic", "deduplication", "retry", "health", "batch", "all")


@click.command(short_help="Demonstrate retries, dead letters, deduplication and health.")
@click.option(
    "--demo",
    "part",
    type=click.Choice(_PARTS),
    default="all",
    show_default=True,
    help="Part of the demo.",
)
@click.option(
    "--kafka-servers",
    metavar="HOST:PORT,...",
    help="Your Kafka brokers; default: the embedded broker.",
)
@click.option(
    "--redis-url",
    default="redis://localhost:6379/0",
    show_default=True,
    help="Redis for deduplication; falls back to memory.",
)
@click.option("--disable-dedup", is_flag=True, help="Disable deduplication and Redis.")
def demo(part: str, kafka_servers: str | None, redis_url: str, disable_dedup: bool) -> None:
    """Demonstrate the producer, part by part, in about ten seconds.

    \b
    basic          send 10 purchases and print their latencies
    deduplication  send the same purchase five times; one is delivered
    retry          a failing broker: two messages succeed on retry, one becomes a dead letter
    health         print status, metrics and issues
    batch          send 20 purchases in one call

    \b
      producer-core demo
      producer-core demo --demo retry
      producer-core demo --kafka-servers localhost:9092

    The retry part injects faults into the embedded broker, never into your Kafka. On your Kafka the demo writes
    only to the topics transactions and test-retry-topic.

    \b
    Exit codes: 0 success, 1 dead letters on your Kafka, 2 the demo could not run, 130 interrupted.
    """
    from producer_core.simulate.demo import PARTS, run

    chosen = [name for name in PARTS if part in (name, "all")]
    dead_letters = run(
        chosen,
        kafka_servers=kafka_servers,
        redis_url=redis_url,
        deduplicate=not disable_dedup,
        say=click.echo,
    )
    if dead_letters:
        raise SystemExit(1)
