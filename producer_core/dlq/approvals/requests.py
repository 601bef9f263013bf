"""Requests for the approval of a replay: ask, approve, refuse, withdraw and expire, each in one transaction."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import orjson

from producer_core._internal.identity import Identity, identify
from producer_core._internal.plural import plural
from producer_core._internal.utc_time import utc_minute
from producer_core.dlq.approvals.binding import Binding, Contents, read_contents
from producer_core.errors import NotPermitted, ReplayError
from producer_core.roles.adopted_policy import adopt_policy
from producer_core.roles.policy import ApprovalPolicy

if TYPE_CHECKING:
    from producer_core.store import Store

State = Literal["pending", "approved", "refused", "withdrawn", "expired", "void", "used"]
"""`void`: the replay changed after the request or its approval. `used`: the replay was started with it."""
OPEN = ("pending", "approved")

CLOCK_SKEW = 300.0
"""Seconds by which the clocks of hosts may differ. A time in the store that is further ahead counts as this much ahead."""

CHANGED = (
    "The replay is no longer what was requested: its dead letters, its destination or its choices changed"
)


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One request. Times are seconds since 1970; `rule` says why the policy asks for a second person.

    `plan_hash` and `content_hash` are the hashes of what would be sent. As JSON, `identity` and `decided_identity` are the
    identities of the two people, and `effect` has the records by topic and the choices.
    """

    request_id: str
    operation_id: str
    state: State
    cluster_id: str
    records: int
    rule: str
    effect: str
    plan_hash: str
    content_hash: str
    rate: float | None
    who: str
    identity: str
    origin: str
    host: str
    reason: str | None
    requested_at: float
    expires_at: float
    decided_by: str | None = None
    decided_identity: str | None = None
    decided_origin: str | None = None
    decided_at: float | None = None
    decision: str | None = None
    closed_at: float | None = None
    closed_text: str | None = None

    @property
    def requester(self) -> Identity:
        return Identity.from_json(self.identity)

    @property
    def approver(self) -> Identity | None:
        """The person that decided; None while the request is undecided."""
        return Identity.from_json(self.decided_identity) if self.decided_identity else None

    @property
    def is_open(self) -> bool:
        """Whether it is pending, or approved and not used yet."""
        return self.state in OPEN

    @property
    def by_topic(self) -> dict[str, int]:
        found: dict[str, int] = orjson.loads(self.effect)["topics"]
        return found

    @property
    def choices(self) -> dict[str, Any]:
        """The choices that decide what is sent: newer, inconclusive, rate, canary and the stop rule."""
        found: dict[str, Any] = orjson.loads(self.effect)["choices"]
        return found

    @property
    def text(self) -> str:
        """Its state as a sentence."""
        reason = f": {self.decision}" if self.decision else ""
        match self.state:
            case "pending":
                return (
                    f"Request {self.request_id} is pending until {utc_minute(self.expires_at)}. {self.rule}"
                )
            case "approved":
                return f"Request {self.request_id} is approved by {self.decided_by} until {utc_minute(self.expires_at)}{reason}"
            case "refused":
                return f"Request {self.request_id} was refused by {self.decided_by}{reason}"
            case "used":
                return f"Requested by {self.who}, approved by {self.decided_by} ({self.request_id}){reason}"
        return f"Request {self.request_id} is {self.state}. {self.closed_text or ''}".strip()

    def expired(self, now: float) -> bool:
        return now >= self.expires_at

    def can_be_decided(self, now: float) -> bool:
        return self.state == "pending" and not self.expired(now)


def get_request(store: Store, request_id: str) -> ApprovalRequest:
    """Return a request by its id, or by the unique beginning of its id; raise ReplayError if there is none."""
    found = store.rows("requests", request=request_id, limit=2) if request_id else []
    if len(found) != 1:
        problem = "More than one request begins" if found else "No request begins"
        raise ReplayError(
            f"{problem} with {request_id!r}.", fix="`producer-core dlq requests` lists the requests."
        )
    return _request(found[0])


def list_requests(
    store: Store, *, state: State | None = None, operation_id: str | None = None, limit: int = 100
) -> list[ApprovalRequest]:
    """Return the requests, latest first."""
    rows = store.rows("requests", state=state, operation=operation_id, limit=limit)
    return [_request(row) for row in rows]


def open_request(store: Store, operation_id: str, now: float) -> ApprovalRequest | None:
    """Return the pending or approved request of a replay; None without one, or if its time is over."""
    for row in store.rows("requests_open", operation=operation_id):
        if not (found := _request(row)).expired(now):
            return found
    return None


def known_time(store: Store, now: float) -> float:
    """Return `now`, or a later time of a request or a start if the clock was set back, at most CLOCK_SKEW later."""
    (row,) = store.rows("approval_time", now=now, skew=CLOCK_SKEW)
    return float(row["now"])


