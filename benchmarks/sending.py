"""Compare the cost of a send with a manual loop around confluent-kafka and with other libraries.

    python -m benchmarks.sending --rounds 5

Every case sends the same messages of about 200 bytes as JSON with the same client settings: to the embedded broker, to a
real Kafka of one node, and to three nodes with acks=all. A run sends at full speed and ends when the last message is
acknowledged. Its time includes the statistics and the store.
"""

from __future__ import annotations

import gc
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.frame import Bench, Case, Outcome, Runs, Target, at_least, main, markdown, spread, times
from benchmarks.guarantees import message
from benchmarks.peers import Messages, Send
from benchmarks.stage import KINDS, Kind, redis_server
from benchmarks.threads import in_threads

QUESTION = "What does a send cost, compared with a manual loop and other libraries?"
LIMITATIONS = (
    "other message sizes, topics, partitions, threads, networks and failures (see `growth`); latency (see `latency`); the "
    "capacity of your cluster: brokers and sender share two cores, so CPU time that the sender saves goes to the broker."
)
_DIFFERENT = 10_000
"""Distinct messages, created before the measurement; each send assigns a unique number."""
_WARM = 1_000


_KEYS: Mapping[bool, Callable[[Any], Any]] = {True: itemgetter("customer"), False: itemgetter(slice(0, 14))}
"""The key functions of `send_batch`: for dicts, and for their bytes, which start with the order number."""


@contextmanager
def ours(
    servers: str, topic: str, folder: Path, *, dedup: str = "", redis_port: int | None = None, batch: bool = False,
    dicts: bool = True, threads: int = 1, **options: Any,
) -> Iterator[Send]:  # fmt: skip
    """Yield a send function over a default ReliableKafkaProducer with its store."""
    from producer_core import ReliableKafkaProducer

    if "journal_level" in options:
        options["journal_dir"] = folder / "journal"
    if dedup == "redis":
        import redis

        options["redis_client"] = redis.Redis(port=redis_port)
        options["redis_client"].flushall()  # an earlier run sent the same messages
    producer = ReliableKafkaProducer(
        servers, enable_deduplication=bool(dedup), **{"store": folder / "store.duckdb", **options}
    )
    send = producer.send_message

    def one_by_one(messages: Messages) -> None:
        for value, key in messages:
            send(topic, value, key)

    def by_key(messages: Messages) -> None:
        for value, key in messages:
            send(topic, value, key, dedup_key=f"order-{value['order']}")

    def together(messages: Messages) -> None:
        rest = iter(messages)
        while batch := [value for value, _ in itertools.islice(rest, _DIFFERENT)]:
            done = producer.send_batch(topic, batch, _KEYS[dicts])
            assert done["sent"] == done["total"], done

    way = together if batch else by_key if dedup == "key" else one_by_one

    def send_all(messages: Messages) -> None:
        if threads == 1:
            way(messages)
        else:
            _shared_out(way, messages, threads)
        producer.flush(300)
        snapshot = producer.metrics.snapshot()
        assert not producer.pending_count and not snapshot.dead and not snapshot.total("duplicates")

    yield send_all
    producer.close()


def _shared_out(way: Send, messages: Messages, threads: int) -> None:
    everything = list(messages)
    in_threads(threads, lambda first: way(everything[first::threads]))


@dataclass(frozen=True)
class Way:
    """One row. `share` reduces the number of messages of a slow case; `brokers` lists where the case runs."""

    title: str
    open: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    dicts: bool = True
    package: str | None = None
    share: float = 1.0
    brokers: Sequence[Kind] = ("embedded", "one", "three")


_TWO: Sequence[Kind] = ("embedded", "one")
_OURS = "producer_core: "


def _way(
    title: str, *, dicts: bool = True, share: float = 1.0, brokers: Sequence[Kind] = _TWO, **options: Any
) -> Way:
    return Way(_OURS + title, ours, options, dicts, share=share, brokers=brokers)


