"""The public producer class."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Never, Self

from producer_core._internal.environment_settings import is_store_disabled
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.user_callbacks import short_repr
from producer_core.alerts import ReportedAlerts, Route
from producer_core.alerts.health import HealthMonitor
from producer_core.alerts.routes import AlertFunction, given_routes
from producer_core.config import (
    DEFAULT_SERVERS,
    RetryConfig,
    block_seconds,
    client_config,
    pop_servers,
    servers_and_settings,
)
from producer_core.delivery.connection_state import ConnectionState
from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.delivery.delivery import Callbacks, Delivery
from producer_core.delivery.flow_control.circuit_breaker import CircuitBreaker
from producer_core.delivery.gil_handoff import YIELD_MASK
from producer_core.delivery.loss_detection import AckedLogMonitor
from producer_core.delivery.ordering import Ordering
from producer_core.delivery.prober import OnAmbiguous
from producer_core.delivery.reports import CloseReport, DeliveryReport, ReplayResult
from producer_core.delivery.retry import RetryManager
from producer_core.delivery.transport import TransportFactory
from producer_core.errors import ConfigError, ForkedProducer, InvalidMessage, NotAccepted, QueueFull
from producer_core.events import DeadLetter, Hook
from producer_core.kafka.schemas.serializers import JSON_AND_TEXT
from producer_core.messages import (
    Message,
    MessageStatus,
    Placement,
    checksum,
    encode_headers,
    encode_key,
    encode_value,
)
from producer_core.metrics.counters import Metrics
from producer_core.native import Core
from producer_core.producer import arguments
from producer_core.producer.application import application_name
from producer_core.producer.application import application_version as version_of
from producer_core.producer.components import Components
from producer_core.producer.dead_letter_api import DeadLetterApi
from producer_core.producer.guarantees import DeliveryGuarantee, Guarantees, JournalLevel
from producer_core.producer.options import ProducerOptions
from producer_core.producer.send_batch import BatchReport, BatchSend
from producer_core.producer.settings_arguments import with_settings_as_arguments
from producer_core.producer.severe_errors import OnSevereErrors
from producer_core.producer.stats import BasicStats, ProducerStats, ReadOnlyStats, basic_stats, producer_stats
from producer_core.producer.status import ProducerStatus

if TYPE_CHECKING:
    from confluent_kafka.admin import ClusterMetadata
    from opentelemetry.trace import TracerProvider

    from producer_core.delivery.flow_control.circuits import CircuitReport
    from producer_core.delivery.replayable_source import ReplayableSource
    from producer_core.dlq.topics.dead_letter_topic import DeadLetterTopic
    from producer_core.producer.frames import FrameResult
    from producer_core.producer.monitor import Monitor
    from producer_core.producer.run_report import RunReport
    from producer_core.replay import Inconclusive
    from producer_core.store import Store

logger = queued_logger(__name__)

_UNHASHED_LENGTH = 100
"""Characters up to which a caller's `dedup_key` is not hashed."""


