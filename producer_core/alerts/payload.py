"""The payload of a notification, in version 4 of the Alertmanager webhook format, which pagers and chats accept."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from producer_core._internal.masking import mask_or_hide
from producer_core.alerts.alert_state import Alert
from producer_core.alerts.notification import Notification
from producer_core.alerts.rule_set import RuleSet
from producer_core.alerts.rules import AlertRule

Status = Literal["firing", "resolved"]

APPROVAL_REQUESTED = "approval_requested"
_NEVER = "0001-01-01T00:00:00Z"


def notification(
    alerts: Sequence[Alert],
    status: Status,
    *,
    receiver: str,
    rule_set: RuleSet,
    store: str,
    again: float | None = None,
) -> Notification:
    """Return one notification about one or more alerts of the same rule.

    `again`: the time at which a repetition became due. It changes the key, so that the receiver accepts it as new.
    """
    entries = [_entry(item, status, rule_set=rule_set, store=store) for item in alerts]
    name = alerts[0].rule
    payload = {
        "version": "4",
        "groupKey": f'{{}}:{{alertname="{name}"}}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": receiver,
        "groupLabels": {"alertname": name},
        "commonLabels": _common([entry["labels"] for entry in entries]),
        "commonAnnotations": _common([entry["annotations"] for entry in entries]),
        "externalURL": rule_set.link,
        "alerts": entries,
    }
    return Notification(_key(receiver, status, alerts, again), status, payload)


def fingerprint(labels: Mapping[str, str]) -> str:
    """Return 16 hex digits that are the same for every episode of a rule and subject, whatever its severity."""
    identity = "\0".join(f"{name}\0{value}" for name, value in sorted(labels.items()) if name != "severity")
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def _entry(item: Alert, status: Status, *, rule_set: RuleSet, store: str) -> dict[str, Any]:
    labels = {
        **rule_set.labels,
        "alertname": item.rule,
        "severity": item.severity,
        "subject": item.subject,
        "store": store,
    }
    rule = rule_set.rules.get(item.rule)
    ended = item.resolved_at if status == "resolved" else None
    return {
        "status": status,
        "labels": labels,
        "annotations": _annotations(item, rule),
        "startsAt": _iso(item.fired_at if item.fired_at is not None else item.started_at),
        "endsAt": _NEVER if ended is None else _iso(ended),
        "generatorURL": _link(rule_set, item),
        "fingerprint": fingerprint(labels),
    }


def _annotations(item: Alert, rule: AlertRule | None) -> dict[str, str]:
    return {
        "summary": mask_or_hide(item.text),
        "description": item.advice,
        "alert_id": item.alert_id,
        **({"value": f"{item.value:g}"} if item.value is not None else {}),
        **({"threshold": f"{item.threshold:g}"} if item.threshold is not None else {}),
        **({"runbook_url": rule.runbook} if rule is not None and rule.runbook else {}),
    }


def _link(rule_set: RuleSet, item: Alert) -> str:
    """Return the address of the page on which the receiver acts."""
    if not rule_set.link:
        return ""
    page = (
        f"replays?request={item.subject}"
        if item.rule == APPROVAL_REQUESTED
        else f"alerts?alert={item.alert_id}"
    )
    return f"{rule_set.link.rstrip('/')}/{page}"


def _common(maps: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {name: value for name, value in maps[0].items() if all(other.get(name) == value for other in maps)}


def _key(receiver: str, status: Status, alerts: Sequence[Alert], again: float | None) -> str:
    moment = [] if again is None else [f"again {again:.3f}"]
    identity = "\0".join([receiver, status, *moment, *sorted(item.alert_id for item in alerts)])
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
