"""Define the result of an action, and audit actions that are refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from producer_core.dashboard.actions.roles import acting
from producer_core.dashboard.auth.access import user
from producer_core.dlq import DeadLetterFilter
from producer_core.errors import ApprovalRequired, ProducerError, StoreError
from producer_core.store import Store

ORIGIN = "dashboard"


@dataclass(frozen=True)
class ActionResult:
    """Describe how an action ended.

    `operation_id` is the replay that the action started or changed. `undo` restores what a clear archived. `note` adds
    what the user should also know, such as that some dead letters were handled by another user.
    """

    ok: bool
    text: str
    operation_id: str | None = None
    undo: tuple[DeadLetterFilter, float] | None = None
    note: str = ""


def attempt(
    store: Store,
    action: str,
    selection: Mapping[str, Any],
    act: Callable[[str], ActionResult],
    *,
    who: str | None,
    origin: str,
) -> ActionResult:
    """Run an action under the name `who` (None: the signed-in user), and audit it if it is refused."""
    try:
        return act(who or acting(store))
    except StoreError as error:  # each action is one transaction, so it is done completely or not at all
        return ActionResult(False, f"Nothing was done. {error} Try again.")
    except ApprovalRequired as error:  # the request is made and audited
        return ActionResult(True, error.what, error.operation_id)
    except ProducerError as error:
        with contextlib.suppress(StoreError):
            store.audit(
                who=who or user(),
                origin=origin,
                action=action,
                selection=selection,
                count=0,
                outcome=f"Refused: {error}",
            )
        return ActionResult(False, str(error))
