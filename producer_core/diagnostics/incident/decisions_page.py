"""Render the decisions of operators on the page of a bundle: objectives, resolved causes, edits and requests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from producer_core._internal.html import LISTED, page
from producer_core._internal.time_span import exact_span
from producer_core.dlq.approvals.requests import list_requests
from producer_core.dlq.objectives import decisions
from producer_core.dlq.revisions.patch import Patch
from producer_core.dlq.revisions.revision_text import change_lines
from producer_core.store.resolved_causes import CauseStatus, Resolution, cause_statuses

if TYPE_CHECKING:
    from producer_core.diagnostics.incident.window import IncidentWindow
    from producer_core.store import Store

_MANY = 10_000
_EDITS = """
SELECT message_id, number, made_at, who, reason, patch, undone_at FROM dead_letter_revisions
ORDER BY made_at, message_id, number LIMIT ?"""
_NUMBER_OF_EDITS = "SELECT count(*) FROM dead_letter_revisions"


def sections(store: Store, window: IncidentWindow) -> Iterator[str]:
    """Yield the sections that the store has rows for. The times to decision are those of the range, as of its end."""
    yield from _decisions(store, window)
    yield from _causes(store)
    yield from _edits(store)
    yield from _requests(store)


def _decisions(store: Store, window: IncidentWindow) -> Iterator[str]:
    found = decisions(store, window.until, since=window.since, until=window.until)
    if found:
        yield page(
            "Time to decision",
            columns=("topic", "objective", "evaluated", "in time", "decided", "p50", "p95", "pending"),
            rows=[
                (
                    *(one.topic, str(one.objective or ""), one.evaluated),
                    "" if one.met is None else f"{one.met:.1%}",
                    *(one.decided, _seconds(one.p50), _seconds(one.p95), one.pending),
                )
                for one in found
            ],
        )


def _causes(store: Store) -> Iterator[str]:
    found = cause_statuses(store).values()
    if found:
        yield page(
            "Resolved causes",
            columns=("cause", "resolved", "by", "fixed in", "note", "state"),
            rows=[
                (
                    *(status.code or status.fingerprint, moment(one.resolved_at), one.who, one.fixed_in),
                    *(one.note, _state(status, one)),
                )
                for status in found
                for one in status.history
            ],
        )


def _state(status: CauseStatus, one: Resolution) -> str:
    if one.back_at is not None:
        since = f"version {one.back_in}" if one.back_in else f"{moment(one.back_at)} UTC"
        return f"back since {since}" + (f", {status.pending:,} pending" if one is status.present else "")
    return "resolved" if one.ended_at is None else f"reopened by {one.ended_by}"


def _edits(store: Store) -> Iterator[str]:
    with store.borrow() as connection:
        ((number,),) = connection.execute(_NUMBER_OF_EDITS).fetchall()
        rows = connection.execute(_EDITS, [LISTED]).fetchall()
    if rows:
        yield page(
            "Edits of dead letters",
            columns=("dead letter", "revision", "when (UTC)", "operator", "reason", "changes", "undone"),
            rows=[
                (
                    *(message_id, revision, moment(made_at), who, reason),
                    *(", ".join(change_lines(Patch.from_json(patch))), moment(undone_at)),
                )
                for message_id, revision, made_at, who, reason, patch, undone_at in rows
            ],
            more=number - len(rows),
        )


def _requests(store: Store) -> Iterator[str]:
    found = list_requests(store, limit=_MANY)
    if found:
        yield page(
            "Requests for approval",
            columns=(
                *("request", "replay", "state", "records", "requested by", "requested"),
                *("decided by", "decided", "closed", "reason"),
            ),
            rows=[
                (
                    *(one.request_id, one.operation_id, one.state, one.records, one.who),
                    *(moment(one.requested_at), one.decided_by or "", moment(one.decided_at)),
                    *(moment(one.closed_at), one.decision or one.closed_text or one.rule),
                )
                for one in reversed(found)
            ],
        )


def moment(at: float | None) -> str:
    """Return a time in UTC; an empty text for none."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _seconds(found: float | None) -> str:
    return "" if found is None else exact_span(round(found))
