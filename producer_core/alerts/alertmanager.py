"""The Alertmanager route: alerts go to the API (v2) of an Alertmanager, which groups, silences and routes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult

import orjson

from producer_core.alerts.notification import Notification
from producer_core.alerts.webhook import Webhook

_PATH = "/api/v2/alerts"
RENEWAL = 60.0
"""Seconds between two renewals. Alertmanager's `resolve_timeout`, 5 minutes by default, must be at least twice as long."""


@dataclass(frozen=True, slots=True)
class Alertmanager(Webhook):
    """Sends alerts to an Alertmanager, whose URL is that of its page, for example http://127.0.0.1:9093.

    Alertmanager identifies an alert by its labels, so a repeated request changes nothing. A firing alert has no `endsAt`:
    Alertmanager resolves it after its `resolve_timeout`, unless the sender renews it every `renewal` seconds. A resolved
    alert has the time of its end. The URL and the token appear in no text that a request returns.
    """

    kind: str = "alertmanager"
    renewal: float = RENEWAL
    test_seconds: float = 120.0
    """A test alert fires this long, because Alertmanager sends nothing for an alert that ends before `group_wait`."""

    def _target(self, parts: SplitResult) -> str:
        path = parts.path.removesuffix(_PATH).rstrip("/") + _PATH
        return path + (f"?{parts.query}" if parts.query else "")

    def _body(self, notification: Notification) -> bytes:
        return orjson.dumps([_alert(entry) for entry in notification.payload["alerts"]])


def _alert(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an alert as the API expects it, from an entry of a webhook's payload.

    The API refuses an end before the start, which a system clock that was set back can cause.
    """
    resolved = entry["status"] == "resolved"
    return {
        "labels": entry["labels"],
        "annotations": entry["annotations"],
        "startsAt": entry["startsAt"],
        **({"endsAt": max(entry["startsAt"], entry["endsAt"])} if resolved else {}),
        **({"generatorURL": entry["generatorURL"]} if entry["generatorURL"] else {}),
    }
