"""Admit the start of a replay: at once, with an approved request, or not yet. Every way to start a replay passes here."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from producer_core._internal.identity import Identity, canonical, identify, short
from producer_core._internal.plural import plural
from producer_core.dlq.approvals.binding import READ_LIMIT, Binding, Contents, read_contents
from producer_core.dlq.approvals.requests import (
    CHANGED,
    ApprovalRequest,
    close_request,
    expire_requests,
    insert_request,
    known_time,
    matches,
    open_request,
)
from producer_core.errors import ApprovalRequired, ConfigError, NotPermitted
from producer_core.roles.adopted_policy import adopt_policy, policy_of
from producer_core.roles.policy import ApprovalPolicy
from producer_core.roles.policy_file import read_policy
from producer_core.roles.role_check import require_operator

if TYPE_CHECKING:
    from producer_core.store import Store

TOGETHER = 3600.0
"""Seconds within which the replays that one person starts without an approval count together."""

WAITING = "Waiting for approval"


class _Start(NamedTuple):
    """One attempt to start an operation."""

    policy: ApprovalPolicy
    operation: Mapping[str, Any]
    binding: Binding
    effect: Mapping[str, int]
    elsewhere: int
    who: Identity
    origin: str
    now: float

    @property
    def operation_id(self) -> str:
        return str(self.operation["operation_id"])

    @property
    def records(self) -> int:
        return sum(self.effect.values())

    @property
    def person(self) -> str:
        """The key under which small replays of one person count together."""
        full = canonical(self.who.account)
        return self.policy.people.get(full) or self.policy.people.get(short(full), short(full))


def read_for_start(
    store: Store, operation_id: str, *, who: str, origin: str, now: float, rate: float | None = None
) -> Contents | None:
    """Hash the dead letters of an operation for `admit`; None if its start, with a new `rate`, needs no approval.

    Call it before the write block: for a large replay this takes seconds, in which producers write to the store.
    """
    with contextlib.suppress(ConfigError):  # `admit` raises it
        if (policy := policy_of(store)) is None:
            return None
        with store.borrow(limit=READ_LIMIT):
            operation = next(iter(store.rows("operations", operation=operation_id)), None)
            if operation is None or operation["state"] not in ("ready", "paused"):
                return None
            operation["rate"] = operation["rate"] if rate is None else rate
            identity = identify(who, origin)
            now = known_time(store, now)
            start = _described(store, policy, operation, Binding(store, operation), identity, origin, now)
            needed = policy.allows(identity, "operator") and not _was_admitted(store, start)
            needed = needed and bool(reason_to_ask(store, start))
        if needed:
            return read_contents(store, operation_id)
    return None


def admit(
    store: Store, operation_id: str, *, who: str, origin: str, now: float, known: Contents | None = None
) -> ApprovalRequest | None:
    """Admit the start of an operation and return None, or return the request that must be approved first.

    Call it in the write block that starts the operation, with the contents that `read_for_start` read before it. An approval
    is verified and used up here: the dead letters, the destination and the choices are still those of the request, and its
    approver still is an approver and another person. If something changed, the request is void, and a new one is returned.
    Raise NotPermitted for people without the role of an operator.
    """
    start = _start(store, operation_id, who=who, origin=origin, now=now, known=known)
    if start is None:
        return None
    require_operator(start.policy, start.who)
    expire_requests(store, start.now)
    if _was_admitted(store, start):
        return None
    rule = reason_to_ask(store, start)
    request = open_request(store, operation_id, start.now)
    if not rule:
        if request is not None:
            text = "the policy no longer asks for an approval"
            close_request(store, request, "withdrawn", text, who=start.who, origin=origin, now=start.now)
        _admit(store, start, None)
        return None
    if request is not None and (request := _still_valid(store, start, request)) is not None:
        if request.state == "pending":
            return request
        _use(store, start, request)
        return None
    _check_known(start, rule)
    return insert_request(
        store, start.operation, start.policy, rule, start.binding, start.effect, who=start.who, origin=origin,
        now=start.now,
    )  # fmt: skip


def admit_planned(store: Store, operation_id: str, *, who: str, origin: str, now: float) -> bool:
    """Admit an operation in the write block that planned it; return False if it needs an approval first.

    Raise NotPermitted if it needs one and this person cannot ask for it.
    """
    start = _start(store, operation_id, who=who, origin=origin, now=now)
    if start is None:
        return True
    if rule := reason_to_ask(store, start):
        _check_known(start, rule)
        return False
    _admit(store, start, None)
    return True


def keep_requester(store: Store, operation_id: str, *, who: str, origin: str) -> None:
    """Keep the identity of the requester of an operation that starts by itself. Call it in the write block that plans it."""
    identity = identify(who, origin).to_json()
    store.execute("approval_keep_requester", operation=operation_id, identity=identity)


def admit_without_asking(store: Store, operation_id: str, *, now: float) -> bool:
    """Admit an operation that starts by itself after its check; return False if it needs an approval first.

    It counts for its requester, whose identity was kept with it: this process is that of the runner. Call it in the write
    block that starts the operation.
    """
    (operation,) = store.rows("operations", operation=operation_id)
    kept = store.rows("approval_requester", operation=operation_id)
    who, origin = Identity.from_json(kept[0]["identity"]) if kept else operation["who"], operation["origin"]
    start = _start(store, operation_id, who=who, origin=origin, now=now)
    if start is None or _was_admitted(store, start):
        return True
    if reason_to_ask(store, start):
        return False
    _admit(store, start, None)
    return True


def check_without_store(records: int, *, who: str, origin: str, earlier: int = 0) -> None:
    """Raise NotPermitted if a replay of a queue in memory needs an approval: without a store there are no requests.

    `earlier` records of the queue were sent within the last TOGETHER seconds.
    """
    policy = read_policy()
    if policy is None:
        return
    require_operator(policy, identify(who, origin))
    if records and policy.replays_above is not None and earlier + records > policy.replays_above:
        within = f"With the {plural(earlier, 'record')} replayed within the last hour it" if earlier else "It"
        raise NotPermitted(
            f"{within} sends {plural(earlier + records, 'record')}, and {_limit(policy.replays_above)}",
            fix="Give the producer a store: a request for the approval needs one.",
        )


def _limit(replays_above: int) -> str:
    return f"replays of more than {plural(replays_above, 'record')} need a second person."


def rule_of(
    store: Store,
    operation: Mapping[str, Any],
    policy: ApprovalPolicy | None,
    *,
    who: str,
    origin: str,
    now: float,
) -> str:
    """Return why the start of an operation, from its row, would need an approval; an empty text if it would not."""
    if policy is None:
        return ""
    binding = Binding(store, operation)  # no rule depends on the hashes, so none is computed
    return reason_to_ask(
        store, _described(store, policy, operation, binding, identify(who, origin), origin, now)
    )


def waiting_error(request: ApprovalRequest, *, resumes: bool = False) -> ApprovalRequired:
    """Return the error for a start that must wait for this request."""
    command = "resume" if resumes else "go"
    return ApprovalRequired(
        f"Replay {request.operation_id} waits for approval. {request.text}",
        fix=(
            f"Another person approves it: `producer-core dlq approve {request.request_id}`, or in the dashboard. "
            f"Then start it: `producer-core replay {command} {request.operation_id}`."
        ),
        request_id=request.request_id,
        operation_id=request.operation_id,
    )


def reason_to_ask(store: Store, start: _Start) -> str:
    """Return why this start needs a second person, as a sentence; an empty text if it does not."""
    policy, records = start.policy, start.records
    if policy.other_cluster and start.elsewhere:
        return (
            f"{plural(start.elsewhere, 'record')} would go to the cluster {start.operation['cluster_id']}, from another "
            "one; that needs a second person."
        )
    if policy.replays_above is None:
        return ""
    limit = _limit(policy.replays_above)
    if records > policy.replays_above:
        return f"It sends {plural(records, 'record')}, and {limit}"
    (row,) = store.rows(
        "approval_recent", person=start.person, since=start.now - TOGETHER, operation=start.operation_id
    )
    if records and row["records"] + records > policy.replays_above:
        return (
            f"With the {plural(row['records'], 'record')} that {start.who} replayed within the last hour it sends "
            f"{plural(row['records'] + records, 'record')}, and {limit}"
        )
    return ""


def _start(
    store: Store, operation_id: str, *, who: str, origin: str, now: float, known: Contents | None = None
) -> _Start | None:
    """Return the attempt; None without a policy, which admits every start."""
    policy = adopt_policy(store, who=who, origin=origin, now=now)
    if policy is None:
        return None
    now = known_time(store, now)
    (operation,) = store.rows("operations", operation=operation_id)
    binding = Binding(store, operation, known)
    return _described(store, policy, operation, binding, identify(who, origin), origin, now)


def _described(
    store: Store,
    policy: ApprovalPolicy,
    operation: Mapping[str, Any],
    binding: Binding,
    who: Identity,
    origin: str,
    now: float,
) -> _Start:
    rows = store.rows("approval_effect", operation=operation["operation_id"])
    effect = {row["topic"]: row["records"] for row in rows}
    elsewhere = sum(row["elsewhere"] for row in rows)
    return _Start(policy, operation, binding, effect, elsewhere, who, origin, now)


def _check_known(start: _Start, rule: str) -> None:
    if not start.who.known:
        raise NotPermitted(
            f"{rule} This page has no sign-in, so the requester is unknown.",
            fix="Configure sign-in for the dashboard, or ask with `producer-core replay go`.",
        )


def _was_admitted(store: Store, start: _Start) -> bool:
    """Return whether this replay was admitted before, with the same records and choices and no lower rate."""
    found = next(iter(store.rows("approval_started", operation=start.operation_id)), None)
    if found is None or not found["plan_hash"] or found["plan_hash"] != start.binding.plan:
        return False
    rate = start.operation["rate"]
    return found["rate"] is None or (rate is not None and rate <= found["rate"])


def _still_valid(store: Store, start: _Start, request: ApprovalRequest) -> ApprovalRequest | None:
    """Return the request if it still describes this start and its approval still counts; void it otherwise."""
    problem = ""
    if not matches(request, start.binding, start.operation):
        problem = CHANGED
    elif request.state == "approved":
        problem = _approval_problem(start.policy, request)
    if not problem:
        return request
    close_request(store, request, "void", problem, who=start.who, origin=start.origin, now=start.now)
    return None


def _approval_problem(policy: ApprovalPolicy, request: ApprovalRequest) -> str:
    approver = request.approver
    if approver is None or not policy.allows(approver, "approver"):
        return f"{request.decided_by} is no longer an approver"
    if policy.is_same_person(approver, request.requester):
        return f"{request.decided_by} is the same person as {request.who} under the present policy"
    return ""


def _use(store: Store, start: _Start, request: ApprovalRequest) -> None:
    text = f"started by {start.who}; requested by {request.who}, approved by {request.decided_by}"
    close_request(store, request, "used", text, who=start.who, origin=start.origin, now=start.now)
    _admit(store, start, request.request_id)


def _admit(store: Store, start: _Start, request_id: str | None) -> None:
    store.execute(
        "approval_start", operation=start.operation_id, now=start.now, who=str(start.who), person=start.person,
        records=start.records, request=request_id, plan_hash=start.binding.plan, rate=start.operation["rate"],
    )  # fmt: skip
