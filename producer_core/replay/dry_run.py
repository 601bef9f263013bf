"""The dry run: what a replay would do, counted before anything is sent, and said worst first."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from producer_core.delivery.prober import QUIET_PERIOD_S
from producer_core.events import SAFE_VERDICTS
from producer_core.replay.active_cause import still_active
from producer_core.replay.broker_check import BrokerCheck, TopicCheck
from producer_core.replay.guarantee import UNKNOWN, ReplayGuarantee, beforehand
from producer_core.replay.selection_counts import SelectionRow, main_cluster, of_operation, of_selection

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.replay.operation import Inconclusive, Newer, Operation
    from producer_core.store import Store


class PartitionCount(NamedTuple):
    """How many records ask for a partition; None: the key or the client chooses."""

    topic: str
    partition: int | None
    records: int


@dataclass(frozen=True, slots=True)
class DoubtfulCounts:
    """Records that may be on their topic already, and what will be done about each."""

    count: int = 0
    possibly_persisted: int = 0
    inconclusive: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class DryRun:
    """`total` records would be replayed; what is left out (`quarantined`, `not_replayable`, `other_cluster`, and what
    somebody `changed` since it was planned: archived, or replayed in another way) is not in it.

    `seconds` is the time at the rate, None where no rate bounds it. `check` is what a runner found on the topics,
    None when nobody has looked. `skipped_newer` of the records with a newer key are left out, as `newer` says.
    `active` says why the cause of these dead letters may still be there; empty where nothing speaks for it. `promise` is how
    it would be delivered. `sentences` are each one thing that an operator must know, the worst first.
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
    active: str = ""
    promise: ReplayGuarantee = UNKNOWN
    inconclusive: Inconclusive = "keep"

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
        """Nothing that a person should decide about: every verdict is safe, and the topics take all of it."""
        return self.safe_but_doubtful and not self.doubtful.count

    @property
    def safe_but_doubtful(self) -> bool:
        """The same, but for dead letters that may be on their topic already and are looked for there first."""
        known = self.check is not None and self.check.complete
        return known and not (self.too_large or self.newer_keys or self.no_topic or self.lost_partitions)

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        facts = [("records", self.total), ("bytes", self.bytes)]
        facts += [(f"on {topic}", count) for topic, count in self.by_topic.items()]
        facts += [(verdict.replace("_", " "), count) for verdict, count in self.by_verdict.items()]
        return html.page("A replay would", facts=facts[:12], lines=self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
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
    clock: Callable[[], float] = time.time,
) -> DryRun:
    """What a replay of the selection would do if it were planned now, or what this `operation` would still do.

    The counts come from the store at once. The `check` is the operation's, when a runner has looked; or one that
    the caller made. `cluster` is where it would be sent to (None: where most of the dead letters come from); `to_cluster`
    takes dead letters of whatever cluster there.
    """
    counted = (
        of_operation(store, operation)
        if operation
        else of_selection(store, selection, limit, allow_quarantined, cluster, anywhere=bool(to_cluster))
    )
    if check is None and operation is not None and operation.checked:
        check = BrokerCheck.from_json(operation.checked)
    speed = rate or (operation.rate if operation else None)
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
        seconds=total / speed if speed else None,
        check=check,
        newer=mode,
        skipped_newer=_sum(check, lambda topic: topic.newer_keys if skips(mode, topic) else 0),
        sentences=(),
        inconclusive="send" if sends else "keep",
        changed=left["changed"],
        active=still_active(store, selection, clock(), operation=operation) if total else "",
        promise=promised(operation, check, cluster or ("" if operation else main_cluster(store, selection))),
    )
    return dataclasses.replace(run, sentences=tuple(_sentences(run)))


