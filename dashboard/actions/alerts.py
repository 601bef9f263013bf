"""Acts on alerts."""

from __future__ import annotations

from dashboard.actions.result import ORIGIN, Done, attempt
from producer_core.alerts import AlertLog, evaluate_store
from producer_core.store import Store


def acknowledge(store: Store, alert_id: str, *, who: str | None = None, origin: str = ORIGIN) -> Done:
    """Say that somebody looks after an alert."""

    def act(name: str) -> Done:
        changed = AlertLog(store).acknowledge(alert_id, who=name, origin=origin)
        return Done(changed, "Acknowledged." if changed else "Somebody has acknowledged it before.")

    return attempt(store, "acknowledge", {"alert": alert_id}, act, who=who, origin=origin)


_WATCH_EVERY = 5.0
_watched: dict[str, float] = {}


def watch(store: Store, now: float) -> None:
    """Evaluate the store's own alerts every few seconds, where no other process does."""
    key = str(store.path)
    if now - _watched.get(key, 0.0) >= _WATCH_EVERY:
        _watched[key] = now
        evaluate_store(store, now)
