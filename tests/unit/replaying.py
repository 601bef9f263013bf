"""What the replay tests share: dead letters, a scripted sender, and a store with dead letters in it."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.dlq import DeadLetters
from producer_core.events import Attempt, DeadLetter
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.messages import id_bytes, id_text
from producer_core.replay import ReplayResult
from producer_core.replay.broker_check import BrokerCheck, TopicCheck
from producer_core.replay.claims import ReplayClaims
from producer_core.store import Batch, ProducerRow, Store

SESSION = uuid.UUID("01930000-0000-7000-8000-000000000001")
CLUSTER = "cluster-1"


def message_id(number: int) -> str:
    return id_text(id_bytes(SESSION, number))


def dead_letter(number: int, **changes: object) -> DeadLetter:
    known = DeadLetter(
        message_id=message_id(number),
        cluster_id=CLUSTER,
        producer_id=str(SESSION),
        topic="orders",
        key=b"k",
        value=b"v%d" % number,
        headers=(("trace", b"\x00\x01"), ("trace", None)),
        partition=None,
        timestamp_ms=None,
        verdict="rejected",
        verdict_reason="The broker refused it.",
        kind="permanent",
        code="POLICY_VIOLATION",
        error_text="Broker: Policy violation",
        fingerprint="abc",
        attempts=(Attempt(1000.0, "POLICY_VIOLATION", "Broker: Policy violation"),),
        accepted_at=999.0 + number,
        failed_at=1000.0 + number,
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def in_hand(number: int, **changes: object) -> ReplayRecord:
    """The same dead letter as a replay has it."""
    whole = dead_letter(number, **changes)
    return ReplayRecord._make(getattr(whole, name) for name in ReplayRecord._fields)


def buried(store: Store, count: int, **changes: object) -> list[str]:
    dead_letters = [dead_letter(number, **changes) for number in range(count)]
    DeadLetters(store).add(dead_letters)
    return [one.message_id for one in dead_letters]


def alive(store: Store, now: float, *, producer_id: str = "p-1", cluster: str = CLUSTER) -> None:
    """A heartbeat of a producer that runs replays."""
    row = ProducerRow(
        producer_id, cluster, "client", "host", 1, "0", now, now, None, True, None, 0, 0, 0, 0, 0, None, True,
        "at_least_once", "{}",
    )  # fmt: skip
    store.append(Batch(producer_id, time.monotonic_ns(), producer=row))


class FakeClock:
    def __init__(self, now: float = 5000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds


class ScriptedSender:
    """Acknowledges what `refuse` does not name; `hold` keeps the reports back until `release`."""

    cluster_id = CLUSTER

    def __init__(self, identity: str = "sender-1", *, refuse: Iterable[str] = (), hold: bool = False) -> None:
        self.identity = identity
        self.refuse = set(refuse)
        self.hold = hold
        self.sent: list[ReplayRecord] = []
        self._held: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def sent_ids(self) -> list[str]:
        return [one.message_id for one in self.sent]

    def resend(self, one: ReplayRecord, settled: Callable[[ReplayResult], None]) -> None:
        with self._lock:
            self.sent.append(one)
            report = lambda: settled(self.outcome(one))  # noqa: E731
            if self.hold:
                self._held.append(report)
                return
        report()

    def outcome(self, one: ReplayRecord) -> ReplayResult:
        if one.message_id not in self.refuse:
            return ReplayResult(one.message_id, "acknowledged", 0, len(self.sent))
        text = "Broker: Policy violation"
        attempts = (Attempt(6000.0, "POLICY_VIOLATION", text),)
        death = dead_letter(0, **one._asdict(), failed_at=6000.0, error_text=text, attempts=attempts)
        return ReplayResult(one.message_id, "failed", dead_letter=death, text=text)

    def release(self) -> None:
        with self._lock:
            self.hold, held, self._held = False, self._held, []
        for report in held:
            report()


def answering(outcomes: dict[str, str], asked: list[str] | None = None):
    """A probe that says what a test wants; a record it does not name is not found."""

    def probe(topic: str, ids: Iterable[str], since_ms: int | None) -> dict[str, ProbeResult]:
        ids = list(ids)
        if asked is not None:
            asked.extend(ids)
        return {
            one: ProbeResult(
                outcomes.get(one, "not_found"), 3, 42, 7, f"said {outcomes.get(one, 'not_found')}"
            )  # type: ignore[arg-type]
            if outcomes.get(one) == "found"
            else ProbeResult(
                outcomes.get(one, "not_found"), None, None, 7, f"said {outcomes.get(one, 'not_found')}"
            )  # type: ignore[arg-type]
            for one in ids
        }

    return probe


def looked(store: Store, operation_id: str, **changes: object) -> None:
    """A runner has looked ahead and found nothing in the way: what may go by itself goes."""
    known = {
        "topic": "orders", "records": 3, "bytes": 9, "partitions": 4, "max_message_bytes": 1000, "cleanup_policy": "delete",
        "too_large": 0, "newer_keys": 0, "looked_at": 7, "complete": True, "text": "orders takes them.",
    }  # fmt: skip
    claims = ReplayClaims(store, operation_id, "looks/1", lease=15.0, clock=time.time)
    claims.checked(BrokerCheck((TopicCheck(**{**known, **changes}),), time.time()), {}, "orders takes them.")  # type: ignore[arg-type]
