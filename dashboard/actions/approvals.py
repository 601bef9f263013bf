"""Approve, refuse and withdraw requests, and find out what the user of the page may do with one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from producer_core.dashboard.actions import roles
from producer_core.dashboard.actions.result import ORIGIN, ActionResult, attempt
from producer_core.dlq.approvals import gate, requests
from producer_core.dlq.approvals.requests import ApprovalRequest
from producer_core.errors import ProducerError
from producer_core.store import Store


class Decision(NamedTuple):
    """What the user may do with a request: `decide` as an approver, `withdraw` the own one, or nothing."""

    may: Literal["decide", "withdraw", "nothing"]
    approvers: str
    """The entries of the policy that may decide."""


def decision(store: Store, request: ApprovalRequest) -> Decision:
    """Return what the user of the page may do with a pending request."""
    try:
        policy = roles.policy(store)
    except ProducerError:
        return Decision("nothing", "")
    if policy is None:
        return Decision("nothing", "")
    who = roles.identity(policy)
    if requests.may_decide(policy, request, who):
        return Decision("decide", policy.approvers())
    own = who.known and policy.is_same_person(who, request.requester)
    return Decision("withdraw" if own else "nothing", policy.approvers())


def rule(store: Store, operation_id: str) -> str:
    """Return why the start of this replay by the user of the page would need an approval; an empty text if it would not."""
    try:
        policy = roles.policy(store)
    except ProducerError:
        return ""  # the click is refused with the mistake in the policy
    if policy is None:
        return ""
    (operation,) = store.rows("operations", operation=operation_id)
    return gate.rule_of(store, operation, policy, who=roles.identity(policy), origin=ORIGIN, now=time.time())


def approve_request(store: Store, request_id: str, *, reason: str = "") -> ActionResult:
    """Approve a request of another person. Its replay can then be started once."""

    def act(name: str) -> ActionResult:
        return _result(requests.approve(store, request_id, who=name, origin=ORIGIN, reason=reason))

    return _attempt(store, "request_approve", request_id, act)


def refuse_request(store: Store, request_id: str, *, reason: str) -> ActionResult:
    """Refuse a request of another person."""

    def act(name: str) -> ActionResult:
        return _result(requests.refuse(store, request_id, who=name, origin=ORIGIN, reason=reason))

    return _attempt(store, "request_refuse", request_id, act)


def withdraw_request(store: Store, request_id: str) -> ActionResult:
    """Withdraw the own request."""

    def act(name: str) -> ActionResult:
        return _result(requests.withdraw(store, request_id, who=name, origin=ORIGIN))

    return _attempt(store, "request_withdrawn", request_id, act)


def _result(request: ApprovalRequest) -> ActionResult:
    return ActionResult(True, request.text, request.operation_id)


def _attempt(store: Store, action: str, request_id: str, act: Callable[[str], ActionResult]) -> ActionResult:
    return attempt(store, action, {"request": request_id}, act, who=None, origin=ORIGIN)
