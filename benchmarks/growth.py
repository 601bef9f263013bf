"""Measure how the cost of a send grows with payload, network latency, topics, partitions, threads, failures and history.

    python -m benchmarks.growth --rounds 5

Each axis has a plot in `benchmarks/plots`; its points are JSON lines in `benchmarks/results/growth.jsonl`. Two manual loops
with `orjson`, one with a poll thread and one that polls inline, run beside the producer, to separate the cost of the
producer from that of the client and the broker. The faster one is the peer. Brokers share the processors, so the
table begins with the CPU time per message.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from benchmarks import history_store, plot
from benchmarks.frame import (
    Bench,
    Case,
    Outcome,
    Runs,
    Target,
    at_least,
    at_most,
    main,
    markdown,
    spread,
    times,
)
from benchmarks.guarantees import message
from benchmarks.peers import ByHand
from benchmarks.stage import KINDS, Broker, Kind
from benchmarks.threads import in_threads

QUESTION = "How does the cost of a send grow, and where does it grow steeply?"
LIMITATIONS = (
    "two dimensions at once (a thousand topics over a long round trip); sizes above `message.max.bytes`, which are "
    "rejected; more than two cores, which brokers and sender share here."
)
_DIFFERENT = 2_000
_BATCH = 1_000

Send = Callable[[str, Any, str], Any]


@contextmanager
def _by_hand(
    servers: str, folder: Path, *, poll_every: int = 0, **settings: Any
) -> Iterator[tuple[Send, Callable[[], None]]]:
    loop = ByHand(servers, orjson.dumps, poll_every=poll_every, **settings)
    try:
        yield loop.send, loop.flush
    finally:
        loop.close()


@contextmanager
def _ours(servers: str, folder: Path, **settings: Any) -> Iterator[tuple[Send, Callable[[], None]]]:
    from producer_core import ReliableKafkaProducer

    producer = ReliableKafkaProducer(servers, store=folder / "store.duckdb", config=settings)

    def flush() -> None:
        producer.flush(300)
        assert not producer.pending_count

    yield producer.send_message, flush
    producer.close()


@contextmanager
def _slower_by_hand(servers: str, folder: Path, **settings: Any) -> Iterator[tuple[Send, Callable[[], None]]]:
    """Compute for `_COMPUTED_S` before each send, as a sender does that has more to do for a message."""
    with _by_hand(servers, folder, poll_every=1000, **settings) as (send, flush):

        def slower(topic: str, value: Any, key: str) -> None:
            until = time.perf_counter() + _COMPUTED_S
            while time.perf_counter() < until:
                pass
            send(topic, value, key)

        yield slower, flush


_COMPUTED_S = 20e-6
_LOOPS: Mapping[str, Any] = {"by hand": _by_hand, "by hand, inline": partial(_by_hand, poll_every=1000)}
_WAYS: Mapping[str, Any] = {**_LOOPS, "ours": _ours}
_STATISTICS = "by hand, statistics"
SLOWER = "by hand, slower"
_FREQUENT = "ours, statistics"
_EXPERIMENTS: Mapping[str, Any] = {
    SLOWER: _slower_by_hand,
    _FREQUENT: partial(_ours, statistics_interval_ms=100),
    _STATISTICS: partial(
        _by_hand, poll_every=1000, **{"statistics.interval.ms": 1000, "stats_cb": orjson.loads}
    ),
}
"""Variants that show the cause of a cliff."""
TITLES = {
    SLOWER: "manual loop that polls every 1,000 messages and computes for 20 µs before each",
    _STATISTICS: "manual loop that also reads librdkafka's statistics each second",
    _FREQUENT: "producer_core, statistics every 0.1 s instead of every second",
    "by hand": "manual loop, poll thread",
    "by hand, inline": "manual loop, polls every 1,000 messages",
    "ours": "producer_core",
}
"""The titles of columns and lines; the keys are the names of the cases in saved results."""


def one(
    *, way: str, count: int, servers: str, size: int = 0, threads: int = 1, failing: float = 0.0, topics: int = 1,
    topic: str = "", prefix: str = "", refused: str = "",
) -> dict[str, float]:  # fmt: skip
    """Return messages per second until the last is settled, CPU time per message in microseconds, and MB per second."""
    values = [
        _sized(message(number), size)
        for number in range(max(20, min(_DIFFERENT, count, 20_000_000 // max(size, 1))))
    ]
    names = [f"{prefix}{number}" for number in range(topics)] if prefix else [topic]
    with (
        tempfile.TemporaryDirectory() as folder,
        {**_WAYS, **_EXPERIMENTS}[way](servers, Path(folder)) as (send, flush),
    ):
        for place, name in enumerate([*names, *([refused] if refused and way.startswith("ours") else [])]):
            send(name, values[place % len(values)], "warm")
        flush()
        started, cpu = time.perf_counter(), time.process_time()
        in_threads(
            threads, lambda first: _send(send, names, refused, failing, values, range(first, count, threads))
        )
        flush()
        took, spent = time.perf_counter() - started, time.process_time() - cpu
    return {
        "rate": count / took,
        "cpu": 1e6 * spent / count,
        "MB/s": count * len(orjson.dumps(values[0])) / took / 1e6,
    }


def _sized(value: dict[str, Any], size: int) -> dict[str, Any]:
    """Pad the message with a note to `size` bytes; 0 leaves it unchanged."""
    missing = size - len(orjson.dumps({**value, "note": ""}))
    if not size:
        return value
    return (
        {**value, "note": "x" * missing}
        if missing > 0
        else {"order": value["order"], "note": "x" * max(0, size - 30)}
    )


def _send(
    send: Send, names: Sequence[str], refused: str, failing: float, values: Sequence[Any], numbers: range
) -> None:
    """Send the share `failing` to the rejecting topic, evenly distributed."""
    for number in numbers:
        bad = failing and int((number + 1) * failing) > int(number * failing)
        name = refused if bad else names[number % len(names)]
        send(name, values[number % len(values)], f"key-{number % 10_000}")


@dataclass(frozen=True)
class Axis:
    """One plot: its points with their settings, its broker, and the displayed value."""

    name: str
    title: str
    across: str
    places: Mapping[str, Mapping[str, Any]]
    broker: Kind = "one"
    shown: str = "rate"
    up: str = "messages a second"
    experiments: Sequence[str] = ()


_MANY = 100_000
_PAYLOAD = 60_000_000
"""Maximum total bytes of a run."""


def _sizes() -> Mapping[str, Mapping[str, Any]]:
    words = {"100 B": 100, "1 kB": 1_000, "10 kB": 10_000, "100 kB": 100_000, "1 MB": 980_000}
    return {word: {"size": size, "count": min(_MANY, _PAYLOAD // size)} for word, size in words.items()}


AXES: Sequence[Axis] = (
    Axis("payload", "Throughput by the size of a message", "size of the value (1 MB: 980 kB, below the client's limit)", _sizes()),
    Axis("topics", "Throughput by the number of topics", "topics, one partition each", {
        str(count): {"topics": count, "count": _MANY} for count in (1, 10, 100, 1_000)
    }, experiments=(_STATISTICS,)),
    Axis("partitions", "Throughput by the number of partitions", "partitions of one topic", {
        str(count): {"partitions": count, "count": _MANY} for count in (1, 10, 100, 1_000)
    }),
    Axis("threads", "Throughput by the number of threads that send", "threads, one producer", {
        str(count): {"threads": count, "count": _MANY} for count in (1, 2, 4, 8, 16)
    }),
    Axis("failures", "Throughput by the share that the broker rejects", "rejected permanently: a dead letter each", {
        f"{share:.0%}": {"failing": share, "count": 20_000} for share in (0.0, 0.01, 0.1, 0.25, 0.5)
    }, broker="embedded", experiments=(_FREQUENT,)),
    Axis("round-trip", "Throughput by the round trip to the broker", "milliseconds added to every request, in the proxy", {
        str(round_trip): {"round_trip": round_trip, "count": 50_000} for round_trip in (0, 1, 20, 100)
    }, broker="proxied"),
)  # fmt: skip
HISTORY = Axis(
    "history", "A live refresh of the overview by the length of the history", "history, at a thousand messages a second",
    {"1 hour": {"hours": 1}, "1 day": {"hours": 24}, "7 days": {"hours": 168}, "30 days": {"hours": 720}, "90 days": {"hours": 2160}},
    shown="ms", up="milliseconds",
)  # fmt: skip
_WINDOWS = ("15 min", "30 days")
_CLIFFS: Mapping[str, tuple[str, str, float]] = {
    "topics": ("ours", "1000", 0.5),
    "failures": (_FREQUENT, "50%", 0.25),
}
"""The points at which the producer once was much slower than a manual loop: the case, and the share that it must reach.

