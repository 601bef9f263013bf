"""A replay as a durable operation in the store, and the actions an operator can take on it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import orjson

from producer_core._internal.masking import mask_or_hide
from producer_core.dlq import DeadLetterFilter, replay_waves, states
from producer_core.dlq.approvals import gate
from producer_core.dlq.approvals.requests import close_requests_of, expire_requests
from producer_core.errors import ConfigError, ReplayError, StoreTooNew
from producer_core.replay.phrases import ABANDONED, CANCELLED, SENT_ANYWAY, UNCLAIMED_REASONS, UNDECIDED
from producer_core.roles.adopted_policy import adopt_changed_file
from producer_core.roles.role_check import check_operator

if TYPE_CHECKING:
    from producer_core.store import Store

State = Literal["checking", "ready", "planned", "running", "paused", "done", "stopped", "cancelled", "failed"]
"""`checking`: the preflight check runs; `ready`: waits for the operator's decision; `planned`: waits for a runner."""

Newer = Literal["auto", "skip", "send"]
"""How a record is handled if its topic has a newer record with the same key. `auto` skips it on topics that are, or
may be, compacted."""

Inconclusive = Literal["keep", "send"]
"""How to handle a record that may be on its topic but was not found there: `keep` it as a dead letter, or `send` it,
which may write a second copy."""

PIPELINE = "pipeline"
"""The origin of an operation that a Spark job runs. Other runners must not take it: its records use the transactional
ids of its slices, which other runners do not fence."""

STALE = 300.0
"""Seconds after which the preflight check is repeated."""
DECIDE_WITHIN = 3600.0
"""Seconds after its preflight check within which a replay that needs a decision must be started; then it expires."""
_MOST_REASONS = 3
_SILENT = 60.0  # seconds since the last heartbeat of any runner of a cluster


@dataclass(frozen=True, slots=True)
class Operation:
    """One replay. `message` is its latest status as a sentence.

    `failed_again` records are dead letters again, `landed` records were found on the topic and not sent, `skipped`
    records were left unchanged; each record holds its reason.
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
    """Start after the preflight check unless a decision is needed; None: start without a decision."""
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
        """The requested selection, in the form that `DeadLetterFilter.from_query` reads."""
        found: dict[str, str] = orjson.loads(self.selection)
        return found

    @property
    def by_spark(self) -> bool:
        """Whether only `pipeline reprocess` may run it."""
        return self.origin == PIPELINE

    @property
    def sends_inconclusive(self) -> bool:
        """Whether the operator chose to send records that may be on their topic and were not found there."""
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
    """Return the operation's current state; raise ReplayError if it does not exist."""
    found = store.rows("operations", operation=operation_id)
    if not found:
        raise ReplayError(
            f"There is no replay {operation_id}.", fix="`producer-core replay list` lists the latest replays."
        )
    return operation_of(found[0])


def list_operations(
    store: Store,
    *,
    state: State | None = None,
    limit: int = 50,
    application: str | None = None,
    cluster: str | None = None,
) -> list[Operation]:
    """Return the operations, latest first.

    `cluster` is an id. `application` (an empty text: without a name) selects the operations whose selection names it, or
    that have a record of it; a record is known until its dead letter expires.
    """
    with store.borrow():
        chosen = {"cluster": cluster, "operations": _of_application(store, application)}
        return [operation_of(row) for row in store.rows("operations", state=state, limit=limit, **chosen)]


def live(store: Store, *, application: str | None = None, cluster: str | None = None) -> list[Operation]:
    """Return the replays that have neither ended nor been cancelled, oldest first; see `list_operations`."""
    with store.borrow():
        chosen = {"cluster": cluster, "operations": _of_application(store, application)}
        return [operation_of(row) for row in store.rows("replay_live", **chosen)]


def _of_application(store: Store, application: str | None) -> list[str] | None:
    """Return the ids of the operations of an application; None selects all."""
    if application is None:
        return None
    query = DeadLetterFilter(application=application).to_query()
    named = orjson.dumps(query).decode()[1:-1]  # as it is in a stored selection
    rows = store.rows("operations_of_application", name=application, named=named)
    return [row["operation_id"] for row in rows]


def pause(store: Store, operation_id: str, *, who: str, origin: str) -> Operation:
    """Stop sending and settle the records in flight. `resume` continues with the rest."""
    _check_role(store, who, origin)
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
    """Start a replay that is ready for a decision; the options given here override its plan.

    Raise ApprovalRequired, and make the request, if a second person must approve it first; raise NotPermitted if the
    policy does not let this person replay.
    """
    check_rate(rate)
    now = clock()
    known = gate.read_for_start(store, operation_id, who=who, origin=origin, now=now, rate=rate)
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
            stale=now - STALE,
        )
        operation = get(store, operation_id)
        request = None
        if operation.state == "ready":
            request = gate.admit(store, operation_id, who=who, origin=origin, now=now, known=known)
        if request is None:
            message = "Waiting for a runner"
            if operation.sends_inconclusive:
                message += f"; {SENT_ANYWAY}"
            return _switch(store, operation_id, "planned", ("ready",), who, origin, message, "go")
    raise gate.waiting_error(request)