def approve(
    store: Store,
    request_id: str,
    *,
    who: str,
    origin: str,
    reason: str = "",
    clock: Callable[[], float] = time.time,
) -> ApprovalRequest:
    """Approve a request as another person than the requester. The replay can then be started once, until it expires.

    Raise NotPermitted for the requester, and for other people than approvers; ReplayError if the request is not pending
    or no longer describes the replay.
    """
    return _decide(store, request_id, "approved", identify(who, origin), origin, reason, clock())


def refuse(
    store: Store,
    request_id: str,
    *,
    who: str,
    origin: str,
    reason: str,
    clock: Callable[[], float] = time.time,
) -> ApprovalRequest:
    """Refuse a request, with the reason. The replay stays undecided; its records remain dead letters."""
    if not reason.strip():
        raise ReplayError(
            "A refusal needs a reason.", fix="Say what should change before the replay is requested again."
        )
    return _decide(store, request_id, "refused", identify(who, origin), origin, reason, clock())


def withdraw(
    store: Store, request_id: str, *, who: str, origin: str, clock: Callable[[], float] = time.time
) -> ApprovalRequest:
    """Withdraw a request, as its requester or as an admin."""
    with store.borrow(write=True):
        identity = identify(who, origin)
        now = known_time(store, clock())
        found = get_request(store, request_id)
        policy = adopt_policy(store, who=who, origin=origin, now=now)
        if not _may_withdraw(policy, identity, found):
            raise NotPermitted(
                f"{who} did not make the request {found.request_id}.",
                fix="Only its requester or an admin withdraws it.",
            )
        if not close_request(
            store, found, "withdrawn", f"withdrawn by {who}", who=who, origin=origin, now=now
        ):
            raise ReplayError(f"The request {found.request_id} is {found.state}.")
        return get_request(store, found.request_id)


def _may_withdraw(policy: ApprovalPolicy | None, identity: Identity, request: ApprovalRequest) -> bool:
    if policy is None:
        return bool(identity.persons & request.requester.persons)
    return policy.is_same_person(identity, request.requester) or policy.allows(identity, "admin")


def insert_request(
    store: Store,
    operation: Mapping[str, Any],
    policy: ApprovalPolicy,
    rule: str,
    binding: Binding,
    effect: Mapping[str, int],
    *,
    who: Identity,
    origin: str,
    now: float,
) -> ApprovalRequest:
    """Insert a pending request for an operation, from its row. Call it in a write block."""
    request_id = uuid.uuid4().hex[:12]
    choices = {
        name: operation[name]
        for name in ("newer", "inconclusive", "rate", "canary", "stop_percent", "stop_last")
    }
    records = sum(effect.values())
    store.execute(
        "request_insert",
        request=request_id,
        operation=operation["operation_id"],
        cluster=operation["cluster_id"],
        records=records,
        rule=rule,
        effect=orjson.dumps({"topics": dict(effect), "choices": choices}).decode(),
        plan_hash=binding.plan,
        content_hash=binding.content,
        rate=operation["rate"],
        who=str(who),
        identity=who.to_json(),
        origin=origin,
        host=socket.gethostname(),
        reason=operation["reason"],
        now=now,
        expires=now + policy.expires_after,
    )
    found = get_request(store, request_id)
    _audit(store, found, "request", f"requested: {rule}", who=who, origin=origin)
    return found


def close_request(
    store: Store, request: ApprovalRequest, state: State, text: str, *, who: str, origin: str, now: float
) -> bool:
    """Close an open request; return False if it is not open any more. Call it in a write block."""
    if not store.execute("request_close", request=request.request_id, state=state, now=now, text=text):
        return False
    _audit(store, request, f"request_{state}", text, who=who, origin=origin)
    return True


def close_requests_of(store: Store, operation_id: str, *, who: str, origin: str, now: float) -> None:
    """Withdraw the open requests of a replay that was cancelled. Call it in a write block."""
    for row in store.rows("requests_open", operation=operation_id):
        close_request(
            store, _request(row), "withdrawn", "the replay was cancelled", who=who, origin=origin, now=now
        )


def expire_requests(store: Store, now: float) -> int:
    """Expire the open requests whose time is over; return their number. Costs one read if there is none."""
    now = known_time(store, now)
    expired = store.rows("requests_expired", now=now)
    for row in expired:
        with store.borrow(write=True):
            request = _request(row)
            close_request(
                store, request, "expired", "not used in time", who=request.who, origin=request.origin, now=now
            )
    return len(expired)


