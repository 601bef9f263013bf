"""A replay as a durable operation: what it is, and what an operator may do with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import orjson

from producer_core._internal.masking import mask_or_hide
from producer_core.errors import ReplayError

if TYPE_CHECKING:
    from producer_core.store import Store

State = Literal["checking", "ready", "planned", "running", "paused", "done", "stopped", "cancelled", "failed"]
"""`checking`: a runner looks ahead; `ready`: that is done, and a person decides; `planned`: it waits for a runner."""

Newer = Literal["auto", "skip", "send"]
"""What becomes of a record for whose key a newer one was acknowledged since: `auto` skips it on compacted topics,
and where nobody can tell whether a topic is."""

Inconclusive = Literal["keep", "send"]
"""What becomes of a record that may be on its topic and was not found there: it stays a dead letter, or it is sent all
the same, which may write a second copy."""

PIPELINE = "pipeline"
"""The origin of an operation that a Spark job carries out. No other runner may touch it: its records go out under
transactional ids of its slices, which an ordinary runner would not fence."""

SENT_ANYWAY = "inconclusive records are sent anyway, and a second copy of them is possible"
CANCELLED = "cancelled before it was sent"
MEANWHILE: Mapping[str | None, str] = MappingProxyType(
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
"""Why a record was not claimed, by the state of its dead letter then."""
_ABANDONED = "its runner died, and nobody is there to look on the topic for it"
STALE = 300.0
"""Seconds after which a look ahead is made again."""
_REASONS_TOLD = 3
_SILENT = 60.0  # seconds since the last sign of anybody on a cluster


@dataclass(frozen=True, slots=True)
class Operation:
    """One replay. `message` is the last thing worth saying of it, in a sentence.

    `failed_again` are dead letters again, `landed` were found on the topic and not sent, `skipped` were left
    as they were; the reasons are with the records.
    """

    operation_id: str
    cluster_id: str
    selection: str
    state: State
    who: str
    origin: str
    created_at: float
    started_at: float | None
    finished_at: float | None
    total: int
    acknowledged: int
    landed: int
    failed_again: int
    skipped: int
    rate: float | None
    owner: str | None
    lease_until: float | None
    message: str | None
    delivery: str | None = None
    canary: int | None = None
    stop_percent: float | None = None
    stop_last: int | None = None
    newer: str | None = None
    go_at_once: bool | None = None
    """After its look ahead, unless something is to be asked; None: nobody is asked."""
    checked: str | None = None
    checked_at: float | None = None
    floors: str | None = None
    reason: str | None = None
    inconclusive: str | None = None

    @property
    def ended(self) -> bool:
        return self.state in ("done", "stopped", "failed") or (
            self.state == "cancelled" and self.finished_at is not None
        )

    @property
    def query(self) -> dict[str, str]:
        """The selection as it was asked for: what `DeadLetterFilter.from_query` reads."""
        found: dict[str, str] = orjson.loads(self.selection)
        return found

    @property
    def by_spark(self) -> bool:
        """Whether only `pipeline reprocess` may carry it out."""
        return self.origin == PIPELINE

    @property
    def sends_inconclusive(self) -> bool:
        """Whether an operator chose to send what may be on its topic and was not found there."""
        return self.inconclusive == "send"

    @property
    def left(self) -> int:
        """Records without an outcome."""
        return self.total - self.acknowledged - self.landed - self.failed_again - self.skipped

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        names = ("state", "total", "acknowledged", "landed", "failed_again", "skipped", "who")
        facts = [(name.replace("_", " "), getattr(self, name)) for name in names]
        return html.page(f"Replay {self.operation_id}", facts=facts, lines=[self.message or ""])


def get(store: Store, operation_id: str) -> Operation:
    """The operation as it stands now; ReplayError when there is none."""
    found = store.rows("operations", operation=operation_id)
    if not found:
        raise ReplayError(f"There is no replay {operation_id}.", fix="See `producer-core replay status`.")
    return operation_of(found[0])


def list_operations(store: Store, *, state: State | None = None, limit: int = 50) -> list[Operation]:
    """The latest first."""
    return [operation_of(row) for row in store.rows("operations", state=state, limit=limit)]


def live(store: Store) -> list[Operation]:
    """Replays that have not ended and were not cancelled, the oldest first."""
    return [operation_of(row) for row in store.rows("replay_live")]


def pause(store: Store, operation_id: str, *, who: str, origin: str) -> Operation:
    """Sends nothing more; what is in flight is settled. `resume` goes on with the rest."""
    return _switch(store, operation_id, "paused", ("planned", "running"), who, origin, "Paused", "pause")


def go(
    store: Store,
    operation_id: str,
    *,
    who: str,
    origin: str,
    newer: Newer | None = None,
    inconclusive: Inconclusive | None = None,
    rate: float | None = None,
    canary: int | None = None,
    stop_percent: float | None = None,
    stop_last: int | None = None,
    clock: Callable[[], float] = time.time,
) -> Operation:
    """Starts a replay that was looked ahead and waits for a person; what is given here overrides its plan."""
    check_rate(rate)
    with store.borrow(write=True):
        store.execute(
            "replay_settings",
            operation=operation_id,
            newer=newer,
            inconclusive=inconclusive,
            rate=rate,
            canary=canary,
            stop_percent=stop_percent,
            stop_last=stop_last,
            stale=clock() - STALE,
        )
        message = "Waits for a runner"
        if get(store, operation_id).sends_inconclusive:
            message += f"; {SENT_ANYWAY}"
        return _switch(store, operation_id, "planned", ("ready",), who, origin, message, "go")


def doubtful(store: Store, operation_id: str, *, limit: int = 1000) -> list[dict[str, Any]]:
    """Records of which nobody can say whether they are on their topic: message_id, topic, verdict, text."""
    return store.rows("replay_doubtful", operation=operation_id, limit=limit)


def resume(store: Store, operation_id: str, *, who: str, origin: str, rate: float | None = None) -> Operation:
    """Goes on with a paused replay; with `rate`, at most so many a second from now on."""
    check_rate(rate)
    with store.borrow(write=True):
        if rate is not None:
            store.execute("replay_rate", operation=operation_id, rate=rate)
        return _switch(
            store, operation_id, "planned", ("paused",), who, origin, "Waits for a runner", "resume"
        )


def check_rate(rate: float | None) -> None:
    """ReplayError for one that never ends."""
    if rate is not None and not rate > 0:
        raise ReplayError(
            f"A rate of {rate} messages a second never ends.", fix="Give a rate above 0, or none."
        )


def cancel(
    store: Store, operation_id: str, *, who: str, origin: str, clock: Callable[[], float] = time.time
) -> Operation:
    """Ends it for good: what is in flight is settled, the rest stays dead letters.

    Where its runner died and nobody alive writes to its cluster, what it had claimed is inconclusive.
    """
    with store.borrow(write=True):
        cancelled = _switch(
            store,
            operation_id,
            "cancelled",
            ("checking", "ready", "planned", "running", "paused"),
            who,
            origin,
            "Is being cancelled",
            "cancel",
        )
        return end_cancelled(store, cancelled, clock())


def end_abandoned(store: Store, now: float) -> list[Operation]:
    """Ends replays that were cancelled while somebody had them, and that nobody has any more; those it ended.

    A runner of their cluster does it as well; this is for when there is none. Cheap where there is nothing to do.
    """
    waiting = [row["operation_id"] for row in store.rows("replay_ending")]
    ended = []
    for operation_id in waiting:
        with store.borrow(write=True):
            operation = get(store, operation_id)
            if not operation.ended:
                ended.append(end_cancelled(store, operation, now))
    return [operation for operation in ended if operation.ended]


def end_cancelled(store: Store, operation: Operation, now: float) -> Operation:
    """Ends a cancelled one that nobody holds, within a write block; left as it is where something may be on its way.

    What a dead runner had claimed is inconclusive once nobody alive writes to its cluster.
    """
    operation_id = operation.operation_id
    if operation.state != "cancelled" or (operation.owner and (operation.lease_until or 0.0) > now):
        return operation
    (held,) = store.rows("replay_claimed", operation=operation_id)
    if not held["claimed"]:
        return end(store, operation_id, now)
    if _abandoned(store, operation, held["since"] or 0.0, now):
        store.execute("replay_abandon_letters", operation=operation_id, now=now, reason=_ABANDONED)
        store.execute("replay_abandon_records", operation=operation_id, text=_ABANDONED)
        return end(store, operation_id, now)
    return operation


def end(store: Store, operation_id: str, now: float, *, stopped: str | None = None) -> Operation:
    """The end of an operation whose records all have an outcome, that was cancelled, or that stops itself with
    this reason; within a write block."""
    operation = get(store, operation_id)
    state: State = "stopped" if stopped else "cancelled" if operation.state == "cancelled" else "done"
    if state != "done":
        gone = {key or "": text for key, text in MEANWHILE.items() if key != "dead"}
        rest = store.execute(
            "replay_skip_gone", operation=operation_id, states=[*gone], texts=[*gone.values()], now=now
        )
        rest += store.execute("replay_skip_rest", operation=operation_id, text=stopped or CANCELLED, now=now)
        store.execute(
            "replay_count", operation=operation_id, acknowledged=0, landed=0, failed=0, skipped=rest
        )
        operation = get(store, operation_id)
    message = sentence(operation, store.rows("replay_reasons", operation=operation_id), stopped=stopped)
    store.execute("replay_end", operation=operation_id, state=state, now=now, message=message)
    store.audit(
        who=operation.who,
        origin=operation.origin,
        action="replay_end",
        selection=orjson.loads(operation.selection),
        count=operation.acknowledged + operation.landed,
        outcome=f"{message} ({operation_id})",
    )
    return get(store, operation_id)


def sentence(operation: Operation, reasons: Sequence[dict[str, Any]], *, stopped: str | None = None) -> str:
    """The result in words: «Replayed 40 of 43; 3 failed again: Broker: Policy violation»."""
    if not operation.total:
        return "Nothing to replay"
    first = "Cancelled: replayed" if operation.state == "cancelled" else "Replayed"
    if stopped:
        first = f"Stopped itself. {stopped}. Replayed"
    parts = [f"{first} {operation.acknowledged:,} of {operation.total:,}"]
    if operation.landed:
        parts.append(f"{operation.landed:,} had landed already and were not sent")
    if operation.failed_again:
        parts.append(f"{operation.failed_again:,} failed again: {_why(reasons, 'failed')}")
    return "; ".join([*parts, *_skipped(operation.skipped, reasons)])


def _skipped(skipped: int, reasons: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Each frequent reason with its count, for «cancelled» is not what became of a record that another replay sent."""
    found = [row for row in reasons if row["state"] == "skipped"]
    if len(found) < 2:
        if skipped:
            yield f"{skipped:,} skipped: {_why(found, 'skipped')}"
        return
    for row in found[:_REASONS_TOLD]:
        yield f"{row['count']:,} skipped: {mask_or_hide(row['text'] or 'no reason given')}"
    if rest := sum(row["count"] for row in found[_REASONS_TOLD:]):
        yield f"{rest:,} skipped for other reasons"