A rejected message costs more by design: it is a dead letter in the store, where the loop only counts it. Its verdict
waits for the next statistics, up to a second after the last message of a run. The shorter interval takes most of this
wait out of the rate.
"""
_FIXED_COSTS: Mapping[str, tuple[str, str]] = {"payload": ("100 B", "1 kB"), "threads": ("16", "1")}
"""The points at which the ratio to a manual loop is low because a message costs the loop little, each with a second point.

The producer adds the same CPU time to a message at both: a fixed cost of each message, not a cliff.
"""


def measure(bench: Bench) -> Outcome:
    parts, targets = [], []
    for axis in AXES:
        runs = _along(bench, axis)
        parts.append(_drawn(bench, axis, runs, [*_WAYS, *axis.experiments]))
        targets += _targets(axis, runs)
    parts.append(_drawn(bench, HISTORY, _history(bench), _WINDOWS))
    return Outcome("\n\n".join(parts), targets)


def _targets(axis: Axis, runs: Runs) -> Iterator[Target]:
    """Yield the targets of an axis: no point may be a cliff, compared with the faster loop."""
    if axis.name in _CLIFFS:
        way, place, bound = _CLIFFS[axis.name]
        if f"{way}, {place}" in runs:
            ratios = runs.ratios(f"{way}, {place}", _faster(runs, place))
            yield at_least(f"{axis.name}, {place}: {TITLES[way]} vs. the faster manual loop", bound, ratios)
    if axis.name in _FIXED_COSTS:
        place, base = _FIXED_COSTS[axis.name]
        if f"ours, {place}" in runs and f"ours, {base}" in runs:
            shares = [at / usual for at, usual in zip(_added(runs, place), _added(runs, base), strict=True)]
            text = f"{axis.name}, {place}: CPU time that producer_core adds to a message, vs. {base}"
            yield at_most(text, 1.5, shares, "x", ".2f")


def _added(runs: Runs, place: str) -> list[float]:
    """Return the CPU time per message that the producer adds to the faster loop, in microseconds, by round."""
    return runs.differences(f"ours, {place}", _faster(runs, place), "cpu")


def _faster(runs: Runs, place: str) -> str:
    """Return the case of the faster manual loop at a point."""
    loops = [f"{loop}, {place}" for loop in _LOOPS]
    return max((case for case in loops if case in runs), key=lambda case: runs.median(case, "rate"))


def _round_count(bench: Bench) -> int:
    """Return fewer rounds, because there are many points and only the shape matters."""
    return max(1, bench.rounds * 3 // 5)


def _along(bench: Bench, axis: Axis) -> Runs:
    broker = bench.stage.broker(axis.broker)
    places = dict(list(axis.places.items())[1:2]) if bench.quick else axis.places
    cases, where = [], {}
    for place, settings in places.items():
        for way in (*_WAYS, *axis.experiments):
            given = {
                name: value for name, value in settings.items() if name not in ("partitions", "round_trip")
            }
            case = Case(
                f"{way}, {place}",
                "growth:one",
                {**given, "way": way, "count": bench.size(given["count"], 100)},
            )
            cases.append(case)
            where[case.name] = settings
    return bench.run(
        axis.name,
        cases,
        rounds=_round_count(bench),
        around=lambda case: _prepared(broker, axis, where[case.name]),
    )


@contextmanager
def _prepared(broker: Broker, axis: Axis, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Create the topics of one run and inject its delay or rejections."""
    if axis.name == "topics":
        with broker.topics(settings["topics"]) as named:
            yield named
        return
    if axis.name == "round-trip":
        broker.delay(settings["round_trip"] / 1000)
    with ExitStack() as stack:
        prepared: dict[str, Any] = stack.enter_context(broker.topic(settings.get("partitions", 6)))
        if axis.name == "failures":
            broker.cluster.reject("refused", "POLICY_VIOLATION")
            stack.callback(broker.cluster.accept, "refused")
            prepared = {**prepared, "refused": "refused"}
        yield prepared


