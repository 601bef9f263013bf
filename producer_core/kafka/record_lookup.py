"""Look up records at the end of a topic: have these messages been written?

The consumer is `read_committed`, so records of aborted transactions do not count. A `read_uncommitted` client determines
how far to read, because the end for a `read_committed` one, the last stable offset, stops at an open transaction. Each
lookup creates a new consumer and assigns at once: an existing one would first wait for the fetch in progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from producer_core._internal.plural import plural
from producer_core.kafka.clients import reader
from producer_core.messages import id_text, record_id

Outcome = Literal["found", "not_found", "inconclusive"]

BulkLookup = Callable[[str, Mapping[int, tuple[int, int]], set[str]], dict[str, tuple[int, int]]]
"""A function (topic, [start, end) by partition, message ids) that reads many records and returns the positions found."""

BULK_THRESHOLD = 500_000
"""The number of records above which the bulk lookup is used, if there is one."""

CLOCK_SKEW_S = 300.0
"""Seconds by which a broker's clock may be behind the local one without hiding a record from the time index."""

RETENTION_INTERVAL_S = 600.0
"""Age in seconds below which retention removes no record, because brokers check retention every five minutes."""

_MAX_OLDER_RECORDS = 50_000
"""The maximum number of records that are read although their timestamps are too old, in case a clock was changed."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a lookup. `not_found` means that the topic was read to its end; the record may still arrive later.

    `records_read` is the number of records read, and `text` is the result as a sentence. `transient` means that a later
    lookup may succeed, because a broker was unavailable or an end was not reached in time; in the second case `timed_out`
    is set too. `unread` lists partitions
    where records with older timestamps were not read: clocks can be changed, so their absence is not proven.
    """

    outcome: Outcome
    partition: int | None
    offset: int | None
    records_read: int
    text: str
    transient: bool = False
    unread: frozenset[int] = frozenset()
    timed_out: bool = False


def probe(
    config: Mapping[str, Any],
    topic: str,
    partition: int | None,
    message_id: str,
    *,
    since_ms: int | None = None,
    timeout: float = 10.0,
    max_records: int = 200_000,
) -> ProbeResult:
    """Look up one record, in all partitions if `partition` is None."""
    found = find_records(
        config,
        topic,
        [message_id],
        partition=partition,
        since_ms=since_ms,
        timeout=timeout,
        max_records=max_records,
    )
    return found[message_id]


def find_records(
    config: Mapping[str, Any],
    topic: str,
    message_ids: Iterable[str],
    *,
    partition: int | None = None,
    since_ms: int | None = None,
    floors: Mapping[int, int] | None = None,
    timeout: float = 10.0,
    max_records: int = 200_000,
    bulk: BulkLookup | None = None,
) -> dict[str, ProbeResult]:
    """Look up several records of one topic in one pass.

    `config` has a client's settings in librdkafka's names; only connection and security are used. `since_ms` is the
    oldest timestamp that the records can have. Reading starts there, and older records are also read if they are few;
    None reads from the first record. `floors` are offsets by partition that were acknowledged before any of the records
    was accepted, so the records can only be above them. A large range is read by `bulk`, without a time limit or a limit
    on its size.

    A broker's response never raises an exception. A missing permission, an open transaction or a timeout makes the result
    `inconclusive`, and so does a log that ends below a floor, because acknowledged records are missing.
    """
    wanted = set(message_ids)
    search = _Search(wanted, deadline=time.monotonic() + timeout, max_records=max_records, bulk=bulk)
    if wanted:
        try:
            _search(search, config, topic, partition, since_ms, floors or {})
        except KafkaException as error:
            if not search.problem and _is_transient(error.args[0]):
                search.connection_error = _describe_error(error.args[0], topic)
            else:
                search.problem = search.problem or _describe_error(error.args[0], topic)
    return {message_id: search.result_of(message_id, topic) for message_id in wanted}


