"""Count what a replay would do before it sends anything, and describe it, most serious point first."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from producer_core._internal.plural import them
from producer_core.delivery.prober import QUIET_PERIOD_S
from producer_core.events import SAFE_VERDICTS
from producer_core.replay.active_cause import still_active
from producer_core.replay.broker_check import BrokerCheck, TopicCheck
from producer_core.replay.guarantee import UNKNOWN, ReplayGuarantee, guarantee_from_cluster_id
from producer_core.replay.phrases import (
    OTHER_CLUSTER,
    inconclusive_fact,
    records,
    stay_dead_letters,
)
from producer_core.replay.schema_versions import NO_SCHEMAS, SchemaVersions
from producer_core.replay.selection_counts import (
    SelectionRow,
    count_operation,
    count_selection,
    main_cluster,
)

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.replay.operation import Inconclusive, Newer, Operation
    from producer_core.store import Store


class PartitionCount(NamedTuple):
    """Number of records that request a partition; None means that the key or the client chooses it."""

    topic: str
    partition: int | None
    records: int


@dataclass(frozen=True, slots=True)
class DoubtfulCounts:
    """Records that may already be on their topic, and how the replay handles them."""

    count: int = 0
    possibly_persisted: int = 0
    inconclusive: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class DryRun:
    """Preview of a replay: `total` records would be sent.

    `total` excludes the records left out: `quarantined`, `not_replayable`, `other_cluster`, `unknown_cluster`
    (possibly on a topic of an unknown cluster) and `changed` (archived or replayed after the plan). `seconds` is
    the duration at the rate limit, None without a limit. `check` holds the result of the preflight check, None
    before it ran. `skipped_newer` records are left out because of a newer record with the same key, as `newer`
    says, `skipped_doubtful` of the records that are not sent may already be on their topic. `active` explains why the cause of these dead letters may still be active, empty without evidence.
    `promise` is the delivery guarantee. `schemas` holds the records that were written with older schemas. `sentences` hold one fact each for the operator, most serious first.
    """

    total: int
    bytes: int
    by_topic: Mapping[str, int]
    by_verdict: Mapping[str, int]
    by_partition: tuple[PartitionCount, ...]
    quarantined: int
    not_replayable: int
    other_cluster: int
    doubtful: DoubtfulCounts
    seconds: float | None
    check: BrokerCheck | None
    newer: Newer
    skipped_newer: int
    sentences: tuple[str, ...]
    changed: int = 0
    unknown_cluster: int = 0
    active: str = ""
    promise: ReplayGuarantee = UNKNOWN
    inconclusive: Inconclusive = "keep"
    schemas: SchemaVersions = NO_SCHEMAS
    skipped_doubtful: int = 0

    @property
    def to_send(self) -> int:
        """Return the number of records that are sent without a search on their topic."""
        return max(0, self.total - self.skipped_newer - self.no_topic - self.in_doubt)

    @property
    def to_skip(self) -> int:
        """Return the number of selected records that remain dead letters without a search on their topic."""
        left_out = self.quarantined + self.not_replayable + self.other_cluster + self.unknown_cluster
        return self.skipped_newer + self.no_topic + left_out + self.changed

    @property
    def in_doubt(self) -> int:
        """Return the number of records that may already be on their topic, which is searched first."""
        return max(0, self.doubtful.count - self.skipped_doubtful)

    @property
    def too_large(self) -> int:
        return _sum(self.check, lambda topic: topic.too_large)

    @property
    def newer_keys(self) -> int:
        return _sum(self.check, lambda topic: topic.newer_keys)

    @property
    def no_topic(self) -> int:
        return _sum(self.check, lambda topic: topic.records if topic.partitions is None else 0)

    @property
    def lost_partitions(self) -> int:
        return _sum(self.check, lambda topic: topic.lost_partitions)

    @property
    def safe(self) -> bool:
        """Return True if no decision is needed: every verdict is safe and the topics accept all records."""
        return self.safe_but_doubtful and not self.doubtful.count

    @property
    def safe_but_doubtful(self) -> bool:
        """Return True if only records that may already be on their topic keep the replay from being safe."""
        known = self.check is not None and self.check.complete
        return known and not (self.too_large or self.newer_keys or self.no_topic or self.lost_partitions)

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        facts = [("records", self.total), ("bytes", self.bytes)]
        facts += [(f"on {topic}", count) for topic, count in self.by_topic.items()]
        facts += [(verdict.replace("_", " "), count) for verdict, count in self.by_verdict.items()]
        return html.page("Replay preview", facts=facts[:12], lines=self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """Return the preview as JSON-compatible values."""
        counts = ("too_large", "newer_keys", "no_topic", "safe")
        found = dataclasses.asdict(self) | {name: getattr(self, name) for name in counts}
        found["by_partition"] = [each._asdict() for each in self.by_partition]
        return found


def dry_run(
    store: Store,
    selection: DeadLetterFilter,
    *,
    rate: float | None = None,
    limit: int | None = None,
    operation: Operation | None = None,
    allow_quarantined: bool = False,
    cluster: str | None = None,
    to_cluster: str | None = None,
    newer: Newer | None = None,
    inconclusive: Inconclusive | None = None,
    check: BrokerCheck | None = None,
    schemas: SchemaVersions = NO_SCHEMAS,
    clock: Callable[[], float] = time.time,
) -> DryRun:
    """Return what a replay of the selection would do now, or what `operation` has still to do.

    The counts come from the store only. `schemas` is the result of `schema_versions`. `check` defaults to the operation's own preflight check. `cluster` is the
    destination (None: the cluster that most of the dead letters come from); with `to_cluster` dead letters of every
    cluster go there.
    """
    counted = (
        count_operation(store, operation)
        if operation
        else count_selection(store, selection, limit, allow_quarantined, cluster, anywhere=bool(to_cluster))
    )
    if check is None and operation is not None and operation.checked:
        check = BrokerCheck.from_json(operation.checked)
    effective_rate = rate or (operation.rate if operation else None)
    mode: Newer = newer or _mode(operation)
    sends = inconclusive == "send" or (
        inconclusive is None and operation is not None and operation.sends_inconclusive
    )
    sent, left = counted
    total = sum(row.records for row in sent)
    run = DryRun(
        total=total,
        bytes=sum(row.bytes for row in sent),
        by_topic=_by(sent, lambda row: row.topic),
        by_verdict=_by(sent, lambda row: row.verdict),
        by_partition=_partitions(sent),
        quarantined=left["quarantined"],
        not_replayable=left["not_replayable"],
        other_cluster=left["other_cluster"],
        doubtful=_doubtful(sent, sends),
        seconds=total / effective_rate if effective_rate else None,
        check=check,
        newer=mode,
        skipped_newer=_sum(check, lambda topic: topic.newer_keys if skips(mode, topic) else 0),
        skipped_doubtful=_skipped_doubtful(sent, check, mode),
        sentences=(),
        schemas=schemas,
        inconclusive="send" if sends else "keep",
        changed=left["changed"],
        unknown_cluster=left["unknown_cluster"],
        active=still_active(store, selection, clock(), operation=operation) if total else "",
        promise=expected_guarantee(
            operation, check, cluster or ("" if operation else main_cluster(store, selection))
        ),
    )
    return dataclasses.replace(run, sentences=tuple(_sentences(run)))


def expected_guarantee(
    operation: Operation | None, check: BrokerCheck | None, cluster: str = ""
) -> ReplayGuarantee:
    """Return the delivery guarantee, with the reason if it is not exactly once.

    The operation's own decision comes first, then the preflight check, then the cluster id.
    """
    by_check = ReplayGuarantee(check.delivery, check.why) if check and check.delivery else UNKNOWN  # type: ignore[arg-type]  # written by us
    by_cluster_id = guarantee_from_cluster_id(operation.cluster_id if operation else cluster)
    likely = by_check if by_check.delivery else by_cluster_id
    if operation is None or operation.delivery is None:
        return likely
    return likely if likely.delivery == operation.delivery else ReplayGuarantee(operation.delivery)  # type: ignore[arg-type]


def skips(newer: Newer, topic: TopicCheck) -> bool:
    """Return whether the replay leaves out records of this topic whose key has a newer record."""
    return newer == "skip" or (newer == "auto" and topic.may_be_compacted)


def _by(rows: Iterable[SelectionRow], group: Callable[[SelectionRow], str]) -> dict[str, int]:
    """Count the records of each group, largest group first."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts[group(row)] += row.records
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _partitions(rows: Iterable[SelectionRow]) -> tuple[PartitionCount, ...]:
    counts: Counter[tuple[str, int | None]] = Counter()
    for row in rows:
        counts[row.topic, row.partition] += row.records
    ordered = sorted(counts.items(), key=lambda item: (item[0][0], -1 if item[0][1] is None else item[0][1]))
    return tuple(PartitionCount(topic, partition, count) for (topic, partition), count in ordered)


