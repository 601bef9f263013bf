"""Summarize delivery and the producers for the overview's headline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from producer_core.dashboard.queries.cause import Cause
from producer_core.dashboard.queries.deaths import FailureCounts
from producer_core.dashboard.queries.topics import TopicRow
from producer_core.dashboard.queries.view import View

GONE = 40.0
"""Seconds after which a producer that was never closed counts as lost."""
MINUTE = 60
LATELY = 900.0
"""Seconds after its end for which an outage is still reported."""
CONNECTING = 30.0
"""Seconds after its start in which a producer without a connection and without an error counts as connecting."""
_BRIEF = 4
"""Seconds without a broker below which an outage is not reported."""
_COVERED = 0.9
"""The share of a minute that samples must cover: a sample a second may come late."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Situation:
    """Holds the numbers of the headline.

    `causes` covers the messages that failed in the range, most pending first. Of the failed messages (`dead`),
    `replayed` were replayed since and `archived` were archived. `connected` and `producers` count running producers;
    `gone` counts producers that stopped reporting within the range without being closed. `degraded` is set while any
    message fails, and `failing` while a topic has a high error rate, however small its share of all messages;
    `failing_topics` lists the topics that fail, worst first. `delivered` counts the messages delivered on topics with
    open failures since the latest failure of each, and `recovered` is set where they are enough to consider the fault
    over. No broker was connected for `cut_off_for` seconds, until `cut_off_ago` seconds ago; `delivered_again` messages
    were acknowledged since then. `circuit` is the text of an alert about an open circuit of a running producer. The latest data of the whole store,
    whatever the filters, is `latest_data_ago` seconds old; None means an empty store. `connecting` is set while every
    running producer without a broker connection has just started and has reported no error.
    """

    acknowledged: int
    dead: int
    window: str
    connected: int
    producers: int
    closed: int
    silent_for: float | None
    connection_error: str | None
    pending: int
    causes: Sequence[Cause] = ()
    gone: int = 0
    gone_for: float = 0.0
    failed_ago: float | None = None
    failing: bool = False
    degraded: bool = False
    failing_topics: Sequence[str] = ()
    delivered: int = 0
    recovered: bool = False
    cut_off_for: float = 0.0
    cut_off_ago: float | None = None
    delivered_again: int = 0
    replayed: int = 0
    archived: int = 0
    stalled: bool = False
    waiting: int = 0
    circuit: str | None = None
    latest_data_ago: float | None = None
    connecting: bool = False
    over: bool = False
    since: float = 0.0
    until: float = 0.0

    @property
    def left(self) -> int:
        """Return the number of failed messages that are neither replayed nor archived."""
        return max(0, self.dead - self.replayed - self.archived)


class BrokerOutage(NamedTuple):
    """Holds the length, the end and the beginning of a broker outage, and the messages acknowledged since its end."""

    seconds: float
    until: float
    delivered: int = 0
    begin: float = 0.0


def of_producer(rows: list[dict[str, Any]], producer: str | None) -> list[dict[str, Any]]:
    return [row for row in rows if producer in (None, row["producer_id"])]


def alive(rows: Rows, now: float) -> Rows:
    return [row for row in rows if row["closed_at"] is None and now - row["seen_at"] <= GONE]


def memory(rows: Rows, now: float) -> tuple[int, int | None]:
    """Return memory and memory limit, in bytes, of the running producer closest to its limit."""
    used = [(row["memory_bytes"], row["memory_limit"]) for row in alive(rows, now)]
    return max(used, key=lambda one: (one[0] / one[1] if one[1] else 0.0, one[0]), default=(0, None))


