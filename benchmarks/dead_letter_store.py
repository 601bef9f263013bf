"""Create a store with many dead letters inside DuckDB, distributed like those of a shop over a month.

Twelve topics, forty causes, three clusters and sixty producers; one dead letter in a hundred thousand has a large value.
A quarter fails evenly over the month, for every cause. The others fail in ten outages of three hours with three causes
each. The rows are in the order of failure, as a producer writes them.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from producer_core.kafka.classify import fingerprint
from producer_core.store import Store, dead_letter_counts

START = 1_790_000_000.0
SPAN = 30 * 86_400.0
_SLICE = 1_000_000

TOPICS = (
    *("orders", "payments", "page-views", "shipments", "refunds", "inventory", "carts", "sessions"),
    *("fraud-signals", "emails", "returns", "prices"),
)
CODES = (
    ("_MSG_TIMED_OUT", "timed_out", "Local: Message timed out after {n} ms in queue to broker-{n}:9092"),
    ("MSG_SIZE_TOO_LARGE", "permanent", "Broker: Message size too large ({n} bytes)"),
    ("NOT_ENOUGH_REPLICAS", "retriable", "Broker: Not enough in-sync replicas ({n} of 2)"),
    ("TOPIC_AUTHORIZATION_FAILED", "permanent", "Broker: Topic authorization failed for user svc{n}"),
    ("_TRANSPORT", "retriable", "Local: Broker transport failure at 10.0.0.{n}:9092/2"),
    ("INVALID_RECORD", "permanent", "Broker: Broker failed to validate record {n}"),
    ("POLICY_VIOLATION", "permanent", "Broker: Policy violation in partition {n}"),
    ("malformed", "permanent", "Expecting value: line {n} column 1"),
)
PARTS = ("", " while leading", " in transaction", " after re-election", " on retry")


def make(path: Path, count: int) -> None:
    """Fill a new store at `path` with `count` dead letters and their bodies."""
    Store.open(path).close()
    with duckdb.connect(str(path), config={"threads": 2, "memory_limit": "4GB"}) as connection:
        connection.execute("SET preserve_insertion_order = true")
        _causes(connection)
        indexes = connection.execute(
            "SELECT index_name, sql FROM duckdb_indexes() WHERE table_name LIKE 'dead_letter%'"
        ).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        for first in range(0, count, _SLICE):
            bounds = {"first": first, "last": min(first + _SLICE, count), "count": count}
            connection.execute(_LETTERS, {**bounds, "start": START, "span": SPAN})
            connection.execute(_BODIES, bounds | {"start": START, "span": SPAN})
        for _, sql in indexes:
            connection.execute(sql)
        dead_letter_counts.add_up(connection)
        connection.execute("CHECKPOINT")


def message_id(number: int) -> str:
    """Return the id of dead letter `number`: the session of one of sixty producers, and a sequence number."""
    return f"0192a4c0-7b1e-7d44-9c3a-{number * 7919 % 60:012x}-{number}"


def _causes(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(
        "CREATE TEMP TABLE causes (number INTEGER, code VARCHAR, kind VARCHAR, text VARCHAR, fingerprint VARCHAR)"
    )
    rows = [
        (number, code, kind, text + part, fingerprint(code, text.replace("{n}", "7") + part))
        for number, (part, (code, kind, text)) in enumerate((part, one) for part in PARTS for one in CODES)
    ]
    connection.executemany("INSERT INTO causes VALUES (?, ?, ?, ?, ?)", rows)
    connection.execute(
        f"CREATE TEMP TABLE topics AS SELECT unnest({list(TOPICS)!r}) AS topic, unnest(range({len(TOPICS)})) AS number"
    )


# Every third day ends in an outage with 3 of 4 dead letters of these three days.
_NUMBERS = """
SELECT i, hash(i) AS h, hash(i + 77) AS g, hash(i + 1234567) AS k,
       floor(10.0 * i / $count) AS outage, 10.0 * i / $count % 1 AS share, share > 0.25 AS in_outage,
       $start + $span / 10 * outage
       + CASE WHEN in_outage THEN $span / 10 - 10800 * (1 - share) / 0.75
              ELSE ($span / 10 - 10800) * share / 0.25 END AS died
FROM range($first, $last) AS numbers(i)
"""

_LETTERS = f"""
INSERT INTO dead_letters BY NAME
SELECT printf('0192a4c0-7b1e-7d44-9c3a-%012x-%d', i * 7919 % 60, i) AS message_id,
       CASE WHEN h % 100 < 80 THEN 'prod-eu' WHEN h % 100 < 95 THEN 'prod-us' ELSE 'staging' END AS cluster_id,
       printf('0192a4c0-7b1e-7d44-9c3a-%012x', i * 7919 % 60) AS producer_id,
       topics.topic, NULL::INTEGER AS partition,
       CASE WHEN k % 20 > 0 THEN encode('customer-' || k % 2000000) END AS key,
       CASE WHEN h % 100000 = 0 THEN 1000000 WHEN g % 50 > 0 THEN 180 + g % 40 END AS value_size,
       CASE WHEN g % 100 < 70 THEN 'dead' WHEN g % 100 < 85 THEN 'archived' WHEN g % 100 < 95 THEN 'replayed'
            WHEN g % 100 < 98 THEN 'landed' ELSE 'purged' END AS state,
       g % 997 = 0 AS quarantined, causes.code <> 'malformed' AS replayable,
       CASE WHEN causes.kind = 'permanent' THEN 'rejected' WHEN h % 7 = 0 THEN 'inconclusive'
            WHEN h % 7 < 3 THEN 'absent' ELSE 'possibly_persisted' END AS verdict,
       'The broker may have it (' || causes.code || ').' AS verdict_reason,
       causes.kind, causes.code, replace(causes.text, '{{n}}', (k % 1000)::VARCHAR) AS error_text,
       causes.fingerprint, (1 + h % 5)::INTEGER AS attempts,
       died - 30 - h % 90 AS accepted_at, died + (h % 1000) / 1000 AS failed_at,
       NULL::VARCHAR AS source, 'host-' || h % 20 AS host, '0.3.0' AS version, (g % 3)::INTEGER AS replay_count,
       NULL::VARCHAR AS operation_id, died + g % 100000 AS state_at,
       (md5_number_lower(key) & 4294967295)::UINTEGER AS key_mark
FROM ({_NUMBERS}) AS numbers
JOIN topics ON topics.number = least(h // 64 % 12, h // 1024 % 12)
JOIN causes ON causes.number = CASE WHEN in_outage THEN outage * 3 + h // 16384 % 3
                                    ELSE least(h // 16384 % 40, h // 1048576 % 40) END
ORDER BY i
"""

_BODIES = f"""
INSERT INTO dead_letter_bodies BY NAME
SELECT printf('0192a4c0-7b1e-7d44-9c3a-%012x-%d', i * 7919 % 60, i) AS message_id,
       CASE WHEN h % 100000 = 0 THEN encode(repeat('large value ', 83333)) WHEN g % 50 > 0 THEN
            encode(printf('{{"order":%d,"customer":"customer-%d","total":%d.5,"currency":"EUR","note":"%s"}}',
                          i, k % 2000000, g % 1000, md5(i::VARCHAR) || md5(k::VARCHAR))) END AS value,
       printf('[["trace","%s"],["tenant","ZXU="]]', to_base64(encode(md5(i::VARCHAR)))) AS headers,
       NULL::BIGINT AS timestamp_ms,
       printf('[[%.3f,"_TRANSPORT","Local: Broker transport failure"]]', died) AS attempts
FROM ({_NUMBERS}) AS numbers ORDER BY i
"""
