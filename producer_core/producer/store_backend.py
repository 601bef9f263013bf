"""Keep dead letters and statistics in a store: run the recorder, the replay runner and the alert reporter."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from producer_core import __version__
from producer_core._internal import time_budget
from producer_core._internal.actor import current_actor
from producer_core._internal.deadline import Deadline
from producer_core._internal.id_header import ID_FORMAT_KEY
from producer_core._internal.log_fields import with_fields
from producer_core._internal.masking import mask_or_hide
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.read_activity import unattended
from producer_core.alerts.health import memory_usage
from producer_core.config import ClientConfig
from producer_core.dlq import DeadLetterFilter, DeadLetters, Spill, message_of, states
from producer_core.dlq.memory_queue import dead_letter_of
from producer_core.dlq.spilled_applications import Application, with_applications
from producer_core.dlq.store_or_spill import DeadLetterWriter
from producer_core.errors import ReplayError, StoreError, StoreFull, StoreLocked
from producer_core.events import DeadLetter
from producer_core.messages import Message, MessageStatus
from producer_core.metrics.ack_ledger import AckLedger
from producer_core.metrics.batch_queue import BatchQueue
from producer_core.metrics.batch_sequence import BatchSequence
from producer_core.metrics.counters import Metrics
from producer_core.metrics.recorder import Recorder
from producer_core.metrics.statistics_log import StatisticsLog
from producer_core.metrics.stats_window import StatsWindow
from producer_core.metrics.store_access import RecorderDestination, StoreAccess
from producer_core.producer.alert_reporter import AlertReporter
from producer_core.producer.compression_recorder import CompressionRecorder, InFlight
from producer_core.producer.dead_letter_backend import (
    ProducerView,
    check_target,
    file_path,
    spill_path,
)
from producer_core.producer.options import ProducerOptions
from producer_core.producer.session import StoredSession
from producer_core.producer.store_dead_letter_queue import StoreDeadLetterQueue
from producer_core.replay import ReplayRunner, plan
from producer_core.replay.runner import RunnerSettings
from producer_core.store import ProducerRow, Store, default_path, required_features
from producer_core.store.merge import next_batch
from producer_core.store.paths import check_writable

if TYPE_CHECKING:
    from producer_core.metrics.telemetry import TelemetryPublisher
    from producer_core.producer.dead_letter_topic.store_publishing import StorePublishing
    from producer_core.replay import Inconclusive, Operation, ReplayProducer
    from producer_core.replay.pace import MakeSharedLimit
    from producer_core.replay.strategy import ReplayStrategy

logger = queued_logger(__name__)

_STORED_WITHIN = 10.0
"""Seconds that a listing or a replay waits until the recorder has written new dead letters to the store."""

_CLUSTER_WITHIN = 2.0
"""Seconds that a call waits for the brokers to report the cluster id, while it is unknown."""

_RECOVERY_INTERVAL = 5.0
"""Seconds between two searches for the statistics of processes that ended before they could write to the store."""

_PUBLISHING_AT_LEAST = 0.2
"""Seconds that a stop gives to the publication of dead letters after its timeout."""

_SEND_HERE = "To send them to this cluster too, pass to_cluster={!r}."

_LISTED = 10_000
"""Maximum number of dead letters in an in-memory listing."""


class StoreBackend:
    """A `DeadLetterBackend` over a store. Owns the recorder's and the replay runner's threads."""

    def __init__(
        self,
        options: ProducerOptions,
        *,
        metrics: Metrics,
        session: StoredSession,
        dead_letters_stored: Callable[[Iterable[str]], None],
        find_cluster: Callable[[float], str],
        in_flight: InFlight,
        traced: Callable[[ReplayStrategy], ReplayStrategy] | None = None,
        replay_limit: MakeSharedLimit | None = None,
    ) -> None:
        self._options = options
        self._traced = traced
        self._writes_text_ids = (
            ID_FORMAT_KEY in options.client.settings
        )  # until the store requires the feature
        self._runner_settings = RunnerSettings(limit=replay_limit)
        self._clock = options.clock
        self._find_cluster = find_cluster
        self._producer: ProducerView | None = None
        self._runner: ReplayRunner | None = None
        self._cluster_id = ""
        self._naming_passes = 2
        self._recovered_at = -_RECOVERY_INTERVAL
        self._closed_at: float | None = None
        self._run_replays = False
        self._stopping = False
        client, store, topic = options.client, options.store, options.telemetry_topic
        self._settings = _settings(options, session.folder)
        assert store is not None  # else MemoryBackend
        telemetry = _publisher(client, topic, session.folder, self._clock)
        self._alert_reporter = AlertReporter(
            telemetry,
            publication=lambda: None if self._publishing is None else self._publishing.failing(),
            limit=options.dlq_max_size,
            routes=options.alert_routes,
            clock=self._clock,
        )
        self._where = store
        self.store: Store | None = _open_if_available(store, self._clock)
        path = store.path if isinstance(store, Store) else default_path() if store == "auto" else Path(store)
        window = StatsWindow(
            metrics,
            describe=self._describe,
            pending=lambda: Counter() if self._producer is None else self._producer.pending_by_topic(),
            ledger=_ledger(client, session) if _ledger_enabled(options.ledger, topic) else None,
            number=BatchSequence(fresh=session.fresh, known=self._next_batch).take,
            clock=self._clock,
        )
        self._compression = CompressionRecorder(
            client,
            options.application,
            metrics=metrics,
            in_flight=in_flight,
            per_batch=lambda: window.client.per_batch,
            clock=self._clock,
        )
        self._compression.choose(self.store)
        self._access = access = StoreAccess(
            self._destination, notice=lambda notice: self.recorder.notice(notice), clock=self._clock
        )
        self.spill_file = spill_path(path)
        self._dead_letters_stored = dead_letters_stored
        self._publishing = self._make_publishing(session)
        self._writer = DeadLetterWriter(
            access,
            Spill(self.spill_file),
            limit=options.dlq_max_size,
            stored=self._stored,
            unpublished=self._keep_copies,
            unstored=None if self._publishing is None else self._publishing.unstored,
            dropped=self._dropped,
            named=self._named,
        )
        self.recorder = Recorder(
            access,
            self._writer,
            window,
            batches=BatchQueue(StatisticsLog(file_path(path)), keep_ledger=bool(options.ledger)),
            each_second=(
                self._report_alerts,
                self._name_cluster,
                self._recover_statistics,
                self._record_compression,
            ),
            telemetry=telemetry,
        )
        self.hook = self.recorder
        self.queue = StoreDeadLetterQueue(self, options.dlq_max_size)

    # start and stop

    def start(self, producer: ProducerView, *, run_replays: bool) -> None:
        self._producer = producer
        self._run_replays = run_replays
        self.recorder.start()
        if self._publishing is not None:
            self._publishing.start()

    def stop_replays(self, timeout: float) -> None:
        self._stopping = True
        if self._runner is not None:
            self._runner.stop(timeout)

    def stop(self, timeout: float) -> None:
        self._closed_at = self._clock()
        self._stopping = True
        deadline = Deadline(timeout)
        with time_budget.at_most(timeout):
            self._alert_reporter.stop(deadline.left(at_most=1.0) / 2)
            self.recorder.stop(deadline.left())
            if self._publishing is not None:  # afterwards, because its dead letters come from the store
                self._publishing.stop(deadline.left(at_least=_PUBLISHING_AT_LEAST))
            self.recorder.log_lost()
            if self._alert_reporter.replaced:
                reason = self._alert_reporter.replaced
                logger.warning(**with_fields("dead letters may be missing from the store", reason=reason))
            if self.store is not None and not isinstance(self._where, Store):
                self.store.close()

    def full(self) -> bool:
        return self._writer.full

    def flush_soon(self) -> None:
        self.recorder.flush_soon(2.0)

    def lost(self) -> int:
        return self._writer.lost + self.lost_with_disk()

    def lost_with_disk(self) -> int:
        return 0 if self._publishing is None else self._publishing.lost

    # dead letters

    def dead_letters(self) -> DeadLetters:
        """Return the store's dead letters, including the latest. Raise StoreError if the store is unavailable."""
        self._writer.wait_written(2.0)
        return self._destination().dead_letters  # type: ignore[return-value]  # Destination names the role only

    def own(self, where: DeadLetterFilter | None = None, *, wait: bool = True) -> DeadLetterFilter:
        """Restrict the filter to the producer's application and cluster, and to dead letters that lack one of both.

        A filter that names an application or a cluster keeps it. Other producers of the same store may write to other
        clusters. While the producer's cluster is unknown, only dead letters without a known cluster match; unless `wait`
        is False, the call first asks the brokers for a short time.
        """
        where = self._of_application(where or DeadLetterFilter())
        return self._of_cluster(where, wait=wait)

    def _of_application(self, where: DeadLetterFilter) -> DeadLetterFilter:
        """Restrict the filter to the producer's application and to dead letters without one, unless it names an application.

        Processes without the name, earlier versions among them, may belong to the same application.
        """
        named = where.application is not None or where.application_or_unnamed is not None
        if named or not self._options.application:
            return where
        return replace(where, application_or_unnamed=self._options.application)

    def _of_cluster(self, where: DeadLetterFilter, *, wait: bool) -> DeadLetterFilter:
        if where.cluster_id is not None or where.cluster_or_unknown is not None:
            return where
        return replace(where, cluster_or_unknown=self._find_cluster(_CLUSTER_WITHIN if wait else 0.0))

    def size(self) -> int:
        try:
            return self.dead_letters().count(self.own(wait=False))
        except StoreError:
            return self.waiting()

    def waiting(self) -> int:
        """Return the number of dead letters that are neither in the store nor in the spill file yet."""
        return self._writer.waiting

    def trouble(self) -> str:
        """Return why the store is unavailable; empty while it is available."""
        return self._access.trouble or ""

    def take_unwritten(self) -> list[DeadLetter]:
        """Return the dead letters that no disk had accepted when the producer stopped, and forget them."""
        return self._writer.take_unwritten()

    def state(self, message_id: str) -> str | None:
        where = self._of_cluster(DeadLetterFilter(state=None, ids=(message_id,)), wait=True)
        found = self.dead_letters().find(where, limit=1)
        if found:
            return found[0].state
        return None if self._publishing is None else self._publishing.state_of_dropped(message_id)

    def messages(self, topic: str | None) -> list[Message]:
        self._writer.wait_stored(_STORED_WITHIN)
        found = self.dead_letters().find(self.own(DeadLetterFilter(topic=topic)), limit=_LISTED)
        bodies = self.dead_letters().bodies([dead_letter.message_id for dead_letter in found])
        return sorted(map(message_of, bodies), key=lambda message: message.id)

    def clear(self, topic: str | None) -> int:
        self._writer.wait_stored(_STORED_WITHIN)
        where = self.own(DeadLetterFilter(topic=topic))
        return self.dead_letters().archive(where, who=current_actor(), origin="python").count

    def add(self, message: Message, error: str) -> None:
        """Add a message as a dead letter, without any attempts."""
        assert self._producer is not None
        dead = replace(message, status=MessageStatus.DLQ, last_error=error)
        dead_letter = dead_letter_of(dead, error, self._clock())
        self.recorder.died(
            replace(
                dead_letter,
                cluster_id=self._cluster_id,
                producer_id=self._producer.identity,
                application=self._options.application,
                application_version=self._options.application_version,
            )
        )
        logger.warning(
            **with_fields(
                "dead letter", message_id=message.id, topic=message.topic, error=mask_or_hide(error)
            )
        )

    def replay(
        self,
        sender: ReplayProducer,
        topic: str,
        limit: int | None,
        timeout: float,
        inconclusive: Inconclusive,
        to_cluster: str | None = None,
    ) -> int:
        """Run a durable replay in this thread. After `timeout` seconds it continues in the store."""
        self._writer.wait_stored(_STORED_WITHIN)
        with (
            unattended()
        ):  # a replay reads no statistics, so the recorder need not write them every second for it
            return self._replay(
                sender,
                self._of_application(DeadLetterFilter(topic=topic)),
                limit,
                timeout,
                inconclusive,
                to_cluster,
            )

    def _replay(
        self,
        sender: ReplayProducer,
        where: DeadLetterFilter,
        limit: int | None,
        timeout: float,
        inconclusive: Inconclusive,
        to_cluster: str | None,
    ) -> int:
        self.dead_letters()
        if self.store is None:
            raise ReplayError("The store is unavailable, so dead letters cannot be replayed now.")
        own = self._find_cluster(_CLUSTER_WITHIN)
        self._set_cluster(own)
        if to_cluster is None:
            self._log_other_clusters(where, own)
            where = replace(where, cluster_or_unknown=own)
        else:
            check_target(to_cluster, own)
        operation = plan(
            self.store, where, who=current_actor(), origin="python", limit=limit, inconclusive=inconclusive,
            to_cluster=to_cluster, clock=self._clock, can_run=own or True,
        )  # fmt: skip
        runner = self._runner or self._new_runner(self.store, sender)
        done = runner.run_one(operation.operation_id, timeout)
        if done.acknowledged + done.landed < done.total or not done.ended:
            _log_incomplete(done, where.topic or "")
        return done.acknowledged + done.landed

    def _log_other_clusters(self, where: DeadLetterFilter, own: str) -> None:
        """Log the number of dead letters that a replay skips because they belong to other clusters."""
        by_cluster = self.dead_letters().count_by(where, "cluster_id")
        others = {cluster: count for cluster, count in by_cluster.items() if cluster not in ("", own)}
        if others:
            logger.warning(
                **with_fields(
                    "dead letters of other clusters skipped",
                    topic=where.topic,
                    count=sum(others.values()),
                    clusters=sorted(others),
                    own=own,
                    fix=own and _SEND_HERE.format(own),
                )
            )

    # the dead-letter topic

    def _make_publishing(self, session: StoredSession) -> StorePublishing | None:
        client = self._options.publishing_client()
        if client is None:
            return None
        from producer_core.producer.dead_letter_topic.store_publications import PublicationOwner
        from producer_core.producer.dead_letter_topic.store_publishing import StorePublishing

        owner = PublicationOwner(
            producer_id=str(uuid.UUID(bytes=session.id)),
            started_at=self._clock(),
            identity=client.topic.identity,
            cluster=lambda: self._find_cluster(_CLUSTER_WITHIN),
            clock=self._clock,
            application=self._options.application,
        )
        return StorePublishing(
            client,
            owner,
            store=lambda: self.store,
            trouble=lambda: self._access.trouble_of("dead letters"),
            spilled=lambda: self._writer.spilled and self.spill_file.exists(),
            limit=self._options.dlq_max_size,
            published=self._published,
        )

    def _stored(self, message_ids: Iterable[str]) -> None:
        self._dead_letters_stored(message_ids)
        if self._publishing is not None:
            self._publishing.stored()

    def _keep_copies(self, dead_letters: Sequence[DeadLetter]) -> None:
        if self._publishing is not None:
            self._publishing.keep_copies(dead_letters)

    def _published(self, message_ids: Iterable[str]) -> None:
        """Settle dead letters that are on their topic, while no disk takes them."""
        self._writer.published(message_ids)
        self._dead_letters_stored(message_ids)

    def _dropped(self, message_ids: Iterable[str]) -> None:
        if self._publishing is not None:
            self._publishing.dropped(message_ids)

    def _new_runner(self, store: Store, sender: ReplayProducer) -> ReplayRunner:
        return ReplayRunner(
            store,
            sender,
            client=self._options.client.settings,
            clock=self._clock,
            settings=self._runner_settings,
            traced=self._traced,
        )

    # callbacks of the recorder

    def _destination(self) -> RecorderDestination:
        if self.store is None:
            self.store = _open(self._where, self._clock)
        self._require_text_ids(self.store)
        if self._runner is None and self._producer is not None and self._run_replays and not self._stopping:
            self._runner = self._new_runner(self.store, self._producer)
            self._runner.start()
        return RecorderDestination(self.store, DeadLetters(self.store, clock=self._clock))

    def _require_text_ids(self, store: Store) -> None:
        """Before a dead letter is stored whose record may have its id as text: earlier versions would not find the record."""
        if self._writes_text_ids:
            with store.borrow(write=True) as connection:
                required_features.require(connection, required_features.TEXT_IDS, now=self._clock())
            self._writes_text_ids = False

    def _describe(self, seen_at: float) -> ProducerRow:
        producer = self._producer
        assert producer is not None, "the recorder starts after the producer"
        connection, (used, limit) = producer.connection, memory_usage()
        self._cluster_id = producer.cluster_id  # may ask the brokers; once a second is enough
        return ProducerRow(
            producer_id=producer.identity,
            cluster_id=self._cluster_id,
            client_id=self._options.client.client_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            started_at=producer.started_at,
            seen_at=seen_at,
            closed_at=self._closed_at,
            connected=connection.connected,
            connection_error=connection.error and mask_or_hide(connection.error),
            pending=producer.pending_count,
            waiting_retry=producer.retry_manager.get_stats()["pending_retries"],
            queue_messages=connection.queue_messages,
            queue_limit=connection.queue_limit,
            memory_bytes=used,
            memory_limit=limit,
            runs_replays=self._run_replays,
            delivery=self._options.guarantees.delivery,
            settings=self._settings,
            application=self._options.application,
        )

    def _report_alerts(self, destination: RecorderDestination) -> None:
        assert self._producer is not None and self.store is not None
        self._alert_reporter.report(
            self.store,
            self._producer,
            self.recorder,
            closed=self._closed_at is not None,
            stopping=self._stopping,
        )

    def _name_cluster(self, destination: RecorderDestination) -> None:
        """Set the cluster of dead letters recorded before it was known. Two passes cover a batch in progress."""
        if self._naming_passes and self._cluster_id:
            self._set_cluster(self._cluster_id)
            self._naming_passes -= 1

    def _set_cluster(self, cluster: str) -> None:
        assert self._producer is not None and self.store is not None
        if cluster:
            with self.store.borrow(write=True) as connection:
                states.name_cluster(connection, self._producer.identity, cluster)

    def _named(self, dead_letters: Sequence[DeadLetter]) -> Sequence[DeadLetter]:
        """Return spilled dead letters with the applications of their producers.

        The store may not have this producer's row yet.
        """
        assert self._producer is not None and self.store is not None
        own = Application(self._options.application, self._options.application_version)
        return with_applications(self.store, dead_letters, known={self._producer.identity: own})

    def _record_compression(self, destination: RecorderDestination) -> None:
        assert self._producer is not None and self.store is not None
        self._compression.sample()
        self._compression.save(
            self.store, self._producer.identity, self._cluster_id, closing=self._closed_at is not None
        )

    def _recover_statistics(self, destination: RecorderDestination) -> None:
        if self._stopping or time.monotonic() - self._recovered_at < _RECOVERY_INTERVAL:
            return
        self._recovered_at = time.monotonic()
        assert self.store is not None
        self.store.recover_statistics()

    def _next_batch(self) -> int | None:
        """Return the number above all batches of this session in the store; None while the store is unavailable."""
        assert self._producer is not None
        try:
            self._destination()
            assert self.store is not None
            self.store.recover_statistics()  # an earlier process of the session may have left batches
            with self.store.borrow() as connection:
                return next_batch(connection, self._producer.identity)
        except StoreError:
            return None