def _doubtful(rows: Iterable[SelectionRow], sends: bool) -> DoubtfulCounts:
    verdicts = _by(rows, lambda row: row.verdict)
    inconclusive = verdicts.get("inconclusive", 0)
    unsearched = (
        sum(count for verdict, count in verdicts.items() if verdict not in SAFE_VERDICTS) - inconclusive
    )
    return DoubtfulCounts(
        unsearched + inconclusive,
        unsearched,
        inconclusive,
        " ".join(_doubtful_sentences(unsearched, inconclusive, sends)),
    )


def _doubtful_sentences(unsearched: int, inconclusive: int, sends: bool) -> Iterator[str]:
    """Describe records that may be on their topic: those not searched for yet, and those not found by a search."""
    if not unsearched + inconclusive:
        return
    if unsearched:
        yield (
            f"{inconclusive_fact(unsearched)}: the replay searches for {them(unsearched)} first. "
            "Records that it finds are marked as already on their topic and are not sent."
        )
    if inconclusive:
        yield (
            f"{records(inconclusive)} {_were(inconclusive)} not found by an earlier search: "
            "the replay searches once more."
        )
    if sends:
        yield "Records that it does not find are sent anyway, as you chose: a late request may still write a second copy."
    else:
        yield (
            "Records that it does not find remain dead letters, because a late request may still arrive. Send them anyway "
            "if a duplicate does no harm, or if consumers deduplicate by message id."
        )
    if unsearched:
        yield (
            f"A record that may already be on its topic is sent no earlier than {QUIET_PERIOD_S:.0f} s after it failed, "
            "because late requests usually arrive by then."
        )


