"""The `stats` command: print the totals of a store by topic."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core._internal.plural import plural
from producer_core.cli import options, output
from producer_core.metrics.heartbeat import ALIVE
from producer_core.metrics.histogram import quantiles

if TYPE_CHECKING:
    from producer_core.store import Store

_COUNTERS = {
    "sent": "acknowledged",
    "failed": "failed_attempts",
    "duplicate": "duplicates",
    "retried": "retried",
    "dlq": "dead",
}
_ALL: Mapping[str, str | None] = {"application": None, "cluster": None}


@click.command(short_help="Show sent, retried and dead messages by topic.")
@options.store_option
@click.option(
    "--since",
    type=options.TimestampType(),
    help="Since this time: 15m, 2h, or 2026-01-31T12:00; default: all data.",
)
@click.option("--topic", help="Only this topic.")
@options.application
@options.cluster
@options.as_json
def stats(
    store_path: Path | None,
    since: float | None,
    topic: str | None,
    application: str | None,
    cluster: str | None,
    as_json: bool,
) -> None:
    """Show the totals of all producers on the store: sent, failed, retried and dead messages, latencies and rates.

    \b
      producer-core stats --since 15m --application checkout
      producer-core stats --json | jq .messages_sent

    The JSON object has the keys of get_stats(): messages_sent (acknowledged), messages_failed (attempts),
    messages_duplicate, messages_retried, messages_dlq (dead), total_bytes_sent, messages_per_second, error_rate,
    message_error_rate (dead / (sent + dead)), latency_stats (in ms), topic_stats, pending_messages, dlq_stats (pending
    dead letters). A dead letter that a replay delivers counts as dead and as sent.
    """
    from producer_core.store import Store

    store = Store.open(store_path, create=False)
    store.try_recover_statistics()
    origin = {"application": application, "cluster": cluster}
    found = collect(store, since=since, topic=topic, now=time.time(), origin=origin)
    output.emit(found) if as_json else _print(found)


def collect(
    store: Store,
    *,
    since: float | None,
    topic: str | None,
    now: float,
    origin: Mapping[str, str | None] = _ALL,
) -> dict[str, Any]:
    """Return the statistics of get_stats() from the rows of a store. `origin` selects an application and a cluster."""
    query = {"since": None if since is None else int(since), "topic": topic, **origin}
    (totals,) = store.rows("totals", **query)
    topics = store.rows("totals_by_topic", since=query["since"], **origin)
    begin, end = _span(store, query, now)
    counts = {row["bucket"]: row["count"] for row in store.rows("latency_buckets", **query)}
    sent, dead, failed = totals["acknowledged"], totals["dead"], totals["failed_attempts"]
    elapsed = max(end - begin, 1.0)
    pending = {row["topic"]: row["count"] for row in store.rows("dead_letters_by_topic", **origin)}
    pending = {name: number for name, number in pending.items() if topic in (None, name)}
    stats: dict[str, Any] = {
        "store": str(store.path),
        "since": begin or None,
        "until": end or None,
        "elapsed_seconds": elapsed,
        "messages_accepted": totals["accepted"],
        "messages_sent": sent,
        "messages_failed": failed,
        "messages_duplicate": totals["duplicates"],
        "messages_retried": totals["retried"],
        "messages_dlq": dead,
        "possible_duplicates": totals["possible_duplicates"],
        "total_bytes_sent": totals["bytes"],
        "messages_per_second": sent / elapsed,
        "bytes_per_second": totals["bytes"] / elapsed,
        "error_rate": failed / (sent + failed) if sent + failed else 0.0,
        "message_error_rate": dead / (sent + dead) if sent + dead else 0.0,
        "pending_messages": _pending(store, now, origin),
        "topic_stats": {row["topic"]: _of_topic(row) for row in topics if topic in (None, row["topic"])},
        "dlq_stats": {"total_messages": sum(pending.values()), "topic_breakdown": pending},
    }
    if sent and counts:
        stats["latency_stats"] = _latencies(counts, totals["latency_sum"] / sent)
    return stats


def _span(store: Store, query: Mapping[str, Any], now: float) -> tuple[float, float]:
    """Return the start of the first second with data and the end of the last."""
    rows = store.rows("series", bucket=1, **query)
    if not rows:
        return (query["since"] or now), now
    return float(rows[0]["window_start"]), float(rows[-1]["window_start"] + rows[-1]["seconds"])


def _pending(store: Store, now: float, origin: Mapping[str, str | None]) -> int:
    """Return the pending messages of the running producers."""
    producers = store.rows("producers", since=now - ALIVE, **origin)
    return sum(row["pending"] for row in producers if row["closed_at"] is None)


def _of_topic(row: Mapping[str, Any]) -> dict[str, int]:
    return {name: row[column] for name, column in _COUNTERS.items()}


def _latencies(counts: Mapping[int, int], average: float) -> dict[str, float]:
    low, median, p95, p99, high = quantiles(counts, (0.0, 0.5, 0.95, 0.99, 1.0))
    found = {"median_ms": median, "p95_ms": p95, "p99_ms": p99, "min_ms": low, "max_ms": high}
    return {"avg_ms": average * 1000, **{name: (value or 0.0) * 1000 for name, value in found.items()}}


def _print(found: Mapping[str, Any]) -> None:
    if not found["topic_stats"]:
        output.say(f"No messages in {found['store']} in this time range.")
        return
    output.say(
        f"{output.moment(found['since'])} to {output.moment(found['until'])} ({output.duration(found['elapsed_seconds'])})"
    )
    columns = ("topic", "sent", "failed attempts", "retried", "dead", "duplicates", "pending dead letters")
    pending = found["dlq_stats"]["topic_breakdown"]
    output.table(
        columns,
        [
            (
                name,
                row["sent"],
                row["failed"],
                row["retried"],
                row["dlq"],
                row["duplicate"],
                pending.get(name, 0),
            )
            for name, row in found["topic_stats"].items()
        ],
        right=columns[1:],
    )
    output.say(
        f"{plural(found['messages_sent'], 'message')} sent, {found['messages_per_second']:,.1f}/s, "
        f"{output.size(found['total_bytes_sent'])}; {_dead_share(found)}; {found['pending_messages']:,} pending."
    )
    if latencies := found.get("latency_stats"):
        figures = ", ".join(f"{name} {latencies[f'{key}_ms']:,.1f} ms" for name, key in _LATENCIES)
        output.say(f"Latency: {figures}.")


def _dead_share(found: Mapping[str, Any]) -> str:
    """Return the share of dead letters with its base, in which a replay settles its message a second time."""
    settled = found["messages_sent"] + found["messages_dlq"]
    return f"{found['message_error_rate']:.2%} of {output.became_dead(settled)}"


_LATENCIES = (("median", "median"), ("p95", "p95"), ("p99", "p99"), ("average", "avg"))
