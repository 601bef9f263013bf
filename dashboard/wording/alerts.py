"""Texts about alerts, rules, silences and notifications."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from producer_core._internal.plural import plural
from producer_core.alerts.alert_groups import GROUPED_RULES
from producer_core.alerts.conditions import (
    METRICS,
    Absence,
    BurnRate,
    CauseReturned,
    Condition,
    InvalidRuleFile,
    ObjectiveBurn,
    ObjectiveMissed,
    PendingApproval,
    ReportedByProducer,
    RouteFailing,
    Threshold,
    limit,
    span,
)
from producer_core.alerts.evaluate_rules import ALL_TOPICS
from producer_core.alerts.reported_alerts import END_CONDITIONS
from producer_core.alerts.reported_conditions import REPORTED_CONDITIONS
from producer_core.dashboard.wording.time import age, zone_of

if TYPE_CHECKING:
    from producer_core.alerts import Alert, AlertRule, Silence

TONES: Mapping[str, str] = {"critical": "bad", "warning": "warning", "info": "quiet"}
"""The tone of each severity."""

LOSS_RULES = frozenset(
    ("acknowledged_lost", "loss_suspected", "standing_unknown", "topic_recreated", "ledger_lost")
)
"""The rules about acknowledged messages that may be missing; an audit of the topic names each of them."""

UNTIL_TOMORROW = "Until tomorrow, 09:00"
SILENCES = ("1 hour", "4 hours", UNTIL_TOMORROW, "1 day", "1 week")
"""The durations offered for a silence."""
_SECONDS: Mapping[str, float] = {"1 hour": 3600, "4 hours": 14_400, "1 day": 86_400, "1 week": 604_800}


def silence_seconds(duration: str, now: float, zone: str | None) -> float:
    """Return the seconds from now to the end of a silence. `zone` is the viewer's, such as Europe/Berlin."""
    if duration != UNTIL_TOMORROW:
        return _SECONDS[duration]
    today = datetime.fromtimestamp(now, zone_of(zone))
    tomorrow = (today + timedelta(days=1)).replace(hour=9, minute=0, second=0, microsecond=0)
    return tomorrow.timestamp() - now


def alert(found: Mapping[str, Any], now: float) -> str:
    """Return an alert in one line: severity, age, text, and the advice or how it recovers."""
    since, then = age(now - found["started_at"]), recovery_note(found, now) or found["advice"]
    reporters = 1 if found["rule"] in GROUPED_RULES else len(found.get("alert_ids", ()))
    several = f" (reported by {plural(reporters, 'producer')})" if reporters > 1 else ""
    return f"{found['severity'].capitalize()} for {since}: {found['text'].rstrip('.')}{several}. {then}"


def recovery_note(found: Mapping[str, Any], now: float) -> str:
    """Return how long ago the condition of a firing alert cleared; empty while the condition holds."""
    if found["since"] is None and found.get("recovered"):
        return f"{found['subject']} is delivering again; the alert resolves automatically."
    if found["since"] is None:
        return ""
    left = found["keep_firing_for"] - (now - found["since"])
    return (
        f"Cleared {age(now - found['since'])} ago; resolves {f'in {age(left)}' if left > 0 else 'shortly'}."
    )


def more_firing(number: int) -> str:
    """Return how many firing alerts the page does not list."""
    return f"{number:,} more {'is' if number == 1 else 'are'} firing. Select a topic, or see Rules."


def alerts_sentence(
    firing: Sequence[Alert], pending: int, elsewhere: int, evaluated: bool, rules: int
) -> tuple[str, str]:
    """Return a tone and a summary of the alerts.

    `elsewhere` counts the firing alerts that the current filter hides; `evaluated` is False while no process evaluates
    the rules.
    """
    if not evaluated:
        return "bad", (
            "Alert evaluation is not running; data may be stale. Start a producer, the dashboard, or "
            "producer-core alerts run."
        )
    loud = [item for item in firing if not (item.silenced or item.muted_by)]
    open_ = [item for item in loud if item.acknowledged_by is None]
    parts = []
    if loud:
        parts.append(f"{plural(len(loud), 'alert')} firing{_acknowledged(len(loud) - len(open_), len(loud))}")
    else:
        parts.append("All firing alerts are suppressed" if firing else "No alerts firing")
    parts += _suppressed([item for item in firing if item.silenced or item.muted_by])
    if pending:
        parts.append(f"{pending} pending")
    text = "; ".join(parts) + "."
    if elsewhere > 0:
        text += f" {elsewhere} more firing outside the current filter."
    elif not firing and not pending:
        text += f" {plural(rules, 'rule')} evaluated."
    if not open_:
        return ("good" if not firing and not elsewhere else "quiet"), text
    return ("bad" if any(item.severity == "critical" for item in open_) else "warning"), text


