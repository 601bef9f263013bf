"""The tiles of the overview: a number, how it was the same time before, and what it is."""

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

_SHARES = ("half", "95 of 100", "99 of 100", "999 of 1,000")
_NOTHING = NumberChange("", "", "")


class Tile(NamedTuple):
    """`change` is against the same time before, `note` a line that stands in its place or below it, `more` is explained
    under the pointer; `page` is where a click leads.
    """

    label: str
    value: str
    change: NumberChange = _NOTHING
    note: str = ""
    more: str = ""
    page: str | None = None


_PACES = {
    False: "Acknowledged messages of the last minute, by its seconds; those of the topics below add up to it.",
    True: "Acknowledged messages of the range, by its seconds; those of the topics below add up to it.",
}


def tiles(page: OverviewPage) -> tuple[Tile, ...]:
    now, before = page.sums, page.before
    earlier = _earlier(page)

    def tile(
        label: str,
        value: float | None,
        was: float | None,
        say: Callable[[float | None], str],
        more: str,
        *,
        good: int = 0,
        least: float = 0.0,
        note: str = "",
    ) -> Tile:
        change_ = change(value, was, say, good=good, least=least)
        return Tile(label, say(value), change_, note, f"{more} {earlier}: {say(was)}.")

    near = f"To {percent(RELATIVE_ERROR)}, from merged histograms."
    latencies = [
        tile(
            f"Latency p{100 * quantile:g}", value, was, milliseconds,
            f"In this time {share} of the messages are acknowledged. {near}", good=-1, least=0.001,
        )
        for quantile, share, value, was in zip(QUANTILES, _SHARES, now.latency, before.latency, strict=True)
    ]  # fmt: skip
    return (
        tile(
            "Error rate", now.error_rate, before.error_rate, percent,
            "Messages that died, of all that were settled in the range.", good=-1, least=0.0005,
        ),
        tile(
            "Throughput", now.throughput, before.throughput, rate,
            _PACES[page.situation.over],
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


def _earlier(page: OverviewPage) -> str:
    return "As long a time before it" if page.window == CUSTOM else f"The {page.window} before"


def _pending(page: OverviewPage) -> Tile:
    retries = f"{plural(page.waiting, 'message')} of them for a retry" if page.waiting else "none for a retry"
    full = (
        f"queue {percent(page.sums.fill_highest)} full at most" if page.sums.samples else "no queue heard of"
    )
    return Tile(
        "Pending",
        compact(page.pending),
        _NOTHING,
        full if page.pending == 0 or not page.waiting else f"{page.waiting:,} for a retry",
        f"Accepted, and neither acknowledged nor dead yet, right now; {retries}. How many waited before is not kept; "
        f"the client's queue was {percent(page.sums.fill_highest)} full at most in the range, "
        f"{percent(page.before.fill_highest)} before it.",
    )


def _dead_letters(page: OverviewPage) -> Tile:
    counts = [f"{count:,} {verdict.replace('_', ' ')}" for verdict, count in page.dead_by_verdict.items()]
    told = [
        f"{count:,} {verdict.replace('_', ' ')}: {VERDICTS.get(verdict, 'unknown')}"
        for verdict, count in page.dead_by_verdict.items()
    ]
    came = sum(cause.dead for cause in page.causes)
    new = (
        NumberChange(f"+{came:,} in the range", f"{came:,} more in the range", "worse") if came else _NOTHING
    )
    return Tile(
        "Dead letters",
        compact(page.dead_total),
        new,
        ", ".join(counts) or "none wait",
        f"They wait for a decision: replay or clear. {'; '.join(told)}",
        "dead-letters",
    )


def _duplicates(page: OverviewPage, tile: Callable[..., Tile]) -> Tile:
    now, before = page.sums, page.before
    doubt = f"{now.possible_duplicates:,} may be there twice" if now.possible_duplicates else ""
    found: Tile = tile(
        "Duplicates kept out", now.suppressed, before.suppressed, percent,
        f"De-duplication kept {plural(now.duplicates, 'message')} from being sent twice; the share is of all that were "
        f"given to send. {plural(now.possible_duplicates, 'message')} went out again after an unclear outcome.",
        note=doubt,
    )  # fmt: skip
    return found._replace(value=compact(now.duplicates)) if not now.duplicates else found


def _memory(page: OverviewPage) -> Tile:
    used, limit = page.memory
    share = percent(used / limit) if limit else ""
    note = f"{share} of {size(limit)}" if limit else "no limit known" if used else "no producer runs"
    tone = "worse" if limit and used > 0.9 * limit else ""
    return Tile(
        "Memory",
        size(used) if used else "–",
        NumberChange(note, note, tone) if tone else _NOTHING,
        "" if tone else note,
        "Of the running producer's process that is nearest to its limit, right now. Earlier values are not kept.",
    )


def _connection(page: OverviewPage, tile: Callable[..., Tile]) -> Tile:
    found: Tile = tile(
        "Connection", page.sums.connected, page.before.connected, percent,
        "Producers that reach a broker, of those that run; below it the share of the time in which they did.",
        good=1, least=0.001,
    )  # fmt: skip
    share = page.sums.connected
    note = f"{percent(share)} of the time" if share is not None else ""
    return found._replace(value=connection(page.situation), note=note)
