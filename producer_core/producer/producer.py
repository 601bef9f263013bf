"""The producer: accepts messages, delivers them, and answers for each until it is settled."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from producer_core._internal.user_callbacks import shown
from producer_core.alerts import Route
from producer_core.alerts.routes import Told
from producer_core.config import RetryConfig, client_config, servers_and_settings
from producer_core.delivery.delivery import Callbacks, Delivery
from producer_core.delivery.gil_handoff import OFTEN
from producer_core.delivery.ordering import Ordering
from producer_core.delivery.prober import OnAmbiguous
from producer_core.delivery.reports import CloseReport, DeliveryReport
from producer_core.delivery.transport import TransportFactory
from producer_core.errors import ForkedProducer, InvalidMessage, NotAccepted
from producer_core.events import Hook
from producer_core.messages import Message, Placement, checksum, encode_headers, encode_key, encode_value
from producer_core.producer import arguments
from producer_core.producer.components import Components
from producer_core.producer.dead_letter_api import DeadLetterApi
from producer_core.producer.guarantees import Delivered, Guarantees, Level
from producer_core.producer.send_batch import BatchSend

if TYPE_CHECKING:
    from producer_core.delivery.replayable_source import ReplayableSource
    from producer_core.producer.frames import FrameResult
    from producer_core.store import Store

logger = logging.getLogger(__name__)

_SHORT = 100
"""Characters of a caller's own key for de-duplication that is remembered as it is."""