@dataclass
class _Range:
    """The part of a partition that must be read: from `start` up to but not including `end`."""

    start: int
    end: int
    low: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


@dataclass
class _Search:
    """A lookup in progress."""

    wanted: set[str]
    deadline: float
    max_records: int
    bulk: BulkLookup | None = None
    found: dict[str, tuple[int, int]] = field(default_factory=dict)
    records_read: int = 0
    complete: bool = False
    problem: str = ""
    unread: frozenset[int] = frozenset()  # partitions where older records were not read
    removed: str = ""  # retention removed records that could include the wanted ones
    connection_error: str = ""

    def remaining(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def all_found(self) -> bool:
        return len(self.found) == len(self.wanted)

    def result_of(self, message_id: str, topic: str) -> ProbeResult:
        if message_id in self.found:
            partition, offset = self.found[message_id]
            text = f"The record is on {topic}, partition {partition}, at offset {offset}."
            return ProbeResult("found", partition, offset, self.records_read, text)
        if self.complete:
            text = f"The record is not on {topic}: the topic was read to its end ({plural(self.records_read, 'record')})."
            if self.unread:
                text = (
                    f"The record is not on {topic} according to timestamps: {_were(self.records_read)} read; "
                    "older ones were not."
                )
            return ProbeResult("not_found", None, None, self.records_read, text, unread=self.unread)
        reason = (
            self.problem
            or self.removed
            or self.connection_error
            or f"the end of {topic} was not reached in time"
        )
        text = f"The outcome is still unknown: {reason} ({_were(self.records_read)} read)."
        transient = not (self.problem or self.removed)
        timed_out = transient and not self.connection_error
        return ProbeResult(
            "inconclusive", None, None, self.records_read, text, transient, timed_out=timed_out
        )


def _search(
    search: _Search,
    config: Mapping[str, Any],
    topic: str,
    partition: int | None,
    since_ms: int | None,
    floors: Mapping[int, int],
) -> None:
    ranges = _ranges(search, config, topic, partition, since_ms, floors)
    if ranges is None:
        return
    if not _read_all(search, config, topic, ranges):
        return
    search.complete = True
    if since_ms is None or search.all_found():
        return
    by_time = {number: span for number, span in ranges.items() if number not in (floors or {})}
    read = _read_older(search, config, topic, by_time)
    search.unread = frozenset(
        number for number, span in by_time.items() if span.low or not (read or span.start == span.low)
    )


def _read_older(search: _Search, config: Mapping[str, Any], topic: str, ranges: Mapping[int, _Range]) -> bool:
    """Read the records before these ranges if they are few. Return whether they were read."""
    older = {number: _Range(span.low, span.start, span.low) for number, span in ranges.items()}
    return sum(span.size for span in older.values()) <= _MAX_OLDER_RECORDS and _read_all(
        search, config, topic, older
    )


def _read_all(search: _Search, config: Mapping[str, Any], topic: str, ranges: Mapping[int, _Range]) -> bool:
    """Read these ranges. Return whether all of them were read."""
    waiting = {number: span for number, span in ranges.items() if span.size}
    if search.bulk is not None and sum(span.size for span in waiting.values()) > BULK_THRESHOLD:
        _read_bulk(search, search.bulk, config, topic, waiting)
    elif waiting:
        with _consumer(search, config, {}) as consumer:
            consumer.assign([TopicPartition(topic, number, span.start) for number, span in waiting.items()])
            _read(search, consumer, topic, waiting)
    return not waiting and not search.problem and not search.removed


def _ranges(
    search: _Search,
    config: Mapping[str, Any],
    topic: str,
    partition: int | None,
    since_ms: int | None,
    floors: Mapping[int, int],
) -> dict[int, _Range] | None:
    """Return the range to read in each partition, up to its true high watermark; None if it cannot be determined."""
    with _consumer(search, config, {"isolation.level": "read_uncommitted"}) as handle:
        numbers = _partitions(search, handle, topic, partition)
        if numbers is None:
            return None
        ranges = {}
        for number in numbers:
            partition_id = TopicPartition(topic, number)
            low, high = handle.get_watermark_offsets(
                partition_id, timeout=_request_timeout(search), cached=False
            )
            lower_bound = floors.get(number, -1)
            if lower_bound >= high:
                search.problem = (
                    f"partition {number} ends at {high}, below the acknowledged offset {lower_bound}"
                )
                return None
            ranges[number] = _Range(max(low, lower_bound + 1), high, low)
            if number in floors and low > lower_bound + 1:
                search.removed = _removed_text(topic, number, low)
        if since_ms is not None:
            unknown = {number: span for number, span in ranges.items() if number not in floors}
            _skip_older(search, handle, topic, unknown, since_ms)
            if time.time() - since_ms / 1000 > RETENTION_INTERVAL_S:
                _check_retention(search, handle, topic, unknown, since_ms)
        return ranges


def _partitions(search: _Search, handle: Consumer, topic: str, partition: int | None) -> list[int] | None:
    described = handle.list_topics(topic, timeout=_request_timeout(search)).topics[topic]
    if described.error is not None:
        search.problem = _describe_error(described.error, topic)
        return None
    if partition is None:
        return sorted(described.partitions)
    if partition not in described.partitions:
        search.problem = f"{topic} has no partition {partition}"
        return None
    return [partition]


def _skip_older(
    search: _Search, handle: Consumer, topic: str, ranges: Mapping[int, _Range], since_ms: int
) -> None:
    """Move each start to the first record since `since_ms`, minus the clock skew."""
    moment = max(0, since_ms - int(CLOCK_SKEW_S * 1000))
    requested = [TopicPartition(topic, number, moment) for number, span in ranges.items() if span.size]
    if not requested:
        return
    for result_of in handle.offsets_for_times(requested, timeout=_request_timeout(search)):
        if result_of.error is not None:
            raise KafkaException(result_of.error)
        span = ranges[result_of.partition]
        if result_of.offset >= 0:
            span.start = max(span.low, result_of.offset)
        else:
            span.start = max(span.low, span.end - _MAX_OLDER_RECORDS)  # the broker may have no time index


def _check_retention(
    search: _Search, handle: Consumer, topic: str, ranges: Mapping[int, _Range], since_ms: int
) -> None:
    """Check whether retention may have removed the records: the log is truncated and its first record is as recent."""
    truncated = {number: span for number, span in ranges.items() if span.start == span.low > 0}
    for number, span in truncated.items():
        if not span.size:
            search.removed = _removed_text(topic, number, span.low)
    requested = [
        TopicPartition(topic, number, max(0, since_ms)) for number, span in truncated.items() if span.size
    ]
    for result_of in (
        handle.offsets_for_times(requested, timeout=_request_timeout(search)) if requested else ()
    ):
        if result_of.error is None and result_of.offset == truncated[result_of.partition].low:
            search.removed = _removed_text(topic, result_of.partition, result_of.offset)


def _were(records: int) -> str:
    return plural(records, "record was", "records were")


def _removed_text(topic: str, partition: int, low: int) -> str:
    return f"partition {partition} of {topic} now starts at offset {low}, and the removed part may have contained the record"


def _read(search: _Search, consumer: Consumer, topic: str, waiting: dict[int, _Range]) -> None:
    """Read until all ranges are complete (removed from `waiting`), all records are found, or a limit is reached."""
    while waiting and not search.all_found() and search.remaining() > 0:
        for message in consumer.consume(500, timeout=min(0.2, search.remaining())):
            number = message.partition()
            span = waiting.get(number)
            if (error := message.error()) is not None and error.code() != KafkaError._PARTITION_EOF:
                _on_error(search, error, topic)
            elif span is None:
                continue
            elif error is not None:
                # Only an end at or above the watermark counts: an open transaction causes an earlier one.
                if message.offset() >= span.end:
                    del waiting[number]
            else:
                _match_record(search, message, number)
                if message.offset() >= span.end - 1:
                    del waiting[number]
        if search.records_read >= search.max_records and waiting:
            remaining = sum(span.size for span in waiting.values())
            search.problem = (
                search.problem
                or f"the limit of {search.max_records:,} records was reached, and {_were(remaining)} not read"
            )
        if search.problem:
            return


def _read_bulk(
    search: _Search, bulk: BulkLookup, config: Mapping[str, Any], topic: str, waiting: dict[int, _Range]
) -> None:
    """Read all ranges at once, as soon as no open transaction hides a part of them."""
    with _consumer(search, config, {"isolation.level": "read_committed"}) as handle:
        for number, span in waiting.items():
            while True:
                _, stable_offset = handle.get_watermark_offsets(
                    TopicPartition(topic, number), timeout=_request_timeout(search), cached=False
                )
                if stable_offset >= span.end:
                    break
                if not search.remaining():
                    search.connection_error = f"a transaction is open on partition {number} of {topic}"
                    return
                handle.poll(0.1)
    spans = {number: (span.start, span.end) for number, span in waiting.items()}
    search.found |= bulk(topic, spans, search.wanted)
    search.records_read += sum(end - start for start, end in spans.values())
    waiting.clear()


def _match_record(search: _Search, message: Any, partition: int) -> None:
    search.records_read += 1
    raw = record_id(message.headers())
    if raw is not None and (text := id_text(raw)) in search.wanted:
        search.found.setdefault(text, (partition, message.offset()))


def _on_error(search: _Search, error: KafkaError, topic: str) -> None:
    """Record an error while reading. A missing permission ends the lookup; an unavailable broker may return in time."""
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        search.problem = _describe_error(error, topic)
    else:
        search.connection_error = _describe_error(error, topic)


_UNAVAILABLE = (
    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._DESTROY_BROKER,
)  # fmt: skip


def _is_transient(error: KafkaError) -> bool:
    """Return whether the error disappears when the brokers are available again."""
    return error.retriable() or error.code() in _UNAVAILABLE


def _describe_error(error: KafkaError, topic: str) -> str:
    match error.code():
        case KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return f"no permission to read {topic} (grant READ and DESCRIBE on the topic)"
        case KafkaError.GROUP_AUTHORIZATION_FAILED:
            return "no permission to read with this group (grant READ on the group `producer-core-landing*`)"
        case KafkaError.UNKNOWN_TOPIC_OR_PART | KafkaError._UNKNOWN_TOPIC:
            return f"the topic {topic} does not exist"
    return f"{error.name()}: {error.str()}"


def _request_timeout(search: _Search) -> float:
    """Return the timeout of one request, never 0, because librdkafka treats 0 as unlimited."""
    return max(0.05, search.remaining())


def _consumer(
    search: _Search, config: Mapping[str, Any], changes: Mapping[str, Any]
) -> AbstractContextManager[Consumer]:
    def on_error(error: KafkaError) -> None:
        search.connection_error = f"{error.name()}: {error.str()}"

    return reader(config, changes, name="landing", on_error=on_error)


Prober = Callable[[str, Iterable[str], int | None], dict[str, ProbeResult]]
"""A function (topic, message ids, oldest timestamp in ms) that returns the result for each id."""


def prober(
    config: Mapping[str, Any],
    *,
    timeout: float = 30.0,
    max_records: int = 2_000_000,
    bulk: BulkLookup | None = None,
) -> Prober:
    """Return `find_records` for one client's settings, as replays use it."""

    def find(topic: str, message_ids: Iterable[str], since_ms: int | None) -> dict[str, ProbeResult]:
        return find_records(
            config, topic, message_ids, since_ms=since_ms, timeout=timeout, max_records=max_records, bulk=bulk
        )

    return find
