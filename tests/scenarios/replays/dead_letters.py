"""The dead letters of a scenario: of every kind, each with a number, some on their topic already."""

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
"""The header that tells a dead letter's number, for a reader that knows nothing of ours."""
SESSION = uuid.UUID("01931111-1111-7111-9111-111111111111")
"""Without a zero byte, so that kcat shows it."""


def sessions(count):
    """So many that differ, without a byte that kcat's output gives a meaning."""
    return [uuid.UUID(bytes=bytes(random.choices(range(0x61, 0x7B), k=16))) for _ in range(count)]


OLD = 900.0
"""Seconds since the first death: no request of any of them can still arrive."""
_AT_ONCE = 10_000


@dataclass(frozen=True)
class Topic:
    name: str
    partitions: int


@dataclass(frozen=True)
class Buried:
    """What was put into the store, by number, and the numbers of those that were on their topic before."""

    dead_letters: list[DeadLetter]
    there: frozenset[int]


def message_id(number):
    return id_text(id_bytes(SESSION, number))


def number_of(one):
    return int.from_bytes(parse_id(one)[16:])


def make(count, topics, chance: random.Random, *, cluster_id, now):
    """Letters in the order of their acceptance."""
    began = now - OLD
    keys = max(10, count // 20)
    return [
        _dead_letter(number, topics, chance, keys, cluster_id, began + number * 0.002)
        for number in range(count)
    ]


def _dead_letter(number, topics, chance, keys, cluster_id, accepted_at):
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
        **_death(chance),
        attempts=(Attempt(accepted_at + 1, "POLICY_VIOLATION", "Broker: Policy violation"),),
        accepted_at=accepted_at,
        failed_at=accepted_at + 1,
    )  # fmt: skip


def _headers(number, chance):
    headers = [(NUMBER, str(number).encode())]
    if chance.random() < 0.3:
        headers += [("trace", b"a"), ("trace", None), ("trace", b""), ("trace", b"a")]
    return tuple(headers)


def _death(chance):
    verdict = chance.choices(("rejected", "not_sent", "possibly_persisted", "absent"), (45, 15, 30, 10))[0]
    code = "_MSG_TIMED_OUT" if verdict in ("possibly_persisted", "absent") else "POLICY_VIOLATION"
    return {
        "verdict": verdict, "verdict_reason": "So says the scenario.", "kind": "timed_out", "code": code,
        "error_text": f"Local: {code}", "fingerprint": code.lower()[:12],
    }  # fmt: skip


def bury(store, servers, count, topics, chance, *, cluster_id, doubtful=True, bad=False):
    """Makes the dead letters, writes half of the doubtful ones to their topics, as their producer did, and keeps all."""
    dead_letters = make(count, topics, chance, cluster_id=cluster_id, now=time.time())
    if bad:
        dead_letters = [
            replace(one, key=None, value=one.value or b"v", verdict="rejected") for one in dead_letters
        ]
    there = [
        one
        for one in dead_letters
        if doubtful and one.verdict == "possibly_persisted" and chance.random() < 0.5
    ]
    write(servers, there)
    dead = DeadLetters(store)
    for start in range(0, count, _AT_ONCE):
        dead.add(dead_letters[start : start + _AT_ONCE])
    return Buried(dead_letters, frozenset(number_of(one.message_id) for one in there))


def write(servers, dead_letters):
    """As the producer that lost their acknowledgements wrote them."""
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
        raise RuntimeError("the dead letters that are to be there already did not arrive")
