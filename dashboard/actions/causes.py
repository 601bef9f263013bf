"""Mark the cause of a group of dead letters as resolved, and take it back."""

from __future__ import annotations

import time

from producer_core._internal.plural import plural
from producer_core.dashboard.actions.result import ORIGIN, ActionResult, attempt
from producer_core.dlq.resolve_cause import reopen_cause, resolve_cause
from producer_core.store import Store


def resolve(
    store: Store,
    group: str,
    *,
    fixed_in: str = "",
    note: str = "",
    who: str | None = None,
    origin: str = ORIGIN,
) -> ActionResult:
    """Mark the cause of a group as resolved, with the version of the fix if it is known; with one audit entry."""

    def act(name: str) -> ActionResult:
        count = resolve_cause(
            store,
            group,
            who=name,
            origin=origin,
            now=time.time(),
            fixed_in=fixed_in.strip(),
            note=note.strip(),
        )
        return ActionResult(
            True, f"Marked as resolved. {plural(count, 'dead letter stays', 'dead letters stay')} as before."
        )

    return attempt(store, "resolve", {"group": group}, act, who=who, origin=origin)


def reopen(store: Store, group: str, *, who: str | None = None, origin: str = ORIGIN) -> ActionResult:
    """Take back that the cause of a group is resolved, with one audit entry."""

    def act(name: str) -> ActionResult:
        reopen_cause(store, group, who=name, origin=origin, now=time.time())
        return ActionResult(True, "The cause is open again.")

    return attempt(store, "reopen", {"group": group}, act, who=who, origin=origin)
