"""A look at the end of a topic: did these records land?

The reader is `read_committed`, so what an aborted transaction wrote does not count; how far it must read is
told by a `read_uncommitted` handle, because the other one's watermark stops at an open transaction. Each look
makes a new consumer and assigns at once: a kept one first waits out the fetch it already has running.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from producer_core.kafka.clients import reader
from producer_core.messages import id_text, record_id

Outcome = Literal["found", "not_found", "inconclusive"]

Far = Callable[[str, Mapping[int, tuple[int, int]], set[str]], dict[str, tuple[int, int]]]
"""Reads much, elsewhere: (topic, [start, end) by partition, message ids) to where those are that it found."""

FAR = 500_000
"""Records from which on somebody else reads them, where there is somebody."""

SKEW = 300.0
"""Seconds by which a broker's clock may be behind ours before a record hides from the time index."""

RETENTION = 600.0
"""Seconds before which retention removes no record: brokers look for what is too old every five minutes."""

_OLDER = 50_000
"""Records that are read although they are older than what is looked for, by the clocks: those may have been set."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a look found: `not_found` when the topics were read to the end. That does not prove that it cannot come yet.

    `looked_at` is how many records were read; `text` says it in a sentence. `passing`: a later look may know more,
    because a broker was away or an end was not reached in time. `unread` are partitions where something was not read
    because its timestamps are older: clocks may have been set, so that is no proof.
    """

    outcome: Outcome
    partition: int | None
    offset: int | None
    looked_at: int
    text: str
    passing: bool = False
    unread: frozenset[int] = frozenset()


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
    """Looks for one record; `partition` None looks in all of them."""
    found = look(
        config,
        topic,
        [message_id],
        partition=partition,
        since_ms=since_ms,
        timeout=timeout,
        max_records=max_records,
    )
    return found[message_id]


def look(
    config: Mapping[str, Any],
    topic: str,
    message_ids: Iterable[str],
    *,
    partition: int | None = None,
    since_ms: int | None = None,
    floors: Mapping[int, int] | None = None,
    timeout: float = 10.0,
    max_records: int = 200_000,
    far: Far | None = None,
) -> dict[str, ProbeResult]:
    """Looks for many records of one topic in one pass.

    `config` is a client's settings in librdkafka's names; only connection and security are used. `since_ms`
    is the oldest timestamp the records can carry, by the clocks: reading begins there, and goes back from there
    where that is cheap; None reads from the first record. `floors` are offsets by
    partition that were acknowledged before any of the records was accepted: they can only lie above them.
    Where there is much to read `far` reads it, in its own time and however much it is.
    Never raises for what a broker answers: a missing permission, an open transaction or a time-out makes the
    answer `inconclusive`, and so does a log that ends below a floor (acknowledged records are gone).
    """
    wanted = set(message_ids)
    search = _Search(wanted, deadline=time.monotonic() + timeout, max_records=max_records, far=far)
    if wanted:
        try:
            _search(search, config, topic, partition, since_ms, floors or {})
        except KafkaException as error:
            if not search.trouble and _passes(error.args[0]):
                search.connection = _words(error.args[0], topic)
            else:
                search.trouble = search.trouble or _words(error.args[0], topic)
    return {message_id: search.answer(message_id, topic) for message_id in wanted}


@dataclass
class _Range:
    """The part of a partition that must be read: from `start` up to, not including, `end`."""

    start: int
    end: int
    low: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


@dataclass
class _Search:
    """One look in progress."""

    wanted: set[str]
    deadline: float
    max_records: int
    far: Far | None = None
    found: dict[str, tuple[int, int]] = field(default_factory=dict)
    looked_at: int = 0
    complete: bool = False
    trouble: str = ""
    unread: frozenset[int] = frozenset()  # partitions where what is older was not read
    removed: str = ""  # a part of what could be it was gone before anybody looked
    connection: str = ""

    def left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def settled(self) -> bool:
        return len(self.found) == len(self.wanted)

    def answer(self, message_id: str, topic: str) -> ProbeResult:
        if message_id in self.found:
            partition, offset = self.found[message_id]
            text = f"It is on {topic}, partition {partition}, at offset {offset}."
            return ProbeResult("found", partition, offset, self.looked_at, text)
        if self.complete:
            text = f"It is not on {topic}: {self.looked_at:,} records were read to the end."
            if self.unread:
                text = f"It is not on {topic}, as far as timestamps tell: {self.looked_at:,} records were read, older ones were not."
            return ProbeResult("not_found", None, None, self.looked_at, text, unread=self.unread)
        reason = (
            self.trouble or self.removed or self.connection or f"the end of {topic} was not reached in time"
        )
        text = f"Nobody can say yet: {reason} ({self.looked_at:,} records were read)."
        passing = not (self.trouble or self.removed)
        return ProbeResult("inconclusive", None, None, self.looked_at, text, passing)


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
    if since_ms is None or search.settled():
        return
    by_clock = {number: span for number, span in ranges.items() if number not in (floors or {})}
    read = _read_older(search, config, topic, by_clock)
    search.unread = frozenset(
        number for number, span in by_clock.items() if span.low or not (read or span.start == span.low)
    )


