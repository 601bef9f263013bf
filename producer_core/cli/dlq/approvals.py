"""The `dlq` commands for the approval of replays: list, approve, refuse and withdraw requests; show the policy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core._internal.masking import mask_text
from producer_core.cli import options, output
from producer_core.cli.lazy_group import WAITING, Failed
from producer_core.errors import ApprovalRequired

if TYPE_CHECKING:
    from producer_core._internal.identity import Identity
    from producer_core.dlq.approvals.requests import ApprovalRequest
    from producer_core.store import Store

_STATES = ("pending", "approved", "refused", "withdrawn", "expired", "void", "used")


@click.command(name="requests", short_help="List the requests for the approval of replays.")
@click.argument("request_id", required=False)
@click.option("--state", type=click.Choice(_STATES), help="Only requests in this state.")
@click.option("--limit", type=options.ROWS, default=20, show_default=True, help="Maximum number of requests.")
@options.store_option
@options.as_json
def requests_(request_id: str | None, state: Any, limit: int, store_path: Path | None, as_json: bool) -> None:
    """List the requests for the approval of replays, latest first. With REQUEST_ID, show one of them.

    A replay becomes a request if the approval policy wants a second person for it. An id can be shortened.

    \b
      producer-core dlq requests --state pending
      producer-core dlq requests 4f2a --json

    \b
    States: pending, approved (not started yet), refused, withdrawn, expired, void (the replay changed after the request
    or its approval), used (started with it).
    """
    from producer_core.dlq.approvals.requests import expire_requests, get_request, list_requests

    store = _store(store_path)
    expire_requests(store, time.time())
    if request_id is not None:
        found = get_request(store, request_id)
        output.emit(as_dict(found)) if as_json else output.pairs(facts(found))
        return
    listed = list_requests(store, state=state, limit=limit)
    if as_json:
        output.emit([as_dict(one) for one in listed])
    elif not listed:
        output.say("No requests.")
    else:
        columns = ("request", "state", "requested", "by", "records", "replay", "decided by", "reason")
        output.table(columns, map(_row, listed), right=("records",), shrink=("by", "decided by", "reason"))


@click.command(short_help="Approve a request, so that its replay can start once.")
@click.argument("request_id")
@click.option("--reason", default="", help="Reason, for the audit log.")
@options.yes
@options.store_option
@options.as_json
def approve(request_id: str, reason: str, yes: bool, store_path: Path | None, as_json: bool) -> None:
    """Approve a request of another person. The replay can then be started once, until the request expires.

    The approval covers exactly the dead letters, their content, the destination and the choices that are shown. After any
    change it is void. The name comes from the system, not from the environment. The requester cannot approve, under no
    name of the same person.

    \b
      producer-core dlq approve 4f2a --reason "checked with the shop"

    Exit codes: 0 approved, 2 not permitted, or the request is not pending or no longer describes its replay.
    """
    from producer_core.dlq.approvals.requests import approve as act
    from producer_core.dlq.approvals.requests import get_request

    store = _store(store_path)
    found = get_request(store, request_id)
    if found.state == "pending" and not yes:
        _say_facts(found)
        options.confirm("Approve this replay?", yes)
    approved = act(store, found.request_id, who=_me(), origin="cli", reason=reason)
    _print(approved, as_json, f"It can be started: producer-core replay go {approved.operation_id}.")


@click.command(short_help="Refuse a request, with a reason.")
@click.argument("request_id")
@click.option("--reason", required=True, help="Reason, for the requester and the audit log.")
@options.store_option
@options.as_json
def refuse(request_id: str, reason: str, store_path: Path | None, as_json: bool) -> None:
    """Refuse a request of another person. Nothing is sent, and the records remain dead letters.

    \b
      producer-core dlq refuse 4f2a --reason "The shop is not ready."
    """
    from producer_core.dlq.approvals.requests import refuse as act

    _print(act(_store(store_path), request_id, who=_me(), origin="cli", reason=reason), as_json)


@click.command(short_help="Withdraw your own request.")
@click.argument("request_id")
@options.store_option
@options.as_json
def withdraw(request_id: str, store_path: Path | None, as_json: bool) -> None:
    """Withdraw a request that is pending or approved. Only its requester or an admin can withdraw it."""
    from producer_core.dlq.approvals.requests import withdraw as act

    _print(act(_store(store_path), request_id, who=_me(), origin="cli"), as_json)


@click.command(short_help="Show or adopt the approval policy.")
@click.option("--adopt", is_flag=True, help="Adopt the policy file for this store now.")
@options.store_option
@options.as_json
def policy(adopt: bool, store_path: Path | None, as_json: bool) -> None:
    """Show the approval policy of this store, your role, and whether the system enforces it.

    The policy file is $PRODUCER_CORE_POLICY, or policy.toml in the configuration folder. The store adopts it at the first
    replay, at the start of the dashboard, or with --adopt. From then on the store keeps it, also without the file. A
    return to an earlier policy of the store needs --adopt.
    """
    from producer_core.dlq.approvals.enforcement import enforcement
    from producer_core.roles.adopted_policy import adopt_policy, policy_of

    store = _store(store_path)
    if adopt:
        with store.borrow(write=True):
            adopt_policy(store, who=options.current_user(), origin="cli", now=time.time(), again=True)
    found = policy_of(store)
    if found is None:
        if adopt:
            raise Failed("There is no policy file to adopt.", "Name it in PRODUCER_CORE_POLICY.")
        output.emit(None) if as_json else output.say("This store has no approval policy.")
        return
    adopted = bool(store.rows("approval_policy"))
    level = enforcement(store.path, found.source)
    shown: dict[str, output.Cell] = {
        "source": found.source, "adopted": adopted, "rules": found.summary, "approvers": found.approvers() or "none",
        "role": found.role_of(_me()), "enforcement": level.level, "why": level.text,
    }  # fmt: skip
    output.emit(shown) if as_json else output.pairs(shown.items())


COMMANDS = (requests_, approve, refuse, withdraw, policy)


@contextlib.contextmanager
def waiting_request(store: Store, *, as_json: bool) -> Iterator[None]:
    """If a replay in this block needs an approval, print its request and exit with code 3."""
    from producer_core.dlq.approvals.requests import get_request

    try:
        yield
    except ApprovalRequired as error:
        found = get_request(store, error.request_id)
        if as_json:
            output.emit(as_dict(found))
        else:
            output.say("This replay needs the approval of a second person. Nothing was sent.")
            _say_facts(found)
        output.say(error.fix, err=True)
        click.get_current_context().exit(WAITING)


def print_request(store: Store, operation_id: str) -> None:
    """Print the latest request of a replay, if it has one."""
    from producer_core.dlq.approvals.requests import list_requests

    for request in list_requests(store, operation_id=operation_id, limit=1):
        output.say(f"\n{mask_text(request.text)}")


_MASKED = ("rule", "reason", "decision", "closed_text", "closed")
"""The facts with texts that people write."""


def facts(request: ApprovalRequest) -> list[tuple[str, str | int | None]]:
    """Return what a request would do and its state, one fact a line; unknown facts are left out."""
    from producer_core.dlq.approvals.requests import summary

    chosen = ", ".join(f"{name}={value}" for name, value in request.choices.items() if value is not None)
    lines: list[tuple[str, str | int | None]] = [
        ("request", request.request_id),
        ("state", request.state),
        ("replay", request.operation_id),
        ("effect", summary(request)),
        ("choices", chosen),
        ("rule", request.rule),
        ("requested", f"{output.moment(request.requested_at)} by {request.who} ({request.origin})"),
        ("reason", request.reason),
        ("expires", output.moment(request.expires_at) if request.is_open else None),
        ("decided", request.decided_by and f"{output.moment(request.decided_at)} by {request.decided_by}"),
        ("decision", request.decision),
        ("closed", request.closed_text),
    ]
    return [(name, mask_text(str(value)) if name in _MASKED else value) for name, value in lines if value]


def as_dict(request: ApprovalRequest) -> dict[str, Any]:
    """Return a request for JSON output."""
    from producer_core.dlq.approvals.requests import summary

    names = (
        *("request_id", "operation_id", "state", "cluster_id", "records", "rule", "by_topic", "choices"),
        *("who", "origin", "host", "reason", "requested_at", "expires_at"),
        *("decided_by", "decided_origin", "decided_at", "decision", "closed_at", "closed_text"),
        *("plan_hash", "content_hash"),
    )
    found = {name: getattr(request, name) for name in names}
    masked = {name: mask_text(found[name]) for name in _MASKED if found.get(name)}
    return {**found, **masked, "text": summary(request)}


def _say_facts(request: ApprovalRequest) -> None:
    for name, value in facts(request):
        output.say(f"  {name:<10} {value}", err=False)


def _row(request: ApprovalRequest) -> tuple[str | int | None, ...]:
    return (
        request.request_id,
        request.state,
        output.ago(request.requested_at),
        request.who,
        request.records,
        request.operation_id,
        request.decided_by,
        output.shorten(mask_text(request.decision or request.closed_text or request.reason or ""), 60),
    )


def _print(request: ApprovalRequest, as_json: bool, more: str = "") -> None:
    if as_json:
        output.emit(as_dict(request))
        return
    output.say(f"{mask_text(request.text)}.".replace("..", "."))
    if more:
        output.say(more)


def _me() -> Identity:
    """Return the user of this process as the system knows it."""
    import socket

    from producer_core._internal.identity import system_identity, system_user

    return system_identity(f"{system_user()}@{socket.gethostname()}")


def _store(path: Path | None) -> Store:
    from producer_core.store import Store

    return Store.open(path, create=False)
