"""Hold the lease of an operation, claim its records and settle them, each step in one write transaction."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import orjson

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.delivery.record_batch import RecordBatch
from producer_core.dlq import DeadLetterFilter, DeadLetters, replay_waves
from producer_core.dlq.approvals import gate
from producer_core.dlq.claim_and_settle import claim_next, read_replay_records, settle_claimed, settle_records
from producer_core.dlq.claim_position import ClaimPosition
from producer_core.dlq.settle_batch import settle_batch
from producer_core.errors import StoreTooNew
from producer_core.replay import operation as operations
from producer_core.replay.broker_check import BrokerCheck
from producer_core.replay.doubtful_records import still_doubtful
from producer_core.replay.open_records import OpenRecords
from producer_core.replay.operation import Operation
from producer_core.replay.outcome import AcknowledgedBatch, Ending, OrphanedRecord, RecordOutcome
from producer_core.replay.phrases import CHANGED, UNCLAIMED_REASONS
from producer_core.store import required_features

if TYPE_CHECKING:
    from producer_core.store import Store


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The owner of an operation and the end of its lease, as read from the store."""

    operation_id: str
    owner: str | None
    lease_until: float | None


_SKIP_S = 0.5
"""Seconds after which a claim does not skip further records."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Result of one store update.

    `over`: the operation ended, is paused, or belongs to another runner; no record may be sent. `halt`: it was paused,
    cancelled, or stopped; records in flight are settled, and no more are sent. `rate` is the current rate limit.
    `seconds`: the duration of the update, without the wait for the store.
    """

    over: bool
    halt: bool = False
    dead_letters: Sequence[ReplayRecord] = ()
    rate: float | None = None
    seconds: float = 0.0


class ClaimsRefused(StoreTooNew):
    """The store settled the outcomes, but requires a feature without which no record may be claimed."""


