"""The producer: accepts messages, delivers them, and answers for each until it is settled."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from producer_core import __version__
from producer_core.alerts import Route, ToldAlerts
from producer_core.alerts.routes import Told, given_routes
from producer_core.batches import Gathering, groups
from producer_core.burial import Origin, delivery_of
from producer_core.config import RetryConfig, client_config
from producer_core.connection import Connection
from producer_core.contract import BasicStats, ProducerStats, basic_stats, producer_stats
from producer_core.dedup import MessageDeduplicator
from producer_core.ending import Ending
from producer_core.errors import ConfigError, ForkedProducer, InvalidMessage, NotAccepted, ProducerError
from producer_core.events import Attempt, DeadLetter, Hook, Notice, Severity
from producer_core.failures import failure_of, fingerprint
from producer_core.guarantees import Delivered, Guarantees, Level
from producer_core.health import HealthMonitor
from producer_core.in_doubt import OnAmbiguous
from producer_core.lifecycle import Lifecycle
from producer_core.messages import (
    Message,
    MessageIds,
    MessageStatus,
    SequenceNumbers,
    checksum,
    encode_headers,
    encode_key,
    encode_value,
    new_session,
    parse_id,
)  # fmt: skip
from producer_core.metrics import Metrics
from producer_core.ordering import Ordering
from producer_core.replication import ReplicationWatch
from producer_core.reports import CloseReport, DeliveryReport, Resent, as_message
from producer_core.sampler import Sampler
from producer_core.standing import BrokerAsker, Standing
from producer_core.transport import Delivery, TransportFactory

if TYPE_CHECKING:
    from producer_core.frames import FrameResult
    from producer_core.journal import Journal
    from producer_core.keeping import Keeping
    from producer_core.monitor import Monitor
    from producer_core.stand_in import Keeper, Numbers, Sender, StandIn
    from producer_core.store import Store
    from producer_core.store_keeping import Session

logger = logging.getLogger(__name__)

_SHORT = 100
"""Characters of a caller's own key for de-duplication that is remembered as it is."""
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class ReliableKafkaProducer:
    """A Kafka producer that knows what became of every message.

    Delivered means acknowledged by the broker. A message that cannot be delivered becomes a dead letter with
    a verdict that says whether a resend is safe. `store` is a path, a Store, None for none, or "auto" for the
    default path. All methods may be called from any thread; after a fork make a new producer in the child.

    `ordering`: "key" holds back the later messages of a key while an earlier one waits for its retry, "strict"
    has one message of a key in flight at a time, "none" waits for nothing. `on_ambiguous`: what follows when
    the broker may have a message and a look at the topic did not find it: "retry" sends it again, "dead_letter"
    keeps whatever is not proved absent for a person.

    `journal_dir`: each message is written there before `send_message` returns and stays until it is settled;
    what a crash leaves is sent at the next start, under the same ids. `journal_level` names what it survives:
    "buffered" a broker outage, "process" also kill -9, "power" also a power failure. `delivery="exactly_once"`
    needs a journal and sends in transactions of `shards` transactional ids that begin with `transactional_id`
    (default: the journal's own id). `journal` is an input that can be read again: it stands for one.

    `telemetry_topic`: statistics go there as well, once a second, for a fleet's pipeline, and with them a ledger of what
    the broker acknowledged (docs/telemetry.md); with a journal, what cannot be sent there survives the process.
    `ledger=True` keeps the ledger in the store too, `ledger=False` keeps none.

    `alert_routes`: functions of yours that are told of alerts, in Alertmanager's payload, or routes like `Callback`.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = ("localhost:9092",),
        config: Mapping[str, Any] | None = None,
        retry_config: RetryConfig | None = None,
        redis_client: Any = None,
        dlq_max_size: int = 10_000,
        enable_deduplication: bool = False,
        health_check_interval: float = 30,
        *,
        store: Store | Path | str | None = "auto",
        hooks: Sequence[Hook] = (),
        dedup_ttl: int = 3600,
        thresholds: Mapping[str, float] | None = None,
        telemetry_topic: str | None = None,
        ledger: bool | None = None,
        cluster_id: str | None = None,
        run_replays: bool = True,
        delivery: Delivered = "at_least_once",
        ordering: Ordering = "key",
        on_ambiguous: OnAmbiguous = "retry",
        journal_dir: Path | str | None = None,
        journal_level: Level = "process",
        journal: StandIn | None = None,
        transactional_id: str | None = None,
        shards: int = 2,
        alert_routes: Sequence[Route | Told] = (),
        transport: TransportFactory | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.guarantees = Guarantees(
            delivery, ordering, on_ambiguous, journal_dir, journal_level, transactional_id, shards,
            journaled=journal is not None,
        )  # fmt: skip
        self.config = client_config(bootstrap_servers, self.guarantees.settings(config))
        self.retry_config = retry_config or RetryConfig()
        self._value_serializer, self._key_serializer = (
            self.config.value_serializer,
            self.config.key_serializer,
        )
        self.bootstrap_servers = self.config.bootstrap_servers.split(",")
        self.enable_deduplication = enable_deduplication
        self._clock = clock
        self._early: list[Notice] = []  # what the journal said before anybody could hear it
        self._stand_in = journal
        self.journal = self.guarantees.journal(self._journal_says) if journal is None else journal
        with self._or_let_go():
            self.guarantees.take_name(self.config, self.journal)
            self._session = new_session() if self.journal is None else self.journal.session
            self._ids = MessageIds(self._session)
            self._sequence: Numbers = SequenceNumbers(getattr(self.journal, "next_sequence", 0))
            if journal is not None:
                self._sequence = journal.numbers
            self._take_number = self._sequence.take
            # Whether a batch is claimed, or written down, in groups; and whether claims leave this process.
            self._together = journal is None and (self.journal is not None or redis_client is not None)
            self._alone = self.journal is None and redis_client is None
            self._cluster_id = cluster_id
            self._ending = Ending(self._finish, self._report)
            self._topics: set[str] = set()  # names that passed the check
            self._monitor: Monitor | None = None
            self.started_at = clock()
            self.metrics = Metrics()
            self.deduplicator = self._deduplicator(redis_client, dedup_ttl)
            self.health_monitor = HealthMonitor(health_check_interval)
            self.health_monitor.thresholds.update(_known(thresholds or {}, self.health_monitor.thresholds))
            self._keeping = self._keep(
                store, dlq_max_size, telemetry_topic, ledger, given_routes(alert_routes)
            )
            self._replication = ReplicationWatch(self.config, self._notice)
            self.alerts = ToldAlerts()
            self.standing = Standing(
                self._asker(transport), self._notice, session=self._session.bytes, clock=clock
            )
            self._lifecycle = Lifecycle(
                self.config,
                self.retry_config,
                origin=Origin(
                    str(self._session), socket.gethostname(), __version__, lambda: self._cluster_id or ""
                ),
                transport=transport or self.guarantees.transport(self.journal),
                hooks=(
                    self.metrics,
                    self._keeping.hook,
                    self.alerts,
                    self._replication,
                    self.standing,
                    *hooks,
                ),
                dedup=self.deduplicator,
                ordering=ordering,
                on_ambiguous=on_ambiguous,
                backlog=self._backlog,
                next_sequence=self._sequence.peek,
                saturated=self._keeping.full,
                lost_on=self.standing.lost_on,
                clock=clock,
            )
            self._acceptance = self._lifecycle.acceptance
            self.retry_manager = self._lifecycle.retry_manager
            self._sampler = Sampler(self.metrics, self._lifecycle, self._keeping.size, clock=clock)
            self._default_transport = transport is None
            if self._default_transport:
                self.guarantees.require(self.config, self.journal, ())
            self._lifecycle.start()
            self.standing.start()
            self._keeping.start(self, run_replays=run_replays)
            self.health_monitor.start(self._sampler.sample)
            for notice in self._early:
                self._lifecycle.notice(notice)
            self._ending.at_exit()

    @contextlib.contextmanager
    def _or_let_go(self) -> Iterator[None]:
        """What fails while the producer is made must not keep the journal's folder."""
        try:
            yield
        except BaseException:
            self.guarantees.leave_name()
            if self.journal is not None:
                self.journal.close()
            raise

    def _backlog(self, sender: Sender) -> Keeper | None:
        if self._stand_in is not None:
            return self._stand_in.keeper(sender)
        if self.journal is None:
            return None
        from producer_core.backlog import Backlog

        return Backlog(cast("Journal", self.journal), sender)

    def _asker(self, transport: TransportFactory | None) -> BrokerAsker | None:
        """Nobody is asked where there is no broker (`transport` given), or where nothing is acknowledged."""
        silent = str(self.config.settings.get("acks")) == "0"
        return None if transport is not None or silent else BrokerAsker(self.config.settings)

    def _notice(self, notice: Notice) -> None:
        self._lifecycle.notice(notice)

    def _journal_says(self, kind: str, severity: str, text: str) -> None:
        notice = Notice(kind, severity, text, self._clock())  # type: ignore[arg-type]  # the journal's words are ours
        if hasattr(self, "_lifecycle"):
            self._lifecycle.notice(notice)
        else:
            self._early.append(notice)

    def _deduplicator(self, redis_client: Any, ttl: int) -> MessageDeduplicator | None:
        if not self.enable_deduplication:
            if redis_client is not None:
                raise ConfigError(
                    "redis_client is only used for de-duplication.", fix="Set enable_deduplication=True."
                )
            return None
        return MessageDeduplicator(
            redis_client,
            ttl_seconds=ttl,
            claim_ttl=self.config.max_block + self.config.delivery_timeout + 30,
            on_degraded=self._dedup_degraded,
        )

    def _keep(
        self,
        store: Store | Path | str | None,
        limit: int,
        telemetry_topic: str | None,
        ledger: bool | None,
        alert_routes: Sequence[Route],
    ) -> Keeping:
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
            from producer_core.keeping import InMemory

            return InMemory(limit)  # with a journal, dead letters stay in it as well
        from producer_core.store_keeping import InStore  # loads DuckDB

        return InStore(
            store,
            limit,
            metrics=self.metrics,
            telemetry_topic=telemetry_topic,
            ledger=ledger,
            session=self._as_session(),
            client=self.config,
            delivery=self.guarantees.delivery,
            kept=lambda message_ids: self._lifecycle.kept(message_ids),
            alert_routes=alert_routes,
            clock=self._clock,
        )

    def _as_session(self) -> Session:
        from producer_core.store_keeping import Session

        folder = self.guarantees.journal_dir
        unused = folder is not None and getattr(self.journal, "next_sequence", None) == 0
        return Session(
            self._session.bytes,
            self.journal is None or unused,
            None if folder is None else Path(folder).expanduser(),
        )

    def _dedup_degraded(self, degraded: bool, text: str) -> None:
        kind = "dedup_degraded" if degraded else "dedup_restored"
        severity: Severity = "warning" if degraded else "info"
        self._lifecycle.notice(Notice(kind, severity, text, self._clock()))

    # sending

    def send_message(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        callback: Callable[[bool, Message, Any], None] | None = None,
        *,
        headers: Mapping[str, Any] | Sequence[tuple[str, Any]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        record_id: Any = None,
        dedup_key: str | None = None,
        on_delivery: Callable[[DeliveryReport], None] | None = None,
        value_serializer: Callable[[Any], bytes] | None = None,
    ) -> str | None:
        """Accept a message and return its id, or None for a confirmed duplicate.

        Bytes pass through, None is a tombstone, everything else is written as JSON. `callback(ok, message,
        report_or_error)` and `on_delivery(report)` are called once, at the end, on a thread of ours.
        Raises InvalidMessage for what can never be sent, QueueFull when there is no room within
        `max_block_ms`, ProducerClosed after close(). What the broker refuses becomes a dead letter instead.
        """
        delivery = self._delivery(topic, value, key, headers, partition, timestamp_ms, value_serializer)
        if callback is not None:
            delivery.callback = callback
        if on_delivery is not None:
            delivery.on_delivery = on_delivery
        if record_id is not None:
            delivery.record_id = record_id
        if self.deduplicator is not None:
            if self._alone and type(dedup_key) is str and len(dedup_key) <= _SHORT:
                delivery.checksum = f"key {dedup_key}"  # nobody else compares it, so it need not be hashed
            else:
                delivery.checksum = self._checksum(topic, delivery.key, value, dedup_key)
        elif dedup_key is not None:
            raise InvalidMessage(
                "dedup_key is given, but de-duplication is off.", fix="Set enable_deduplication=True."
            )
        return f"{self._ids.prefix}{delivery.seq}" if self._acceptance.accept(delivery) else None

    async def send_async(self, topic: str, value: Any, key: Any = None, **options: Any) -> DeliveryReport:
        """Send and wait for the end without blocking the event loop; the report says acknowledged or dead."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[DeliveryReport] = loop.create_future()

        def tell(report: DeliveryReport) -> None:
            loop.call_soon_threadsafe(_resolve, done, report)

        message_id = await asyncio.to_thread(
            self.send_message, topic, value, key, on_delivery=tell, **options
        )
        if message_id is None:
            return DeliveryReport(
                "", options.get("record_id"), topic, None, None, None, 0, None, duplicate=True
            )
        return await done

    def send_batch(
        self, topic: str, messages: Iterable[Any], key_extractor: Callable[[Any], Any] | None = None
    ) -> dict[str, Any]:
        """Send each and wait until all are settled. `sent` were acknowledged, `failed` are dead or were refused.

        With Redis or a journal the messages of a list are claimed and written down some hundred at a time, so that a
        round trip or a sync is shared: at the level `power` this is how one thread sends quickly. Those of a generator
        are accepted one by one, as they come.
        """
        gathering = Gathering()
        deliveries = self._gathered(gathering, topic, messages, key_extractor)
        if not (self._together and isinstance(messages, Collection)):
            accept = self._acceptance.accept
            for delivery in deliveries:
                try:
                    gathering.accepted(self._ids.text(delivery.seq) if accept(delivery) else None)
                except ProducerError as error:
                    gathering.refused(error)
        else:
            for group in groups(deliveries):
                for delivery, outcome in zip(group, self._acceptance.accept_many(group), strict=True):
                    if isinstance(outcome, ProducerError):
                        gathering.refused(outcome)
                    else:
                        gathering.accepted(self._ids.text(delivery.seq) if outcome else None)
        self._lifecycle.wait_until(gathering.complete)
        return gathering.result()

    def _gathered(
        self,
        gathering: Gathering,
        topic: str,
        messages: Iterable[Any],
        key_extractor: Callable[[Any], Any] | None,
    ) -> Iterator[Delivery]:
        """Each message that can be sent, on its way to be accepted; it tells the gathering how it ended."""
        for value in messages:
            try:
                key = None if key_extractor is None else key_extractor(value)
                delivery = self._delivery(topic, value, key, None, None, None, None)
                if self.deduplicator is not None:
                    delivery.checksum = self._checksum(topic, delivery.key, value, None)
            except NotAccepted as error:
                gathering.refused(error)
                continue
            delivery.ended = gathering.ended
            yield delivery

    def send_frame(
        self,
        frame: Any,
        topic: str,
        *,
        key: str | Callable[[Mapping[str, Any]], Any] | None = None,
        value: str | Callable[[Mapping[str, Any]], Any] | None = None,
        dedup_key: str | Callable[[Mapping[str, Any]], Any] | None = None,
        start: int = 0,
        nan: Literal["null", "refuse"] = "null",
        timeout: float | None = None,
    ) -> FrameResult:
        """Send each row of a pandas, polars or Arrow frame as one message, and wait until all are settled.

        `key`, `value` and `dedup_key` name a column, or are functions of the row; without `value` the message is
        the row as JSON. Missing values (NaN, NaT, NA, None) are null, decimals text, times and durations ISO 8601;
        a row with infinity or bytes in it is refused, by its place and with the reason, and the others are sent.
        With `value` bytes pass through and None is a tombstone. An interrupt falls between two rows and raises
        FrameInterrupted, whose `result.next` is the `start` to go on with. After `timeout` seconds the result
        tells how far it came.
        """
        from producer_core.frames import send_frame

        self._ending.check()
        if topic not in self._topics:
            self._check_topic(topic)
        return send_frame(
            self,
            frame,
            topic,
            key=key,
            value=value,
            dedup_key=dedup_key,
            start=start,
            nan=nan,
            timeout=timeout,
        )

    def dead_letter(
        self,
        topic: str,
        raw: bytes | None,
        *,
        code: str = "malformed",
        text: str,
        source: str | None = None,
        key: Any = None,
    ) -> str:
        """Keep an input that cannot become a message: verdict `not_sent`, not replayable until edited."""
        self._ending.check()
        failure, now, number = failure_of(code), self._clock(), self._sequence.take()
        letter = DeadLetter(
            self._ids.text(number), self._cluster_id or "", str(self._session), topic,
            encode_key(key), raw, (), None, None, "not_sent", "It never became a message.", failure.kind,
            failure.code, text, fingerprint(failure.code, text), (Attempt(now, failure.code, text),), now, now,
            replayable=False, source=source, host=socket.gethostname(), version=__version__,
        )  # fmt: skip
        for hook in (self.metrics, self._keeping.hook):
            hook.died(letter)
        return letter.message_id

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything accepted is settled, or for `timeout` seconds; what is left is logged."""
        if self._ending.forked:
            raise ForkedProducer
        if not self._lifecycle.wait_idle(timeout):
            logger.warning("flush timed out", extra={"pending": self._lifecycle.waiting})

    # looking

    @property
    def dlq(self) -> Any:
        """The dead letters: over the store, or in memory without one."""
        return self._keeping.letterbox

    @property
    def store(self) -> Store | None:
        return self._keeping.store

    @property
    def stats(self) -> ProducerStats:
        return self.get_stats()

    @property
    def pending_messages(self) -> dict[str, Message]:
        return {message.id: message for message in self.get_pending_messages()}

    @property
    def connection(self) -> Connection:
        return self._lifecycle.connection

    def pending_by_topic(self) -> Counter[str]:
        return self._lifecycle.pending_by_topic()

    @property
    def pending_count(self) -> int:
        """Messages accepted and not settled."""
        return self._lifecycle.waiting

    @property
    def elapsed(self) -> float:
        """Seconds since the producer was made."""
        return self._clock() - self.started_at

    def get_pending_messages(self) -> list[Message]:
        return [as_message(delivery) for delivery in list(self._lifecycle.pending.values())]

    def get_message_status(self, message_id: str) -> MessageStatus | None:
        """Where a message of this producer stands; None for an id that is not ours."""
        try:
            raw = parse_id(message_id)
        except ValueError:
            return None
        pending = self._lifecycle.pending.get(raw)
        if pending is not None:
            return pending.status
        number = int.from_bytes(raw[16:])
        ours = raw[:16] == self._session.bytes and number < self._sequence.peek()
        if ours and self._lifecycle.backlog is not None and self._lifecycle.backlog.holds(number):
            return MessageStatus.PENDING
        state = self._keeping.state(message_id)
        if state is not None:
            return MessageStatus.SENT if state in ("replayed", "landed") else MessageStatus.DLQ
        return MessageStatus.SENT if ours and number <= self._lifecycle.settlement.highest else None

    def get_stats(self) -> ProducerStats:
        return producer_stats(self)

    def get_basic_stats(self) -> BasicStats:
        return basic_stats(self)

    def get_health_status(self) -> dict[str, Any]:
        return self.health_monitor.get_health_summary()

    def add_health_alert_callback(self, callback: Callable[[dict[str, Any]], None]) -> None:
        self.health_monitor.add_alert_callback(callback)

    def monitor(self) -> Monitor:
        """The live monitor for notebooks and terminals: one for this producer, also where a cell runs twice."""
        from producer_core.monitor import Monitor

        self._keeping.hurry()
        if self._monitor is None:
            self._monitor = Monitor(self)
        return self._monitor

    # dead letters

    def get_dlq_messages(self, topic: str | None = None) -> list[Message]:
        return self._keeping.messages(topic)

    def clear_dlq(self, topic: str | None = None) -> int:
        """Archive the dead letters; with a store this can be undone (`producer-core dlq restore`)."""
        return self._keeping.clear(topic)

    def replay_dlq_messages(
        self, topic: str, max_messages: int | None = None, *, timeout: float = 60.0
    ) -> int:
        """Send dead letters again, oldest first, and return how many the broker acknowledged.

        Each leaves the DLQ only when its own delivery report came; one that fails again stays, once. Nobody is asked:
        letters of a topic that is gone are left out, and on a topic that is compacted, or of which nobody can tell, those
        whose key has a newer record; on others they are sent, and their old values come last. What may be on its topic already is looked for there
        first. To be asked use `producer-core dlq replay`, the dashboard, or `replay.plan(check_first=True)`; without a
        store nothing is looked ahead for.
        """
        self._ending.check()
        return self._keeping.replay(self, topic, max_messages, timeout)

    def resend(self, letter: DeadLetter, settled: Callable[[Resent], None]) -> None:
        """Send one dead letter again under its own id; `settled` hears how it ended. Used by replays."""
        self._ending.check()
        delivery = delivery_of(letter)
        if delivery.id[:16] == self._session.bytes:
            delivery.seq = int.from_bytes(delivery.id[16:])
        delivery.accepted_at = letter.accepted_at
        delivery.replay = settled
        self._acceptance.resend(delivery)

    def go_on(self, topic: str) -> int:
        """After a loss of acknowledged records, once you have decided: messages in doubt there are sent again.

        Until then, or a restart, they become dead letters. How many partitions were held up so.
        """
        return self.standing.go_on(topic)

    @property
    def identity(self) -> str:
        return str(self._session)

    @property
    def cluster_id(self) -> str:
        """The cluster's id, asked from the brokers once connected (it may block for 2 s); empty until then."""
        if self._cluster_id is None and self._lifecycle.connection.connected:
            self._ask_cluster()
        return self._cluster_id or ""

    def _ask_cluster(self) -> None:
        self._cluster_id = self._lifecycle.transport.cluster_id(next(iter(self._topics), None), 2.0)

    # compatibility

    def start_streaming(
        self, topics: Any = None, duration_hours: float | None = None, rate_multiplier: float = 1.0
    ) -> None:
        """For callers of the old generator's face: sends nothing. Use DataGenerationOrchestrator."""
        logger.info("start_streaming does nothing here; use DataGenerationOrchestrator.run_scenario")

    def stop_streaming(self) -> None:
        logger.info("stop_streaming does nothing here")

    # closing

    def close(self, timeout: float = 30.0) -> CloseReport:
        """Stop accepting, let what is pending finish for `timeout` seconds, keep the rest.

        The rest stays in the journal and is sent at the next start; without a journal it becomes dead letters.
        May be called again: it returns the same report.
        """
        return self._ending.close(timeout)

    def _finish(self, timeout: float) -> CloseReport:
        self.health_monitor.stop()
        self._keeping.stop_replays()
        if self._cluster_id is None and self._topics and self.connection.error is None:
            self._ask_cluster()  # while there is a client: a short life's dead letters name their cluster too
        self._lifecycle.close(timeout)
        if self.deduplicator is not None:
            self.deduplicator.close()
        self._replication.stop()
        self.standing.stop()
        self._keeping.stop()
        report = self._report()
        self.guarantees.leave_name()
        if self.journal is not None:
            self.journal.close()
        return report

    def _report(self) -> CloseReport:
        """Where everything is. A dead letter that could be kept nowhere is still in the journal, if there is one."""
        snapshot, unwritten = self.metrics.snapshot(), self._keeping.lost()
        if self.journal is None or self._lifecycle.backlog is None:
            return CloseReport(snapshot.acknowledged, snapshot.dead, lost=unwritten)
        dead = snapshot.dead - self._lifecycle.backlog.unkept
        return CloseReport(snapshot.acknowledged, dead, journaled=self.journal.unsettled())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # accepting

    def _delivery(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
        serializer: Callable[[Any], bytes] | None,
    ) -> Delivery:
        if self._ending.begun:
            self._ending.check()
        if topic not in self._topics:
            self._check_topic(topic)
        data = encode_value(value, serializer or self._value_serializer)
        key_data = encode_key(key, self._key_serializer)
        raw = self._ids.raw(number := self._take_number())
        if headers is None and partition is None and timestamp_ms is None:  # as nearly all
            return Delivery(raw, number, topic, key_data, data)
        return Delivery(
            raw, number, topic, key_data, data, encode_headers(headers),
            -1 if partition is None else _whole(partition, "partition"),
            0 if timestamp_ms is None else _whole(timestamp_ms, "timestamp_ms"),
        )  # fmt: skip

    def _check_topic(self, topic: str) -> None:
        if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise InvalidMessage(
                f"{topic!r:.80} is not a topic name.",
                fix="Kafka takes 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'.",
            )
        if self._default_transport:
            self.guarantees.require(self.config, self.journal, (topic,))
        self._topics.add(topic)

    @staticmethod
    def _checksum(topic: str, key: bytes | None, value: Any, dedup_key: str | None) -> str:
        return (
            checksum(topic, key, value)
            if dedup_key is None
            else checksum(topic, None, {"dedup_key": dedup_key})
        )


def _resolve(done: asyncio.Future[DeliveryReport], report: DeliveryReport) -> None:
    if not done.done():  # a caller that was cancelled has gone
        done.set_result(report)


def _whole(number: Any, name: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidMessage(f"{name} must be a whole number of at least 0, not {number!r}.")
    return number


def _known(given: Mapping[str, float], known: Mapping[str, float]) -> Mapping[str, float]:
    for name in given:
        if name not in known:
            raise ConfigError(f"Unknown threshold {name!r}.", fix=f"Use one of {', '.join(sorted(known))}.")
    return given
