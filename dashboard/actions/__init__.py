"""Carry out what an operator does on a page: each action is one call of producer_core and returns a message."""

from producer_core.dashboard.actions.alerts import acknowledge
from producer_core.dashboard.actions.approvals import approve_request, refuse_request, withdraw_request
from producer_core.dashboard.actions.causes import reopen, resolve
from producer_core.dashboard.actions.dead_letters import clear, restore, selected, undo_clear
from producer_core.dashboard.actions.objectives import remove_objective, set_objective
from producer_core.dashboard.actions.refused import may_act
from producer_core.dashboard.actions.replays import (
    cancel_replay,
    confirm_replay,
    get_replay,
    include_quarantined,
    pause_replay,
    plan_replay,
    resume_replay,
    start_replay,
)
from producer_core.dashboard.actions.result import ORIGIN, ActionResult
from producer_core.dashboard.actions.settings import change_retention
from producer_core.dashboard.auth.access import actor as actor
from producer_core.dashboard.auth.access import user as user
from producer_core.dashboard.queries import AT_ONCE

__all__ = [
    "AT_ONCE",
    "ORIGIN",
    "ActionResult",
    "acknowledge",
    "actor",
    "approve_request",
    "cancel_replay",
    "change_retention",
    "clear",
    "confirm_replay",
    "get_replay",
    "include_quarantined",
    "may_act",
    "pause_replay",
    "plan_replay",
    "refuse_request",
    "remove_objective",
    "reopen",
    "resolve",
    "restore",
    "resume_replay",
    "selected",
    "set_objective",
    "start_replay",
    "undo_clear",
    "user",
    "withdraw_request",
]