def doubtful(store: Store, operation_id: str, *, limit: int = 1000) -> list[dict[str, Any]]:
    """Return the records that may or may not be on their topic: message_id, topic, verdict, text."""
    return store.rows("replay_doubtful", operation=operation_id, limit=limit)


def resume(
    store: Store,
    operation_id: str,
    *,
    who: str,
    origin: str,
    rate: float | None = None,
    clock: Callable[[], float] = time.time,
) -> Operation:
    """Continue a paused replay, with a new limit of `rate` records per second if given.

    Raise ApprovalRequired if the replay was never admitted under the approval policy, or if the rate is above the
    approved one.
    """
    check_rate(rate)
    now = clock()
    known = gate.read_for_start(store, operation_id, who=who, origin=origin, now=now, rate=rate)
    with store.borrow(write=True):
        if rate is not None:
            store.execute("replay_rate", operation=operation_id, rate=rate)
        request = None
        if get(store, operation_id).state == "paused":
            request = gate.admit(store, operation_id, who=who, origin=origin, now=now, known=known)
        if request is None:
            return _switch(
                store, operation_id, "planned", ("paused",), who, origin, "Waiting for a runner", "resume"
            )
    raise gate.waiting_error(request, resumes=True)


def _check_role(store: Store, who: str, origin: str) -> None:
    """Raise NotPermitted if the policy lets this person only view. A mistake in the policy does not prevent a stop."""
    with store.borrow(write=True), contextlib.suppress(ConfigError):
        check_operator(store, who=who, origin=origin, now=time.time())


def check_rate(rate: float | None) -> None:
    """Raise ReplayError for a rate at which the replay would never end."""
    if rate is not None and not rate > 0:
        raise ReplayError(
            f"The rate must be above 0 messages per second, not {rate}.",
            fix="Set a rate above 0, or leave it out.",
        )


def cancel(
    store: Store, operation_id: str, *, who: str, origin: str, clock: Callable[[], float] = time.time
) -> Operation:
    """End the replay: records in flight are settled, the others remain dead letters.

    If its runner died and no live process writes to its cluster, the claimed records become inconclusive.
    """
    with store.borrow(write=True):
        _check_role(store, who, origin)
        cancelled = _switch(
            store,
            operation_id,
            "cancelled",
            ("checking", "ready", "planned", "running", "paused"),
            who,
            origin,
            "Cancelling",
            "cancel",
        )
        now = clock()
        close_requests_of(store, operation_id, who=who, origin=origin, now=now)
        return end_cancelled(store, cancelled, now)


def end_abandoned(store: Store, now: float) -> list[Operation]:
    """End cancelled replays whose runner is gone and replays without a decision in time; return those that ended.

    A runner of the same cluster ends cancelled ones too; this function covers clusters without one. Cheap if there are
    none.
    """
    _write_claims_of_dead_runners(store, now)
    waiting = [row["operation_id"] for row in store.rows("replay_ending")]
    adopt_changed_file(store, now)
    expire_requests(store, now)
    _return_unadmitted(store, now)
    ended = expire_undecided(store, now)
    for operation_id in waiting:
        with store.borrow(write=True):
            operation = get(store, operation_id)
            if not operation.ended:
                with contextlib.suppress(StoreTooNew):
                    ended.append(end_cancelled(store, operation, now))
    return [operation for operation in ended if operation.ended]


def expire_undecided(store: Store, now: float) -> list[Operation]:
    """End the replays that waited longer than DECIDE_WITHIN for a decision; their records remain dead letters."""
    expired = []
    for row in store.rows("replay_undecided", since=now - DECIDE_WITHIN, now=now):
        with store.borrow(write=True), contextlib.suppress(StoreTooNew):
            if get(store, row["operation_id"]).state == "ready":
                expired.append(end(store, row["operation_id"], now, expired=True))
    return expired


def _return_unadmitted(store: Store, now: float) -> None:
    """Let an operator decide about replays that an earlier version started although the policy did not admit them."""
    if store.rows("approval_unadmitted", now=now)[0]["count"]:
        store.execute("approval_return_unadmitted", now=now, message=gate.WAITING)


def _write_claims_of_dead_runners(store: Store, now: float) -> None:
    """Write the claims of open waves without a runner to their rows, so that no view calls their dead letters safe."""
    for row in store.rows("replay_orphaned_waves", now=now):
        with store.borrow(write=True) as connection, contextlib.suppress(StoreTooNew):
            replay_waves.begin_change_of(connection, row["operation_id"])


