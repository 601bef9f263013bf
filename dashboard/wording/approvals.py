"""Texts about requests for the approval of replays."""

from __future__ import annotations

from producer_core._internal.masking import mask_text
from producer_core._internal.plural import plural
from producer_core.dashboard.wording.time import age
from producer_core.dlq.approvals.requests import ApprovalRequest, summary

HEADING = "Waiting for approval"
ASKS = "Asks for approval: nothing is sent before another person approves. {rule}"
ASK_AGAIN = "Ask with changed choices"
WITHDRAW_HINT = "Another person decides it. Approvers: {approvers}."
NO_ROLE = "An approver decides it. Approvers: {approvers}."
START_HINT = "Its approval can be used once, for exactly this replay."


def ask_label(records: int) -> str:
    return f"Ask to replay {records:,}"


def effect(request: ApprovalRequest) -> str:
    """Return what a request would do."""
    return f"{summary(request)}."


def choices(request: ApprovalRequest) -> str:
    """Return the choices that an approval covers."""
    given = request.choices
    parts = [
        f"Newer records: {given['newer'] or 'auto'}",
        f"inconclusive: {given['inconclusive'] or 'keep'}",
        "no rate limit" if given["rate"] is None else f"at most {given['rate']:g} records per second",
        f"canary: {given['canary'] or 0:,}",
        f"stops above {given['stop_percent'] or 0:g}% failures",
    ]
    return f"{'; '.join(parts)}."


def requested(request: ApprovalRequest, now: float) -> str:
    """Return the requester, the age and the expiry of a request."""
    reason = f" Reason: {mask_text(request.reason)}" if request.reason else ""
    return (
        f"Requested by {request.who} ({request.origin}) {age(now - request.requested_at)} ago; expires in "
        f"{age(max(request.expires_at - now, 0))}.{reason}"
    )


def status(request: ApprovalRequest, now: float) -> tuple[str, str]:
    """Return the tone and the state of a request as a sentence."""
    reason = f" Reason: {mask_text(request.decision)}" if request.decision else ""
    if request.is_open and request.expired(now):
        return "warning", "The request expired. Ask again."
    match request.state:
        case "pending":
            return "warning", f"{HEADING} by a second person. {request.rule}"
        case "approved":
            left = age(request.expires_at - now)
            return "good", f"Approved by {request.decided_by}; expires in {left}.{reason} {START_HINT}"
        case "refused":
            return "bad", f"Refused by {request.decided_by}.{reason}"
        case "used":
            return "quiet", f"Requested by {request.who}, approved by {request.decided_by}.{reason}"
        case "void":
            return "warning", f"The request is void. {request.closed_text or ''}."
    return "quiet", f"The request is {request.state}."


def waiting(number: int) -> str:
    return f"{plural(number, 'request waits', 'requests wait')} for approval."
