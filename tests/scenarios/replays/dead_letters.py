"""Create the dead letters of a scenario: of every kind, numbered, some of them already on their topic."""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass, replace

from confluent_kafka import Producer

from producer_core.dlq import DeadLetters
from producer_core.events import Attempt, DeadLetter
from producer_core.messages import ID_HEADER, id_bytes, id_text, parse_id

NUMBER = "n"
"""The header with the number of a dead letter, for the independent reader."""
SESSION = uuid.UUID("01931111-1111-7111-9111-111111111111")
"""A session id without a zero byte, because kcat truncates header values at zero bytes."""


def new_sessions(count):
    """Return random session ids of letters only, because kcat's output has no escapes."""
    return [uuid.UUID(bytes=bytes(random.choices(range(0x61, 0x7B), k=16))) for _ in range(count)]


OLD = 900.0
"""Age of the first dead letter in seconds: late enough that none of the original requests can still arrive."""
_ROWS_PER_WRITE = 10_000


@dataclass(frozen=True)
class Topic:
    name: str
    partitions: int


@dataclass(frozen=True)
class StoredDeadLetters:
    """The dead letters in the store, by number, and the numbers that were on their topic before the replay."""

    dead_letters: list[DeadLetter]
    on_topic: frozenset[int]


def message_id(number):
    return id_text(id_bytes(SESSION, number))


def number_of(one):
    return int.from_bytes(parse_id(one)[16:])


def make(count, topics, chance: random.Random, *, cluster_id, now):
    """Return dead letters in the order of their acceptance. The first half is safe to send, so that it is sent as columns;
    the outcome of many others is ambiguous."""
    began = now - OLD
    keys = max(10, count // 20)
    return [
        _dead_letter(
            number, topics, chance, keys, cluster_id, began + number * 0.002, safe=number < count // 2
        )
        for number in range(count)
    ]


def _dead_letter(number, topics, chance, keys, cluster_id, accepted_at, *, safe):
    topic = chance.choices(topics, weights=range(len(topics), 0, -1))[0]
    key = f"k{chance.randrange(keys)}".encode()
    value = f"{number} ".encode().ljust(chance.choice((20, 100, 100, 300)), b".")
    kind = chance.random()
    if kind < 0.03:
        value = None  # a tombstone
    elif kind < 0.05:
        key = None
    elif kind < 0.06:
        value += b"\x00\xff\n" * 2_000
    elif kind < 0.07:
        key = b""
    return DeadLetter(
        message_id=message_id(number),
        cluster_id=cluster_id,
        producer_id=str(SESSION),
        topic=topic.name,
        key=key,
        value=value,
        headers=_headers(number, chance),
        partition=chance.randrange(topic.partitions) if chance.random() < 0.1 else None,
        timestamp_ms=int(accepted_at * 1000) - 5 if chance.random() < 0.1 else None,
        **_failure(chance, safe=safe),
        attempts=(Attempt(accepted_at + 1, "POLICY_VIOLATION", "Broker: Policy violation"),),
        accepted_at=accepted_at,
        failed_at=accepted_at + 1,
    )  # fmt: skip


def _headers(number, chance):
    headers = [(NUMBER, str(number).encode())]
    if chance.random() < 0.3:
        headers += [("trace", b"a"), ("trace", None), ("trace", b""), ("trace", b"a")]
    return tuple(headers)


def _failure(chance, *, safe):
    weights = (60, 30, 0, 10) if safe else (30, 0, 60, 10)
    verdict = chance.choices(("rejected", "not_sent", "possibly_persisted", "absent"), weights)[0]
    code = "_MSG_TIMED_OUT" if verdict in ("possibly_persisted", "absent") else "POLICY_VIOLATION"
    return {
        "verdict": verdict, "verdict_reason": "Set by the scenario.", "kind": "timed_out", "code": code,
        "error_text": f"Local: {code}", "fingerprint": code.lower()[:12],
    }  # fmt: skip


def add_dead_letters(store, servers, count, topics, chance, *, cluster_id, doubtful=True, bad=False):
    """Add dead letters to the store, and write half of those with an unknown outcome to their topics.

    With `bad`, the broker rejects them again.
    """
    dead_letters = make(count, topics, chance, cluster_id=cluster_id, now=time.time())
    if bad:
        dead_letters = [
            replace(one, key=None, value=one.value or b"v", verdict="rejected") for one in dead_letters
        ]
    on_topic = [
        one
        for one in dead_letters
        if doubtful and one.verdict == "possibly_persisted" and chance.random() < 0.5
    ]
    write(servers, on_topic)
    dead = DeadLetters(store)
    for start in range(0, count, _ROWS_PER_WRITE):
        dead.add(dead_letters[start : start + _ROWS_PER_WRITE])
    return StoredDeadLetters(dead_letters, frozenset(number_of(one.message_id) for one in on_topic))


def write(servers, dead_letters):
    """Write dead letters to their topics as the producer did that lost the acknowledgements."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for one in dead_letters:
        headers = [(ID_HEADER, parse_id(one.message_id)), *one.headers]
        place = {} if one.partition is None else {"partition": one.partition}
        producer.produce(one.topic, one.value, one.key, headers=headers, **place)
    if producer.flush(120):
        raise RuntimeError("some dead letters could not be written to their topics")