class Beginning(NamedTuple):
    """The records that the previous owner left claimed, and the rate limit."""

    orphans: list[OrphanedRecord]
    rate: float | None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The records to claim: at most `count`, or `wave` as an open wave, with at most `bytes`, of which no earlier attempt may
    arrive after `arrived_by`."""

    count: int
    wave: int
    bytes: int
    arrived_by: float


BYTES = 32 * 1024 * 1024
"""Maximum bytes of keys and values in flight; a single larger record is sent alone."""
QUARANTINE_AFTER = 3
"""Failed replays after which bulk replays leave a record out (setting `replay.quarantine_after`)."""


Floors = Mapping[str, Mapping[int, int]]
"""By topic and partition: every record sent at or below this offset is settled."""


class ReplayClaims:
    """The lease of `owner` on the operation `operation_id`. Used by one thread."""

    def __init__(
        self, store: Store, operation_id: str, owner: str, *, lease: float, clock: Callable[[], float]
    ) -> None:
        self.operation_id = operation_id
        self._store = store
        self._owner = owner
        self._lease = lease
        self._clock = clock
        self._dead = DeadLetters(store, clock=clock)
        self._position = ClaimPosition()
        self._records = OpenRecords(store, operation_id)
        self._by_wave = False  # whether an open wave of this runner may exist

    def take(self, seen: LeaseState | None = None) -> bool:
        """Take the lease if it is free, or from the dead owner last `seen` with it.

        Return False if another runner was faster, or if that owner has renewed its lease.
        """
        owner, until = (seen.owner, seen.lease_until) if seen else (None, None)
        now, lease = self._clock(), self._lease
        with self._store.borrow(write=True) as connection:
            required_features.check(connection)
            if not self._change("replay_take", now=now, lease=lease, seen_owner=owner, seen_until=until):
                return False
            replay_waves.write_claims(connection, self.operation_id)  # those that the previous owner left
            return True

    def renew(self) -> bool:
        """Renew the lease; return False if another process has the operation or it has ended."""
        return self._change("replay_renew", now=self._clock(), lease=self._lease) > 0

    def release(self) -> None:
        """Release the operation for the next runner; an operation cancelled since then ends here, if this version may end it."""
        with self._store.borrow(write=True):
            if self._change("replay_let_go"):
                with contextlib.suppress(StoreTooNew):
                    operations.end_cancelled(self._store, self.get(), self._clock())

    def get(self) -> Operation:
        return operations.get(self._store, self.operation_id)

    def orphans(self) -> list[OrphanedRecord]:
        """Return the records that the previous owner left claimed; call it right after `take`."""
        with self._store.borrow(write=True) as connection:
            replay_waves.write_claims(connection, self.operation_id)
            found = self._store.rows("replay_orphans", operation=self.operation_id)
            claimed_at = {row["message_id"]: row["claimed_at"] for row in found}
            dead_letters = read_replay_records(connection, list(claimed_at))
        return [
            OrphanedRecord(dead_letter, claimed_at[dead_letter.message_id]) for dead_letter in dead_letters
        ]

    def topics(self) -> list[str]:
        """Return the topics of the operation's open records; read once, until records are skipped."""
        return self._records.all_topics()

    def open_records(self) -> OpenRecords:
        """Return the open records for the preflight check."""
        return self._records

    def save_check(self, found: BrokerCheck, flags: Mapping[str, str], message: str) -> None:
        """Store the result of the preflight check, for the operation and for single records.

        The operation is then ready for a decision, or starts by itself if that is allowed and no decision is needed.
        """
        from producer_core.replay.dry_run import dry_run

        with self._store.borrow(write=True):
            operation = self.get()
            starts = (
                bool(operation.go_at_once)
                and dry_run(self._store, DeadLetterFilter(), operation=operation, check=found).safe
                and gate.admit_without_asking(self._store, self.operation_id, now=self._clock())
            )
            self._change("replay_flag", ids=list(flags), flags=list(flags.values()))
            self._change(
                "replay_checked", checked=found.to_json(), message=message, now=self._clock(), goes=starts
            )

    def request_check(self) -> None:
        """Return the operation to the preflight check; none of its records was sent."""
        self._change("replay_look_again")

    def skip_flagged(self, flag: str, text: str, topics: Sequence[str] | None = None) -> None:
        """Skip the open records with this flag, of these topics or of all; they remain dead letters."""
        with self._store.borrow(write=True):
            skipped = self._change(
                "replay_skip_flagged", flag=flag, text=text, topics=topics, now=self._clock()
            )
            self._count({"skipped": skipped})
        if skipped:
            self._records = OpenRecords(self._store, self.operation_id)

    def begin(self, guarantee: str) -> Beginning:
        """Store the delivery guarantee, which is decided once. Return what the previous owner left, and the rate limit."""
        with self._store.borrow(write=True):
            self._change("replay_begin", delivery=guarantee)
            return Beginning(self.orphans(), self.get().rate)

    def say(self, text: str) -> None:
        """Store the status text that operators see while the replay runs."""
        self._change("replay_say", message=text)

    def doubtful_ahead(self, topic: str, count: int, *, everything_may_go: bool) -> list[tuple[str, float]]:
        """Return upcoming doubtful records of a topic, each with the oldest timestamp (seconds) it can have there."""
        now = inf if everything_may_go else self._clock()
        rows = self._store.rows(
            "replay_doubtful_ahead", operation=self.operation_id, topic=topic, now=now, count=count
        )
        return [(row["message_id"], row["since"]) for row in rows]

    def settle_and_claim(
        self,
        outcomes: Sequence[RecordOutcome],
        *,
        want: int,
        busy: bool,
        room: int = BYTES,
        stop: str | None = None,
        acknowledged: Sequence[AcknowledgedBatch] = (),
        floors: Floors | None = None,
        everything_may_go: bool = True,
        wave: int = 0,
    ) -> BatchResult:
        """Settle `outcomes` and `acknowledged`, then claim up to `want` records; end or release the operation if none is open.

        It claims no record if an outcome returns one. `busy` says that records are still in flight, `room` is the number
        of bytes that may be added, `stop` is the reason to stop the replay. `floors` are stored with the claim. Unless
        `everything_may_go`, it claims only up to the first record of which an old request may still arrive. Up to `wave`
        records that are all safe to send are claimed as an open wave instead. If the lease is lost, it changes nothing: the
        new owner looks on the topic for the records sent.

        Raise ClaimsRefused instead of a claim, or of the end of a stopped replay, if the store requires a feature that this
        version lacks. The outcomes are settled then, because a version that lacks it has sent these records before.
        """
        if outcomes and self._by_wave:
            self._write_claims()
        by_wave, self._by_wave = (
            self._by_wave,
            self._by_wave or wave > 0,
        )  # if the call fails, it may have committed
        with self._position.forgotten_on_error(), self._store.borrow(write=True) as connection:
            began = time.monotonic()
            if not self.renew():
                return BatchResult(over=True)
            refusal, refused = required_features.refusal(connection), False
            if refusal is not None:  # a later version continues or ends the operation
                refused, stop = bool(want) or (stop is not None and not busy), None
            self._settle_acknowledged(acknowledged)
            self._settle(outcomes)
            if any(one.ending == "pending" for one in outcomes):
                # DuckDB 2.0.0 damages the file if rows rewritten by a trigger are claimed in the same transaction.
                want = 0
                self._position.forget()
            if floors is not None:
                self._change("replay_floors", floors=_as_json(floors))
            claims = 0 if refusal else want
            wanted = _Wanted(claims, wave if claims else 0, room, inf if everything_may_go else self._clock())
            result = self._end_or_continue(wanted, busy, stop)
        self._by_wave = by_wave or (wave > 0 and isinstance(result.dead_letters, RecordBatch))
        if refusal is not None and refused and not result.over:
            raise ClaimsRefused(refusal.what, fix=refusal.fix)
        return replace(result, seconds=time.monotonic() - began)  # with the commit

    def _write_claims(self) -> None:
        """Handle the records of open waves one by one from now on.

        A transaction of its own: DuckDB 2.0.0 may damage the file if one transaction rewrites rows that it changed before.
        """
        with self._store.borrow(write=True) as connection:
            replay_waves.write_claims(connection, self.operation_id)
        self._by_wave = False

    def _end_or_continue(self, wanted: _Wanted, busy: bool, stop: str | None) -> BatchResult:
        operation = self.get()
        match operation.state:
            case "planned" | "running" if stop is None:
                return replace(self._continue(wanted, busy), rate=operation.rate)
            case "planned" | "running" if not busy:
                operations.end(self._store, self.operation_id, self._clock(), stopped=stop)
                return BatchResult(over=True)
            case "paused" | "cancelled" if not busy:
                self.release()  # ends a cancelled operation, unless some claimed records have not been looked for yet
                return BatchResult(over=True)
            case "planned" | "running" | "paused" | "cancelled":
                return BatchResult(over=False, halt=True)
        return BatchResult(over=True)

    def _continue(self, wanted: _Wanted, busy: bool) -> BatchResult:
        self._change("replay_switch", state="running", message=None, allowed=["planned"])
        dead_letters = self._claim(wanted, alone=not busy) if wanted.count > 0 else ()
        if not dead_letters and not busy and not self._open():
            operations.end(self._store, self.operation_id, self._clock())
            return BatchResult(over=True)
        return BatchResult(over=False, dead_letters=dead_letters)

    def _claim(self, wanted: _Wanted, *, alone: bool) -> Sequence[ReplayRecord]:
        """Claim the next records. Those whose dead letters cannot be claimed any more are skipped, and a wave follows them
        within `_SKIP_S`, because no other process can write to the store during this call."""
        deadline = time.monotonic() + _SKIP_S
        while True:
            with self._store.borrow(write=True) as connection:
                dead_letters, others = claim_next(
                    connection, self.operation_id, position=self._position, count=wanted.count,
                    max_bytes=wanted.bytes, arrived_by=wanted.arrived_by, allow_oversized=alone, now=self._clock(),
                    wave=wanted.wave,
                )  # fmt: skip
            self._skip(others)
            if dead_letters or not others or not wanted.wave or time.monotonic() > deadline:
                return dead_letters

    def _skip(self, ids: Sequence[str]) -> None:
        """Skip records whose dead letters another operation or operator has handled, with the reason."""
        if not ids:
            return
        rows = self._store.rows("replay_letter_states", ids=ids)
        states = {row["message_id"]: row["state"] for row in rows}
        outcomes = [
            RecordOutcome(one, "skipped", UNCLAIMED_REASONS.get(states.get(one), CHANGED)) for one in ids
        ]
        with self._store.borrow(write=True) as connection:
            ended = settle_records(connection, self.operation_id, "pending", outcomes, now=self._clock())
        self._count({"skipped": len(ended)})

    def _settle_acknowledged(self, batches: Sequence[AcknowledgedBatch]) -> None:
        if not batches:
            return
        batch = AcknowledgedBatch.joined(batches)
        with self._store.borrow(write=True) as connection:
            settled = settle_batch(
                connection,
                self.operation_id,
                batch.records,
                batch.partitions,
                batch.offsets,
                now=self._clock(),
            )
        self._count({"acknowledged": settled})

    def _settle(self, outcomes: Sequence[RecordOutcome]) -> None:
        if not outcomes:
            return
        quarantine_after = self._store.get_setting("replay.quarantine_after", QUARANTINE_AFTER)
        with self._store.borrow(write=True) as connection:
            known = settle_claimed(
                connection, self.operation_id, outcomes, now=self._clock(), quarantine_after=quarantine_after
            )
        own = [one for one in outcomes if one.message_id in known]
        self._count(Counter(one.ending for one in own))
        self._add_failures([one for one in own if one.death is not None])

    def _add_failures(self, outcomes: Sequence[RecordOutcome]) -> None:
        """Add each new failure to the history of its dead letter. A verdict that became doubtful since the claim, for example
        by an export, stays doubtful."""
        deaths = {one.message_id: one.death for one in outcomes if one.death is not None}
        dead_letters = self._dead.bodies(list(deaths)) if deaths else []
        self._dead.add([still_doubtful(one, deaths[one.message_id]).of(one) for one in dead_letters])

    def _count(self, counts: Mapping[str, int]) -> None:
        names: tuple[Ending, ...] = ("acknowledged", "landed", "failed", "skipped")
        self._change("replay_count", **{name: counts.get(name, 0) for name in names})

    def _open(self) -> int:
        return int(self._store.rows("replay_open_records", operation=self.operation_id)[0]["open"])

    def _change(self, name: str, **parameters: object) -> int:
        if name in ("replay_take", "replay_renew", "replay_let_go", "replay_look_again"):
            parameters["owner"] = self._owner
        return self._store.execute(name, operation=self.operation_id, **parameters)


def _as_json(floors: Floors) -> str:
    plain = {topic: {str(number): off for number, off in parts.items()} for topic, parts in floors.items()}
    return orjson.dumps(plain).decode()


def floors_of(text: str | None) -> dict[str, dict[int, int]]:
    """Parse the floors stored with an operation."""
    plain = orjson.loads(text) if text else {}
    return {topic: {int(number): off for number, off in parts.items()} for topic, parts in plain.items()}