def _read_older(search: _Search, config: Mapping[str, Any], topic: str, ranges: Mapping[int, _Range]) -> bool:
    """Whether what lies before these, by its timestamps, was read as well: it is where it is little."""
    older = {number: _Range(span.low, span.start, span.low) for number, span in ranges.items()}
    return sum(span.size for span in older.values()) <= _OLDER and _read_all(search, config, topic, older)


def _read_all(search: _Search, config: Mapping[str, Any], topic: str, ranges: Mapping[int, _Range]) -> bool:
    """Whether all of these were read."""
    waiting = {number: span for number, span in ranges.items() if span.size}
    if search.far is not None and sum(span.size for span in waiting.values()) > FAR:
        _read_far(search, search.far, config, topic, waiting)
    elif waiting:
        with _consumer(search, config, {}) as consumer:
            consumer.assign([TopicPartition(topic, number, span.start) for number, span in waiting.items()])
            _read(search, consumer, topic, waiting)
    return not waiting and not search.trouble and not search.removed


def _ranges(
    search: _Search,
    config: Mapping[str, Any],
    topic: str,
    partition: int | None,
    since_ms: int | None,
    floors: Mapping[int, int],
) -> dict[int, _Range] | None:
    """What to read in each partition, bounded by the true high watermark; None when it cannot be known."""
    with _consumer(search, config, {"isolation.level": "read_uncommitted"}) as handle:
        numbers = _partitions(search, handle, topic, partition)
        if numbers is None:
            return None
        ranges = {}
        for number in numbers:
            where = TopicPartition(topic, number)
            low, high = handle.get_watermark_offsets(where, timeout=_bound(search), cached=False)
            floor = floors.get(number, -1)
            if floor >= high:
                search.trouble = f"partition {number} ends at {high}, below the acknowledged offset {floor}"
                return None
            ranges[number] = _Range(max(low, floor + 1), high, low)
            if number in floors and low > floor + 1:
                search.removed = _removed(topic, number, low)
        if since_ms is not None:
            unknown = {number: span for number, span in ranges.items() if number not in floors}
            _skip_older(search, handle, topic, unknown, since_ms)
            if time.time() - since_ms / 1000 > RETENTION:
                _look_for_gaps(search, handle, topic, unknown, since_ms)
        return ranges


def _partitions(search: _Search, handle: Consumer, topic: str, partition: int | None) -> list[int] | None:
    described = handle.list_topics(topic, timeout=_bound(search)).topics[topic]
    if described.error is not None:
        search.trouble = _words(described.error, topic)
        return None
    if partition is None:
        return sorted(described.partitions)
    if partition not in described.partitions:
        search.trouble = f"{topic} has no partition {partition}"
        return None
    return [partition]


def _skip_older(
    search: _Search, handle: Consumer, topic: str, ranges: Mapping[int, _Range], since_ms: int
) -> None:
    """Moves each start to the first record as young as `since_ms`, less the clocks' skew."""
    moment = max(0, since_ms - int(SKEW * 1000))
    asked = [TopicPartition(topic, number, moment) for number, span in ranges.items() if span.size]
    if not asked:
        return
    for answer in handle.offsets_for_times(asked, timeout=_bound(search)):
        if answer.error is not None:
            raise KafkaException(answer.error)
        span = ranges[answer.partition]
        if answer.offset >= 0:
            span.start = max(span.low, answer.offset)
        else:
            span.start = max(span.low, span.end - _OLDER)  # or the broker keeps no time index


def _look_for_gaps(
    search: _Search, handle: Consumer, topic: str, ranges: Mapping[int, _Range], since_ms: int
) -> None:
    """Where a log does not begin at 0 and its first record is as young as ours, retention may have taken ours."""
    cut = {number: span for number, span in ranges.items() if span.start == span.low > 0}
    for number, span in cut.items():
        if not span.size:
            search.removed = _removed(topic, number, span.low)
    asked = [TopicPartition(topic, number, max(0, since_ms)) for number, span in cut.items() if span.size]
    for answer in handle.offsets_for_times(asked, timeout=_bound(search)) if asked else ():
        if answer.error is None and answer.offset == cut[answer.partition].low:
            search.removed = _removed(topic, answer.partition, answer.offset)


