"""A list of requests that a notebook shows as a table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from producer_core.dlq.approvals.requests import ApprovalRequest, State, expire_requests, list_requests

if TYPE_CHECKING:
    from producer_core.store import Store


class Requests(list[ApprovalRequest]):
    """Requests for the approval of replays; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        rows = [
            (
                one.request_id,
                one.state,
                one.who,
                one.records,
                one.operation_id,
                one.decided_by or "",
                one.decision or "",
            )
            for one in self
        ]
        columns = ("request", "state", "requested by", "records", "replay", "decided by", "reason")
        return html.page(f"Requests: {len(rows):,}", columns=columns, rows=rows)


def requests(store: Store, *, state: State | None = None, limit: int = 20) -> Requests:
    """Return the requests, the latest first, after those whose time is over have expired."""
    expire_requests(store, time.time())
    return Requests(list_requests(store, state=state, limit=limit))
