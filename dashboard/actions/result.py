"""An act: who does it, how it went, and the audit of one that was refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from producer_core.dashboard.auth.access import actor, user
from producer_core.dlq import DeadLetterFilter
from producer_core.errors import ProducerError, StoreError
from producer_core.store import Store

ORIGIN = "dashboard"


@dataclass(frozen=True)
class ActionResult:
    """How an act went. `operation_id` follows a replay, `undo` brings back what a clear put aside; `note` is what else
    is worth knowing, such as that somebody was faster."""

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
    """The act under somebody's name (None: who is signed in). One that is refused is in the audit too."""
    try:
        return act(who or actor())
    except StoreError as error:  # each act is one transaction: it is done as a whole or not at all
        return ActionResult(False, f"Nothing was done. {error} Try again.")
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