def _removed(topic: str, partition: int, low: int) -> str:
    return f"partition {partition} of {topic} begins at {low} now, and what was removed could be it"


def _read(search: _Search, consumer: Consumer, topic: str, waiting: dict[int, _Range]) -> None:
    """Reads until every range is done, everything is found, or the bounds are met; done ranges leave `waiting`."""
    while waiting and not search.settled() and search.left() > 0:
        for message in consumer.consume(500, timeout=min(0.2, search.left())):
            number = message.partition()
            span = waiting.get(number)
            if (error := message.error()) is not None and error.code() != KafkaError._PARTITION_EOF:
                _refused(search, error, topic)
            elif span is None:
                continue
            elif error is not None:
                # Only an end at or past the watermark counts: an open transaction makes an earlier one.
                if message.offset() >= span.end:
                    del waiting[number]
            else:
                _match(search, message, number)
                if message.offset() >= span.end - 1:
                    del waiting[number]
        if search.looked_at >= search.max_records and waiting:
            left = sum(span.size for span in waiting.values())
            search.trouble = (
                search.trouble or f"only {search.max_records:,} records are read, and {left:,} could be it"
            )
        if search.trouble:
            return


def _read_far(
    search: _Search, far: Far, config: Mapping[str, Any], topic: str, waiting: dict[int, _Range]
) -> None:
    """Everything at once, as soon as no open transaction hides a part of it."""
    with _consumer(search, config, {"isolation.level": "read_committed"}) as handle:
        for number, span in waiting.items():
            while True:
                _, stable = handle.get_watermark_offsets(
                    TopicPartition(topic, number), timeout=_bound(search), cached=False
                )
                if stable >= span.end:
                    break
                if not search.left():
                    search.connection = f"a transaction is open on partition {number} of {topic}"
                    return
                handle.poll(0.1)
    spans = {number: (span.start, span.end) for number, span in waiting.items()}
    search.found |= far(topic, spans, search.wanted)
    search.looked_at += sum(end - start for start, end in spans.values())
    waiting.clear()


def _match(search: _Search, message: Any, partition: int) -> None:
    search.looked_at += 1
    raw = record_id(message.headers())
    if raw is not None and (text := id_text(raw)) in search.wanted:
        search.found.setdefault(text, (partition, message.offset()))


def _refused(search: _Search, error: KafkaError, topic: str) -> None:
    """An error while reading: a refusal ends the look, a broker that went away may come back in time."""
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        search.trouble = _words(error, topic)
    else:
        search.connection = _words(error, topic)


_AWAY = (
    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._DESTROY_BROKER,
)  # fmt: skip


def _passes(error: KafkaError) -> bool:
    """Whether this is over when the brokers are back."""
    return error.retriable() or error.code() in _AWAY


def _words(error: KafkaError, topic: str) -> str:
    match error.code():
        case KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return f"no permission to read {topic} (grant READ and DESCRIBE on the topic)"
        case KafkaError.GROUP_AUTHORIZATION_FAILED:
            return "no permission to read with this group (grant READ on the group «producer-core-landing*»)"
        case KafkaError.UNKNOWN_TOPIC_OR_PART | KafkaError._UNKNOWN_TOPIC:
            return f"the topic {topic} does not exist"
    return f"{error.name()}: {error.str()}"


def _bound(search: _Search) -> float:
    """Seconds for one question to the broker; never 0, which librdkafka takes for «as long as it lasts»."""
    return max(0.05, search.left())


def _consumer(
    search: _Search, config: Mapping[str, Any], changes: Mapping[str, Any]
) -> AbstractContextManager[Consumer]:
    def heard(error: KafkaError) -> None:
        search.connection = f"{error.name()}: {error.str()}"

    return reader(config, changes, name="landing", on_error=heard)


Prober = Callable[[str, Iterable[str], int | None], dict[str, ProbeResult]]
"""Looks for records of one topic: (topic, message ids, oldest timestamp in ms) to what was found."""


def prober(
    config: Mapping[str, Any],
    *,
    timeout: float = 30.0,
    max_records: int = 2_000_000,
    far: Far | None = None,
) -> Prober:
    """`look` for one client's settings, as a replay needs it."""

    def ask(topic: str, message_ids: Iterable[str], since_ms: int | None) -> dict[str, ProbeResult]:
        return look(
            config, topic, message_ids, since_ms=since_ms, timeout=timeout, max_records=max_records, far=far
        )

    return ask