def _history(bench: Bench) -> Runs:
    places = dict(list(HISTORY.places.items())[:1]) if bench.quick else HISTORY.places
    with tempfile.TemporaryDirectory() as folder:
        for place, settings in places.items():
            history_store.make(Path(folder) / place, bench.size(3600, 36) * settings["hours"])
        cases = [
            Case(f"{window}, {place}", "overview:one", {"window": window, "looks": bench.size(30, 2)})
            for place in places
            for window in _WINDOWS
        ]

        @contextmanager
        def around(case: Case) -> Iterator[Mapping[str, Any]]:
            yield {"store": str(Path(folder) / case.name.partition(", ")[2])}

        return bench.run(HISTORY.name, cases, rounds=_round_count(bench), around=around)


def _drawn(bench: Bench, axis: Axis, runs: Runs, lines: Sequence[str]) -> str:
    """Write the plot and return the section about it."""
    measured = {
        line: {
            place: runs.numbers(f"{line}, {place}", axis.shown)
            for place in axis.places
            if f"{line}, {place}" in runs
        }
        for line in lines
    }
    names = {line: f"{line}, range" if axis is HISTORY else TITLES[line] for line in lines}
    file = bench.plots / f"{axis.name}.svg"
    plot.draw(
        file, title=axis.title, places=list(axis.places), across=axis.across, up=axis.up,
        lines={names[line]: measured[line] for line in lines},
    )  # fmt: skip
    where = "" if axis is HISTORY else f" On {KINDS[axis.broker]}."
    picture = f"![{axis.title}](plots/{axis.name}.svg)"
    return f"**{axis.title}.**{where}\n\n{picture}\n\n{_table(axis, runs, lines)}"


def _table(axis: Axis, runs: Runs, lines: Sequence[str]) -> str:
    form = partial(spread, form=",.1f" if axis is HISTORY else ",.0f")
    rows = []
    for place in axis.places:
        names = [f"{line}, {place}" for line in lines]
        if all(name in runs for name in names):
            cells = [form(runs.numbers(name, axis.shown)) for name in names]
            rows.append((place, *([] if axis is HISTORY else _compared(runs, place)), *cells))
    head = (
        axis.across,
        *([] if axis is HISTORY else _COMPARED),
        *(TITLES.get(line, line) for line in lines),
    )
    return markdown(head, rows)


_COMPARED = (
    "producer_core: CPU, µs per message",
    "more than the faster loop",
    "CPU x faster loop",
    "msg/s x faster loop",
)


def _compared(runs: Runs, place: str) -> tuple[str, ...]:
    """Return the cells that compare the producer with the faster manual loop, CPU time first."""
    case, loop = f"ours, {place}", _faster(runs, place)
    return (
        f"{runs.median(case, 'cpu'):.1f}",
        f"{median(_added(runs, place)):.1f}",
        times(runs.ratio(case, loop, "cpu")),
        times(runs.ratio(case, loop)),
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
