"""How quickly dead letters are sent again, from the store and with every outcome written down, against a bare loop.

    python -m benchmarks.replay --rounds 5

A store with the dead letters is made once and copied for each run. A replay is planned, claimed in waves, sent under
the dead letters' own ids, and settled in the store, each by its own report; the bare loop has the same bytes in a list. Two of
its parts alone: the store's, which claims waves and settles them and sends nothing, and the transactions', which have the
dead letters in a list. The least that any of this takes in DuckDB: a table of nothing but number, state and bytes, read in waves
and marked before and after, each wave in two transactions; nobody sends it.
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
from benchmarks.frame import Bench, Case, Outcome, Runs, alone, at_least, markdown, spread, times
from benchmarks.guarantees import message
from benchmarks.stage import KINDS

QUESTION = "How fast is a replay, compared with a bare loop?"
SHOWS_NOT = (
    "ambiguous dead letters, for which the replay searches their topic first; a slow disk under the store; a replay "
    "that several processes run in turn, or that Spark's workers share."
)
_WORDS = {
    "bare": "(a) bare, bytes from a list",
    "ours": "a replay: planned, looked ahead for, claimed, sent, settled",
    "stored": "its claims and settlements alone, nothing sent",
    "sent": "its transactions alone, from dead letters in a list",
    "least": "DuckDB alone: read, marked twice, not sent",
}
_WAVE = 10_000
_WRITTEN = 10_000
_CONNECTED_WITHIN = 30.0


@contextmanager
def _timed(count: int) -> Iterator[dict[str, float]]:
    """The messages a second and the processor's µs a message of a block that sends so many; there when it has ended."""
    took: dict[str, float] = {}
    begun, cpu = time.perf_counter(), time.process_time()
    yield took
    took["rate"] = count / (time.perf_counter() - begun)
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
        deadline = time.monotonic() + _CONNECTED_WITHIN
        while not producer.cluster_id and time.monotonic() < deadline:
            time.sleep(0.05)
        with _timed(count) as took:
            sent = producer.replay_dlq_messages(topic, timeout=500)
    assert sent == count, f"{sent} of {count} were sent again"
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
        turn, settled = claims.settle_and_claim([], want=_WAVE, busy=False), 0
        while not turn.over:
            outcomes = [
                RecordOutcome(one.message_id, "acknowledged", None, 0, settled + at)
                for at, one in enumerate(turn.dead_letters)
            ]
            settled += len(outcomes)
            turn = claims.settle_and_claim(outcomes, want=_WAVE, busy=False)
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
        for first in range(0, count, _WAVE):
            reports, _ = client.transact(
                list(map(delivery_of, dead_letters[first : first + _WAVE])), time.monotonic() + 60
            )
            assert all(error is None for _, error, _ in reports)
    client.destroy()
    return took


def least(*, count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, duckdb.connect(str(Path(folder) / "least.duckdb")) as store:
        store.execute("SET threads = 1")
        store.execute("CREATE TABLE letters (number BIGINT, state UTINYINT, value BLOB)")
        numbers = range(count)
        store.register("rows", pa.table({"number": numbers, "value": list(map(_value, numbers))}))
        store.execute("INSERT INTO letters SELECT number, 0, value FROM rows")
        store.execute("CHECKPOINT")
        with _timed(count) as took:
            for first in range(0, count, _WAVE):
                wave = (first, min(first + _WAVE, count) - 1)
                store.execute("BEGIN")
                values = store.execute(
                    "SELECT value FROM letters WHERE number BETWEEN ? AND ?", wave
                ).fetchall()
                store.execute("UPDATE letters SET state = 1 WHERE number BETWEEN ? AND ?", wave)
                store.execute("COMMIT")
                assert len(values) == wave[1] - wave[0] + 1
                store.execute("UPDATE letters SET state = 2 WHERE number BETWEEN ? AND ?", wave)
    return took


def fill(path: Path, count: int, *, cluster: str, topic: str) -> None:
    """A new store with so many dead letters of one topic, all of them safe to send again."""
    from producer_core.dlq import DeadLetters
    from producer_core.store import Store

    store = Store.open(path)
    for first in range(0, count, _WRITTEN):
        DeadLetters(store).add(_dead_letters(range(first, min(first + _WRITTEN, count)), cluster, topic))
    store.close()


# Keys of its own: a dead letter whose key somebody sent since is left out where the topic may be compacted.
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
    cases = [Case(name, f"replay:{name}", {"count": count}) for name in _WORDS]
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
                copy.chmod(0o600)
                yield {"store": str(copy), **(where if case.name == "ours" else {})}

        runs = bench.run(broker.kind, cases, around=around)
    text = f"On {KINDS[broker.kind]}, {count:,} dead letters of about 200 bytes:\n\n{_table(runs)}"
    return Outcome(
        text, [at_least(f"replay of {count:,} against (a) bare", 0.7, runs.ratios("ours", "bare"))]
    )


def _table(runs: Runs) -> str:
    rows = [
        (
            words,
            spread(runs.numbers(name, "rate")),
            times(runs.ratio(name, "bare")),
            spread(runs.numbers(name, "cpu"), ".1f"),
        )
        for name, words in _WORDS.items()
    ]
    return markdown(("", "msg/s", "x (a)", "CPU, µs a message"), rows)


if __name__ == "__main__":
    alone(sys.modules[__name__])
