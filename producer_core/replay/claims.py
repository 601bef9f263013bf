"""A runner's hold of an operation: claim records and settle them, each step one write transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from producer_core.dlq import DeadLetters
from producer_core.events import DeadLetter, Verdict
from producer_core.replay import operation as operations
from producer_core.replay.operation import Operation

if TYPE_CHECKING:
    from producer_core.store import Store

Ending = Literal["acknowledged", "landed", "failed", "skipped", "pending"]

_LETTER_STATES: Mapping[Ending, str] = MappingProxyType(
    {"acknowledged": "replayed", "landed": "landed", "failed": "dead", "skipped": "dead", "pending": "dead"}
)
_MEANWHILE: Mapping[str | None, str] = MappingProxyType(
    {
        "archived": "archived meanwhile",
        "purged": "purged meanwhile",
        "replaying": "another replay has it",
        "replayed": "another replay delivered it",
        "landed": "found on its topic meanwhile",
        "dead": "it cannot be replayed",
        None: "it is no longer there",
    }
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a claimed record. `pending` gives it back unsent; `letter` is its new death."""

    message_id: str
    ending: Ending
    text: str | None = None
    partition: int | None = None
    offset: int | None = None
    letter: DeadLetter | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Orphan:
    """A record that a dead owner left claimed: perhaps sent, perhaps not."""

    letter: DeadLetter
    claimed_at: float


@dataclass(frozen=True, slots=True)
class Held:
    """An operation as a runner finds it: whose it is, and until when."""

    operation_id: str
    owner: str | None
    lease_until: float | None


@dataclass(frozen=True, slots=True)
class Turn:
    """One visit to the store. `over`: ended, paused, or not ours any more; then nothing may be sent."""

    over: bool
    letters: tuple[DeadLetter, ...] = ()


class Claims:
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

    def take(self, seen: Held | None = None) -> bool:
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

    def let_go(self) -> None:
        """Gives the operation back as it is, for the next runner."""
        self._change("replay_let_go")

    def get(self) -> Operation:
        return operations.get(self._store, self.operation_id)

    def orphans(self) -> list[Orphan]:
        """What the owner before us left claimed; to be asked right after `take`."""
        rows = self._store.rows("replay_orphans", operation=self.operation_id)
        claimed_at = {row["message_id"]: row["claimed_at"] for row in rows}
        letters = self._dead.bodies(list(claimed_at))
        return [Orphan(letter, claimed_at[letter.message_id]) for letter in letters]

    def turn(self, outcomes: Sequence[Outcome], *, want: int, busy: bool) -> Turn:
        """Settles `outcomes`, then claims up to `want` records; ends or lets go when nothing is open.

        `busy` says that records are in flight still. When the operation is not ours any more nothing is
        changed: whoever has it now looks on the topic for what we sent.
        """
        with self._store.borrow(write=True):
            if not self.renew():
                return Turn(over=True)
            self._settle(outcomes)
            match self.get().state:
                case "planned" | "running":
                    return self._go_on(want, busy)
                case "paused" if not busy:
                    self.let_go()
                    return Turn(over=True)
                case "cancelled" if not busy:
                    operations.end(self._store, self.operation_id, self._clock())
                    return Turn(over=True)
                case "paused" | "cancelled":
                    return Turn(over=False)
            return Turn(over=True)

    def _go_on(self, want: int, busy: bool) -> Turn:
        self._change("replay_switch", state="running", message=None, allowed=["planned"])
        letters = self._claim(want) if want > 0 else ()
        if not letters and not busy and not self._open():
            operations.end(self._store, self.operation_id, self._clock())
            return Turn(over=True)
        return Turn(over=False, letters=letters)

    def _claim(self, want: int) -> tuple[DeadLetter, ...]:
        rows = self._store.rows("replay_next", operation=self.operation_id, count=want)
        ids = [row["message_id"] for row in rows]
        if not ids:
            return ()
        claimed = self._dead.claim(self.operation_id, ids)
        taken = set(claimed)
        self._records("pending", [(message_id, "claimed", None) for message_id in claimed])
        self._skip([message_id for message_id in ids if message_id not in taken])
        order = {message_id: place for place, message_id in enumerate(ids)}
        return tuple(sorted(self._dead.bodies(claimed), key=lambda letter: order[letter.message_id]))

    def _skip(self, ids: Sequence[str]) -> None:
        """Records whose letters somebody else had first: he wins, and we say so."""
        if not ids:
            return
        rows = self._store.rows("replay_letter_states", ids=ids)
        states = {row["message_id"]: row["state"] for row in rows}
        records = [(one, "skipped", _MEANWHILE.get(states.get(one), "it changed meanwhile")) for one in ids]
        self._count(self._records("pending", records).values())

    def _settle(self, outcomes: Sequence[Outcome]) -> None:
        if not outcomes:
            return
        texts = [None if one.ending == "pending" else one.text for one in outcomes]
        moves = [(one.message_id, one.ending, text) for one, text in zip(outcomes, texts, strict=True)]
        changed = self._records("claimed", moves)
        mine = [one for one in outcomes if one.message_id in changed]
        self._count(changed.values())
        self._store.execute(
            "replay_settle_letters",
            operation=self.operation_id,
            now=self._clock(),
            ids=[one.message_id for one in mine],
            states=[_LETTER_STATES[one.ending] for one in mine],
            partitions=[one.partition for one in mine],
            offsets=[one.offset for one in mine],
            failed=[int(one.ending == "failed") for one in mine],
            verdicts=[one.verdict for one in mine],
            reasons=[one.text if one.verdict else None for one in mine],
        )
        self._dead.add([one.letter for one in mine if one.letter is not None])

    def _records(self, before: str, moves: Sequence[tuple[str, str, str | None]]) -> dict[str, str]:
        """Moves records that are in the state `before`; those that were, with their new state."""
        if not moves:
            return {}
        rows = self._store.rows(
            "replay_records",
            operation=self.operation_id,
            before=before,
            ids=[message_id for message_id, _, _ in moves],
            states=[state for _, state, _ in moves],
            texts=[text for _, _, text in moves],
        )
        return {row["message_id"]: row["state"] for row in rows}

    def _count(self, states: Iterable[str]) -> None:
        counts = Counter(states)
        names: tuple[Ending, ...] = ("acknowledged", "landed", "failed", "skipped")
        self._change("replay_count", **{name: counts[name] for name in names})

    def _open(self) -> int:
        return int(self._store.rows("replay_open_records", operation=self.operation_id)[0]["open"])

    def _change(self, name: str, **parameters: object) -> int:
        if name in ("replay_take", "replay_renew", "replay_let_go"):
            parameters["owner"] = self._owner
        return self._store.execute(name, operation=self.operation_id, **parameters)
