"""The `demo` command: a tour of the producer's reliability, without a broker to set up."""

from __future__ import annotations

import click

_PARTS = ("basic", "deduplication", "retry", "health", "batch", "all")


@click.command(short_help="See what the producer does: retries, dead letters, health.")
@click.option(
    "--demo",
    "part",
    type=click.Choice(_PARTS),
    default="all",
    show_default=True,
    help="Which part to see.",
)
@click.option(
    "--kafka-servers",
    metavar="HOST:PORT,...",
    help="A Kafka of yours; by default the embedded broker, in this process.",
)
@click.option(
    "--redis-url",
    default="redis://localhost:6379/0",
    show_default=True,
    help="Redis for de-duplication; memory when nobody answers.",
)
@click.option("--disable-dedup", is_flag=True, help="No de-duplication; Redis is not tried.")
def demo(part: str, kafka_servers: str | None, redis_url: str, disable_dedup: bool) -> None:
    """Show what the producer does, part by part, in about ten seconds.

    \b
    basic          10 purchases are sent and acknowledged; latencies
    deduplication  the same purchase five times: sent once
    retry          a broker in trouble: two messages pass at the second try, one dies with its reason
    health         status, metrics, issues
    batch          20 purchases in one call

    \b
      producer-core demo
      producer-core demo --demo retry
      producer-core demo --kafka-servers localhost:9092

    On the embedded broker the retry part disturbs the broker. A Kafka of yours is not disturbed: the demo
    writes to the topics transactions and test-retry-topic there.

    \b
    Exit codes: 0 all is well, 1 messages died on your Kafka, 2 it could not run, 130 interrupted.
    """
    from producer_core.simulate.demo import PARTS, run

    chosen = [name for name in PARTS if part in (name, "all")]
    died = run(
        chosen,
        kafka_servers=kafka_servers,
        redis_url=redis_url,
        deduplicate=not disable_dedup,
        say=click.echo,
    )
    if died:
        raise SystemExit(1)
