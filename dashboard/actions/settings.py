"""Change the retention of a store."""

from __future__ import annotations

import time
from collections.abc import Mapping

from producer_core.dashboard.actions.result import ORIGIN, ActionResult, attempt
from producer_core.dashboard.wording import settings as settings_wording
from producer_core.errors import ConfigError
from producer_core.roles.role_check import check_admin
from producer_core.store import Retention, Store


def change_retention(
    store: Store,
    changes: Mapping[str, float],
    *,
    shown: Mapping[str, float],
    who: str | None = None,
    origin: str = ORIGIN,
) -> ActionResult:
    """Set retention times, in seconds, with one audit entry. It deletes nothing; producers apply them within a minute.

    `shown` has the values that the operator decided on. If one of them has changed since, nothing is done.
    """

    def act(name: str) -> ActionResult:
        default = Retention()
        with store.borrow(write=True):
            check_admin(store, who=name, origin=origin, now=time.time())
            kept = store.retention()
            if other := [setting for setting, value in shown.items() if getattr(kept, setting) != value]:
                raise ConfigError(
                    f"{', '.join(other)} changed in the meantime.",
                    fix="Review the current values, then try again.",
                )
            new = {
                setting: None if value == getattr(default, setting) else value
                for setting, value in changes.items()
            }
            store.change_settings(new, who=name, origin=origin)
        return ActionResult(True, settings_wording.retention_changed(changes))

    return attempt(store, "set", dict(changes), act, who=who, origin=origin)
