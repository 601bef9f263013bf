"""Measure the speed of a replay from the store, compared with a bare loop.

    python -m benchmarks.replay --rounds 5

The store with the dead letters is created once and copied for each run. A replay plans, claims batches, sends each dead
letter under its own id, and settles it in the store by its own report. The bare loop sends the same bytes from a list.
Three more cases measure parts of a replay:

- claims and settlements in the store, without sending
- transactions with dead letters from a list, without the store
- the minimum in DuckDB: a table of number, state and bytes; each batch is read and marked twice in two transactions
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
from confluent_kafka.admin import AdminClient

from benchmarks import peers
from benchmarks.frame import Bench, Case, Outcome, Runs, at_least, main, markdown, spread, times
from benchmarks.guarantees import message
from benchmarks.stage import KINDS

QUESTION = "How fast is a replay, compared with a bare loop?"
LIMITATIONS = (
    "ambiguous dead letters, for which the replay searches their topic first; a slow disk under the store; a replay "
    "that several processes run in turn, or that Spark's workers share."
)
_TITLES = {
    "bare": "(a) bare loop, bytes from a list",
    "ours": "replay: plan, preflight, claim, send, settle",
    "stored": "claims and settlements only, no send",
    "sent": "transactions only, dead letters from a list",
    "least": "DuckDB only: read, mark twice, no send",
}
_BATCH = 10_000
_ROWS_PER_WRITE = 10_000
_CONNECT_TIMEOUT = 30.0


@contextmanager
def _timed(count: int) -> Iterator[dict[str, float]]:
    """Measure a block that sends `count` messages; after the block, the dict has messages per second and CPU µs per message."""
    took: dict[str, float] = {}
    started, cpu = time.perf_counter(), time.process_time()
    yield took
    took["rate"] = count / (time.perf_counter() - started)
    took["cpu"] = 1e6 * (time.process_time() - cpu) / count


def bare(*, count: int, servers: str, topic: str) -> dict[str, float]:
    records = [(_value(number), f"bare-{number}") for number in range(count)]
    with (
        tempfile.TemporaryDirectory() as folder,
        peers.bare(servers, topic, Path(folder)) as send,
    ):
        send(records[:1_000])
        with _timed(count) as took:
            send(records)
    return took


def ours(*, count: int, store: str, servers: str, topic: str) -> dict[str, float]:
    from producer_core import ReliableKafkaProducer

    with ReliableKafkaProducer(servers, store=store, run_replays=False) as producer:
        deadline = time.monotonic() + _CONNECT_TIMEOUT
        while not producer.cluster_id and time.monotonic() < deadline:
            time.sleep(0.05)
        with _timed(count) as took:
            sent = producer.replay_dlq_messages(topic, timeout=500)
    assert sent == count, f"{sent} of {count} were replayed"
    return took


def stored(*, count: int, store: str) -> dict[str, float]:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.replay import plan
    from producer_core.replay.claims import ReplayClaims
    from producer_core.replay.outcome import RecordOutcome
    from producer_core.store import Store

    opened = Store.open(Path(store))
    planned = plan(opened, DeadLetterFilter(), who="benchmark", origin="python", can_run=True)
    claims = ReplayClaims(opened, planned.operation_id, "benchmark", lease=600, clock=time.time)
    claims.take()
    with _timed(count) as took:
        turn, settled = claims.settle_and_claim([], want=_BATCH, busy=False), 0
        while not turn.over:
            outcomes = [
                RecordOutcome(one.message_id, "acknowledged", None, 0, settled + at)
                for at, one in enumerate(turn.dead_letters)
            ]
            settled += len(outcomes)
            turn = claims.settle_and_claim(outcomes, want=_BATCH, busy=False)
    assert settled == count, f"{settled} of {count} were settled"
    return took


def sent(*, count: int, servers: str, topic: str) -> dict[str, float]:
    from producer_core.config import client_config
    from producer_core.delivery.dead_letter import ReplayRecord, delivery_of
    from producer_core.delivery.exactly_once.transactional_client import TransactionalClient
    from producer_core.delivery.exactly_once.transactional_transport import transactional_settings

    dead_letters = [
        ReplayRecord._make(getattr(one, name) for name in ReplayRecord._fields)
        for one in _dead_letters(range(count), "", topic)
    ]
    settings = transactional_settings(client_config(servers).settings)
    client = TransactionalClient(
        settings, f"benchmark-{uuid.uuid4()}", statistics=len, connection_error=str, stopping=lambda: False
    )
    client.fence(str)
    with _timed(count) as took:
        for first in range(0, count, _BATCH):
            reports, _ = client.transact(
                list(map(delivery_of, dead_letters[first : first + _BATCH])), time.monotonic() + 60
            )
            assert all(error is None for _, error, _ in reports)
    client.destroy()
    return took


def least(*, count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, duckdb.connect(str(Path(folder) / "least.duckdb")) as store:
        store.execute("SET threads = 1")
        store.execute("CREATE TABLE dead_letters (number BIGINT, state UTINYINT, value BLOB)")
        numbers = range(count)
        store.register("rows", pa.table({"number": numbers, "value": list(map(_value, numbers))}))
        store.execute("INSERT INTO dead_letters SELECT number, 0, value FROM rows")
        store.execute("CHECKPOINT")
        with _timed(count) as took:
            for first in range(0, count, _BATCH):
                batch = (first, min(first + _BATCH, count) - 1)
                store.execute("BEGIN")
                values = store.execute(
                    "SELECT value FROM dead_letters WHERE number BETWEEN ? AND ?", batch
                ).fetchall()
                store.execute("UPDATE dead_letters SET state = 1 WHERE number BETWEEN ? AND ?", batch)
                store.execute("COMMIT")
                assert len(values) == batch[1] - batch[0] + 1
                store.execute("UPDATE dead_letters SET state = 2 WHERE number BETWEEN ? AND ?", batch)
    return took


def fill(path: Path, count: int, *, cluster: str, topic: str) -> None:
    """Create a store with `count` dead letters of one topic that are all safe to replay."""
    from producer_core.dlq import DeadLetters
    from producer_core.store import Store

    store = Store.open(path)
    for first in range(0, count, _ROWS_PER_WRITE):
        DeadLetters(store).add(
            _dead_letters(range(first, min(first + _ROWS_PER_WRITE, count)), cluster, topic)
        )
    store.close()


# Unique keys, because a replay skips a dead letter if its key was sent later to a topic that may be compacted.
def _dead_letters(numbers: Sequence[int], cluster: str, topic: str) -> list[Any]:
    from producer_core.events import Attempt, DeadLetter
    from producer_core.messages import id_bytes, id_text

    session, text = uuid.UUID("01930000-0000-7000-8000-000000000001"), "Broker: Policy violation"
    died = (Attempt(1_790_000_000.0, "POLICY_VIOLATION", text),)
    return [
        DeadLetter(
            message_id=id_text(id_bytes(session, number)), cluster_id=cluster, producer_id=str(session), topic=topic,
            key=b"dead-%d" % number, value=_value(number), headers=(), partition=None, timestamp_ms=None,
            verdict="rejected", verdict_reason="The broker refused it.", kind="permanent", code="POLICY_VIOLATION",
            error_text=text, fingerprint="policy", attempts=died, accepted_at=1_790_000_000.0,
            failed_at=1_790_000_000.0 + number / 1000,
        )
        for number in numbers
    ]  # fmt: skip


def _value(number: int) -> bytes:
    return orjson.dumps(message(number))


def measure(bench: Bench) -> Outcome:
    broker, count = bench.stage.broker("one"), bench.size(200_000, 2_000)
    cases = [Case(name, f"replay:{name}", {"count": count}) for name in _TITLES]
    with tempfile.TemporaryDirectory() as folder, broker.topic() as where:
        full = Path(folder) / "full.duckdb"
        cluster = AdminClient({"bootstrap.servers": broker.servers}).list_topics(timeout=30).cluster_id
        fill(full, count, cluster=cluster, topic=where["topic"])

        @contextmanager
        def around(case: Case) -> Iterator[Mapping[str, Any]]:
            if case.name not in ("ours", "stored"):
                yield {} if case.name == "least" else where
                return
            with tempfile.TemporaryDirectory() as own:
                copy = Path(own) / "store.duckdb"
                shutil.copyfile(full, copy)
                shutil.copyfile(f"{full}.generation", f"{copy}.generation")  # else it is a restored copy
                copy.chmod(0o600)
                yield {"store": str(copy), **(where if case.name == "ours" else {})}

        runs = bench.run(broker.kind, cases, around=around)
    text = f"On {KINDS[broker.kind]}, {count:,} dead letters of about 200 bytes:\n\n{_table(runs)}"
    return Outcome(text, [at_least(f"replay of {count:,} vs. (a)", 0.7, runs.ratios("ours", "bare"))])


def _table(runs: Runs) -> str:
    rows = [
        (
            title,
            spread(runs.numbers(name, "rate")),
            times(runs.ratio(name, "bare")),
            spread(runs.numbers(name, "cpu"), ".1f"),
        )
        for name, title in _TITLES.items()
    ]
    return markdown(("", "msg/s", "x (a)", "CPU, µs per message"), rows)


if __name__ == "__main__":
    main(sys.modules[__name__])
