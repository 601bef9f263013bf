"""Create the components of a producer from its options, and start and stop them in order."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import math
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from producer_core import __version__
from producer_core._internal.deadline import Deadline
from producer_core._internal.log_queue import QUEUE
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.topic_names import TOPIC_RULE, is_topic_name
from producer_core._internal.user_callbacks import short_repr
from producer_core._internal.withdrawal import Withdrawal
from producer_core.alerts import ReportedAlerts
from producer_core.alerts.health import HealthMonitor
from producer_core.delivery.context import DeliverySettings
from producer_core.delivery.dead_letter import ProducerInfo
from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.duplicate_check import DuplicateCheck, read_gaps
from producer_core.delivery.engine import DeliveryEngine
from producer_core.delivery.flow_control.rate_limited_enqueuer import RateLimitedEnqueuer
from producer_core.delivery.flow_control.rate_limiter import RateLimiter
from producer_core.delivery.loss_detection import AckedLogMonitor, KafkaBrokerQueries
from producer_core.delivery.reports import CloseReport
from producer_core.errors import ConfigError, InvalidMessage
from producer_core.events import Hook, Notice, Severity
from producer_core.kafka.replication import ReplicationWatch
from producer_core.kafka.schemas.serializers import message_serializers
from producer_core.metrics.counters import Metrics
from producer_core.producer.event_log import EventLog
from producer_core.producer.health_sampler import HealthSampler
from producer_core.producer.options import ProducerOptions
from producer_core.producer.session import ProducerSession
from producer_core.producer.severe_errors import SevereErrorStop
from producer_core.producer.shutdown import Shutdown

if TYPE_CHECKING:
    from producer_core.delivery.enqueue import Enqueuer
    from producer_core.delivery.flow_control.circuit_breaker_enqueuer import CircuitBreakerEnqueuer
    from producer_core.delivery.flow_control.circuits import Circuits
    from producer_core.delivery.flow_control.replay_limit import ReplayLimit
    from producer_core.producer.dead_letter_backend import DeadLetterBackend, ProducerView
    from producer_core.producer.tracing import MessageTracer, TracingEnqueuer
    from producer_core.replay.strategy import ReplayStrategy

logger = queued_logger(__name__)

T = TypeVar("T")

_ASYNC_THREADS = 64
"""Threads on which `send_async` waits for a rate limit or a serializer. They start when they are needed. While all of them
wait, further calls wait for one of them, also those for topics whose limit has room."""
_MIN_STEP_S = 0.2
"""Seconds that each step of a close gets after the timeout has passed."""
_STORE_AT_LEAST, _STORE_AT_MOST = 1.0, 10.0
"""Bounds of the wait for the store in a close, in seconds. Dead letters are on disk by then; statistics are not."""


class Components:
    """Owns every object of a producer that has a thread or a file.

    The interpreter's exit closes a producer that is still open: threads refer to the engine, the engine to these
    components, and these to the shutdown.
    """

    def __init__(self, options: ProducerOptions) -> None:
        self._options = options
        self._cluster_id = options.cluster_id
        self._early: list[Notice] = []  # notices of the journal from before the engine exists
        self._report_notice = self._early.append
        self.started_at = options.clock()
        self.shutdown = Shutdown(self._finish, self._report)
        self.serializers = message_serializers(options.client, may_wait=self._may_wait_for_schema)
        self.topics: set[str] = set()  # names that `check_topic` accepted
        self.session = ProducerSession(
            options.guarantees, options.client, options.journal, on_notice=self._journal_notice
        )
        with self.session.or_release():
            self.metrics = Metrics()
            self.deduplicator = self._deduplicator()
            self.health_monitor = HealthMonitor(options.health_check_interval)
            self.health_monitor.thresholds.update(
                _known_thresholds(options.thresholds, self.health_monitor.thresholds)
            )
            self.tracer = self._make_tracer()
            self.rate_limiter = self._make_rate_limiter()
            self.dead_letter_backend = self._dead_letter_backend()
            self._replication = ReplicationWatch(options.client, self._notice)
            self.alerts = ReportedAlerts()
            self.circuits = self._make_circuits()
            self._event_log = EventLog(options.client.bootstrap_servers)
            self.loss_monitor = AckedLogMonitor(
                self._broker_queries(), self._notice, ids=self.session.ids, clock=options.clock
            )
            self._duplicate_checks = self._make_duplicate_checks()
            self.info = ProducerInfo(
                str(self.session.id),
                socket.gethostname(),
                __version__,
                self.known_cluster,
                options.application,
                options.application_version,
            )
            self.engine = self._engine()
            self._report_notice = self.engine.notice
            self._async_threads = self._make_async_threads()
            self.enqueuer = self._enqueuer()
            self._health_sampler = HealthSampler(
                self.metrics, self.engine, self.dead_letter_backend.size, clock=options.clock
            )
            self._require(())

    def _engine(self) -> DeliveryEngine:
        options, guarantees = self._options, self._options.guarantees
        settings = DeliverySettings(
            options.client, options.retry, guarantees.ordering, guarantees.on_ambiguous, options.clock
        )
        return DeliveryEngine(
            settings,
            self.info,
            self.session,
            transport=options.transport or guarantees.transport(self.session.journal),
            hooks=(
                self._event_log,
                _HealthTrigger(self.health_monitor),
                self.metrics,
                self.dead_letter_backend.hook,
                self.alerts,
                self._replication,
                self.loss_monitor,
                *self._duplicate_checks,
                *self._flow_control_hooks(),
                *options.hooks,
            ),
            dedup=self.deduplicator,
            saturated=self.dead_letter_backend.full,
            lost_on=self.loss_monitor.lost_on,
        )

    def _make_tracer(self) -> MessageTracer | None:
        if self._options.tracing is False:
            return None
        from producer_core.producer.tracing import MessageTracer  # loads OpenTelemetry

        provider = None if self._options.tracing is True else self._options.tracing
        return MessageTracer(provider, self._options.client, cluster=self.known_cluster)

    def _make_rate_limiter(self) -> RateLimiter | None:
        limits = self._options.client.rate_limits
        return None if limits is None else RateLimiter(limits)

    def _enqueuer(self) -> Enqueuer:
        """Return the object that accepts messages. A producer has only the steps for the features that it uses."""
        breaker = None if self.circuits is None else self._circuit_breaker_enqueuer(self.circuits)
        enqueuer: Enqueuer = breaker or self.engine.enqueuer
        if self.rate_limiter is not None:
            enqueuer = self._rate_limited_enqueuer(enqueuer, self.rate_limiter, breaker)
        return enqueuer if self.tracer is None else self._tracing_enqueuer(enqueuer, self.tracer)

    def _circuit_breaker_enqueuer(self, circuits: Circuits) -> CircuitBreakerEnqueuer:
        from producer_core.delivery.flow_control.circuit_breaker_enqueuer import CircuitBreakerEnqueuer

        breaker = CircuitBreakerEnqueuer(self.engine.enqueuer, circuits, journaled=self._journaled)
        self.engine.enqueuer.check_wait = breaker.check_wait
        return breaker

    def _rate_limited_enqueuer(
        self, enqueuer: Enqueuer, limiter: RateLimiter, breaker: CircuitBreakerEnqueuer | None
    ) -> RateLimitedEnqueuer:
        self.engine.on_resend = limiter.charge
        limiter.stop_at_exit()
        return RateLimitedEnqueuer(
            enqueuer,
            limiter,
            max_block=self._options.client.max_block,
            in_callback=lambda: self.engine.in_callback,
            circuits=breaker,
        )

    def _tracing_enqueuer(self, enqueuer: Enqueuer, tracer: MessageTracer) -> TracingEnqueuer:
        from producer_core.producer.tracing import TracingEnqueuer

        self.engine.enqueuer.resume_span = tracer.resume
        tracer.close_at_exit(self._close_at_exit)
        return TracingEnqueuer(enqueuer, tracer)

    def _make_async_threads(self) -> ThreadPoolExecutor | None:
        """Return the threads of `send_async`; None for those of the event loop, which nothing occupies for long."""
        if self.rate_limiter is None and self.serializers is None:
            return None
        return ThreadPoolExecutor(_ASYNC_THREADS, thread_name_prefix="producer-send-async")

    def _may_wait_for_schema(self, topic: str) -> bool:
        """Return False in a delivery callback. Raise CircuitOpen for a message that would be refused after the wait."""
        if self.circuits is not None and self.circuits.guarded and not self._journaled:
            self.circuits.check(topic)
        return not self.engine.in_callback

    async def run_in_thread(self, function: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run a function on another thread, as `asyncio.to_thread` does.

        With rate limits or serializers it runs on the producer's own threads: calls that wait do not occupy the loop's. When the caller is
        cancelled, a message that waits for a rate limit or for room is withdrawn.
        """
        self.shutdown.check()
        withdrawal = Withdrawal()
        call = functools.partial(function, *arguments, **keywords)
        run = functools.partial(contextvars.copy_context().run, withdrawal.run, call)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._async_threads, run)
        except RuntimeError:  # closed since the check
            self.shutdown.check()
            raise
        finally:
            withdrawal.request()  # without effect once the function has returned

    # flow control

    @property
    def _journaled(self) -> bool:
        """Whether an accepted message waits on disk. An input that replaces the journal keeps its own rows."""
        return self.session.journal is not None and self._options.journal is None

    def _make_circuits(self) -> Circuits | None:
        options = self._options
        if options.circuit_breaker is None:
            return None
        from producer_core.delivery.flow_control.circuits import Circuits

        interval, longest = (
            options.client.statistics_interval,
            options.circuit_breaker.max_in_flight_age_s / 2,
        )
        if interval > longest:
            raise ConfigError(
                f"circuit_breaker needs the client's statistics at least every {longest:g} s, half of "
                f"max_in_flight_age_s={2 * longest:g}.",
                fix=_fix_of_interval(interval, longest),
            )
        return Circuits(
            options.circuit_breaker,
            unreachable=lambda: self.engine.connection.unreachable,
            in_flight=lambda: self.engine.topics_in_flight(),
            notify=self._notice,
            journaled=self._journaled,
            tick=interval,
            clock=options.clock,
        )

    def _flow_control_hooks(self) -> Sequence[Hook]:
        stop = self._options.on_severe_errors == "stop"
        return [
            *([self.circuits] if self.circuits is not None else []),
            *([SevereErrorStop(self.shutdown)] if stop else []),
        ]

    def _close_at_exit(self) -> None:
        self.shutdown.close(timeout=5.0)

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return self._options.clock()

    def elapsed(self) -> float:
        """Return the seconds since the producer was created."""
        return self.now() - self.started_at

    # start and stop

    def start(self, producer: ProducerView, *, run_replays: bool) -> None:
        """Start the threads, then report the journal's earlier notices."""
        with self.session.or_release():
            self.engine.start()
            self.loss_monitor.start()
            self.dead_letter_backend.start(producer, run_replays=run_replays)
            self.health_monitor.start(
                self._health_sampler.sample,
                unreachable=lambda: self.engine.connection.unreachable,
                open_circuits=None if self.circuits is None else self.circuits.issues,
            )
            for notice in self._early:
                self.engine.notice(notice)
            self.shutdown.at_exit()
        guarantees = self._options.guarantees
        self._event_log.started(
            delivery=guarantees.delivery, ordering=guarantees.ordering, producer=str(self.session.id)
        )

    def _finish(self, timeout: float) -> CloseReport:
        deadline = Deadline(timeout)
        if self.rate_limiter is not None:
            self.rate_limiter.stop()
        if self._async_threads is not None:
            self._async_threads.shutdown(wait=False, cancel_futures=False)
        self.health_monitor.stop(deadline.left(at_least=_MIN_STEP_S, at_most=5.0))
        self.dead_letter_backend.stop_replays(deadline.left(at_least=_MIN_STEP_S, at_most=15.0))
        if self._cluster_id is None and self.topics and self.engine.connection.error is None:
            # Ask while a client exists, so that the dead letters of a short-lived producer name their cluster too.
            self._ask_cluster(deadline.left(at_least=_MIN_STEP_S, at_most=2.0))
        self.engine.close(deadline)
        if self.deduplicator is not None:
            self.deduplicator.close(deadline.left(at_least=_MIN_STEP_S, at_most=1.0))
        for check in self._duplicate_checks:
            check.stop(max(_MIN_STEP_S, deadline.left(at_most=5.0) / 2))
        if self.serializers is not None:
            self.serializers.close()
        self._replication.stop()
        self.loss_monitor.stop(max(_MIN_STEP_S, deadline.left(at_most=5.0) / 2))
        self.dead_letter_backend.stop(deadline.left(at_least=_STORE_AT_LEAST, at_most=_STORE_AT_MOST))
        report = self._report()
        self.session.release()
        self._event_log.closed(report, producer=str(self.session.id))
        if self.tracer is not None:
            self.tracer.close(deadline.left(at_least=_MIN_STEP_S, at_most=1.0))
        QUEUE.drain(deadline.left(at_least=_MIN_STEP_S, at_most=1.0))
        return report

    def _report(self) -> CloseReport:
        """Count where every message is. A dead letter that reached no disk is still in the journal, if there is one."""
        snapshot, unwritten = self.metrics.snapshot(), self.dead_letter_backend.lost()
        journal, pending_log = self.session.journal, self.engine.pending_log
        if journal is None or pending_log is None:
            return CloseReport(snapshot.acknowledged, snapshot.dead, lost=unwritten)
        return CloseReport(
            snapshot.acknowledged,
            snapshot.dead - pending_log.unstored_dead_letters,
            journaled=journal.unsettled(),
            lost=self.dead_letter_backend.lost_with_disk(),
        )

    # the brokers

    def check_topic(self, topic: str) -> None:
        """Raise InvalidMessage for an invalid name and, once per topic, BrokerError for a missing permission."""
        if not is_topic_name(topic):
            raise InvalidMessage(f"{short_repr(topic, 80)} is not a topic name.", fix=TOPIC_RULE)
        self._require((topic,))
        self.topics.add(topic)

    def _require(self, topics: Sequence[str]) -> None:
        if self._options.has_broker:
            self._options.guarantees.require(self._options.client, self.session.journal, topics)

    def known_cluster(self) -> str:
        """Return the cluster's id; an empty text while it is unknown."""
        return self._cluster_id or ""

    def cluster(self) -> str:
        """Return the cluster's id. The first call while connected may block for 2 s to ask the brokers.

        Once the shutdown has begun, `_finish` asks, within its own timeout.
        """
        if self._cluster_id is None and not self.shutdown.begun and self.engine.connection.connected:
            self._ask_cluster(2.0)
        return self.known_cluster()

    def find_cluster(self, timeout: float) -> str:
        """Return the cluster's id. Ask the brokers for at most `timeout` seconds, unless none is reachable."""
        reachable = not self.engine.connection.unreachable
        if self._cluster_id is None and timeout > 0 and not self.shutdown.begun and reachable:
            self._ask_cluster(timeout)
        return self.known_cluster()

    def _ask_cluster(self, timeout: float) -> None:
        self._cluster_id = self.engine.transport.cluster_id(next(iter(self.topics), None), timeout)

    # notices

    def _notice(self, notice: Notice) -> None:
        self.engine.notice(notice)

    def _journal_notice(self, kind: str, severity: str, text: str) -> None:
        self._report_notice(Notice(kind, severity, text, self._options.clock()))  # type: ignore[arg-type]  # the journal uses our severities

    def _dedup_degraded(self, degraded: bool, text: str) -> None:
        kind = "dedup_degraded" if degraded else "dedup_restored"
        severity: Severity = "warning" if degraded else "info"
        self._notice(Notice(kind, severity, text, self._options.clock()))

    # optional components

    def _broker_queries(self) -> KafkaBrokerQueries | None:
        if not self._options.has_broker or not self._options.acknowledges:
            return None
        return KafkaBrokerQueries(self._options.client.settings)

    def _make_duplicate_checks(self) -> tuple[DuplicateCheck, ...]:
        """Return the check for second copies of an idempotent client; transactions cannot write any."""
        options = self._options
        transactional = options.guarantees.delivery == "exactly_once"
        if not options.has_broker or not options.acknowledges or transactional:
            return ()
        read = read_gaps(options.client.settings)
        return (DuplicateCheck(read, in_flight=self._in_flight, counted=self._written_twice),)

    def _in_flight(self) -> list[Delivery]:
        return [delivery for delivery in list(self.engine.pending.values()) if delivery.in_flight]

    def _written_twice(self, topic: str) -> None:
        self.engine.written_twice(topic)

    def _deduplicator(self) -> MessageDeduplicator | None:
        options = self._options
        if not options.enable_deduplication:
            if options.redis_client is not None:
                raise ConfigError(
                    "redis_client is only used for deduplication.", fix="Set enable_deduplication=True."
                )
            return None
        return MessageDeduplicator(
            options.redis_client,
            ttl_seconds=options.dedup_ttl,
            claim_ttl=options.client.max_block + options.client.delivery_timeout + 30,
            on_degraded=self._dedup_degraded,
        )

    def _dead_letter_backend(self) -> DeadLetterBackend:
        options = self._options
        if options.store is None:
            if options.alert_routes:
                raise ConfigError(
                    "alert_routes needs a store, which holds the alerts.",
                    fix="Pass a store, or leave alert_routes out.",
                )
            if options.telemetry_topic is not None:
                raise ConfigError(
                    "telemetry_topic needs the recorder, which needs a store.",
                    fix="Pass a store, or leave telemetry_topic out.",
                )
            if options.ledger:
                raise ConfigError("A ledger needs a store.", fix="Pass a store, or leave ledger out.")
            if options.client.compression is not None:
                logger.info("compression_type='auto' has no store to choose by, so the codec is lz4")
            from producer_core.producer.dead_letter_backend import MemoryBackend

            return MemoryBackend(options.dlq_max_size)  # a journal also holds the dead letters
        from producer_core.producer.store_backend import StoreBackend  # loads DuckDB

        return StoreBackend(
            options,
            metrics=self.metrics,
            session=self.session.as_session(),
            dead_letters_stored=lambda message_ids: self.engine.dead_letters_stored(message_ids),
            find_cluster=self.find_cluster,
            in_flight=lambda limit: self.engine.in_flight(limit),
            traced=self._traced_replays(),
            replay_limit=self._replay_limit(),
        )

    def _replay_limit(self) -> Callable[[Sequence[str]], ReplayLimit] | None:
        if self.rate_limiter is None:
            return None
        from producer_core.delivery.flow_control.replay_limit import ReplayLimit

        return functools.partial(ReplayLimit, self.rate_limiter)

    def _traced_replays(self) -> Callable[[ReplayStrategy], ReplayStrategy] | None:
        if self.tracer is None:
            return None
        from producer_core.producer.tracing import TracedReplay

        return functools.partial(TracedReplay, tracer=self.tracer)


class _HealthTrigger(Hook):
    """Checks the health immediately after the connection is lost or restored."""

    def __init__(self, monitor: HealthMonitor) -> None:
        self._monitor = monitor
        self._lost = False

    def notice(self, notice: Notice) -> None:
        if notice.kind == "connection_lost" or (notice.kind == "connected" and self._lost):
            self._lost = notice.kind == "connection_lost"
            self._monitor.check_soon()


def _fix_of_interval(interval: float, longest: float) -> str:
    """Return how to have statistics often enough: a shorter interval, if milliseconds can express it, or a longer age."""
    fixes = [f"statistics_interval_ms to at most {int(1000 * longest)}"] if longest >= 0.001 else []
    if interval < math.inf:
        fixes.append(f"max_in_flight_age_s to at least {2 * interval:g}")
    return f"Set {', or '.join(fixes)}."


def _known_thresholds(given: Mapping[str, float], known: Mapping[str, float]) -> Mapping[str, float]:
    for name in given:
        if name not in known:
            raise ConfigError(f"Unknown threshold {name!r}.", fix=f"Use one of {', '.join(sorted(known))}.")
    return given