def _skipped_doubtful(rows: Iterable[SelectionRow], check: BrokerCheck | None, mode: Newer) -> int:
    """Count the records that may be on their topic among those that are skipped."""
    topics = {topic.topic: topic for topic in check.topics} if check else {}
    return sum(
        row.records
        for row in rows
        if row.verdict not in SAFE_VERDICTS
        and (topic := topics.get(row.topic)) is not None
        and (topic.partitions is None or (row.flag == "newer_key" and skips(mode, topic)))
    )


def _mode(operation: Operation | None) -> Newer:
    match operation.newer if operation else None:
        case "skip":
            return "skip"
        case "send":
            return "send"
    return "auto"


def _sum(check: BrokerCheck | None, count: Callable[[TopicCheck], int]) -> int:
    return sum(count(topic) for topic in check.topics) if check else 0


def _sentences(run: DryRun) -> Iterator[str]:
    """Yield losses and failures first, then possible duplicates, records left out, and unknowns."""
    if run.total:
        yield from _topic_problems(run)
        yield from run.schemas.warnings()
        if run.active:
            yield run.active
        yield from _doubtful_sentences(
            run.doubtful.possibly_persisted, run.doubtful.inconclusive, run.inconclusive == "send"
        )
    else:
        yield "Nothing to replay."
    yield from _left_out(run)
    if run.total:
        yield from _unchecked(run)
        yield delivery(run.promise)
        if not run.doubtful.count:
            yield "No broker has any of these records, so earlier attempts cannot cause duplicates."
        yield from run.schemas.facts()


def _topic_problems(run: DryRun) -> Iterator[str]:
    topics = run.check.topics if run.check else ()
    for topic in topics:
        if topic.newer_keys and topic.compacted and not skips(run.newer, topic):
            yield (
                f"{records(topic.newer_keys)} of {topic.topic} will permanently replace a newer record with the same key: "
                f"the topic is compacted. Skip {them(topic.newer_keys)} unless the old "
                f"{'value is' if topic.newer_keys == 1 else 'values are'} correct."
            )
    for topic in topics:
        if topic.partitions is None:
            yield f"{records(topic.records)} cannot be sent: the topic {topic.topic} does not exist. {stay_dead_letters(topic.records)}."
    for topic in topics:
        if topic.lost_partitions:
            yield (
                f"{records(topic.lost_partitions)} will fail again: {topic.topic} does not have the requested partition "
                f"(it has {topic.partitions})."
            )
    for topic in topics:
        if topic.too_large:
            yield (
                f"{records(topic.too_large)} of {topic.topic} will probably fail again: "
                f"{_they(topic.too_large)} {_are(topic.too_large)} larger than the topic allows"
                f"{_bytes(topic.max_message_bytes)}, unless compression makes {them(topic.too_large)} small enough."
            )
    yield from _newer(run, topics)


