"""Report a producer's own alerts and notices to the store, once a second, from its recorder's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from producer_core._internal.plural import plural
from producer_core.alerts import Alert, AlertLog, AlertWatcher, Key, Route, after, alert, follow
from producer_core.dlq import limits
from producer_core.events import Notice

if TYPE_CHECKING:
    from producer_core.metrics.recorder import Recorder
    from producer_core.metrics.telemetry import TelemetryPublisher
    from producer_core.producer.dead_letter_backend import ProducerView
    from producer_core.producer.dead_letter_topic.publisher import FailingPublication
    from producer_core.store import Store

_FIRST_CHECK_S = 5.0
"""Seconds until a producer checks whether the store's alerts are evaluated; a shorter-lived one never does."""


class AlertReporter:
    """Reports alerts with `report`, which the recorder's thread calls. Also runs an evaluator of the store's alerts
    from the first report until `stop`. `publication` returns why dead letters wait for their topic."""

    def __init__(
        self,
        telemetry: TelemetryPublisher | None,
        *,
        publication: Callable[[], FailingPublication | None] = lambda: None,
        limit: int,
        routes: Sequence[Route],
        clock: Callable[[], float],
    ) -> None:
        self._telemetry, self._routes, self._clock = telemetry, routes, clock
        self._publication = publication
        self._limits = limits.LimitWatch(limits.DeadLetterLimits(dead_letters=limit))
        self._watcher: AlertWatcher | None = None
        self._firing: dict[Key, Alert] = {}
        self._ledger_lost = 0
        self.replaced = ""  # what the last replacement of the store's file means

    def report(
        self, store: Store, producer: ProducerView, recorder: Recorder, *, closed: bool, stopping: bool
    ) -> None:
        """Record this producer's alerts in the store. Each alert fires once and resolves once."""
        if self._watcher is None and not stopping:
            # On its own threads, so that neither evaluation nor delivery of alerts delays the recorder.
            self._watcher = AlertWatcher(
                store, owner=producer.identity, routes=self._routes, clock=self._clock
            )
            self._watcher.start(after=_FIRST_CHECK_S)
        now = self._clock()
        for notice in (
            *self._limits.check(store, now),
            *self._losses(recorder, now),
            *self._replacements(store, producer, now),
        ):
            recorder.notice(notice)
            producer.alerts.notice(notice)
        # a loss alert outlasts its producer
        found = producer.alerts.firing(producer.identity, now, closed=closed)
        if not closed:
            found = self._found(producer, now) + found
        if self._watcher is not None:
            found = [self._watcher.rule_set.with_overrides(item) for item in found]
        changes = follow(self._firing, found, now)
        if changes:
            AlertLog(store, clock=self._clock).record(changes, told_by=producer.identity)
            self._firing = after(self._firing, changes)

    def stop(self, timeout: float = 1.0) -> None:
        if self._watcher is not None:
            self._watcher.stop(timeout)

    def _found(self, producer: ProducerView, now: float) -> list[Alert]:
        reason = producer.connection.error or "all connections are down"
        found = [
            alert(
                item["type"],
                producer.identity,
                now,
                value=item["value"],
                threshold=item["threshold"],
                reason=reason,
            )
            for item in producer.health_monitor.firing()
        ]
        if producer.deduplicator is not None and producer.deduplicator.degraded:
            found.append(alert("dedup_degraded", producer.identity, now, reason="Redis is not responding"))
        if self._telemetry is not None and (share := self._telemetry.share()).most:
            found.append(
                alert(
                    "telemetry_failing", producer.identity, now, value=share.value, threshold=0.5,
                    failed=share.failed, windows=share.windows, topic=self._telemetry.topic,
                    reason=self._telemetry.trouble or "no broker has responded yet",
                )
            )  # fmt: skip
        if (failing := self._publication()) is not None and failing.is_long:
            found.append(
                alert(
                    "dead_letter_topic_failing", producer.identity, now, value=failing.seconds,
                    threshold=failing.limit, minutes=f"{failing.limit / 60:.0f}", reason=failing.reason,
                )
            )  # fmt: skip
        return found

    def _losses(self, recorder: Recorder, now: float) -> list[Notice]:
        """Return notices of telemetry and ledger rows dropped since the last report."""
        notices = []
        if self._telemetry is not None and (lost := self._telemetry.lost()):
            notices.append(Notice("telemetry_lost", "warning", str(lost), now, asdict(lost)))
        if missing := recorder.ledger_lost - self._ledger_lost:
            self._ledger_lost += missing
            text = f"The ledger rows of {plural(missing, 'acknowledged message')} were dropped: the store was unavailable."
            notices.append(Notice("ledger_lost", "warning", text, now, {"acknowledgements": missing}))
        return notices

    def _replacements(self, store: Store, producer: ProducerView, now: float) -> list[Notice]:
        """Return a notice if the file of the store was replaced since the last report."""
        text = store.take_replaced(producer.identity)
        if text is None:
            return []
        self.replaced = text
        return [Notice("store_replaced", "critical", text, now)]
