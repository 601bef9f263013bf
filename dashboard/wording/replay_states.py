"""Name the state of a replay in one or two words."""

from __future__ import annotations

from producer_core.dashboard.wording.numbers import sentence_case
from producer_core.dashboard.wording.replays import silent
from producer_core.replay import Operation
from producer_core.replay.wording import STATES


def state_words(operation: Operation, *, now: float, runners: int = 1, queued: bool = False) -> str:
    """Return the state, such as "Running", "Awaiting decision" or "Partly delivered".

    `runners` counts the live processes that could run it, and `queued` is set while another replay runs first.
    """
    if operation.ended:
        return _ended(operation)
    if silent(operation, now):
        return "Runner lost"
    if operation.state == "cancelled":
        return "Cancelling"
    if operation.state == "paused" and operation.owner is not None:
        return "Pausing"
    if operation.owner is None and operation.state in ("planned", "checking"):
        return "No runner" if not runners else "Queued" if queued else "Starting soon"
    return sentence_case(STATES[operation.state])


def _ended(operation: Operation) -> str:
    if operation.state != "done":
        return sentence_case(STATES[operation.state])
    delivered = operation.acknowledged + operation.landed
    if delivered == operation.total:
        return "All delivered"
    return "Partly delivered" if delivered else "None delivered"