def _suppressed(items: Sequence[Alert]) -> Iterator[str]:
    """Count the silenced and inhibited alerts by reason."""
    for reason, number in Counter(map(_suppression, items)).items():
        yield f"{number} {reason}"


def _suppression(item: Alert) -> str:
    if item.silenced:
        return "silenced"
    reason = item.muted_by or ""
    return reason if reason.startswith("inhibited by ") else f"muted: {reason}"


def _acknowledged(number: int, total: int) -> str:
    if not number:
        return ""
    return ", acknowledged" if number == total == 1 else f", {number} acknowledged"


def alert_state(item: Alert) -> str:
    """Return the state in one word; `alert_age` is the age of this state."""
    return item.state if item.state in ("resolved", "pending") else "firing"


def alert_suppression(item: Alert) -> str:
    """Return how a firing alert is handled, to append to its age."""
    if alert_state(item) != "firing":
        return ""
    if item.silenced:
        return ", silenced"
    if item.muted_by:
        return ", muted"
    return ", acknowledged" if item.acknowledged_by else ""


def alert_age(item: Alert, now: float) -> str:
    """Return the age of the state; and, for a resolved alert, how long it fired."""
    if item.resolved_at is not None:
        begun = item.fired_at if item.fired_at is not None else item.started_at
        return f"{age(now - item.resolved_at)} ago after {age(item.resolved_at - begun)}"
    return f"for {age(now - item.started_at)}"


def next_transition(item: Alert, rule: AlertRule | None, now: float) -> str:
    """Return when the alert fires or resolves; empty where neither is due."""
    if item.lasting and item.state == "firing":
        return "Fires until acknowledged."
    if item.since is None or rule is None:
        return ""
    if item.state == "pending":
        left = rule.for_ - (now - item.since)
        return f"Fires in {age(left)} if the condition persists." if left > 0 else "Fires shortly."
    left = rule.keep_firing_for - (now - item.since)
    return f"Condition cleared; resolves {f'in {age(left)}' if left > 0 else 'shortly'}."


def silenced(silence: Silence, now: float, until: str) -> str:
    """Return the silence's author, end and reason."""
    why = f": {silence.why.rstrip('.')}" if silence.why else ""
    return f"Silenced by {silence.who} until {until} ({age(silence.until - now)} left){why}."


def silence_subject(silence: Silence) -> str:
    return f"{silence.rule} for {silence.subject}" if silence.subject else f"{silence.rule}, all subjects"


def rule_condition(name: str, rule: AlertRule) -> str:
    """Return the condition under which a rule fires, with its threshold, and when it resolves."""
    if not rule.enabled:
        return "disabled"
    for_ = f", for {span(rule.for_)}" if rule.for_ else ""
    only = f", only for {', '.join(rule.subjects)}" if rule.subjects else ""
    return f"{_condition(name, rule.condition)}{for_}{only}{_end_of(name, rule)}"


def _end_of(name: str, rule: AlertRule) -> str:
    """Return when the alert resolves; for a rule that producers report, `keep_firing_for` delays only the notification."""
    if rule.lasting:
        return "; fires until acknowledged"
    if not isinstance(rule.condition, ReportedByProducer):
        return f"; resolves {span(rule.keep_firing_for)} after it clears" if rule.keep_firing_for else ""
    end = END_CONDITIONS.get(name)
    if end is not None and end.after is not None:
        return f"; resolves {span(end.after)} after the last report"
    if end is not None and not end.by:
        return "; fires until the producer is closed"
    return f"; its end is notified after {span(rule.keep_firing_for)}" if rule.keep_firing_for else ""


_METRIC_NAMES: Mapping[str, str] = {
    "error_rate": "error rate",
    "attempt_failure_rate": "attempt failure rate",
    "dead": "number of failed messages",
    "accepted": "number of accepted messages",
    "acknowledged": "number of acknowledged messages",
    "throughput": "throughput",
    "retried": "number of retried messages",
    "duplicates": "number of suppressed duplicates",
    "possible_duplicates": "number of possible duplicates",
    "latency_mean": "mean latency",
    "latency_p50": "latency p50",
    "latency_p95": "latency p95",
    "latency_p99": "latency p99",
    "latency_p999": "latency p99.9",
    "dlq_size": "number of dead letters",
    "dlq_age": "age of the oldest dead letter",
    "dlq_growth": "number of new dead letters",
    "memory": "memory usage",
    "pending": "number of unsettled messages",
    "waiting_retry": "number of messages waiting for a retry",
    "queue_fill": "client queue usage",
    "disconnected": "number of lost connections",
}
_SCOPES = {"topic": "per topic", "producer": "per producer", "store": "in total"}