def _why(reasons: Sequence[dict[str, Any]], state: str) -> str:
    """The most frequent reason, masked as people will read it, and how many others there are."""
    texts = [
        mask_or_hide(row["text"] or "no reason given").rstrip(".") for row in reasons if row["state"] == state
    ]
    if len(texts) < 2:
        return "".join(texts)
    return f"{texts[0]} (and {len(texts) - 1} other reason{'s' if len(texts) > 2 else ''})"


def _switch(
    store: Store,
    operation_id: str,
    state: State,
    allowed: tuple[State, ...],
    who: str,
    origin: str,
    message: str,
    act: str,
) -> Operation:
    with store.borrow(write=True):
        changed = store.execute(
            "replay_switch", operation=operation_id, state=state, allowed=list(allowed), message=message
        )
        operation = get(store, operation_id)
        if not changed:
            raise ReplayError(
                f"The replay {operation_id} is {operation.state}, so this cannot be done: {operation.message or ''}"
            )
        store.audit(
            who=who,
            origin=origin,
            action=f"replay_{act}",
            selection=orjson.loads(operation.selection),
            count=operation.left,
            outcome=f"{message.lower()} ({operation_id})",
        )
        return operation


def _abandoned(store: Store, operation: Operation, claimed_at: float, now: float) -> bool:
    if operation.owner is not None and (operation.lease_until or 0.0) > now - _SILENT:
        return False
    if operation.by_spark:  # a task of a driver that is gone may live on for a moment
        return claimed_at <= now - _SILENT
    alive = [row["cluster_id"] for row in store.rows("replay_runners", alive_since=now - _SILENT)]
    return not alive if not operation.cluster_id else operation.cluster_id not in alive


def operation_of(row: dict[str, Any]) -> Operation:
    return Operation(**row)
