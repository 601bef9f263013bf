"""What an operator may do from a page: each act is one call of producer_core, answered in words."""

from producer_core.dashboard.actions.alerts import acknowledge
from producer_core.dashboard.actions.dead_letters import clear, restore, selected, undo_clear
from producer_core.dashboard.actions.refused import may_act
from producer_core.dashboard.actions.replays import (
    cancel_replay,
    follow,
    go_replay,
    look_ahead,
    pause_replay,
    resume_replay,
    start_replay,
    with_quarantined,
)
from producer_core.dashboard.actions.result import ORIGIN, ActionResult
from producer_core.dashboard.auth.access import actor as actor
from producer_core.dashboard.auth.access import user as user
from producer_core.dashboard.queries import AT_ONCE

__all__ = [
    "AT_ONCE",
    "ORIGIN",
    "ActionResult",
    "acknowledge",
    "actor",
    "cancel_replay",
    "clear",
    "follow",
    "go_replay",
    "look_ahead",
    "may_act",
    "pause_replay",
    "restore",
    "resume_replay",
    "selected",
    "start_replay",
    "undo_clear",
    "user",
    "with_quarantined",
]