def end_cancelled(store: Store, operation: Operation, now: float) -> Operation:
    """End a cancelled operation without an owner, unless a record may still be in flight; call it in a write block.

    Records that a dead runner had claimed become inconclusive once no live process writes to their cluster.
    """
    operation_id = operation.operation_id
    if operation.state != "cancelled" or (operation.owner and (operation.lease_until or 0.0) > now):
        return operation
    with store.borrow(write=True) as connection:
        replay_waves.begin_change_of(connection, operation_id)
    (held,) = store.rows("replay_claimed", operation=operation_id)
    if not held["claimed"]:
        return end(store, operation_id, now)
    if _abandoned(store, operation, held["since"] or 0.0, now):
        _release_dead_letters(store, operation_id, now)
        store.execute("replay_abandon_records", operation=operation_id, text=ABANDONED)
        return end(store, operation_id, now)
    return operation


def _release_dead_letters(store: Store, operation_id: str, now: float) -> None:
    """Release dead letters claimed by a dead runner of a vanished cluster: their outcome cannot be determined."""
    with store.borrow(write=True) as connection:
        states.move(
            connection,
            ("operation_id = ?", [operation_id]),
            "replaying",
            "dead",
            now=now,
            verdict="inconclusive",
            verdict_reason=ABANDONED,
        )


def end(
    store: Store, operation_id: str, now: float, *, stopped: str | None = None, expired: bool = False
) -> Operation:
    """End an operation that is complete, cancelled, `expired` or stopped for the reason `stopped`.

    Call it in a write block.
    """
    operation = get(store, operation_id)
    cancelled = expired or operation.state == "cancelled"
    state: State = "stopped" if stopped else "cancelled" if cancelled else "done"
    if state != "done":
        with store.borrow(write=True) as connection:
            replay_waves.begin_change_of(connection, operation_id)
        gone = {key or "": text for key, text in UNCLAIMED_REASONS.items() if key != "dead"}
        rest = store.execute(
            "replay_skip_gone", operation=operation_id, states=[*gone], texts=[*gone.values()], now=now
        )
        rest += store.execute(
            "replay_skip_rest", operation=operation_id, text=stopped or _unsent(expired), now=now
        )
        store.execute(
            "replay_count", operation=operation_id, acknowledged=0, landed=0, failed=0, skipped=rest
        )
        operation = get(store, operation_id)
    reasons = store.rows("replay_reasons", operation=operation_id)
    message = sentence(operation, reasons, stopped=stopped, expired=expired)
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


def _unsent(expired: bool) -> str:
    return UNDECIDED if expired else CANCELLED


def sentence(
    operation: Operation,
    reasons: Sequence[dict[str, Any]],
    *,
    stopped: str | None = None,
    expired: bool = False,
) -> str:
    """Return the result as a sentence, such as "Replayed 40 of 43; 3 failed again: Broker: Policy violation"."""
    if not operation.total:
        return "Nothing to replay"
    first = "Cancelled: replayed" if operation.state == "cancelled" else "Replayed"
    if expired:
        first = "Expired: replayed"
    if stopped:
        first = f"Stopped automatically. {stopped}. Replayed"
    parts = [f"{first} {operation.acknowledged:,} of {operation.total:,}"]
    if operation.landed:
        parts.append(
            f"{operation.landed:,} {'was' if operation.landed == 1 else 'were'} already on the topic and not sent again"
        )
    if operation.failed_again:
        parts.append(f"{operation.failed_again:,} failed again: {_why(reasons, 'failed')}")
    return "; ".join([*parts, *_skipped(operation.skipped, reasons)])


def _skipped(skipped: int, reasons: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield each frequent reason with its count, because one operation may skip records for several reasons."""
    found = [row for row in reasons if row["state"] == "skipped"]
    if len(found) < 2:
        if skipped:
            yield f"{skipped:,} skipped: {_why(found, 'skipped')}"
        return
    for row in found[:_MOST_REASONS]:
        yield f"{row['count']:,} skipped: {mask_or_hide(row['text'] or 'no reason given')}"
    if rest := sum(row["count"] for row in found[_MOST_REASONS:]):
        yield f"{rest:,} skipped for {'another reason' if rest == 1 else 'other reasons'}"


def _why(reasons: Sequence[dict[str, Any]], state: str) -> str:
    """Return the most frequent reason, masked for display, and the number of other reasons."""
    texts = [
        mask_or_hide(row["text"] or "no reason given").rstrip(".") for row in reasons if row["state"] == state
    ]
    if len(texts) < 2:
        return "".join(texts)
    return f"{texts[0]} (and {len(texts) - 1} other reason{'s' if len(texts) > 2 else ''})"


_VERBS = {"go": "start"}


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
                f"Cannot {_VERBS.get(act, act)} replay {operation_id}: it is {operation.state}. {operation.message or ''}".strip()
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
    if operation.by_spark:  # Spark tasks may outlive their driver for a short time
        return claimed_at <= now - _SILENT
    alive = [row["cluster_id"] for row in store.rows("replay_runners", alive_since=now - _SILENT)]
    return not alive if not operation.cluster_id else operation.cluster_id not in alive


_COLUMNS = tuple(field.name for field in fields(Operation))


def operation_of(row: dict[str, Any]) -> Operation:
    return Operation(**{name: row[name] for name in _COLUMNS})  # a later version may have added columns
