"""Draw requests for the approval of replays, with the buttons of those who decide them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_or_hide
from producer_core.dashboard import actions, wording
from producer_core.dashboard.actions import action_code, approvals
from producer_core.dashboard.components.live_table import Column, TablePart, TableRow, live_table
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import action_menu, common, header, reads, run_replay_action
from producer_core.dashboard.wording import approvals as approval_wording
from producer_core.dlq.approvals.requests import ApprovalRequest
from producer_core.errors import ProducerError


def show(path: Path, request: ApprovalRequest) -> None:
    """Draw the state of a request. A pending one has what it would do, and the buttons that the user may use."""
    now = time.time()
    tone, text = approval_wording.status(request, now)
    common.message(tone, text)
    if not request.can_be_decided(now):
        return
    common.sentence(approval_wording.effect(request))
    common.note(approval_wording.requested(request, now))
    common.note(approval_wording.choices(request))
    decision = approvals.decision(open_store(path), request)
    match decision.may:
        case "decide":
            _decide(path, request)
        case "withdraw":
            common.note(approval_wording.WITHDRAW_HINT.format(approvers=decision.approvers))
            with st.container(horizontal=True, vertical_alignment="center"):
                _button(path, "Withdraw", f"withdraw_{request.request_id}", partial(_withdraw, path, request))
                code = action_code.withdraw(path, request.request_id)
                action_menu.draw(path, {"Withdraw": code}, key=f"withdraw_code_{request.request_id}")
        case _:
            common.note(approval_wording.NO_ROLE.format(approvers=decision.approvers or "none"))


def waiting(path: Path, pending: Sequence[ApprovalRequest]) -> None:
    """Draw requests that can be decided, each with its buttons."""
    if not pending:
        return
    common.heading(approval_wording.HEADING)
    for request in pending:
        with st.container(border=True, key=f"pc-request-{request.request_id}"):
            show(path, request)
            run_replay_action.show_error(request.operation_id)
            address = header.link("replays", operation=request.operation_id)
            st.html(f'<p class="pc-note">{common.link_element("Review the replay", address)}</p>')


def decided(requests: Sequence[ApprovalRequest]) -> None:
    """Draw the requests that can no longer be decided. In an incident bundle, expired ones stay pending."""
    found = [one for one in requests if not one.can_be_decided(time.time())]
    if not found:
        return
    common.heading("Requests")
    columns = (
        Column("Requested"),
        Column("State"),
        Column("Records", number=True),
        Column("Requested by"),
        Column("Decided by"),
        Column("Reason", wide=True),
    )
    rows = []
    for one in found:
        when = wording.stamp(one.requested_at, common.zone(), time.time())
        address = header.link("replays", operation=one.operation_id)
        rows.append(
            TableRow(
                one.request_id,
                (
                    TablePart(when.text, href=address, tooltip=when.more),
                    one.state,
                    f"{one.records:,}",
                    one.who,
                    one.decided_by or "–",
                    mask_or_hide(one.decision or one.closed_text or "–"),
                ),
            )
        )
    live_table(columns, rows, key="requests", alt="Requests that are not pending, latest first")


def open_requested(path: Path, request_id: str) -> None:
    """Open the replay of the request in the address of the page."""
    try:
        operation_id = reads.replay_of_request(path, request_id)
    except ProducerError as error:
        common.message("warning", str(error))
        return
    st.query_params.pop("request", None)
    st.query_params["operation"] = operation_id


def _decide(path: Path, request: ApprovalRequest) -> None:
    key = f"decision_{request.request_id}"
    st.text_input(
        "Reason", key=key, placeholder="required to refuse", help="The requester and the audit log get it."
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        _button(
            path, "Approve", f"approve_{request.request_id}", partial(_approve, path, request, key), primary=True,
            icon=":material/check:",
        )  # fmt: skip
        _button(
            path,
            "Refuse",
            f"refuse_{request.request_id}",
            partial(_refuse, path, request, key),
            icon=":material/close:",
        )
        reason = str(st.session_state.get(key) or "")
        codes = {
            "Approve": action_code.approve(path, request.request_id, reason=reason),
            "Refuse": action_code.refuse(path, request.request_id, reason=reason),
        }
        action_menu.draw(path, codes, key=f"decision_code_{request.request_id}")


def _button(
    path: Path, label: str, key: str, act: partial[None], *, primary: bool = False, icon: str | None = None
) -> None:
    allowed, reason = actions.may_act(path)
    st.button(
        label, key=key, icon=icon, type="primary" if primary else "secondary", disabled=not allowed,
        help=reason or None, on_click=act,
    )  # fmt: skip


def _approve(path: Path, request: ApprovalRequest, key: str) -> None:
    _act(path, request, partial(actions.approve_request, reason=st.session_state.get(key) or ""))


def _refuse(path: Path, request: ApprovalRequest, key: str) -> None:
    _act(path, request, partial(actions.refuse_request, reason=st.session_state.get(key) or ""))


def _withdraw(path: Path, request: ApprovalRequest) -> None:
    _act(path, request, actions.withdraw_request)


def _act(path: Path, request: ApprovalRequest, act: object) -> None:
    run_replay_action.act(path, request.operation_id, lambda store, _: act(store, request.request_id))  # type: ignore[operator]