class ReliableKafkaProducer(DeadLetterApi):
    """A Kafka producer that knows what became of every message.

    `bootstrap_servers` takes a list, a comma string, or the one dict of settings that confluent-kafka takes.
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
        bootstrap_servers: str | Sequence[str] | Mapping[str, Any] = ("localhost:9092",),
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
        journal: ReplayableSource | None = None,
        transactional_id: str | None = None,
        shards: int = 2,
        alert_routes: Sequence[Route | Told] = (),
        transport: TransportFactory | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        arguments.check(
            retry_config=retry_config, enable_deduplication=enable_deduplication, dlq_max_size=dlq_max_size,
            health_check_interval=health_check_interval, dedup_ttl=dedup_ttl, thresholds=thresholds, store=store, journal_dir=journal_dir, telemetry_topic=telemetry_topic,
            transactional_id=transactional_id, hooks=hooks, alert_routes=alert_routes,
        )  # fmt: skip
        bootstrap_servers, config = servers_and_settings(bootstrap_servers, config)
        self.guarantees = Guarantees(
            delivery, ordering, on_ambiguous, journal_dir, journal_level, transactional_id, shards,
            journaled=journal is not None,
        )  # fmt: skip
        self.config = client_config(bootstrap_servers, self.guarantees.settings(config))
        self.retry_config = retry_config or RetryConfig()
        self.bootstrap_servers = self.config.bootstrap_servers.split(",")
        self.enable_deduplication = enable_deduplication
        self._clock = clock
        self._monitor = None
        self.started_at = clock()
        self._parts = parts = Components(
            self.guarantees, self.config, self.retry_config, journal=journal, enable_deduplication=enable_deduplication,
            redis_client=redis_client, dedup_ttl=dedup_ttl, health_check_interval=health_check_interval,
            thresholds=thresholds or {}, store=store, dlq_max_size=dlq_max_size, telemetry_topic=telemetry_topic,
            ledger=ledger, alert_routes=alert_routes, cluster_id=cluster_id, hooks=hooks, transport=transport, clock=clock,
        )  # fmt: skip
        self.journal, self.deduplicator = parts.identity.journal, parts.deduplicator
        self.metrics, self.health_monitor = parts.metrics, parts.health_monitor
        self.alerts, self.standing = parts.alerts, parts.standing
        self.retry_manager = parts.lifecycle.retry_manager
        # At hand for each message: a step through an object costs each of them.
        # Above 30 attributes CPython lays an instance out apart, and each message costs 5 % more (measured on 3.11).
        self._value_serializer, self._key_serializer = (
            self.config.value_serializer,
            self.config.key_serializer,
        )
        self._ids, self._take_number = parts.identity.ids, parts.identity.sequence.take
        self._topics, self._ending = parts.topics, parts.ending
        self._lifecycle, self._keeping = parts.lifecycle, parts.keeping
        self._acceptance = parts.lifecycle.acceptance
        # Whether a batch is claimed, or written down, in groups; and whether claims leave this process.
        self._together = journal is None and (self.journal is not None or redis_client is not None)
        self._alone = self.journal is None and redis_client is None
        parts.start(self, run_replays=run_replays)

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
        if callback is not None or on_delivery is not None or record_id is not None:
            arguments.check_callback(callback, "callback")
            arguments.check_callback(on_delivery, "on_delivery")
            delivery.owner = Callbacks(callback, on_delivery, record_id)
        if self.deduplicator is not None:
            if self._alone and type(dedup_key) is str and len(dedup_key) <= _SHORT:
                delivery.checksum = f"key {topic} {dedup_key}"  # read by nobody else: it need not be hashed
            else:
                delivery.checksum = self._checksum(topic, delivery.key, value, dedup_key)
        elif dedup_key is not None:
            raise InvalidMessage(
                "dedup_key is given, but de-duplication is off.", fix="Set enable_deduplication=True."
            )
        return f"{self._ids.prefix}{delivery.seq}" if self._acceptance.accept(delivery) else None

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
        try:
            known = topic in self._topics
        except TypeError:  # a list, a dict
            known = False
        if not known:
            self._parts.check_topic(topic)
        data = encode_value(value, serializer or self._value_serializer)
        key_data = encode_key(key, self._key_serializer)
        raw = self._ids.raw(number := self._take_number())
        if not number & OFTEN:  # nothing was done for this message yet
            self._acceptance.transport.step_aside()
        if headers is None and partition is None and timestamp_ms is None:  # as nearly all
            return Delivery(raw, number, topic, key_data, data)
        return Delivery(
            raw, number, topic, key_data, data, encode_headers(headers), _placement(partition, timestamp_ms)
        )  # fmt: skip

    @staticmethod
    def _checksum(topic: str, key: bytes | None, value: Any, dedup_key: str | None) -> str:
        return (
            checksum(topic, key, value)
            if dedup_key is None
            else checksum(topic, None, {"dedup_key": dedup_key})
        )

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

        `results` has one entry an input, in their order: `message_id`, `status`, and of what failed `error` and `verdict`.

        With Redis or a journal the messages of a list are claimed and written down some hundred at a time, so that a
        round trip or a sync is shared: at the level `power` this is how one thread sends quickly. Those of a generator
        are accepted one by one, as they come.
        """
        self._ending.check()
        arguments.check_batch(messages, key_extractor)
        gathering = BatchSend()
        deliveries = self._gathered(gathering, topic, messages, key_extractor)
        together = self._together and isinstance(messages, Collection)
        gathering.take(deliveries, self._acceptance, together=together)
        self._lifecycle.wait_until(gathering.complete)
        return gathering.result(self._ids.text)

    def _gathered(
        self,
        gathering: BatchSend,
        topic: str,
        messages: Iterable[Any],
        key_extractor: Callable[[Any], Any] | None,
    ) -> Iterator[Delivery]:
        """Each message that can be sent, on its way to be accepted; it tells the gathering how it ended."""
        for value in messages:
            try:
                key = None if key_extractor is None else arguments.key_of(key_extractor, value)
                delivery = self._delivery(topic, value, key, None, None, None, None)
                if self.deduplicator is not None:
                    delivery.checksum = self._checksum(topic, delivery.key, value, None)
            except NotAccepted as error:
                gathering.refused(error)
                continue
            delivery.owner = gathering.owner
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
        from producer_core.producer.frames import send_frame

        self._ending.check()
        self._parts.check_topic(topic)
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
        """Wait until everything accepted is settled, or for `timeout` seconds; what is left is logged."""
        arguments.check_timeout(timeout, optional=True)
        if self._ending.forked:
            raise ForkedProducer
        if not self._lifecycle.wait_idle(timeout):
            logger.warning("flush timed out", extra={"pending": self._lifecycle.waiting})

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
        """Stop accepting, let what is pending finish, keep the rest: within `timeout` seconds, of which a fifth, at most
        two, is for keeping it. Only a disk that takes dead letters slowly is waited for longer.

        The rest stays in the journal and is sent at the next start; without a journal it becomes dead letters.
        May be called again: it returns the same report.
        """
        arguments.check_timeout(timeout)
        return self._ending.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _resolve(done: asyncio.Future[DeliveryReport], report: DeliveryReport) -> None:
    if not done.done():  # a caller that was cancelled has gone
        done.set_result(report)


def _placement(partition: int | None, timestamp_ms: int | None) -> Placement:
    return Placement(
        -1 if partition is None else _whole(partition, "partition", 31),
        0 if timestamp_ms is None else _whole(timestamp_ms, "timestamp_ms", 63),
    )


def _whole(number: Any, name: str, bits: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**bits:
        raise InvalidMessage(
            f"{name} must be a whole number from 0 to 2^{bits} - 1, not {shown(number, 40)}."
        )
    return number