def promised(operation: Operation | None, check: BrokerCheck | None, cluster: str = "") -> ReplayGuarantee:
    """How it is delivered, and why not exactly once: what was decided, else what a look ahead found, else what the name
    of the cluster says. One answer for every place where it is told."""
    seen = ReplayGuarantee(check.delivery, check.why) if check and check.delivery else UNKNOWN  # type: ignore[arg-type]  # written by us
    named = beforehand(operation.cluster_id if operation else cluster)
    likely = seen if seen.delivery else named
    if operation is None or operation.delivery is None:
        return likely
    return likely if likely.delivery == operation.delivery else ReplayGuarantee(operation.delivery)  # type: ignore[arg-type]


def skips(newer: Newer, topic: TopicCheck) -> bool:
    """Whether records of this topic whose key has a newer record are left out."""
    return newer == "skip" or (newer == "auto" and topic.may_be_compacted)


def _by(rows: Iterable[SelectionRow], what: Callable[[SelectionRow], str]) -> dict[str, int]:
    """Counts by something, most first."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts[what(row)] += row.records
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def _partitions(rows: Iterable[SelectionRow]) -> tuple[PartitionCount, ...]:
    counts: Counter[tuple[str, int | None]] = Counter()
    for row in rows:
        counts[row.topic, row.partition] += row.records
    ordered = sorted(counts.items(), key=lambda one: (one[0][0], -1 if one[0][1] is None else one[0][1]))
    return tuple(PartitionCount(topic, partition, count) for (topic, partition), count in ordered)


def _doubtful(rows: Iterable[SelectionRow], sends: bool) -> DoubtfulCounts:
    verdicts = _by(rows, lambda row: row.verdict)
    again = verdicts.get("inconclusive", 0)
    first = sum(count for verdict, count in verdicts.items() if verdict not in SAFE_VERDICTS) - again
    return DoubtfulCounts(first + again, first, again, " ".join(_what_is_done(first, again, sends)))


def _what_is_done(first: int, again: int, sends: bool) -> Iterator[str]:
    """About records that may be on their topic: those not looked for yet, and those looked for in vain."""
    if not first + again:
        return
    found = "What is found is settled as landed and not sent."
    if first:
        yield (
            f"{_records(first)} may be on {_its(first)} topic already: the replay looks for {_them(first)} there first. {found}"
        )
    if again:
        yield f"{_records(again)} {_were(again)} looked for before and not found: the replay looks once more."
    if sends:
        yield "What is not found is sent anyway, as you chose: a late request of it may still arrive as a second copy."
    else:
        yield (
            "What is not found stays a dead letter, because a late request of it may still arrive. Choose to send it anyway "
            "if a second copy does no harm, or if readers drop copies by message id."
        )
    if first:
        yield f"A record that failed less than {QUIET_PERIOD_S:.0f} s ago waits until then: late requests usually arrive by then."


def _mode(operation: Operation | None) -> Newer:
    match operation.newer if operation else None:
        case "skip":
            return "skip"
        case "send":
            return "send"
    return "auto"


def _sum(check: BrokerCheck | None, what: Callable[[TopicCheck], int]) -> int:
    return sum(what(topic) for topic in check.topics) if check else 0


def _sentences(run: DryRun) -> Iterator[str]:
    """Worst first: what would be lost or fail, what may arrive twice, what is left out, what nobody knows."""
    if run.total:
        yield from _found(run)
        if run.active:
            yield run.active
        yield from _what_is_done(
            run.doubtful.possibly_persisted, run.doubtful.inconclusive, run.inconclusive == "send"
        )
    else:
        yield "Nothing to replay."
    yield from _left_out(run)
    if run.total:
        yield from _unknown(run)
        yield delivery(run.promise)
        if not run.doubtful.count:
            yield "No broker has any of them: of the attempts so far nothing can arrive twice."


def _found(run: DryRun) -> Iterator[str]:
    topics = run.check.topics if run.check else ()
    for topic in topics:
        if topic.newer_keys and topic.compacted and not skips(run.newer, topic):
            yield (
                f"{_records(topic.newer_keys)} of {topic.topic} will replace a newer record of the same key for good: "
                "the topic is compacted. Skip them unless the old values are the right ones."
            )
    for topic in topics:
        if topic.partitions is None:
            yield f"{_records(topic.records)} cannot be sent: there is no topic {topic.topic}. They stay dead letters."
    for topic in topics:
        if topic.lost_partitions:
            yield (
                f"{_records(topic.lost_partitions)} will fail again: {topic.topic} does not have the partition asked for "
                f"(it has {topic.partitions})."
            )
    for topic in topics:
        if topic.too_large:
            yield (
                f"{_records(topic.too_large)} of {topic.topic} will probably fail again: larger than what it takes"
                f"{_bytes(topic.max_message_bytes)}, unless compression makes them small enough."
            )
    yield from _newer(run, topics)


def _newer(run: DryRun, topics: Iterable[TopicCheck]) -> Iterator[str]:
    for topic in topics:
        if topic.newer_keys and skips(run.newer, topic):
            stay = "It stays a dead letter" if topic.newer_keys == 1 else "They stay dead letters"
            yield (
                f"{_records(topic.newer_keys)} of {topic.topic} will be skipped: a newer record of the same key is "
                f"there{_compaction(topic)}. {stay}, and can be sent all the same."
            )
        elif topic.newer_keys and not topic.compacted:
            yield (
                f"{_records(topic.newer_keys)} of {topic.topic} {_have(topic.newer_keys)} a key for which a newer record "
                f"was written since: who reads the topic will see the old value last{_compaction(topic)}. "
                f"{_they(topic.newer_keys)} can be skipped."
            )


def _compaction(topic: TopicCheck) -> str:
    """What becomes of a newer record under an old value; a topic whose settings nobody could read may be compacted."""
    if topic.compacted:
        return ", and the topic is compacted: the old value would replace it for good"
    if topic.cleanup_policy is None:
        return ", and nobody can tell whether the topic is compacted: if it is, the old value would replace it for good"
    return ""


def _left_out(run: DryRun) -> Iterator[str]:
    if run.changed:
        yield f"{_records(run.changed)} {_are(run.changed)} left out: somebody archived or replayed {_them(run.changed)} since this was planned."
    if run.not_replayable:
        yield f"{_records(run.not_replayable)} never became a message and {_are(run.not_replayable)} left out: mend them at their source."
    if run.quarantined:
        yield f"{_records(run.quarantined)} {_are(run.quarantined)} left out: quarantined, for they failed again and again."
    if run.other_cluster:
        yield f"{_records(run.other_cluster)} {_are(run.other_cluster)} left out: they come from another cluster."


def _unknown(run: DryRun) -> Iterator[str]:
    if run.check is not None and run.check.stopped and not run.check.topics:
        yield f"Nobody could look at the topics, for sizes, topics that are gone and newer keys: {run.check.why}."
        return
    if run.check is None:
        yield (
            "Nobody has looked at the topics yet: sizes, topics that are gone and newer keys are looked up before the "
            "first record is sent."
        )
        return
    for topic in run.check.topics:
        if topic.partitions is not None and (not topic.complete or topic.max_message_bytes is None):
            yield topic.text if topic.topic in topic.text else f"{topic.topic}: {topic.text}"


def delivery(promise: ReplayGuarantee) -> str:
    """The guarantee in a sentence, with its reason."""
    twice = "where an acknowledgement is lost a record may arrive twice; those are listed by id."
    copies = "readers that are not read_committed may see copies of an attempt that was aborted."
    match promise.delivery:
        case "at_least_once":
            because = f", because {promise.why}" if promise.why else ""
            return f"Sent at least once{because}: {twice}"
        case "exactly_once":
            return f"Sent exactly once: {copies}"
    return (
        "Sent exactly once where the cluster and the permissions allow it, else at least once; the look ahead says "
        f"which. With exactly once {copies}"
    )


def _bytes(limit: int | None) -> str:
    return "" if limit is None else f" ({limit:,} bytes)"


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


def _its(count: int) -> str:
    return "its" if count == 1 else "their"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def _they(count: int) -> str:
    return "It" if count == 1 else "They"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"
