"""Alerts: what people have to be told of, from its beginning to its end."""

from producer_core.alerts.alert_log import AlertLog
from producer_core.alerts.alert_state import Alert, Change, Key, Silence, State, after, alert, follow
from producer_core.alerts.conditions import Absence, BurnRate, Pair, Threshold, Told
from producer_core.alerts.evaluation import evaluate
from producer_core.alerts.evaluator import Evaluator, this_process
from producer_core.alerts.lease import LEASE
from producer_core.alerts.reported_alerts import ENDS, ToldAlerts
from producer_core.alerts.routes import Answer, Callback, Notification, Route
from producer_core.alerts.rule_set import Book, Problem, RouteSettings
from producer_core.alerts.rule_set_file import book_of, load
from producer_core.alerts.rules import FORGOTTEN_AFTER, GONE_AFTER, RULES, Rule
from producer_core.alerts.watcher import Watcher

__all__ = [
    "ENDS",
    "FORGOTTEN_AFTER",
    "GONE_AFTER",
    "LEASE",
    "RULES",
    "Absence",
    "Alert",
    "AlertLog",
    "Answer",
    "Book",
    "BurnRate",
    "Callback",
    "Change",
    "Evaluator",
    "Key",
    "Notification",
    "Pair",
    "Problem",
    "Route",
    "RouteSettings",
    "Rule",
    "Silence",
    "State",
    "Threshold",
    "Told",
    "ToldAlerts",
    "Watcher",
    "after",
    "alert",
    "book_of",
    "evaluate",
    "follow",
    "load",
    "this_process",
]