_ALL: Sequence[Kind] = ("embedded", "one", "three")
WAYS: Mapping[str, Way] = {
    "bare": Way("(a) plain `produce(bytes)`, one callback", peers.bare, dicts=False),
    "json": Way("(b) manual loop, `json`, poll thread", partial(peers.by_hand, dumps=peers.by_json)),
    "json-inline": Way("(b) manual loop, `json`, polls every 1,000 messages", partial(peers.by_hand, dumps=peers.by_json, poll_every=1000)),
    "orjson": Way("(b) manual loop, `orjson`, poll thread", partial(peers.by_hand, dumps=peers.orjson.dumps)),
    "orjson-inline": Way("(b) manual loop, `orjson`, polls every 1,000 messages", partial(peers.by_hand, dumps=peers.orjson.dumps, poll_every=1000)),
    "serializing": Way("(c) `SerializingProducer`, `orjson`, no statistics", peers.serializing),
    "kafka-python": Way("(d) kafka-python", peers.kafka_python, package="kafka", share=0.1, brokers=("one",)),
    "aiokafka": Way("(d) aiokafka", peers.aiokafka, package="aiokafka", share=0.1, brokers=("one",)),
    "duckdb": Way("(e) (b) with `orjson`, statistics to DuckDB once a second", peers.with_duckdb),
    "ours": _way("`send_message(dict)`, default settings", brokers=_ALL),
    "storeless": _way("`send_message(dict)`, `store=None`", store=None),
    "bytes": _way("`send_message(bytes)`", dicts=False, brokers=_ALL),
    "batch": _way("`send_batch` of dicts", batch=True, brokers=_ALL),
    "batch-bytes": _way("`send_batch` of bytes", batch=True, dicts=False, brokers=_ALL),
    "dedup-key": _way("de-duplication by `dedup_key`", dedup="key"),
    "dedup-content": _way("de-duplication by content", dedup="content"),
    "redis-batch": _way("de-duplication in Redis, `send_batch`", dedup="redis", batch=True, share=0.1),
    "redis": _way("de-duplication in Redis, one round trip per message", dedup="redis", share=0.02),
    "buffered": _way('`journal_level="buffered"`', journal_level="buffered"),
    "process": _way('`journal_level="process"`', journal_level="process", brokers=_ALL),
    "process-batch": _way('`journal_level="process"`, `send_batch`', journal_level="process", batch=True),
    "power": _way('`journal_level="power"`, one sync per message', journal_level="power", share=0.01),
    "power-batch": _way('`journal_level="power"`, `send_batch`', journal_level="power", batch=True, share=0.1, brokers=_ALL),
    "power-threads": _way('`journal_level="power"`, 16 threads', journal_level="power", threads=16, share=0.05),
}  # fmt: skip


def one(*, way: str, count: int, servers: str, topic: str, redis_port: int | None = None) -> dict[str, float]:
    """Return messages per second until the last acknowledgement, and the CPU time per message in microseconds."""
    chosen = WAYS[way]
    values: list[Any] = [message(number) for number in range(_DIFFERENT)]
    if not chosen.dicts:
        values = [peers.orjson.dumps(value) for value in values]
    options = dict(chosen.options)
    if options.get("dedup") == "redis":
        options["redis_port"] = redis_port
    if options.get("batch"):
        options["dicts"] = chosen.dicts
    with (
        tempfile.TemporaryDirectory() as folder,
        chosen.open(servers, topic, Path(folder), **options) as send_all,
    ):
        send_all(_messages(values, -_WARM, 0))
        gc.collect()
        started, cpu = time.perf_counter(), time.process_time()
        send_all(_messages(values, 0, count))
        took, spent = time.perf_counter() - started, time.process_time() - cpu
    return {"rate": count / took, "cpu": 1e6 * spent / count}


def _messages(values: list[Any], first: int, last: int) -> Iterator[tuple[Any, str]]:
    keys, dicts = [f"key-{number}" for number in range(_DIFFERENT)], isinstance(values[0], dict)
    for number in range(first, last):
        place = number % _DIFFERENT
        value = values[place]
        if dicts:
            value["order"] = number  # makes each message unique
        yield value, keys[place]