def _newer(run: DryRun, topics: Iterable[TopicCheck]) -> Iterator[str]:
    for topic in topics:
        if topic.newer_keys and skips(run.newer, topic):
            yield (
                f"{records(topic.newer_keys)} of {topic.topic} will be skipped: the topic has a newer record with the same "
                f"key{_compaction(topic)}. {stay_dead_letters(topic.newer_keys)}; you can choose to send {them(topic.newer_keys)}."
            )
        elif topic.newer_keys and not topic.compacted:
            yield (
                f"{records(topic.newer_keys)} of {topic.topic} {_have(topic.newer_keys)} a newer record with the same key: "
                f"consumers will read the old value last{_compaction(topic)}. You can skip {them(topic.newer_keys)}."
            )


def _compaction(topic: TopicCheck) -> str:
    """Return how the old value affects the newer record; a topic with unreadable settings may be compacted."""
    if topic.compacted:
        return ", and the topic is compacted: the old value would permanently replace it"
    if topic.cleanup_policy is None:
        return ", and its cleanup policy is unknown: on a compacted topic the old value would permanently replace it"
    return ""


def _left_out(run: DryRun) -> Iterator[str]:
    if run.changed:
        yield f"{records(run.changed)} {_are(run.changed)} left out: archived or replayed after this replay was planned."
    if run.not_replayable:
        yield (
            f"{records(run.not_replayable)} {_are(run.not_replayable)} left out because "
            f"{_they(run.not_replayable)} {_were(run.not_replayable)} never sent as {'a message' if run.not_replayable == 1 else 'messages'}. "
            f"Edit {them(run.not_replayable)}, or fix {them(run.not_replayable)} at the source."
        )
    if run.quarantined:
        yield f"{records(run.quarantined)} {_are(run.quarantined)} left out: quarantined after repeated failures."
    if run.other_cluster:
        yield f"{records(run.other_cluster)} {_are(run.other_cluster)} left out: {OTHER_CLUSTER}."
    if run.unknown_cluster:
        yield (
            f"{records(run.unknown_cluster)} {_are(run.unknown_cluster)} left out: possibly on a topic of an unknown cluster. "
            f"To send {them(run.unknown_cluster)}, specify the cluster: `--to CLUSTER`, or to_cluster= in Python."
        )


def _unchecked(run: DryRun) -> Iterator[str]:
    if run.check is not None and run.check.stopped and not run.check.topics:
        yield f"Size limits, missing topics and keys with newer records could not be checked: {run.check.why}."
        return
    if run.check is None:
        yield (
            "The topics have not been checked yet: size limits, missing topics and keys with newer records are checked "
            "before the first record is sent."
        )
        return
    for topic in run.check.topics:
        if topic.partitions is not None and (not topic.complete or topic.max_message_bytes is None):
            yield topic.text if topic.topic in topic.text else f"{topic.topic}: {topic.text}"


def delivery(promise: ReplayGuarantee) -> str:
    """Return the guarantee as a sentence, with its reason."""
    twice = "a record may arrive twice if its acknowledgement is lost; such records are listed by id."
    copies = "consumers that do not use read_committed may see copies from aborted attempts."
    match promise.delivery:
        case "at_least_once":
            because = f", because {promise.why}" if promise.why else ""
            return f"Sent at least once{because}: {twice}"
        case "exactly_once":
            return f"Sent exactly once: {copies}"
    return (
        "Sent exactly once if the cluster and the permissions allow it, otherwise at least once; the preflight check "
        f"says which. With exactly-once delivery, {copies}"
    )


def _bytes(limit: int | None) -> str:
    return "" if limit is None else f" ({limit:,} bytes)"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _they(count: int) -> str:
    return "it" if count == 1 else "they"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"