def _decide(
    store: Store, request_id: str, state: State, identity: Identity, origin: str, reason: str, moment: float
) -> ApprovalRequest:
    known = _read_requested(store, request_id) if state == "approved" else None
    with store.borrow(write=True):
        now = known_time(store, moment)
        expire_requests(store, now)
        found = get_request(store, request_id)
        problem: ReplayError | None = None
        if found.state != "pending":
            problem = ReplayError(f"The request cannot be {state}. {found.text}.".replace("..", "."))
        elif not _permitted(store, found, identity, origin, now):
            problem = _not_permitted(store, found, identity, origin, now)
        elif state == "approved" and not is_current(store, found, known):
            close_request(store, found, "void", CHANGED, who=identity, origin=origin, now=now)
            problem = ReplayError(
                f"{CHANGED}. Nothing was approved.",
                fix="Ask the requester to review the replay and request it again.",
            )
        elif not _decided(store, found, state, identity, origin, reason.strip(), now):
            problem = ReplayError(f"Another person decided the request {found.request_id} at the same time.")
    if problem is not None:  # after the commit, because an expired or void request stays so
        raise problem
    return get_request(store, found.request_id)


def _read_requested(store: Store, request_id: str) -> Contents | None:
    """Hash the dead letters of a pending request; None if it is not pending."""
    found = get_request(store, request_id)
    return read_contents(store, found.operation_id) if found.state == "pending" else None


def _decided(
    store: Store,
    found: ApprovalRequest,
    state: State,
    identity: Identity,
    origin: str,
    reason: str,
    now: float,
) -> bool:
    changed = store.execute(
        "request_decide", request=found.request_id, state=state, who=str(identity), identity=identity.to_json(),
        origin=origin, now=now, reason=reason or None,
    )  # fmt: skip
    if changed:
        said = f": {reason}" if reason else ""
        verb = "approve" if state == "approved" else "refuse"
        _audit(
            store,
            found,
            f"request_{verb}",
            f"{state}, requested by {found.who}{said}",
            who=identity,
            origin=origin,
        )
    return bool(changed)


def _permitted(store: Store, found: ApprovalRequest, identity: Identity, origin: str, now: float) -> bool:
    policy = adopt_policy(store, who=identity, origin=origin, now=now)
    return policy is not None and may_decide(policy, found, identity)


def may_decide(policy: ApprovalPolicy, request: ApprovalRequest, identity: Identity) -> bool:
    """Return whether a person may approve or refuse a request: an approver who is not its requester."""
    same = policy.is_same_person(identity, request.requester)
    return identity.known and policy.allows(identity, "approver") and not same


def _not_permitted(
    store: Store, found: ApprovalRequest, identity: Identity, origin: str, now: float
) -> NotPermitted:
    """Return the reason why a person may not decide, and audit the attempt."""
    policy = adopt_policy(store, who=identity, origin=origin, now=now)
    _audit(
        store, found, "request_decide", f"Refused: {identity} may not decide it", who=identity, origin=origin
    )
    if policy is None:
        return NotPermitted(
            "This store has no approval policy.", fix="Name the policy file in PRODUCER_CORE_POLICY."
        )
    if not identity.known:
        fix = "Configure sign-in for the dashboard, or use `producer-core dlq approve`."
        return NotPermitted("This page has no sign-in, so the approver is unknown.", fix=fix)
    if not policy.allows(identity, "approver"):
        fix = f"Ask one of: {policy.approvers()}."
        return NotPermitted(f"{identity} is not an approver.", fix=fix)
    return NotPermitted(
        f"The request {found.request_id} was made by {found.who}, and a requester cannot decide it.",
        fix=f"Ask another one of: {policy.approvers()}.",
    )


def is_current(store: Store, request: ApprovalRequest, known: Contents | None = None) -> bool:
    """Return whether the replay is still exactly what was requested. `known` contents are not read again."""
    rows = store.rows("operations", operation=request.operation_id)
    if not rows or rows[0]["state"] not in ("ready", "paused"):
        return False
    return matches(request, Binding(store, rows[0], known), rows[0])


def matches(request: ApprovalRequest, binding: Binding, operation: Mapping[str, Any]) -> bool:
    """Return whether an operation, from its row, is what was requested. Its rate may be lower."""
    slower = request.rate is None or (operation["rate"] is not None and operation["rate"] <= request.rate)
    return slower and request.plan_hash == binding.plan and request.content_hash == binding.content


def _audit(
    store: Store, request: ApprovalRequest, action: str, outcome: str, *, who: str, origin: str
) -> None:
    store.audit(
        who=str(who),
        origin=origin,
        action=action,
        selection={"request": request.request_id, "operation": request.operation_id},
        count=request.records,
        outcome=f"{outcome} [request {request.request_id}] ({request.operation_id})",
    )


_COLUMNS = tuple(field.name for field in fields(ApprovalRequest))


def _request(row: Mapping[str, Any]) -> ApprovalRequest:
    return ApprovalRequest(**{name: row[name] for name in _COLUMNS})


def summary(request: ApprovalRequest) -> str:
    """Return what would be done, in one sentence."""
    topics = ", ".join(f"{count:,} of {topic}" for topic, count in list(request.by_topic.items())[:5])
    return f"Replay {plural(request.records, 'record')} ({topics or 'no topic'}) to {request.cluster_id or 'any cluster'}"