def _log_incomplete(operation: Operation, topic: str) -> None:
    """Log that a replay did not deliver all its dead letters, or has not ended."""
    done, total = operation.acknowledged + operation.landed, operation.total
    text = "not all dead letters replayed" if operation.ended else "replay continues in the store"
    fields = {"topic": topic, "done": done, "total": total, "operation": operation.operation_id}
    logger.warning(**with_fields(text, **fields, outcome=operation.message))


def _open_if_available(store: Store | Path | str, clock: Callable[[], float]) -> Store | None:
    """Open the store; return None if it may become available later. An explicit path that is wrong raises at once."""
    try:
        return _open(store, clock)
    except (StoreLocked, StoreFull) as error:
        logger.warning(**with_fields("store not available yet", error=str(error)))
    except StoreError as error:
        if store != "auto":
            raise
        logger.warning(**with_fields("default store not available", error=str(error)))
    return None


def _open(store: Store | Path | str, clock: Callable[[], float]) -> Store:
    found = store if isinstance(store, Store) else Store.open(None if store == "auto" else store, clock=clock)
    check_writable(found.path)
    return found


def _publisher(
    client: ClientConfig, topic: str | None, folder: Path | None, clock: Callable[[], float]
) -> TelemetryPublisher | None:
    if topic is None:
        return None
    from producer_core.metrics.telemetry import TelemetryPublisher

    kept = None if folder is None else folder / "telemetry"
    return TelemetryPublisher(client.bootstrap_servers, topic, client.given, folder=kept, clock=clock)


def _ledger_enabled(ledger: bool | None, telemetry_topic: str | None) -> bool:
    """Whether to keep a ledger: on request, or with telemetry unless it was switched off."""
    return bool(ledger) or (ledger is None and telemetry_topic is not None)


def _settings(options: ProducerOptions, journal_dir: Path | None) -> str:
    """Return the masked client settings, what the next producer recognizes this one's journal and dead letters by, and the
    version of the application."""
    found = dict(options.client.masked())
    if journal_dir is not None:
        found["journal_dir"] = str(journal_dir.resolve())
    if options.dead_letter_topic is not None and options.dead_letter_topic.identity is not None:
        found["dead_letter_topic"] = options.dead_letter_topic.identity
    if options.application_version:
        found["application_version"] = options.application_version
    return orjson.dumps(found, default=str).decode()


def _ledger(client: ClientConfig, session: StoredSession) -> AckLedger | None:
    """Return a ledger. None with acks=0, where no broker acknowledges anything."""
    silent = str(client.settings.get("acks")) == "0"
    return None if silent else AckLedger(session.id, fresh=session.fresh, first=session.first)
