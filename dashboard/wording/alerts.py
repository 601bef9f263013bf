"""Alerts in words: what fires, how a rule stands, and whether people are told."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from producer_core.alerts.conditions import (
    METRICS,
    Absence,
    BurnRate,
    Condition,
    InvalidRuleFile,
    RouteFailing,
    Threshold,
    limit,
    span,
)
from producer_core.dashboard.wording.numbers import plural
from producer_core.dashboard.wording.time import age

if TYPE_CHECKING:
    from producer_core.alerts import Alert, AlertRule, Silence

TONES: Mapping[str, str] = {"critical": "bad", "warning": "warning", "info": "quiet"}
"""How loud an alert of a severity is said."""

SILENCES: Mapping[str, float] = {"1 hour": 3600, "4 hours": 14_400, "1 day": 86_400, "1 week": 604_800}
"""How long one can keep an alert quiet."""


def alert(found: Mapping[str, Any], now: float) -> str:
    """An alert in a line: how bad, what, since when, what to do; of one whose condition is over that."""
    since, then = age(now - found["started_at"]), over(found, now) or found["advice"]
    number = len(found.get("alert_ids", ()))
    several = f" ({plural(number, 'producer')} say so)" if number > 1 else ""
    return f"{found['severity'].capitalize()} for {since}: {found['text'].rstrip('.')}{several}. {then}"


def over(found: Mapping[str, Any], now: float) -> str:
    """That an alert fires although its condition is over, and for how long; empty where the condition holds."""
    if found["since"] is None and found.get("recovered"):
        return f"{found['subject']} delivers again: this looks back, and resolves by itself."
    if found["since"] is None:
        return ""
    left = found["keep_firing_for"] - (now - found["since"])
    return f"Over since {age(now - found['since'])}; it resolves {f'in {age(left)}' if left > 0 else 'any moment'}."


def alerts_sentence(
    firing: Sequence[Alert], pending: int, elsewhere: int, judged: bool, rules: int
) -> tuple[str, str]:
    """How things stand, as a tone and a sentence or two."""
    if not judged:
        return "bad", (
            "Nobody judges the alerts of this store now, so what is shown may be old. A producer, the dashboard or "
            "«producer-core alerts run» does."
        )
    loud = [item for item in firing if not (item.silenced or item.muted_by)]
    open_ = [item for item in loud if item.acknowledged_by is None]
    parts = []
    if loud:
        looked = len(loud) - len(open_)
        parts.append(f"{plural(len(loud), 'alert')} {_fire(len(loud))}{_looked(looked, len(loud))}")
    else:
        parts.append("No alert fires" if not firing else "Nothing fires that people are told of")
    parts += _quiet([item for item in firing if item.silenced or item.muted_by])
    if pending:
        parts.append(f"{pending} {'waits' if pending == 1 else 'wait'} to fire")
    text = "; ".join(parts) + "."
    if elsewhere > 0:
        text += f" {elsewhere} more {_fire(elsewhere)} about something else than what is chosen above."
    elif not firing and not pending:
        text += f" {rules} rules are watched."
    if not open_:
        return ("good" if not firing and not elsewhere else "quiet"), text
    return ("bad" if any(item.severity == "critical" for item in open_) else "warning"), text


_FOLLOWS = re.compile(r"(.+) fires and explains it")


def _quiet(items: Sequence[Alert]) -> Iterator[str]:
    """Why people are not told of these: somebody silenced them, or another alert explains them."""
    reasons = Counter(_reason(item) for item in items)
    for (one, more), number in reasons.items():
        yield f"{number} {one if number == 1 else more}"


def _reason(item: Alert) -> tuple[str, str]:
    """Of one, and of several."""
    if item.silenced:
        return "is silenced", "are silenced"
    muted = item.muted_by or ""
    if found := _FOLLOWS.fullmatch(muted):
        told = f"from {found[1]}, so nobody is told of"
        return f"follows {told} it", f"follow {told} them"
    return f"is told to nobody: {muted}", f"are told to nobody: {muted}"


def _fire(number: int) -> str:
    return "fires" if number == 1 else "fire"


def _looked(number: int, total: int) -> str:
    if not number:
        return ""
    return ", somebody looks after it" if number == total == 1 else f", {number} of them looked after"


def alert_state(item: Alert) -> str:
    """Where an alert stands in its life, in a word; its age is that of this state."""
    return item.state if item.state in ("resolved", "pending") else "firing"


def alert_hush(item: Alert) -> str:
    """What was done about an alert that fires, which has an age of its own: to follow the age of the alert."""
    if alert_state(item) != "firing":
        return ""
    if item.silenced:
        return ", silenced"
    if item.muted_by:
        return ", muted"
    return ", acknowledged" if item.acknowledged_by else ""


def alert_age(item: Alert, now: float) -> str:
    """Since when, or how long it was; and for a pending one when it will fire."""
    if item.resolved_at is not None:
        begun = item.fired_at if item.fired_at is not None else item.started_at
        return f"for {age(item.resolved_at - begun)}, until {age(now - item.resolved_at)} ago"
    return f"for {age(now - item.started_at)}"


def alert_ending(item: Alert, rule: AlertRule | None, now: float) -> str:
    """What has to happen until it fires, or ends."""
    if item.lasting and item.state == "firing":
        return "It fires until somebody acknowledges it."
    if item.since is None or rule is None:
        return ""
    if item.state == "pending":
        left = rule.for_ - (now - item.since)
        return f"It fires in {age(left)}, if it goes on." if left > 0 else "It fires any moment."
    left = rule.keep_firing_for - (now - item.since)
    return f"Its condition is over; it resolves in {age(left)}." if left > 0 else "It resolves any moment."


def silenced(silence: Silence, now: float, until: str) -> str:
    """Why nobody is told, until when, and by whom."""
    why = f": {silence.why.rstrip('.')}" if silence.why else ""
    return f"Silenced by {silence.who} until {until}, for another {age(silence.until - now)}{why}."


def silence_subject(silence: Silence) -> str:
    return (
        f"{silence.rule} for {silence.subject}"
        if silence.subject
        else f"{silence.rule}, whatever it is about"
    )


def rule_condition(rule: AlertRule) -> str:
    """When a rule fires."""
    if not rule.enabled:
        return "switched off"
    waits = f", for {span(rule.for_)}" if rule.for_ else ""
    only = f", only about {', '.join(rule.subjects)}" if rule.subjects else ""
    keeps = f"; it resolves {span(rule.keep_firing_for)} after that is over" if rule.keep_firing_for else ""
    return f"{_condition(rule.condition)}{waits}{only}{keeps}"


_FIGURES: Mapping[str, str] = {
    "error_rate": "the share of messages that die",
    "attempt_failure_rate": "the share of attempts that fail",
    "dead": "the number of messages that die",
    "accepted": "the number of messages accepted",
    "acknowledged": "the number of messages acknowledged",
    "throughput": "the messages acknowledged a second",
    "retried": "the number of messages sent again",
    "duplicates": "the number of duplicates suppressed",
    "possible_duplicates": "the number of possible duplicates",
    "latency_mean": "the mean latency",
    "latency_p50": "the latency p50",
    "latency_p95": "the latency p95",
    "latency_p99": "the latency p99",
    "latency_p999": "the latency p99.9",
    "dlq_size": "the number of dead letters",
    "dlq_age": "the age of the oldest dead letter",
    "dlq_growth": "the number of new dead letters",
    "memory": "the used share of the memory",
    "pending": "the number of unsettled messages",
    "waiting_retry": "the number of messages that wait for a retry",
    "queue_fill": "the fill of the client's queue",
    "disconnected": "the number of lost connections",
}
_ABOUT = {"topic": "of a topic", "producer": "of a producer", "store": "of all together"}


def _condition(condition: Condition) -> str:
    match condition:
        case Threshold(metric=metric, window=window, by=by):
            bound = condition.above if condition.above is not None else condition.below
            over = f" within {span(window)}" if METRICS[metric].window else ""
            way = "above" if condition.above is not None else "below"
            return f"{_FIGURES[metric]} {_ABOUT[by]} is {way} {limit(metric, bound or 0.0)}{over}"
        case BurnRate(objective=objective, pairs=pairs, by=by):
            paces = " or ".join(
                f"{_pace(pair.factor)} over {span(pair.long)} and {span(pair.short)}" for pair in pairs
            )
            return f"the error budget {_ABOUT[by]}, {100 - 100 * objective:.4g} %, is used up {paces}"
        case Absence(of="producer", after=after):
            return f"a producer that was not closed gives no sign of life for {span(after)}"
        case Absence(of="delivery", after=after):
            return f"messages of a producer wait and none is settled for {span(after)}"
        case Absence(after=after):
            return f"a topic that was written to gets nothing for {span(after)}"
        case RouteFailing(after=after):
            return f"people cannot be told over a route for {span(after)}"
        case InvalidRuleFile():
            return "the file of rules holds mistakes"
        case _:
            return "a producer says so"


def _pace(factor: float) -> str:
    return "at its full pace" if factor == 1 else f"at {factor:g} times its pace"


def rule_state(enabled: bool, firing: int, pending: int, episodes: int, silenced: bool) -> tuple[str, str]:
    """How a rule stands now, and the look of it."""
    if not enabled:
        return "switched off", "quiet"
    hushed = ", silenced" if silenced else ""
    if firing:
        return f"{firing} {_fire(firing)}{hushed}", "warning" if silenced else "bad"
    if pending:
        return f"{pending} pending{hushed}", "warning"
    if silenced:
        return "silenced", "quiet"
    return ("quiet now", "plain") if episodes else ("never fired", "quiet")


def route_state(told: bool, failing: str, waiting: int, given_up: int, reason: str) -> tuple[str, str]:
    """How telling people over a route goes, as a tone and sentences. `failing`: how long ago it began to fail."""
    if failing:
        waits = f" {plural(waiting, 'message')} {'waits' if waiting == 1 else 'wait'}." if waiting else ""
        return "bad", f"Nobody is told over it since {failing}: {reason.rstrip('.')}.{waits}"
    if waiting:
        return "warning", f"{plural(waiting, 'message')} {'is' if waiting == 1 else 'are'} on the way."
    gave_up = f" {plural(given_up, 'message')} given up after a day." if given_up else ""
    if told:
        return ("warning" if given_up else "good"), f"What had to be told was taken.{gave_up}"
    return "quiet", "Nothing had to be told over it yet."


def untold(route: str, ago: str) -> str:
    """That a way to people does not work."""
    return f"Nobody is told over {route} since {ago} ago (see Notifications)."


SAID: Mapping[str, str] = {
    "firing": "that it fires",
    "repeat": "that it still fires",
    "resolved": "that it is over",
}
"""What a route was to say."""


def judged_by(name: str, *, alive: bool, here: bool) -> str:
    """Which process judges."""
    if not name:
        return "Nobody has judged here yet."
    if here:
        return "This dashboard judges the alerts."
    return (
        f"The alerts are judged by {name}."
        if alive
        else f"{name[:1].upper()}{name[1:]} judged them last, and is gone."
    )