def situation(
    view: View,
    acknowledged: int,
    failed: FailureCounts,
    still: bool,
    topics: Sequence[TopicRow],
    causes: Sequence[Cause],
    producers: Rows,
    dead: int,
    cut_off: BrokerOutage | None,
    now: float,
) -> Situation:
    """Summarize the range.

    `acknowledged` and `failed` cover the range, `dead` counts all pending dead letters, `still` is set while delivery
    has stalled, and `topics` gives the current state of each topic.
    """
    trouble = max((row.trouble for row in topics), default=0)
    unhandled = [row for row in topics if row.left > 0]
    running = [row for row in producers if row["closed_at"] is None]
    living = alive(running, now)
    lost = [
        now - row["seen_at"]
        for row in running
        if now - row["seen_at"] > GONE and row["seen_at"] >= view.since(now)
    ]
    errors = [row["connection_error"] for row in living if not row["connected"] and row["connection_error"]]
    return Situation(
        acknowledged=acknowledged,
        dead=failed.total,
        replayed=failed.replayed,
        archived=failed.archived,
        window=view.window,
        connected=sum(row["connected"] for row in living),
        producers=len(living),
        closed=len(producers) - len(running),
        silent_for=min((now - row["seen_at"] for row in running), default=None),
        connection_error=errors[0] if errors else None,
        connecting=_connecting(living, now),
        circuit=next((row["circuit"] for row in living if row.get("circuit")), None),
        pending=sum(row["pending"] for row in running),
        causes=causes,
        gone=len(lost),
        gone_for=min(lost, default=0.0),
        failed_ago=None if failed.last is None else now - failed.last,
        failing=trouble > 2,
        degraded=trouble > 1,
        failing_topics=tuple(row.topic for row in topics if row.trouble == trouble > 1),
        delivered=sum(row.delivered for row in unhandled),
        recovered=bool(unhandled) and all(row.recovered for row in unhandled),
        cut_off_for=cut_off.seconds if cut_off else 0.0,
        cut_off_ago=now - cut_off.until if cut_off else None,
        delivered_again=cut_off.delivered if cut_off else 0,
        stalled=still,
        waiting=dead,
        over=view.over(now),
        since=float(view.since(now)),
        until=view.at(now),
    )


def _connecting(rows: Rows, now: float) -> bool:
    """Return whether the producers without a connection have just started; a new one connects with its first message."""
    without = [row for row in rows if not row["connected"]]
    return bool(without) and all(
        not row["connection_error"] and now - row["started_at"] <= CONNECTING for row in without
    )


def outage(rows: Rows, now: float) -> BrokerOutage | None:
    """Return the latest outage in which no producer had a broker connection, according to the client samples.

    Return None where there was none, or only one as brief as any start-up.
    """
    *_, last = [(), *_runs([row for row in rows if _is_cut_off(row)])]
    return _outage_of(last, now)


def outages(rows: Rows, now: float) -> tuple[BrokerOutage, ...]:
    """Return every outage in which no producer had a broker connection, oldest first, without the brief ones."""
    runs = _runs([row for row in rows if _is_cut_off(row)])
    return tuple(found for run in runs if (found := _outage_of(run, now)) is not None)


def partial_outages(rows: Rows, now: float) -> tuple[BrokerOutage, ...]:
    """Return the times that contain an outage but not its beginning and end: minutes and hours, oldest first.

    Samples of seconds are summed as they age. A minute in which some samples had no broker is either partly an outage,
    or some of its producers had none. `seconds` is the sum of the samples per producer, at most the length.
    """
    runs = _runs([row for row in rows if row["seconds"] > 1 and not _is_cut_off(row)])
    found = (BrokerOutage(sum(map(_lasted, run)), min(now, _end(run[-1])), begin=_begin(run)) for run in runs)
    return tuple(one for one in found if one.seconds >= _BRIEF)


def _is_cut_off(row: Mapping[str, Any]) -> bool:
    """Return whether all samples of the row had no broker, and cover its time: a producer may run for a part of it."""
    return bool(row["cut_off"] >= row["samples"] >= _COVERED * row["seconds"])


def _lasted(row: Mapping[str, Any]) -> float:
    return float(row["seconds"] * row["cut_off"] / max(row["samples"], row["seconds"]))


def _begin(run: Rows) -> float:
    return float(run[0]["window_start"])


def _outage_of(cut_off: Rows, now: float) -> BrokerOutage | None:
    seconds = sum(row["seconds"] for row in cut_off)
    if seconds < _BRIEF:
        return None
    return BrokerOutage(seconds, min(now, _end(cut_off[-1])), begin=_begin(cut_off))


def _runs(rows: Rows) -> list[list[Mapping[str, Any]]]:
    """Return the runs of consecutive rows; a gap shorter than `_BRIEF` does not end a run."""
    runs: list[list[Mapping[str, Any]]] = []
    for row in rows:
        if runs and row["window_start"] - _end(runs[-1][-1]) < _BRIEF:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _end(row: Mapping[str, Any]) -> float:
    return float(row["window_start"] + row["seconds"])


def stalled(producers: Rows, last: Mapping[str, Any], now: float) -> bool:
    """Return whether messages are pending, other than for a retry, while none was settled in the last minute."""
    living = alive(producers, now)
    pending = sum(row["pending"] - row["waiting_retry"] for row in living)
    long_enough = all(now - row["started_at"] > MINUTE for row in living)
    return pending > 0 and long_enough and not last["acknowledged"] + last["dead"]
