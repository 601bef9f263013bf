"""Alerts: what people have to be told of, from its beginning to its end."""

from producer_core.alerts.gone import FORGOTTEN_AFTER, GONE_AFTER, LEASE, evaluate_store, this_process
from producer_core.alerts.life import Alert, Change, Key, Silence, State, after, alert, follow
from producer_core.alerts.log import AlertLog
from producer_core.alerts.rules import RULES, Rule
from producer_core.alerts.told import ENDS, ToldAlerts

__all__ = [
    "ENDS",
    "FORGOTTEN_AFTER",
    "GONE_AFTER",
    "LEASE",
    "RULES",
    "Alert",
    "AlertLog",
    "Change",
    "Key",
    "Rule",
    "Silence",
    "State",
    "ToldAlerts",
    "after",
    "alert",
    "evaluate_store",
    "follow",
    "this_process",
]
