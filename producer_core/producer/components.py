"""The parts of a producer: made of what it was asked for, started in their order, stopped in theirs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer_core import __version__
from producer_core._internal.deadline import Deadline
from producer_core._internal.user_callbacks import shown
from producer_core.alerts import ReportedAlerts, Route
from producer_core.alerts.health import HealthMonitor
from producer_core.alerts.routes import Told, given_routes
from producer_core.config import ClientConfig, RetryConfig
from producer_core.delivery.dead_letter import ProducerInfo
from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.duplicate_check import DuplicateCheck, read_gaps
from producer_core.delivery.engine import DeliveryEngine
from producer_core.delivery.loss_detection import AckedLogMonitor, KafkaBrokerQueries
from producer_core.delivery.reports import CloseReport
from producer_core.delivery.transport import TransportFactory
from producer_core.errors import ConfigError, InvalidMessage
from producer_core.events import Hook, Notice, Severity
from producer_core.kafka.replication import ReplicationWatch
from producer_core.metrics.counters import Metrics
from producer_core.producer.arguments import TOPIC_RULE, is_topic_name
from producer_core.producer.event_log import EventLog
from producer_core.producer.guarantees import Guarantees
from producer_core.producer.health_sampler import Sampler
from producer_core.producer.session import ProducerSession
from producer_core.producer.shutdown import Shutdown

if TYPE_CHECKING:
    from producer_core.delivery.replayable_source import ReplayableSource
    from producer_core.producer.dead_letter_backend import DeadLetterBackend, ProducerView
    from producer_core.store import Store

_LEAST = 0.2
"""Seconds that each step of a close gets when its time is over."""
_FOR_THE_STORE, _STORE_AT_MOST = 1.0, 10.0
"""Seconds for which a close waits for the store: dead letters are on a disk before, statistics are not."""


class Components:
    """Owns whatever has a thread or a file. The keywords are the producer's.

    Whoever forgets a producer has it closed at the interpreter's end all the same: the threads hold its lifecycle,
    that holds us (`origin`), and we hold the ending.
    """

    def __init__(
        self,
        guarantees: Guarantees,
        config: ClientConfig,
        retry_config: RetryConfig,
        *,
        journal: ReplayableSource | None,
        enable_deduplication: bool,
        redis_client: Any,
        dedup_ttl: int,
        health_check_interval: float,
        thresholds: Mapping[str, float],
        store: Store | Path | str | None,
        dlq_max_size: int,
        telemetry_topic: str | None,
        ledger: bool | None,
        alert_routes: Sequence[Route | Told],
        cluster_id: str | None,
        hooks: Sequence[Hook],
        transport: TransportFactory | None,
        clock: Callable[[], float],
    ) -> None:
        self._guarantees = guarantees
        self._config = config
        self._clock = clock
        self._cluster_id = cluster_id
        self._real = transport is None  # else there may be no broker behind it
        self._early: list[Notice] = []  # what the journal said before anybody could hear it
        self._hear = self._early.append
        self.ending = Shutdown(self._finish, self._report)
        self.topics: set[str] = set()  # names that passed the check
        self.identity = ProducerSession(guarantees, config, journal, says=self._journal_says)
        with self.identity.or_let_go():
            self.metrics = Metrics()
            self.deduplicator = self._deduplicator(enable_deduplication, redis_client, dedup_ttl)
            self.health_monitor = HealthMonitor(health_check_interval)
            self.health_monitor.thresholds.update(_known(thresholds, self.health_monitor.thresholds))
            self.keeping = self._keep(
                store, dlq_max_size, telemetry_topic, ledger, given_routes(alert_routes)
            )
            self._replication = ReplicationWatch(config, self._notice)
            self.alerts = ReportedAlerts()
            self._event_log = EventLog()
            self.standing = AckedLogMonitor(self._asker(), self._notice, ids=self.identity.ids, clock=clock)
            self._duplicates = self._duplicate_check()
            self.origin = ProducerInfo(
                str(self.identity.session), socket.gethostname(), __version__, self.known_cluster
            )
            self.lifecycle = DeliveryEngine(
                config,
                retry_config,
                origin=self.origin,
                transport=transport or guarantees.transport(self.identity.journal),
                hooks=(
                    self._event_log,
                    _ChecksSoon(self.health_monitor),
                    self.metrics,
                    self.keeping.hook,
                    self.alerts,
                    self._replication,
                    self.standing,
                    *self._duplicates,
                    *hooks,
                ),
                dedup=self.deduplicator,
                ordering=guarantees.ordering,
                on_ambiguous=guarantees.on_ambiguous,
                backlog=self.identity.backlog,
                next_sequence=self.identity.sequence.peek,
                number=self.identity.ids.number,
                saturated=self.keeping.full,
                lost_on=self.standing.lost_on,
                clock=clock,
            )
            self._hear = self.lifecycle.notice
            self._sampler = Sampler(self.metrics, self.lifecycle, self.keeping.size, clock=clock)
            self._require(())

    # a life

    def start(self, producer: ProducerView, *, run_replays: bool) -> None:
        """Start the threads; what the journal said meanwhile is told now."""
        with self.identity.or_let_go():
            self.lifecycle.start()
            self.standing.start()
            self.keeping.start(producer, run_replays=run_replays)
            self.health_monitor.start(
                self._sampler.sample, unreachable=lambda: self.lifecycle.connection.unreachable
            )
            for notice in self._early:
                self.lifecycle.notice(notice)
            self.ending.at_exit()

    def _finish(self, timeout: float) -> CloseReport:
        deadline = Deadline(timeout)
        self.health_monitor.stop(deadline.left(at_least=_LEAST, at_most=5.0))
        self.keeping.stop_replays(deadline.left(at_least=_LEAST, at_most=15.0))
        if self._cluster_id is None and self.topics and self.lifecycle.connection.error is None:
            # while there is a client: a short life's dead letters name their cluster too
            self._ask_cluster(deadline.left(at_least=_LEAST, at_most=2.0))
        self.lifecycle.close(deadline)
        if self.deduplicator is not None:
            self.deduplicator.close(deadline.left(at_least=_LEAST, at_most=1.0))
        for check in self._duplicates:
            check.stop(max(_LEAST, deadline.left(at_most=5.0) / 2))
        self._replication.stop()
        self.standing.stop(max(_LEAST, deadline.left(at_most=5.0) / 2))
        self.keeping.stop(deadline.left(at_least=_FOR_THE_STORE, at_most=_STORE_AT_MOST))
        self._event_log.stop()
        report = self._report()
        self.identity.let_go()
        return report

    def _report(self) -> CloseReport:
        """Where everything is. A dead letter that could be kept nowhere is still in the journal, if there is one."""
        snapshot, unwritten = self.metrics.snapshot(), self.keeping.lost()
        journal, backlog = self.identity.journal, self.lifecycle.backlog
        if journal is None or backlog is None:
            return CloseReport(snapshot.acknowledged, snapshot.dead, lost=unwritten)
        return CloseReport(
            snapshot.acknowledged, snapshot.dead - backlog.unkept, journaled=journal.unsettled()
        )

    # the brokers

    def check_topic(self, topic: str) -> None:
        """InvalidMessage for what is no topic's name; once for each, BrokerError where we may not do what we must."""
        if not is_topic_name(topic):
            raise InvalidMessage(f"{shown(topic, 80)} is not a topic name.", fix=TOPIC_RULE)
        self._require((topic,))
        self.topics.add(topic)

    def _require(self, topics: Sequence[str]) -> None:
        if self._real:
            self._guarantees.require(self._config, self.identity.journal, topics)

    def known_cluster(self) -> str:
        """The cluster's id as far as it is known."""
        return self._cluster_id or ""

    def cluster(self) -> str:
        """The same, asked from the brokers once connected, which may block for 2 s."""
        if self._cluster_id is None and self.lifecycle.connection.connected:
            self._ask_cluster(2.0)
        return self.known_cluster()

    def find_cluster(self, timeout: float) -> str:
        """The same, asked from the brokers for at most `timeout` seconds, unless they are known to be unreachable."""
        ended = self.ending.begun
        if (
            self._cluster_id is None
            and timeout > 0
            and not ended
            and not self.lifecycle.connection.unreachable
        ):
            self._ask_cluster(timeout)
        return self.known_cluster()

    def _ask_cluster(self, timeout: float) -> None:
        self._cluster_id = self.lifecycle.transport.cluster_id(next(iter(self.topics), None), timeout)

    # notices

    def _notice(self, notice: Notice) -> None:
        self.lifecycle.notice(notice)

    def _journal_says(self, kind: str, severity: str, text: str) -> None:
        self._hear(Notice(kind, severity, text, self._clock()))  # type: ignore[arg-type]  # the journal's words are ours

    def _dedup_degraded(self, degraded: bool, text: str) -> None:
        kind = "dedup_degraded" if degraded else "dedup_restored"
        severity: Severity = "warning" if degraded else "info"
        self._notice(Notice(kind, severity, text, self._clock()))

    # parts that may be of another kind, or none

    def _asker(self) -> KafkaBrokerQueries | None:
        """Nobody is asked where there is no broker, or where nothing is acknowledged."""
        silent = str(self._config.settings.get("acks")) == "0"
        return KafkaBrokerQueries(self._config.settings) if self._real and not silent else None

    def _duplicate_check(self) -> tuple[DuplicateCheck, ...]:
        """None where there is no broker, no client that sends by itself, or nothing is acknowledged."""
        silent = str(self._config.settings.get("acks")) == "0"
        if not self._real or silent or self._guarantees.delivery == "exactly_once":
            return ()
        read = read_gaps(self._config.settings)
        return (DuplicateCheck(read, in_flight=self._in_flight, counted=self._written_twice),)

    def _in_flight(self) -> list[Delivery]:
        return [delivery for delivery in list(self.lifecycle.pending.values()) if delivery.flying]

    def _written_twice(self, topic: str) -> None:
        self.lifecycle.written_twice(topic)

    def _deduplicator(self, wanted: bool, redis_client: Any, ttl: int) -> MessageDeduplicator | None:
        if not wanted:
            if redis_client is not None:
                raise ConfigError(
                    "redis_client is only used for de-duplication.", fix="Set enable_deduplication=True."
                )
            return None
        return MessageDeduplicator(
            redis_client,
            ttl_seconds=ttl,
            claim_ttl=self._config.max_block + self._config.delivery_timeout + 30,
            on_degraded=self._dedup_degraded,
        )

    def _keep(
        self,
        store: Store | Path | str | None,
        limit: int,
        telemetry_topic: str | None,
        ledger: bool | None,
        alert_routes: Sequence[Route],
    ) -> DeadLetterBackend:
        if store is None:
            if alert_routes:
                raise ConfigError(
                    "alert_routes needs a store: alerts are judged there.", fix="Give one, or leave it out."
                )
            if telemetry_topic is not None:
                raise ConfigError(
                    "telemetry_topic needs the recorder.", fix="Give a store, or leave telemetry_topic out."
                )
            if ledger:
                raise ConfigError("A ledger needs a store.", fix="Give one, or leave ledger out.")
            from producer_core.producer.dead_letter_backend import MemoryBackend

            return MemoryBackend(limit)  # with a journal, dead letters stay in it as well
        from producer_core.producer.store_backend import StoreBackend  # loads DuckDB

        return StoreBackend(
            store,
            limit,
            metrics=self.metrics,
            telemetry_topic=telemetry_topic,
            ledger=ledger,
            session=self.identity.as_session(),
            client=self._config,
            delivery=self._guarantees.delivery,
            kept=lambda message_ids: self.lifecycle.kept(message_ids),
            find_cluster=self.find_cluster,
            alert_routes=alert_routes,
            clock=self._clock,
        )


class _ChecksSoon(Hook):
    """Has the health checked when a connection is lost, and when it is back."""

    def __init__(self, monitor: HealthMonitor) -> None:
        self._monitor = monitor
        self._lost = False

    def notice(self, notice: Notice) -> None:
        if notice.kind == "connection_lost" or (notice.kind == "connected" and self._lost):
            self._lost = notice.kind == "connection_lost"
            self._monitor.check_soon()


def _known(given: Mapping[str, float], known: Mapping[str, float]) -> Mapping[str, float]:
    for name in given:
        if name not in known:
            raise ConfigError(f"Unknown threshold {name!r}.", fix=f"Use one of {', '.join(sorted(known))}.")
    return given