def _condition(name: str, condition: Condition) -> str:
    match condition:
        case Threshold(metric=metric, window=window, by=by):
            bound = condition.above if condition.above is not None else condition.below
            over = f" over {span(window)}" if METRICS[metric].window else ""
            side = "above" if condition.above is not None else "below"
            return f"{_METRIC_NAMES[metric]} {_SCOPES[by]} {side} {limit(metric, bound or 0.0)}{over}"
        case BurnRate(objective=objective, pairs=pairs, by=by):
            rates = " or ".join(
                f"{_burn_rate(pair.factor)} over both the last {span(pair.long)} and the last {span(pair.short)}"
                for pair in pairs
            )
            return f"error budget of {100 - 100 * objective:.4g}% {_SCOPES[by]} burns {rates}"
        case Absence(of="producer", after=after):
            return f"a producer that was not closed sends no heartbeat for {span(after)}"
        case Absence(of="delivery", after=after):
            return f"a producer has pending messages and settles none for {span(after)}"
        case Absence(after=after):
            return f"a topic with earlier traffic receives nothing for {span(after)}"
        case ObjectiveMissed(min_overdue=least):
            return (
                "a topic misses its decision objective over 28 days, and "
                f"{plural(least, 'pending dead letter is', 'pending dead letters are')} past the deadline"
            )
        case ObjectiveBurn(used=used):
            return (
                "the deadlines that a topic missed in the last hour, and those of its pending dead letters in the next hour, "
                f"use {used:.0%} of the error budget of its decision objective"
            )
        case CauseReturned(min_pending=least):
            return f"a cause that was marked as resolved is back, with {plural(least, 'pending dead letter')} or more"
        case RouteFailing(after=after):
            return f"notifications via a route fail for {span(after)}"
        case PendingApproval():
            return "a replay waits for the approval of a second person"
        case InvalidRuleFile():
            return "the rule file is invalid"
        case _:
            return REPORTED_CONDITIONS.get(name, "reported by a producer")


def metric_title(metric: str, subject: str) -> str:
    """Return the heading of the chart of an alert's metric."""
    name = _METRIC_NAMES[metric]
    return f"{name[:1].upper()}{name[1:]}: {'all topics' if subject == ALL_TOPICS else subject}"


def last_value(item: Alert, rule: AlertRule | None) -> str:
    """Return the last value of a threshold whose metric has no history in the store; empty for other rules."""
    if rule is None or not isinstance(rule.condition, Threshold) or item.value is None:
        return ""
    metric = rule.condition.metric
    return (
        f"Last {_METRIC_NAMES[metric]}: {limit(metric, item.value)}; the threshold is "
        f"{limit(metric, item.threshold or 0.0)}. The store keeps no history of it."
    )


def durations(total: float, longest: float) -> str:
    """Return how long the repeats of an alert fired, in total and at most."""
    return f"{age(total)} in total, {age(longest)} at most"


def _burn_rate(factor: float) -> str:
    return "at the budgeted rate" if factor == 1 else f"at {factor:g} times the budgeted rate"


def rule_state(enabled: bool, firing: int, pending: int, episodes: int, silenced: bool) -> tuple[str, str]:
    """Return the state of a rule and its look."""
    if not enabled:
        return "disabled", "quiet"
    suffix = ", silenced" if silenced else ""
    if firing:
        return f"{firing} firing{suffix}", "warning" if silenced else "bad"
    if pending:
        return f"{pending} pending{suffix}", "warning"
    if silenced:
        return "silenced", "quiet"
    return ("inactive", "plain") if episodes else ("never fired", "quiet")


def route_state(delivered: bool, failing: str, waiting: int, given_up: int, reason: str) -> tuple[str, str]:
    """Return a tone and the state of a notification route; `failing` is how long ago it began to fail."""
    if failing:
        queued = f" {plural(waiting, 'notification')} queued." if waiting else ""
        return "bad", f"Delivery began failing {failing}: {reason.rstrip('.')}.{queued}"
    if waiting:
        return "warning", f"{plural(waiting, 'notification')} queued."
    if not delivered:
        return "quiet", "No notifications sent yet."
    if given_up:
        return "warning", f"Delivering; {plural(given_up, 'notification')} dropped after a day of retries."
    return "good", "All notifications delivered."


def route_failing(route: str, ago: str) -> str:
    """Return the note about a route that has failed since `ago`."""
    return f"Notifications via {route} have been failing for {ago} (see Notifications)."


NOTIFICATION_KINDS: Mapping[str, str] = {
    "firing": "firing",
    "repeat": "still firing",
    "resolved": "resolved",
}
"""The content of a notification, by its status in the outbox."""


def evaluator_note(name: str, *, alive: bool, here: bool) -> str:
    """Return which process evaluates the alerts."""
    if not name:
        return "Alerts have not been evaluated yet."
    if here:
        return "This dashboard evaluates the alerts."
    if alive:
        return f"Alerts are evaluated by {name}."
    return f"Alerts were last evaluated by {name}, which is no longer running."