class ReliableKafkaProducer:
    """A Kafka producer that accounts for every message.

    `bootstrap_servers` takes a list, a comma-separated string, or confluent-kafka's single dict of settings. `config` is a
    dict of settings, or the path of a file with them (Java properties or JSON). A delivered message is one that the broker acknowledged. A message that cannot be delivered becomes a dead letter with a verdict
    on whether a resend is safe. `store` is a path, a Store, None for no store, or "auto" for the default path, which
    `PRODUCER_CORE_STORE` names or, as `none`, disables. All methods may be called from any thread. After a fork, create a
    new producer in the child.

    `ordering`: "key" holds back later messages of a key while an earlier one waits for its retry, "strict" keeps one
    message of a key in flight at a time, "none" never waits. `on_ambiguous` applies when the broker may have a message
    and a probe of the topic did not find it: "retry" sends it again, "dead_letter" makes every message that is not
    proven absent a dead letter.

    `journal_dir`: the producer writes each message there before `send_message` returns and keeps it until it is settled.
    After a crash, the next start sends the remaining messages under the same ids. `journal_level` names the failures that
    the journal survives: "buffered" a broker outage, "process" kill -9 as well, "power" even a power failure.
    `delivery="exactly_once"` needs a journal and sends in transactions, with `shards` transactional ids that begin with
    `transactional_id` (default: derived from the journal's id). `journal` is a replayable input that replaces the journal.
    `core="native"` passes plain messages of exactly-once delivery to the client in C, where the native core is installed
    (docs/how-to/native-core.md). Elsewhere everything runs in Python, and a notice gives the reason.

    `telemetry_topic`: the producer also publishes its statistics there, once a second, for a fleet's pipeline, together
    with a ledger of acknowledged messages (docs/reference/telemetry.md). With a journal, unpublished statistics survive
    the process. `ledger=True` keeps the ledger in the store too, `ledger=False` keeps none.

    `tracing=True` traces each message with OpenTelemetry until it is acknowledged or dead, through the global tracer
    provider; pass a TracerProvider to use another one. Needs the extra `otel` (docs/how-to/tracing.md).

    `circuit_breaker=True`, or a CircuitBreaker with other limits: during an outage, `send_message` raises CircuitOpen at
    once. With a journal it still accepts messages, which wait there (docs/how-to/flow-control.md).
    `on_severe_errors="stop"` closes the producer after an error that needs an operator, such as refused credentials.

    `application` names the application that the producer belongs to. Statistics and dead letters carry the name, and the
    producer's methods list, count and replay the dead letters of this application only. Default: `PRODUCER_CORE_APPLICATION`,
    else OpenTelemetry's service name (`OTEL_SERVICE_NAME`), else none (docs/how-to/share-a-store.md).
    `application_version` is kept with each dead letter, so that a resolved cause that returns shows the version
    (docs/how-to/resolve-causes.md). Default: `PRODUCER_CORE_APPLICATION_VERSION`, else OpenTelemetry's `service.version`.

    `dead_letter_topic="{topic}-dlt"` also publishes each dead letter to a Kafka topic; a function of the DeadLetter chooses
    its topic, and DeadLetterTopic adds the headers of another dialect. It needs a store. The topics must exist
    (docs/how-to/dead-letter-topic.md).

    `alert_routes`: functions that receive alerts in Alertmanager's payload, or routes such as `Callback`.

    `config` may also contain most of these arguments, such as `circuit_breaker` and `on_severe_errors`, so that a file or
    the environment can give them (docs/reference/settings.md). An argument of the call takes precedence.
    """

    @with_settings_as_arguments
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, Any] = DEFAULT_SERVERS,
        config: Mapping[str, Any] | str | Path | None = None,
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
        delivery: DeliveryGuarantee = "at_least_once",
        ordering: Ordering = "key",
        on_ambiguous: OnAmbiguous = "retry",
        journal_dir: Path | str | None = None,
        journal_level: JournalLevel = "process",
        journal: ReplayableSource | None = None,
        transactional_id: str | None = None,
        shards: int = 2,
        core: Core = "python",
        alert_routes: Sequence[Route | AlertFunction] = (),
        tracing: bool | TracerProvider = False,
        circuit_breaker: CircuitBreaker | bool = False,
        on_severe_errors: OnSevereErrors = "continue",
        application: str | None = None,
        application_version: str | None = None,
        dead_letter_topic: DeadLetterTopic | Callable[[DeadLetter], str | None] | str | None = None,
        transport: TransportFactory | None = None,
        clock: Callable[[], float] = time.time,
        **unknown: Never,
    ) -> None:
        arguments.refuse_unknown(unknown, ReliableKafkaProducer.__init__)
        arguments.check(
            retry_config=retry_config, enable_deduplication=enable_deduplication, dlq_max_size=dlq_max_size,
            health_check_interval=health_check_interval, dedup_ttl=dedup_ttl, thresholds=thresholds, store=store,
            journal_dir=journal_dir, telemetry_topic=telemetry_topic, transactional_id=transactional_id,
            alert_routes=alert_routes, cluster_id=cluster_id, transport=transport, journal=journal,
            tracing=tracing, on_severe_errors=on_severe_errors, clock=clock,
        )  # fmt: skip
        if store == "auto" and is_store_disabled(os.environ):
            store = None
        bootstrap_servers, config = servers_and_settings(bootstrap_servers, config)
        self.guarantees = Guarantees(
            delivery, ordering, on_ambiguous, journal_dir, journal_level, transactional_id, shards,
            core, journaled=journal is not None,
        )  # fmt: skip
        self.config = client_config(bootstrap_servers, self.guarantees.settings(config))
        self.retry_config = retry_config or RetryConfig()
        self.bootstrap_servers = self.config.bootstrap_servers.split(",")
        self.enable_deduplication = enable_deduplication
        options = ProducerOptions(
            guarantees=self.guarantees, client=self.config, retry=self.retry_config, journal=journal,
            enable_deduplication=enable_deduplication, redis_client=redis_client, dedup_ttl=dedup_ttl,
            health_check_interval=health_check_interval, thresholds=thresholds or {}, store=store,
            dlq_max_size=dlq_max_size, telemetry_topic=telemetry_topic, ledger=ledger,
            alert_routes=given_routes(alert_routes), cluster_id=cluster_id, hooks=arguments.hooks_of(hooks),
            transport=transport, clock=clock, tracing=tracing, on_severe_errors=on_severe_errors,
            circuit_breaker=arguments.circuit_breaker_of(circuit_breaker),
            application=application_name(application, os.environ),
            application_version=version_of(application_version, os.environ),
            dead_letter_topic=arguments.dead_letter_topic_of(dead_letter_topic, has_store=store is not None),
            open_producer=partial(
                ReliableKafkaProducer, store=None, run_replays=False, retry_config=self.retry_config,
                transport=transport, clock=clock,
            ),
        )  # fmt: skip
        self._components = components = Components(options)
        self._status, self._dead_letters = ProducerStatus(components), DeadLetterApi(components)
        self._monitor: Monitor | None = None
        # Attributes for every message's path: a lookup through another object costs time. With more than 30
        # attributes CPython stores an instance differently, which costs 5 % per message (measured on 3.11).
        self.deduplicator = components.deduplicator
        self._serializers = components.serializers
        self._ids, self._next_sequence = components.session.ids, components.session.sequence.take
        self._topics, self._shutdown = components.topics, components.shutdown
        self._engine, self._enqueuer = components.engine, components.enqueuer
        # Whether a batch is claimed or journaled in groups, and whether claims stay in this process.
        self._in_groups = journal is None and (self.journal is not None or redis_client is not None)
        self._local_claims = self.journal is None and redis_client is None
        components.start(self, run_replays=run_replays)

    @classmethod
    def from_env(cls, config: Mapping[str, Any] | str | Path | None = None, **options: Any) -> Self:
        """Create a producer with the settings of the environment variables `PRODUCER_CORE_*`.

        `PRODUCER_CORE_BOOTSTRAP_SERVERS` and `PRODUCER_CORE_LINGER_MS` set `bootstrap.servers` and `linger.ms`, and so on.
        `PRODUCER_CORE_SASL_PASSWORD_FILE` names a file with the value. `PRODUCER_CORE_CONFIG` names a file of settings,
        which the variables override. `config` overrides both, and so do `options`, which are the arguments of the class.
        """
        from producer_core.producer.environment import merged, settings_from

        servers, given = servers_and_settings(options.pop("bootstrap_servers", DEFAULT_SERVERS), config)
        settings = settings_from(os.environ)
        if servers is not DEFAULT_SERVERS and servers:
            pop_servers(settings)
        return cls(servers, merged(settings, given), **options)

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
        value_serializer: Callable[..., bytes | None] | None = None,
        max_block_ms: float | None = None,
    ) -> str | None:
        """Accept a message and return its id, or None for a confirmed duplicate.

        Bytes pass through, None is a tombstone, everything else is written as JSON, or by `value_serializer`, a function
        of the value or of the value and confluent-kafka's SerializationContext. `callback(ok, message, report_or_error)`
        and `on_delivery(report)` are called once, when the message is settled, on one of the producer's threads. Raise
        InvalidMessage for a message that can never be sent, QueueFull if there is no room within `max_block_ms` (default: the
        setting of this name), RateLimited if a rate limit would delay the message for longer, CircuitOpen if a circuit is
        open or opens during a wait, SchemaUnavailable if the schema registry does not provide the schema, ProducerClosed after
        close(). A message that the broker rejects becomes a dead letter instead.
        """
        if dedup_key is not None and self.deduplicator is None:
            raise InvalidMessage(
                "dedup_key is given, but deduplication is off.", fix="Set enable_deduplication=True."
            )
        callbacks = None
        if callback is not None or on_delivery is not None or record_id is not None:
            arguments.check_callback(callback, "callback")
            arguments.check_callback(on_delivery, "on_delivery")
            callbacks = Callbacks(callback, on_delivery, record_id)
        delivery = self._delivery(
            topic, value, key, headers, partition, timestamp_ms, value_serializer, dedup_key
        )
        delivery.callbacks = callbacks
        accept = self._enqueuer.accept
        accepted = accept(delivery) if max_block_ms is None else accept(delivery, block_seconds(max_block_ms))
        return f"{self._ids.prefix}{delivery.seq}" if accepted else None

    def try_send(self, topic: str, value: Any, key: Any = None, **options: Any) -> bool:
        """Send a message if that is possible without a wait for room or for a rate limit.

        Return False if it is not: the message is not accepted. The first message of a topic still waits for its schema, if
        the producer takes that from a registry. Raise CircuitOpen while a circuit breaker refuses messages.
        `options` are those of `send_message` without `max_block_ms`; it also lists the other errors.
        """
        if "max_block_ms" in options:
            raise ConfigError(
                "try_send takes no max_block_ms, because it never waits.",
                fix="Leave it out, or call send_message with max_block_ms.",
            )
        try:
            self.send_message(topic, value, key, **options, max_block_ms=0)
        except QueueFull:
            return False
        return True

    def _delivery(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
        serializer: Callable[..., bytes | None] | None,
        dedup_key: str | None = None,
    ) -> Delivery:
        if self._shutdown.begun:
            self._shutdown.check()
        try:
            known = topic in self._topics
        except TypeError:  # unhashable: a list, a dict
            known = False
        if not known:
            self._components.check_topic(topic)
        if serializer is None and self._serializers is None:  # the usual case
            data, key_data = encode_value(value), encode_key(key)
        else:
            chosen = self._serializers or JSON_AND_TEXT
            data, key_data, headers = chosen.encode(topic, value, key, headers, serializer)
        claim = None if self.deduplicator is None else self._checksum(topic, key_data, value, dedup_key)
        usual = headers is None and partition is None and timestamp_ms is None
        extra = None if usual else (encode_headers(headers), _placement(partition, timestamp_ms))
        # The last step that may fail comes before this one: a refused message uses no sequence.
        raw = self._ids.raw(number := self._next_sequence())
        if not number & YIELD_MASK:  # a safe point: the message holds no lane or claim yet
            self._enqueuer.transport.yield_to_poller()
        if extra is None and claim is None:
            return Delivery(raw, number, topic, key_data, data)
        delivery = Delivery(raw, number, topic, key_data, data, *(extra or ()))
        delivery.checksum = claim
        return delivery

    def _checksum(self, topic: str, key: bytes | None, value: Any, dedup_key: str | None) -> str:
        if dedup_key is None:
            return checksum(topic, key, value)
        if self._local_claims and type(dedup_key) is str and len(dedup_key) <= _UNHASHED_LENGTH:
            return f"key {topic} {dedup_key}"  # only this process reads it, so it needs no hash
        return checksum(topic, None, {"dedup_key": dedup_key})

    async def send_async(self, topic: str, value: Any, key: Any = None, **options: Any) -> DeliveryReport:
        """Send a message and wait, without blocking the event loop, until it is acknowledged or dead.

        A cancelled call may still be delivered; use a `dedup_key` for a retry. A message that still waits for a rate limit
        or for room is withdrawn; an accepted message is sent. `options` are those of `send_message`, which also lists the
        errors.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[DeliveryReport] = loop.create_future()

        def report_done(report: DeliveryReport) -> None:
            try:
                loop.call_soon_threadsafe(_resolve, done, report)
            except RuntimeError:
                if not loop.is_closed():  # else the caller has stopped waiting
                    raise

        if self._serializers is not None and not self._shutdown.begun:
            await self._serializers.wait_for_schemas(topic, value, key, options.get("value_serializer"))
        message_id = await self._components.run_in_thread(
            self.send_message, topic, value, key, on_delivery=report_done, **options
        )
        if message_id is None:
            return DeliveryReport(
                "", options.get("record_id"), topic, None, None, None, 0, None, duplicate=True
            )
        return await done

    def send_batch(
        self, topic: str, messages: Iterable[Any], key_extractor: Callable[[Any], Any] | None = None
    ) -> BatchReport:
        """Send each message and wait until all are settled. `sent` counts acknowledged messages, `failed` dead letters
        and rejected inputs.

        `results` has one entry per input, in input order: `message_id`, `status`, and for failures `error` and `verdict`.

        With Redis or a journal, the messages of a list are claimed and journaled in groups of up to 500, which share a
        round trip or a sync. At the level `power` this is the fast path for a single thread. Messages of a generator
        are accepted one by one.
        """
        self._shutdown.check()
        self._engine.refuse_in_callback("send_batch()")
        arguments.check_batch(messages, key_extractor)
        batch = BatchSend()
        deliveries = self._batch_deliveries(batch, topic, messages, key_extractor)
        grouped = self._in_groups and isinstance(messages, Collection)
        with batch.traced(self._components.tracer, topic):
            batch.send(deliveries, self._enqueuer, grouped=grouped)
            self._engine.wait_until(batch.complete)
        return batch.result(self._ids.text)

    def _batch_deliveries(
        self,
        batch: BatchSend,
        topic: str,
        messages: Iterable[Any],
        key_extractor: Callable[[Any], Any] | None,
    ) -> Iterator[Delivery]:
        """Yield a delivery for each valid input. The batch records invalid inputs as rejected."""
        for value in messages:
            try:
                key = None if key_extractor is None else arguments.key_of(key_extractor, value)
                delivery = self._delivery(topic, value, key, None, None, None, None)
            except NotAccepted as error:
                batch.record_rejected(error)
                continue
            delivery.callbacks = batch.callbacks
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
        the row as JSON. Missing values (NaN, NaT, NA, None) become null, decimals text, times and durations ISO 8601.
        A row that contains infinity or bytes is refused and reported with its position and the reason; the other rows
        are sent. With `value`, bytes pass through and None is a tombstone. An interrupt takes effect between two rows
        and raises FrameInterrupted; continue with `start=result.next`. After `timeout` seconds the result covers the
        rows sent so far.
        """
        from producer_core.producer.frames import send_frame

        self._shutdown.check()
        self._engine.refuse_in_callback("send_frame()")
        arguments.check_frame(frame, topic)
        self._components.check_topic(topic)
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

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all accepted messages are settled, for at most `timeout` seconds. A timeout is logged.

        Without `timeout`, an outage makes it wait until the messages are dead letters: up to four times
        `delivery_timeout_ms` with the 3 retries of `RetryConfig`. With a journal, that setting is a day by default.
        In a delivery callback it raises ProducerError, as do `send_batch`, `send_frame` and `replay_dlq_messages`: the
        reports that they wait for arrive on the callback's thread.
        """
        arguments.check_timeout(timeout, optional=True)
        if self._shutdown.forked:
            raise ForkedProducer
        self._engine.refuse_in_callback("flush()")
        if not self._engine.wait_idle(timeout):
            logger.warning(**with_fields("flush timed out", pending=self._engine.waiting, timeout=timeout))

    # dead letters

    @property
    def dlq(self) -> Any:
        """The dead-letter queue: a view of the store, or in memory without one."""
        return self._status.dlq

    def get_dlq_messages(self, topic: str | None = None) -> list[Message]:
        """Return the dead letters, each as its message.

        Dead letters of other clusters in the same store are left out. While the producer does not know its cluster yet (it
        asks for at most 2 s), only dead letters without a known cluster are returned.
        """
        arguments.check_topic_filter(topic)
        return self._components.dead_letter_backend.messages(topic)

    def clear_dlq(self, topic: str | None = None) -> int:
        """Archive the dead letters that `get_dlq_messages` returns, and return their number.

        With a store this can be undone (`producer-core dlq restore`).
        """
        arguments.check_topic_filter(topic)
        return self._components.dead_letter_backend.clear(topic)

    def replay_dlq_messages(
        self,
        topic: str,
        max_messages: int | None = None,
        *,
        timeout: float = 60.0,
        inconclusive: Inconclusive = "keep",
        to_cluster: str | None = None,
    ) -> int:
        """Send dead letters again, oldest first, and return how many the broker acknowledged or already had.

        A dead letter leaves the queue only when its own delivery report arrives; one that fails again stays, once. With a
        store the replay probes the topic for each dead letter that may already be there. A dead letter that is not found
        stays, because a late request may still write it; `inconclusive="send"` sends it anyway and may write a
        second copy. The replay runs unattended: it skips dead letters of deleted topics and, where the topic is or may be
        compacted, those whose key has a newer record. To decide about these first, use `producer-core dlq replay`, the
        dashboard, or `replay.plan(check_first=True)`. Without a store the topic is not probed.

        Dead letters of other clusters in the same store stay. `to_cluster` sends them too: pass the id of the cluster that
        this producer writes to (`producer.cluster_id`); any other id raises OtherCluster.

        Under an approval policy, ApprovalRequired is raised if a second person must approve the replay first; the same
        call after the approval sends the records.
        """
        self._shutdown.check()
        self._engine.refuse_in_callback("replay_dlq_messages()")
        arguments.check_replay(topic, max_messages, timeout, inconclusive)
        backend = self._components.dead_letter_backend
        return backend.replay(self, topic, max_messages, timeout, inconclusive, to_cluster)

    def resend(self, dead_letter: DeadLetter | ReplayRecord, settled: Callable[[ReplayResult], None]) -> None:
        """Send one dead letter again under its own id and pass the outcome to `settled`. Used by replays."""
        self._shutdown.check()
        self._dead_letters.resend(dead_letter, settled)

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
        """Add malformed input as a dead letter with the verdict `not_sent`. It cannot be replayed until it is edited."""
        self._shutdown.check()
        arguments.check_malformed(topic, raw, code, text, source)
        return self._dead_letters.add_malformed(topic, raw, code=code, text=text, source=source, key=key)

    def go_on(self, topic: str) -> int:
        """Send ambiguous messages again after a loss of acknowledged records; return the number of released partitions.

        Until this call, or a restart, they become dead letters.
        """
        arguments.check_topic_filter(topic, optional=False)
        return self.loss_monitor.resume_topic(topic)

    # status

    @property
    def identity(self) -> str:
        """The producer's session id, the first part of its message ids."""
        return str(self._components.session.id)

    @property
    def cluster_id(self) -> str:
        """The cluster's id; empty while not connected. The first access may block for 2 s to ask the brokers."""
        return self._components.cluster()

    def list_topics(self, topic: str | None = None, timeout: float = 10.0) -> ClusterMetadata:
        """Return confluent-kafka's metadata of the cluster's brokers and of one topic, or of all.

        An unknown topic has an `error` in its metadata, or is created where the brokers create topics automatically. Raise
        BrokerUnreachable if no broker responds within `timeout` seconds. The request opens its own connection.
        """
        from producer_core.kafka.cluster import Cluster

        self._shutdown.check()
        arguments.check_topic_filter(topic)
        arguments.check_timeout(timeout)
        return Cluster(self.config).metadata(timeout, topic)

    def partitions_for(self, topic: str, timeout: float = 10.0) -> set[int]:
        """Return the numbers of a topic's partitions, without creating it.

        Raise BrokerError if it does not exist, BrokerUnreachable if no broker responds within `timeout` seconds.
        """
        from producer_core.kafka.cluster import Cluster

        self._shutdown.check()
        arguments.check_topic_name(topic)
        arguments.check_timeout(timeout)
        return Cluster(self.config).partitions(topic, timeout=timeout)

    @property
    def connection(self) -> ConnectionState:
        """The state of the connection to the brokers and its last error."""
        return self._engine.connection

    @property
    def application(self) -> str:
        """The name of the application; empty without one."""
        return self._components.info.application

    @property
    def circuits(self) -> CircuitReport | None:
        """The circuits of the cluster and of topics at this moment; None without a circuit breaker."""
        return self._status.circuits

    @property
    def store(self) -> Store | None:
        """The store; None without one, or while it cannot be opened."""
        return self._components.dead_letter_backend.store

    @property
    def journal(self) -> Any:
        """The journal, or the input that replaces it; None without either."""
        return self._components.session.journal

    @property
    def metrics(self) -> Metrics:
        """Counters and histograms by topic."""
        return self._components.metrics

    @property
    def health_monitor(self) -> HealthMonitor:
        """The health checks and their thresholds."""
        return self._components.health_monitor

    @property
    def alerts(self) -> ReportedAlerts:
        """Alerts that this producer reports."""
        return self._components.alerts

    @property
    def loss_monitor(self) -> AckedLogMonitor:
        """The monitor that checks that acknowledged records are still on their topics."""
        return self._components.loss_monitor

    @property
    def retry_manager(self) -> RetryManager:
        """Messages that wait for a retry."""
        return self._engine.retry_manager

    @property
    def started_at(self) -> float:
        """The creation time of the producer, in seconds since 1970."""
        return self._components.started_at

    @property
    def elapsed(self) -> float:
        """Seconds since the producer was created."""
        return self._status.elapsed

    @property
    def pending_count(self) -> int:
        """The number of accepted messages that are not settled."""
        return self._status.pending_count

    def pending_by_topic(self) -> Counter[str]:
        """Count the pending messages in memory by topic."""
        return self._status.pending_by_topic()

    @property
    def pending_messages(self) -> dict[str, Message]:
        """The pending messages in memory, by id."""
        return {message.id: message for message in self.get_pending_messages()}

    def get_pending_messages(self) -> list[Message]:
        """Return the pending messages in memory."""
        return self._status.pending_messages()

    def get_message_status(self, message_id: str) -> MessageStatus | None:
        """Return the status of a message of this producer; None for any other id."""
        return self._status.message_status(message_id)

    @property
    def stats(self) -> ProducerStats:
        """A read-only `get_stats()`. A write raises TypeError, because it would have no effect."""
        return ReadOnlyStats(self.get_stats())

    def get_stats(self) -> ProducerStats:
        """Return all statistics. The reference describes the keys."""
        return producer_stats(self._status)

    def use_core(self, core: Core) -> None:
        """Change the core of a producer that was created with `core="native"`; the next transactions use it.

        "python" is the switch to turn off the native core of a running producer. Raise ConfigError for a producer that
        cannot use the core.
        """
        self._status.use_core(core)

    def get_basic_stats(self) -> BasicStats:
        """Return the statistics that are cheapest to compute."""
        return basic_stats(self._status)

    def get_health_status(self) -> dict[str, Any]:
        """Return the health status, its issues and the thresholds."""
        return self.health_monitor.get_health_summary()

    def add_health_alert_callback(self, callback: Callable[[dict[str, Any]], None]) -> None:
        """Call `callback` with each alert when it starts firing."""
        arguments.check_function(callback, "callback", example="add_health_alert_callback(print)")
        self.health_monitor.add_alert_callback(callback)

    def monitor(self) -> Monitor:
        """Return the live monitor for notebooks and terminals; every call returns the same one."""
        from producer_core.producer.monitor import Monitor

        self._components.dead_letter_backend.flush_soon()
        if self._monitor is None:
            self._monitor = Monitor(self, application=self.application or None)
        return self._monitor

    def report(self, path: Path | str, *, flush_timeout: float = 30.0) -> RunReport:
        """Return a context manager that writes an HTML file about what the producer does in its block.

        At the end of the block, messages have `flush_timeout` seconds to be settled; 0 waits for none. The file has counts,
        throughput, percentiles, failed attempts and the masked settings, and no content of a message. Raise ConfigError if
        the file cannot be written there.
        """
        from producer_core.producer.run_report import RunReport

        return RunReport(self, path, flush_timeout=flush_timeout)

    # compatibility

    def start_streaming(
        self, topics: Any = None, duration_hours: float | None = None, rate_multiplier: float = 1.0
    ) -> None:
        """Do nothing. Kept for callers of the former generator; use DataGenerationOrchestrator."""
        logger.info("start_streaming does nothing here; use DataGenerationOrchestrator.run_scenario")

    def stop_streaming(self) -> None:
        logger.info("stop_streaming does nothing here")

    def add_statistics_listener(self, listener: Callable[[Mapping[str, Any]], None]) -> None:
        """Call this function with librdkafka's statistics, once a second on the poll thread: return quickly, never block."""
        arguments.check_function(listener, "listener", example="add_statistics_listener(print)")
        self._engine.add_statistics_listener(listener)

    # closing

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._shutdown.begun

    def close(self, timeout: float = 30.0) -> CloseReport:
        """Stop accepting messages, wait for pending ones, then keep the rest, all within `timeout` seconds.

        A fifth of the time (half of it while no broker is connected), at most 2 s, is reserved for keeping the rest. Close
        exceeds the timeout only while a slow disk writes dead letters; it does not wait longer for a callback that blocks.
        With a journal the rest stays there and is sent at the next start; without one it becomes dead letters. Further
        calls return the same report. In a callback, close continues in another thread and returns the report so far.
        """
        arguments.check_timeout(timeout)
        return self._shutdown.close(timeout)

    def __enter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the producer without blocking the event loop. A cancelled task does not stop the close."""
        await asyncio.to_thread(self.close)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _resolve(done: asyncio.Future[DeliveryReport], report: DeliveryReport) -> None:
    if not done.done():  # the caller was not cancelled
        done.set_result(report)


def _placement(partition: int | None, timestamp_ms: int | None) -> Placement:
    return Placement(
        -1 if partition is None else _whole_number(partition, "partition", 31),
        0 if timestamp_ms is None else _whole_number(timestamp_ms, "timestamp_ms", 63),
    )


def _whole_number(number: Any, name: str, bits: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**bits:
        raise InvalidMessage(
            f"{name} must be a whole number from 0 to 2^{bits} - 1, not {short_repr(number, 40)}."
        )
    return number
