"""A runner's hold of an operation: claim records and settle them, each step one write transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

import orjson

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.bulk_update import claim_next, read_replay_records, settle_claimed, settle_records
from producer_core.replay import operation as operations
from producer_core.replay.broker_check import BrokerCheck, ListedRecord
from producer_core.replay.operation import Operation
from producer_core.replay.outcome import Ending, OrphanedRecord, RecordOutcome
from producer_core.store.queries import run

if TYPE_CHECKING:
    from producer_core.store import Store


@dataclass(frozen=True, slots=True)
class LeaseState:
    """An operation as a runner finds it: whose it is, and until when."""

    operation_id: str
    owner: str | None
    lease_until: float | None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """One visit to the store. `over`: ended, paused, or not ours any more; then nothing may be sent.
    `halt`: it was paused, cancelled, or stops itself; what is in flight is settled, and nothing more is sent.
    `rate` is how many a second an operator wants now at most."""

    over: bool
    halt: bool = False
    dead_letters: tuple[ReplayRecord, ...] = ()
    rate: float | None = None


BYTES = 32 * 1024 * 1024
"""Keys and values in flight, at most; a single larger record goes alone."""
_LISTED = 50_000
QUARANTINE_AFTER = 3
"""Replays in which a record failed again until bulk replays leave it out (setting `replay.quarantine_after`)."""


Floors = Mapping[str, Mapping[int, int]]
"""By topic and partition: the offset at or below which nothing lies that was sent and is not settled."""


class ReplayClaims:
    """The operation `operation_id` in the hands of `owner`, while its lease lasts. Used by one thread."""

    def __init__(
        self, store: Store, operation_id: str, owner: str, *, lease: float, clock: Callable[[], float]
    ) -> None:
        self.operation_id = operation_id
        self._store = store
        self._owner = owner
        self._lease = lease
        self._clock = clock
        self._dead = DeadLetters(store, clock=clock)

    def take(self, seen: LeaseState | None = None) -> bool:
        """Takes the lease where nobody has it, or from the dead owner who was `seen` to have it.

        False when somebody else was first, or when that owner renewed his lease meanwhile.
        """
        owner, until = (seen.owner, seen.lease_until) if seen else (None, None)
        return (
            self._change(
                "replay_take", now=self._clock(), lease=self._lease, seen_owner=owner, seen_until=until
            )
            > 0
        )

    def renew(self) -> bool:
        """False: the operation is another process's now, or has ended."""
        return self._change("replay_renew", now=self._clock(), lease=self._lease) > 0

    def release(self) -> None:
        """Gives the operation back as it is, for the next runner; one that was cancelled meanwhile ends with it."""
        with self._store.borrow(write=True):
            if self._change("replay_let_go"):
                operations.end_cancelled(self._store, self.get(), self._clock())

    def get(self) -> Operation:
        return operations.get(self._store, self.operation_id)

    def orphans(self) -> list[OrphanedRecord]:
        """What the owner before us left claimed; to be asked right after `take`."""
        with self._store.borrow(write=True) as connection:
            found = self._store.rows("replay_orphans", operation=self.operation_id)
            claimed_at = {row["message_id"]: row["claimed_at"] for row in found}
            dead_letters = read_replay_records(connection, list(claimed_at))
        return [
            OrphanedRecord(dead_letter, claimed_at[dead_letter.message_id]) for dead_letter in dead_letters
        ]

    def topics(self) -> list[str]:
        """Of its open records."""
        return [row["topic"] for row in self._store.rows("replay_topics", operation=self.operation_id)]

    def listed(self) -> Iterator[ListedRecord]:
        """Its open records, as a look ahead must know them, in slices."""
        after = 0
        while True:
            with self._store.borrow() as connection:
                rows = run(
                    connection, "replay_listed", operation=self.operation_id, after=after, count=_LISTED
                ).fetchall()
            if not rows:
                return
            after = rows[-1][0]
            yield from (ListedRecord._make(row[1:]) for row in rows)

    def checked(self, found: BrokerCheck, flags: Mapping[str, str], message: str) -> None:
        """What a look ahead found, of the operation and of single records; who asked to see it decides now, unless
        it may go on by itself and there is nothing to ask."""
        from producer_core.replay.dry_run import dry_run

        with self._store.borrow(write=True):
            operation = self.get()
            goes = (
                bool(operation.go_at_once)
                and dry_run(self._store, DeadLetterFilter(), operation=operation, check=found).safe
            )
            self._change("replay_flag", ids=list(flags), flags=list(flags.values()))
            self._change(
                "replay_checked", checked=found.to_json(), message=message, now=self._clock(), goes=goes
            )

    def look_again(self) -> None:
        """Back to the look ahead, for who looks next; nothing of it was sent."""
        self._change("replay_look_again")

    def skip_flagged(self, flag: str, text: str, topics: Sequence[str] | None = None) -> None:
        """Leaves out the open records with this flag, of these topics or of all; they stay dead letters."""
        with self._store.borrow(write=True):
            skipped = self._change(
                "replay_skip_flagged", flag=flag, text=text, topics=topics, now=self._clock()
            )
            self._count({"skipped": skipped})

    def begin(self, guarantee: str) -> None:
        """Writes down how it is delivered; decided once."""
        self._change("replay_begin", delivery=guarantee)

    def say(self, text: str) -> None:
        """What an operator should know of it while it is under way."""
        self._change("replay_say", message=text)

    def doubtful_ahead(self, topic: str, count: int, *, everything_may_go: bool) -> list[tuple[str, float]]:
        """Doubtful records to come of a topic, each with the oldest time (seconds) that it can carry there."""
        now = inf if everything_may_go else self._clock()
        rows = self._store.rows(
            "replay_doubtful_ahead", operation=self.operation_id, topic=topic, now=now, count=count
        )
        return [(row["message_id"], row["since"]) for row in rows]

    def turn(
        self,
        outcomes: Sequence[RecordOutcome],
        *,
        want: int,
        busy: bool,
        room: int = BYTES,
        stop: str | None = None,
        floors: Floors | None = None,
        everything_may_go: bool = True,
    ) -> BatchResult:
        """Settles `outcomes`, then claims up to `want` records, none where one was given back; ends or lets go when
        nothing is open.

        `busy` says that records are in flight still, `room` how many bytes more may be, `stop` that it must stop itself, and why. `floors` are written
        down with the claim. Unless `everything_may_go`, it claims only up to the first record of which an old
        attempt may still arrive. When the operation is not ours any more nothing is changed: whoever has it now
        looks on the topic for what we sent.
        """
        with self._store.borrow(write=True):
            if not self.renew():
                return BatchResult(over=True)
            self._settle(outcomes)
            if any(one.ending == "pending" for one in outcomes):
                # Rows that a trigger wrote anew must not be claimed in the same transaction: DuckDB 2.0.0 damages the file.
                want = 0
            if floors is not None:
                self._change("replay_floors", floors=_as_json(floors))
            operation = self.get()
            match operation.state:
                case "planned" | "running" if stop is None:
                    return replace(self._go_on(want, busy, room, everything_may_go), rate=operation.rate)
                case "planned" | "running" if not busy:
                    operations.end(self._store, self.operation_id, self._clock(), stopped=stop)
                    return BatchResult(over=True)
                case "paused" | "cancelled" if not busy:
                    self.release()  # ends what was cancelled, unless something is claimed that nobody has looked for
                    return BatchResult(over=True)
                case "planned" | "running" | "paused" | "cancelled":
                    return BatchResult(over=False, halt=True)
            return BatchResult(over=True)

    def _go_on(self, want: int, busy: bool, room: int, everything_may_go: bool) -> BatchResult:
        self._change("replay_switch", state="running", message=None, allowed=["planned"])
        until = inf if everything_may_go else self._clock()
        dead_letters = self._claim(want, until, room, alone=not busy) if want > 0 else ()
        if not dead_letters and not busy and not self._open():
            operations.end(self._store, self.operation_id, self._clock())
            return BatchResult(over=True)
        return BatchResult(over=False, dead_letters=dead_letters)

    def _claim(self, want: int, until: float, room: int, *, alone: bool) -> tuple[ReplayRecord, ...]:
        with self._store.borrow(write=True) as connection:
            dead_letters, others = claim_next(
                connection, self.operation_id, count=want, max_bytes=room, arrived_by=until,
                allow_oversized=alone, now=self._clock(),
            )  # fmt: skip
        self._skip(others)
        return tuple(dead_letters)

    def _skip(self, ids: Sequence[str]) -> None:
        """Records whose dead letters somebody else had first: he wins, and we say so."""
        if not ids:
            return
        rows = self._store.rows("replay_letter_states", ids=ids)
        states = {row["message_id"]: row["state"] for row in rows}
        told = [
            RecordOutcome(one, "skipped", operations.MEANWHILE.get(states.get(one), "it changed meanwhile"))
            for one in ids
        ]
        with self._store.borrow(write=True) as connection:
            ended = settle_records(connection, self.operation_id, "pending", told, now=self._clock())
        self._count({"skipped": len(ended)})

    def _settle(self, outcomes: Sequence[RecordOutcome]) -> None:
        if not outcomes:
            return
        quarantine_after = self._store.get_setting("replay.quarantine_after", QUARANTINE_AFTER)
        with self._store.borrow(write=True) as connection:
            known = settle_claimed(
                connection, self.operation_id, outcomes, now=self._clock(), quarantine_after=quarantine_after
            )
        mine = [one for one in outcomes if one.message_id in known]
        self._count(Counter(one.ending for one in mine))
        self._die_again([one for one in mine if one.death is not None])

    def _die_again(self, outcomes: Sequence[RecordOutcome]) -> None:
        """A new death is added to the dead letter's own story."""
        deaths = {one.message_id: one.death for one in outcomes if one.death is not None}
        dead_letters = self._dead.bodies(list(deaths)) if deaths else []
        self._dead.add([deaths[dead_letter.message_id].of(dead_letter) for dead_letter in dead_letters])

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
    """What was written down of an operation's floors."""
    plain = orjson.loads(text) if text else {}
    return {topic: {int(number): off for number, off in parts.items()} for topic, parts in plain.items()}
