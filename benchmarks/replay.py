"""Measure the speed of a replay from the store, compared with a bare loop.

    python -m benchmarks.replay --rounds 5

The store with the dead letters is created once and copied for each run. A replay plans, claims batches, sends each dead
letter under its own id, and settles it in the store by its own report. The bare loop sends the same bytes from a list.
More cases measure parts of a replay, and the least that they can cost in Python:

- claims and settlements in the store, without sending
- transactions with dead letters from a list, without the store
- a loop by hand that does what each transaction needs: two headers, a callback that keeps the place, a commit
- the minimum in DuckDB, in the store's own tables: number the records, read each wave once, mark its rows once

The loop by hand and the minimum in DuckDB together are the floor of a replay whose sender is in Python: neither claims,
checks, counts, nor survives a failure.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from benchmarks import peers
from benchmarks.frame import Bench, Case, Outcome, Runs, at_least, at_most, main, markdown, spread, times
from benchmarks.guarantees import message
from benchmarks.stage import KINDS
from producer_core.messages import ID_HEADER, ORIGINAL_TIMESTAMP
from producer_core.replay.runner import MAX_TRANSACTION_RECORDS, MAX_WAVE_RECORDS

QUESTION = "How fast is a replay, compared with a bare loop?"
LIMITATIONS = (
    "ambiguous dead letters, for which the replay searches their topic first; a slow disk under the store; a replay "
    "that several processes run in turn, or that Spark's workers share."
)
_TITLES = {
    "bare": "(a) bare loop, bytes from a list",
    "ours": "replay: plan, preflight, claim, send, settle",
    "many": "the same with 1,000,000 dead letters",
    "stored": "claims and settlements only, no send",
    "sent": "transactions only, dead letters from a list",
    "loop": "transactions by hand: headers, callbacks, commit",
    "least": "DuckDB only: number, read once, mark once, no send",
}
_WITH_STORE = ("ours", "many", "stored", "least")
_BATCH = MAX_TRANSACTION_RECORDS
_MANY = 1_000_000
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
    from producer_core.replay.outcome import AcknowledgedBatch
    from producer_core.store import Store

    opened = Store.open(Path(store))
    planned = plan(opened, DeadLetterFilter(), who="benchmark", origin="python", can_run=True)
    claims = ReplayClaims(opened, planned.operation_id, "benchmark", lease=600, clock=time.time)
    claims.take()
    with _timed(count) as took:
        update, settled = claims.settle_and_claim([], want=_BATCH, wave=MAX_WAVE_RECORDS, busy=False), 0
        while not update.over:
            batch: Any = update.dead_letters
            offsets = range(settled, settled + len(batch))
            settled += len(batch)
            acknowledged = [AcknowledgedBatch(batch, [0] * len(batch), offsets)]
            update = claims.settle_and_claim(
                [], acknowledged=acknowledged, want=_BATCH, wave=MAX_WAVE_RECORDS, busy=False
            )
    assert settled == count, f"{settled} of {count} were settled"
    return took


def sent(*, count: int, servers: str, topic: str) -> dict[str, float]:
    from producer_core.delivery.exactly_once.transactional_client import TransactionalClient
    from producer_core.delivery.record_batch import RecordBatch
    from producer_core.dlq.codec import read_headers

    batches = [RecordBatch(table, read_headers) for table in _tables(count, topic)]
    client = TransactionalClient(
        _settings(servers), f"benchmark-{uuid.uuid4()}", statistics=len, connection_error=str,
        stopping=lambda: False,
    )  # fmt: skip
    client.fence(str)
    with _timed(count) as took:
        for batch in batches:
            assert not client.transact_batch(batch, time.monotonic() + 60).errors
    client.destroy()
    return took


def loop(*, count: int, servers: str, topic: str) -> dict[str, float]:
    """Send as a replay must in Python: each record with two headers and a callback, and each batch in a transaction."""
    columns = [
        [table[name].to_pylist() for name in ("value", "key", "message_id")]
        for table in _tables(count, topic)
    ]
    partitions, offsets = [-1] * _BATCH, [-1] * _BATCH

    def keep(row: int, error: Any, message: Any) -> None:
        assert error is None
        partitions[row], offsets[row] = message.partition(), message.offset()

    callbacks = [partial(keep, row) for row in range(_BATCH)]
    client = Producer({**_settings(servers), "transactional.id": f"benchmark-{uuid.uuid4()}"})
    client.init_transactions(_CONNECT_TIMEOUT)
    with _timed(count) as took:
        for values, keys, ids in columns:
            client.begin_transaction()
            for value, key, message_id, on_report in zip(values, keys, ids, callbacks, strict=False):
                headers = [(ID_HEADER, message_id), (ORIGINAL_TIMESTAMP, b"1790000000000")]
                client.produce(topic, value, key, -1, on_report, None, 0, headers)
            while len(client):
                client.poll(0.1)
            client.commit_transaction(_CONNECT_TIMEOUT)
            assert -1 not in offsets[: len(values)]
    return took


def _settings(servers: str) -> dict[str, Any]:
    from producer_core.config import client_config
    from producer_core.delivery.exactly_once.transactional_transport import transactional_settings

    return transactional_settings(client_config(servers).settings)


def _tables(count: int, topic: str) -> Iterator[pa.Table]:
    """Yield the records as the store returns them to a replay, a batch at a time."""
    for first in range(0, count, _BATCH):
        some = _dead_letters(range(first, min(first + _BATCH, count)), "", topic)
        yield pa.table(
            {
                **{name: [getattr(one, name) for one in some] for name in _GIVEN},
                **{name: pa.nulls(len(some)) for name in ("headers", "partition", "timestamp_ms")},
            }
        )


_GIVEN = ("message_id", "topic", "key", "value", "accepted_at")


def least(*, count: int, store: str) -> dict[str, float]:
    """Do only what a replay cannot leave out in the store's tables: number the records under their index, read each wave once
    as the lists that a sender passes to the client, and mark its rows once with their partitions and offsets."""
    with duckdb.connect(":memory:", config={"threads": 1, "checkpoint_threshold": "1TB"}) as connection:
        connection.execute(f"ATTACH '{store}' AS store")
        connection.execute("USE store")
        connection.execute("DROP TRIGGER dead_letters_changed ON dead_letters")
        with _timed(count) as took:
            _committed(connection, _NUMBERED)
            for first in range(0, count, MAX_WAVE_RECORDS):
                wave = (first, min(first + MAX_WAVE_RECORDS, count) - 1)
                for sql in _READ:
                    table = connection.sql(sql, params=wave).to_arrow_table()
                    assert all(len(column.to_pylist()) == wave[1] - first + 1 for column in table.columns)
                offsets = pa.array(range(first, wave[1] + 1), pa.int64())
                connection.register("reports", pa.table({"place": offsets, "landed": offsets}))
                _committed(connection, *(sql.format(*wave) for sql in _MARKED))
    return took


_NUMBERED = """
INSERT INTO operation_records (operation_id, ord, message_id, state, size)
SELECT 'least', row_number() OVER (), message_id, 'pending', size
FROM (SELECT message_id, coalesce(value_size, 0) + coalesce(octet_length(key), 0) AS size FROM dead_letters
      WHERE state = 'dead' ORDER BY accepted_at, length(message_id), message_id)"""
_READ = (
    "SELECT message_id, key, accepted_at FROM dead_letters WHERE rowid BETWEEN ? AND ?",
    "SELECT value FROM dead_letter_bodies WHERE rowid BETWEEN ? AND ?",
)
_MARKED = (
    "UPDATE dead_letters SET state = 'replayed', operation_id = 'least', state_at = 1, landed_partition = 0, "
    "landed_offset = reports.landed FROM reports WHERE dead_letters.rowid = reports.place",
    "UPDATE operation_records SET state = 'acknowledged', settled_at = 1 WHERE rowid BETWEEN {} AND {}",
)


def _committed(connection: duckdb.DuckDBPyConnection, *statements: str) -> None:
    """Run the statements in one transaction and a checkpoint, as a store update does."""
    connection.execute("BEGIN")
    for sql in statements:
        connection.execute(sql)
    connection.execute("COMMIT")
    connection.execute("CHECKPOINT store")


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
    broker, count, many = bench.stage.broker("one"), bench.size(200_000, 2_000), bench.size(_MANY, 4_000)
    cases = [Case(name, f"replay:{name}", {"count": count}) for name in _TITLES if name != "many"]
    cases.append(Case("many", "replay:ours", {"count": many}))
    with tempfile.TemporaryDirectory() as folder, broker.topic() as where:
        cluster = AdminClient({"bootstrap.servers": broker.servers}).list_topics(timeout=30).cluster_id
        full = {number: Path(folder) / f"full-{number}.duckdb" for number in (count, many)}
        for number, path in full.items():
            fill(path, number, cluster=cluster, topic=where["topic"])

        @contextmanager
        def around(case: Case) -> Iterator[Mapping[str, Any]]:
            if case.name not in _WITH_STORE:
                yield where
                return
            with tempfile.TemporaryDirectory() as own:
                copy, source = Path(own) / "store.duckdb", full[case.settings["count"]]
                shutil.copyfile(source, copy)
                shutil.copyfile(f"{source}.generation", f"{copy}.generation")  # else it is a restored copy
                copy.chmod(0o600)
                _age(Path(f"{copy}.gate"))
                yield {"store": str(copy), **({} if case.name in ("stored", "least") else where)}

        runs = bench.run(broker.kind, cases, around=around)
    text = f"On {KINDS[broker.kind]}, {count:,} dead letters of about 200 bytes:\n\n{_table(runs)}\n\n{_floor(runs)}"
    targets = [
        at_most(
            f"CPU time of a replay of {number:,}, by dead letter", 10, runs.numbers(name, "cpu"), "µs", ".1f"
        )
        for name, number in (("ours", count), ("many", many))
    ]
    return Outcome(
        text, [*targets, at_least(f"replay of {count:,} vs. (a)", 0.7, runs.ratios("ours", "bare"))]
    )


def _age(gate: Path) -> None:
    """Make the store one that nobody has read lately: a new file counts as read, and is then written every second."""
    gate.touch(mode=0o600)
    os.utime(gate, (1, 1))


def _floor(runs: Runs) -> str:
    sums = [loop + store for loop, store in runs.paired("loop", "least", "cpu")]
    if not sums:
        return ""
    return f"The floor of a replay with a sender in Python, loop and DuckDB only: {spread(sums, '.1f')} µs of CPU time per message."


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
