"""Alerts: rules, evaluation, notifications and the alert log."""

from producer_core._internal.lease_watch import LEASE
from producer_core.alerts.alert_log import AlertLog
from producer_core.alerts.alert_state import Alert, AlertChange, Key, Silence, State, after, alert, follow
from producer_core.alerts.conditions import Absence, BurnRate, ReportedByProducer, Threshold, WindowPair
from producer_core.alerts.evaluation import evaluate
from producer_core.alerts.evaluator import AlertEvaluator, this_process
from producer_core.alerts.notification import Notification, RouteResult
from producer_core.alerts.reported_alerts import END_CONDITIONS, ReportedAlerts
from producer_core.alerts.routes import Callback, Route
from producer_core.alerts.rule_set import RouteSettings, RuleProblem, RuleSet
from producer_core.alerts.rule_set_file import load, rule_set_of
from producer_core.alerts.rules import FORGOTTEN_AFTER, GONE_AFTER, RULES, AlertRule
from producer_core.alerts.watcher import AlertWatcher

__all__ = [
    "END_CONDITIONS",
    "FORGOTTEN_AFTER",
    "GONE_AFTER",
    "LEASE",
    "RULES",
    "Absence",
    "Alert",
    "AlertChange",
    "AlertEvaluator",
    "AlertLog",
    "AlertRule",
    "AlertWatcher",
    "BurnRate",
    "Callback",
    "Key",
    "Notification",
    "ReportedAlerts",
    "ReportedByProducer",
    "Route",
    "RouteResult",
    "RouteSettings",
    "RuleProblem",
    "RuleSet",
    "Silence",
    "State",
    "Threshold",
    "WindowPair",
    "after",
    "alert",
    "evaluate",
    "follow",
    "load",
    "rule_set_of",
    "this_process",
]
