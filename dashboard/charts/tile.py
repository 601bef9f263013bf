"""Build the tiles of the overview: a number, its course, its change since the previous period, and its definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from producer_core.dashboard.queries import QUANTILES, OverviewPage
from producer_core.dashboard.wording import (
    CUSTOM,
    VERDICTS,
    NumberChange,
    change,
    compact,
    connection,
    milliseconds,
    percent,
    plural,
    rate,
    retries,
    size,
)
from producer_core.metrics.histogram import RELATIVE_ERROR

_SHARES = ("50%", "95%", "99%", "99.9%")
_NO_CHANGE = NumberChange("", "", "")


class Tile(NamedTuple):
    """Holds the content of a tile.

    `change` compares with the previous period, `note` is a line below it, `more` is the tooltip, and `page` is the page
    that the tile links to. `course` and `counts` are the values over the range as a line and as bars, oldest first, with
    None where no data exists.
    """

    label: str
    value: str
    change: NumberChange = _NO_CHANGE
    note: str = ""
    more: str = ""
    page: str | None = None
    course: tuple[float | None, ...] = ()
    counts: tuple[int | None, ...] = ()


KEY_FIGURES = ("Error rate", "Throughput", "Latency p50", "Latency p99", "Dead letters")
"""The labels of the tiles at the top of the overview; the others follow below the charts."""

_THROUGHPUT = {
    False: "Acknowledged messages per second over the last minute; the sum of the topics below.",
    True: "Acknowledged messages per second over the range; the sum of the topics below.",
}
"""The definition of the throughput, by whether the range has ended."""


def tiles(page: OverviewPage) -> tuple[Tile, ...]:
    now, before = page.sums, page.before
    earlier = _earlier(page)

    def tile(
        label: str,
        value: float | None,
        previous: float | None,
        format_: Callable[[float | None], str],
        more: str,
        *,
        good: int = 0,
        least: float = 0.0,
        note: str = "",
    ) -> Tile:
        change_ = change(value, previous, format_, good=good, least=least)
        return Tile(label, format_(value), change_, note, f"{more} {earlier}: {format_(previous)}.")

    accuracy = f"Accurate to {percent(RELATIVE_ERROR)}, from merged histograms."
    latencies = [
        tile(
            f"Latency p{100 * quantile:g}", value, previous, milliseconds,
            f"{share} of messages are acknowledged within this time. {accuracy}", good=-1, least=0.001,
        )
        for quantile, share, value, previous in zip(QUANTILES, _SHARES, now.latency, before.latency, strict=True)
    ]  # fmt: skip
    return (
        tile(
            "Error rate", now.error_rate, before.error_rate, percent,
            "Failed messages as a share of settled messages.", good=-1, least=0.0005,
        ),
        tile(
            "Throughput", now.throughput, before.throughput, rate,
            _THROUGHPUT[page.situation.over],
        ),
        *latencies,
        _pending(page),
        _dead_letters(page),
        tile(
            "Retry success", now.retry_success, before.retry_success, percent,
            retries(now.retry_successes, now.given_up),
            good=1, least=0.01,
        ),
        _duplicates(page, tile),
        _memory(page),
        _connection(page, tile),
    )  # fmt: skip


def key_tiles(page: OverviewPage) -> tuple[Tile, ...]:
    """Return the key figures, each with its course over the range."""
    found, courses = {tile.label: tile for tile in tiles(page)}, page.courses
    lines = {
        "Error rate": courses.error_rate,
        "Throughput": courses.throughput,
        "Latency p50": courses.percentile(QUANTILES.index(0.5)),
        "Latency p99": courses.percentile(QUANTILES.index(0.99)),
    }
    bars = {"Dead letters": courses.dead}
    return tuple(
        found[label]._replace(course=lines.get(label, ()), counts=bars.get(label, ()))
        for label in KEY_FIGURES
    )


def other_tiles(page: OverviewPage) -> tuple[Tile, ...]:
    """Return the figures that are not key figures."""
    return tuple(tile for tile in tiles(page) if tile.label not in KEY_FIGURES)


def _earlier(page: OverviewPage) -> str:
    return "Previous period" if page.window == CUSTOM else f"Previous {page.window}"


def _pending(page: OverviewPage) -> Tile:
    retries = f"{page.waiting:,} waiting for a retry" if page.waiting else "none waiting for a retry"
    peak = f"queue peak {percent(page.sums.fill_highest)}" if page.sums.samples else "no queue data"
    return Tile(
        "Pending",
        compact(page.pending),
        _NO_CHANGE,
        f"{page.waiting:,} waiting for a retry" if page.pending and page.waiting else peak,
        f"Currently accepted but not yet acknowledged or failed; {retries}. Earlier values are not kept. Peak usage of the client "
        f"queue: {percent(page.sums.fill_highest)} in the range, {percent(page.before.fill_highest)} in the previous period.",
    )


def _dead_letters(page: OverviewPage) -> Tile:
    counts = [f"{count:,} {verdict.replace('_', ' ')}" for verdict, count in page.dead_by_verdict.items()]
    details = [
        f"{count:,} {verdict.replace('_', ' ')}: {VERDICTS.get(verdict, 'unknown')}"
        for verdict, count in page.dead_by_verdict.items()
    ]
    added = sum(cause.dead for cause in page.causes)
    new = (
        NumberChange(f"+{added:,} in the range", f"{added:,} more in the range", "worse")
        if added
        else _NO_CHANGE
    )
    return Tile(
        "Dead letters",
        compact(page.dead_total),
        new,
        ", ".join(counts) or "none pending",
        f"Pending: replay or clear them. {'; '.join(details)}",
        "dead-letters",
    )


def _duplicates(page: OverviewPage, tile: Callable[..., Tile]) -> Tile:
    now, before = page.sums, page.before
    possible = plural(now.possible_duplicates, "possible duplicate") if now.possible_duplicates else ""
    found: Tile = tile(
        "Suppressed duplicates", now.suppressed, before.suppressed, percent,
        f"Deduplication suppressed {plural(now.duplicates, 'message')}; the percentage is of all submitted messages. "
        f"{plural(now.possible_duplicates, 'message')} {'was' if now.possible_duplicates == 1 else 'were'} "
        "resent after an ambiguous outcome.",
        note=possible,
    )  # fmt: skip
    return found._replace(value=compact(now.duplicates)) if not now.duplicates else found


def _memory(page: OverviewPage) -> Tile:
    used, limit = page.memory
    share = percent(used / limit) if limit else ""
    note = f"{share} of {size(limit)}" if limit else "no known limit" if used else "no producers running"
    tone = "worse" if limit and used > 0.9 * limit else ""
    return Tile(
        "Memory",
        size(used) if used else "–",
        NumberChange(note, note, tone) if tone else _NO_CHANGE,
        "" if tone else note,
        "Current usage of the running producer closest to its limit. Earlier values are not kept.",
    )


def _connection(page: OverviewPage, tile: Callable[..., Tile]) -> Tile:
    found: Tile = tile(
        "Connection", page.sums.connected, page.before.connected, percent,
        "Running producers connected to a broker, and the share of time with a connection.",
        good=1, least=0.001,
    )  # fmt: skip
    share = page.sums.connected
    note = f"{percent(share)} of the time" if share is not None else ""
    return found._replace(value=connection(page.situation), note=note)