def measure(bench: Bench) -> Outcome:
    parts: list[str] = []
    targets: list[Target] = []
    kinds: Sequence[Kind] = ("embedded",) if bench.quick else ("embedded", "one", "three")
    skipped = {way.title: reason for way in WAYS.values() if (reason := peers.missing(way.package))}
    with ExitStack() as services:
        port = services.enter_context(redis_server())
        if port is None:
            skipped["de-duplication in Redis"] = "redis-server is not installed"
        for kind in kinds:
            runs = _on(bench, kind, port)
            targets += _targets(runs, kind)
            parts.append(f"On {KINDS[kind]}:\n\n{_table(runs, kind)}")
    parts += [f"Skipped: {title}: {reason}." for title, reason in skipped.items()]
    return Outcome("\n\n".join(parts), targets)


def _on(bench: Bench, kind: Kind, redis_port: int | None) -> Runs:
    broker, count = bench.stage.broker(kind), bench.size(200_000 if kind != "three" else 100_000, 300)
    cases = [
        Case(name, "sending:one", {"way": name, "count": max(100, int(count * way.share))})
        for name, way in WAYS.items()
        if (kind in way.brokers or bench.quick)
        and not peers.missing(way.package)
        and (redis_port is not None or way.options.get("dedup") != "redis")
    ]

    @contextmanager
    def around(case: Case) -> Iterator[dict[str, Any]]:
        with broker.topic() as where:
            yield {**where, "redis_port": redis_port}

    return bench.run(kind, cases, around=around)


def _quicker(runs: Runs, loop: str) -> str:
    """Return the faster one of the two loops (b) with this serializer."""
    loops = [name for name in (loop, f"{loop}-inline") if name in runs]
    return max(loops, key=lambda name: runs.median(name, "rate"), default=loop)


def _table(runs: Runs, kind: Kind) -> str:
    """Return one row per case. The loops (b) that it compares with are the faster ones."""
    json, orjson = _quicker(runs, "json"), _quicker(runs, "orjson")
    head = (
        "",
        "CPU, µs per message",
        "CPU x (b) json",
        "CPU x (b) orjson",
        "msg/s: median (lowest to highest)",
        "x (a)",
        "x (b) json",
        "x (b) orjson",
        "x default",
    )
    rows = [
        (
            way.title,
            f"{runs.median(name, 'cpu'):.1f}",
            *(times(runs.ratio(name, peer, "cpu")) for peer in (json, orjson)),
            spread(runs.numbers(name, "rate")),
            *(times(runs.ratio(name, peer)) for peer in ("bare", json, orjson, "ours")),
        )
        for name, way in WAYS.items()
        if name in runs
    ]
    return markdown(head, rows)


def _targets(runs: Runs, kind: Kind) -> Iterator[Target]:
    """Yield the targets for one broker."""
    comparisons = (
        ("default vs. the faster (b) with json", "ours", _quicker(runs, "json"), 1.0),
        ("default vs. the faster (b) with orjson", "ours", _quicker(runs, "orjson"), 0.9),
        ("default vs. (a)", "ours", "bare", 0.8),
        ("bytes vs. (a)", "bytes", "bare", 0.9),
        ("`send_batch` of bytes vs. (a)", "batch-bytes", "bare", 0.9),
        ("de-duplication by key vs. default", "dedup-key", "ours", 0.9),
        ("de-duplication by content vs. default", "dedup-content", "ours", 0.6),
        ("de-duplication in Redis with `send_batch` vs. default", "redis-batch", "ours", 0.4),
        ('`journal_level="process"` vs. default', "process", "ours", 0.8),
        ('`journal_level="power"` with `send_batch` vs. default', "power-batch", "ours", 0.6),
        ('`journal_level="power"` with 16 threads vs. one', "power-threads", "power", 3.0),
    )
    for text, case, peer, bound in comparisons:
        if case in runs:
            yield at_least(f"{text}: {KINDS[kind]}", bound, runs.ratios(case, peer))


if __name__ == "__main__":
    main(sys.modules[__name__])
