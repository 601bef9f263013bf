"""The invariants of a replay: pure functions over the dead letters, the store and the log."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from producer_core.delivery.dead_letter import ORIGINAL_TIMESTAMP
from producer_core.events import SAFE_VERDICTS, DeadLetter
from producer_core.messages import ID_HEADER, parse_id
from producer_core.replay import Operation
from tests.scenarios.faults.invariants import before_smaller
from tests.scenarios.replays.dead_letters import message_id, number_of
from tests.scenarios.replays.reading import Record, as_displayed

DOUBTFUL = ("possibly_persisted", "inconclusive")


@dataclass
class Evidence:
    """Holds the evidence of a run.

    `on_topic`: numbers that were on their topic before the replay. `states`: the row of each dead letter in the store.
    `records`: the states of the operation's records. `doubtful`: the ids that the operation lists as doubtful.
    `exactly_once`: the expected delivery. `claimed_when_paused`: the numbers that a process had claimed when it was paused.
    """

    dead_letters: list[DeadLetter]
    on_topic: frozenset[int]
    log: list[Record]
    states: dict[int, dict[str, Any]]
    records: dict[int, str]
    operation: Operation
    doubtful: set[str] = field(default_factory=set)
    ends: int = 1  # replay_end entries in the audit
    exactly_once: bool = True
    claimed_when_paused: set[int] = field(default_factory=set)

    def __post_init__(self):
        self.counts = Counter(record.number for record in self.log)
        self.state = {number: row["state"] for number, row in self.states.items()}
        self.places = {(record.topic, record.partition, record.offset): record.number for record in self.log}

    def missing(self):
        """Return the numbers that are neither on a topic nor dead letters."""
        return [
            n for n in range(len(self.dead_letters)) if not self.counts[n] and self.state.get(n) != "dead"
        ]

    def duplicated(self):
        return [n for n, count in self.counts.items() if count > 1]


@dataclass(frozen=True)
class Violation:
    invariant: str
    count: int
    text: str


def check(evidence):
    return [violation for invariant in INVARIANTS for violation in invariant(evidence)]


def none_is_lost(e):
    """R1: each message is on its topic or is still a dead letter."""
    yield from _some("R1", e.missing(), "on no topic, and no dead letter")


def none_is_duplicated(e):
    """R2: a read_committed consumer reads each message once.

    With at least once, a duplicate is allowed if the operation lists it as doubtful, or if a paused process had it in its
    client: it sends the message when it resumes, after another process has probed for it.
    """
    duplicated = e.duplicated()
    if not e.exactly_once:
        duplicated = [
            n for n in duplicated if message_id(n) not in e.doubtful and n not in e.claimed_when_paused
        ]
    yield from _some("R2", duplicated, "on their topic more than once")


def states_agree_with_the_log(e):
    """R3: a replayed or landed message is at its stored offset; a dead letter with a safe verdict is not on the topic."""
    wrong = [n for n, state in e.state.items() if state not in ("replayed", "landed", "dead")]
    yield from _some("R3", wrong, "neither replayed, landed nor dead")
    wrong = [
        n
        for n, row in e.states.items()
        if row["state"] in ("replayed", "landed")
        and row["landed_offset"] is not None
        and e.places.get((row["topic"], row["landed_partition"], row["landed_offset"])) != n
    ]
    yield from _some("R3", wrong, "not at the stored offset")
    wrong = [
        n
        for n, row in e.states.items()
        if row["state"] == "dead" and row["verdict"] in SAFE_VERDICTS and e.counts[n]
    ]
    yield from _some("R3", wrong, "a dead letter with a safe verdict, but on its topic")
    wrong = [
        n
        for n, row in e.states.items()
        if row["state"] == "dead" and row["verdict"] in DOUBTFUL and message_id(n) not in e.doubtful
        and e.records.get(n) in ("failed", "skipped")
    ]  # fmt: skip
    yield from _some("R3", wrong, "doubtful, but not listed")


def landed_records_are_not_sent(e):
    """R4: a dead letter that was on its topic before is settled as landed, and not sent again."""
    sent = [n for n in e.on_topic if e.state.get(n) == "replayed"]
    yield from _some("R4", sent, "on the topic before, but sent again")


def records_are_unchanged(e):
    """R5: key, value, requested partition and headers are unchanged; only the id and the original timestamp are added."""
    yield from _some(
        "R5",
        [record.number for record in e.log if not _same(record, e.dead_letters[record.number])],
        "changed",
    )


def _same(record, dead_letter):
    headers = [(ID_HEADER, as_displayed(parse_id(dead_letter.message_id))), *dead_letter.headers]
    first_time = str(dead_letter.timestamp_ms or int(dead_letter.accepted_at * 1000)).encode()
    return (
        (record.topic, record.key, record.value) == (dead_letter.topic, dead_letter.key, dead_letter.value)
        and dead_letter.partition in (None, record.partition)
        and list(record.headers) in (headers, [*headers, (ORIGINAL_TIMESTAMP, first_time)])
    )


def counts_add_up(e):
    """R6: the counts of the operation equal those of its records and of the dead letters."""
    operation, found = e.operation, Counter(e.records.values())
    counts = Counter(
        acknowledged=operation.acknowledged, landed=operation.landed, failed=operation.failed_again,
        skipped=operation.skipped,
    )  # fmt: skip
    if +counts != +found:
        yield Violation("R6", 1, f"operation: {dict(counts)}, records: {dict(found)}")
    if operation.total != len(e.records) or operation.left:
        yield Violation("R6", 1, f"total {operation.total}, {len(e.records)} records, {operation.left} left")
    states = Counter(e.state.values())
    if (states["replayed"], states["landed"]) != (operation.acknowledged, operation.landed):
        yield Violation("R6", 1, f"operation: {dict(counts)}, dead letters: {dict(states)}")
    if e.ends != 1:
        yield Violation("R6", 1, f"the audit has {e.ends} replay_end entries")


def order_is_kept(e):
    """R7: the replayed messages of a key are on their partition in the order of acceptance."""
    if e.exactly_once:
        yield from _some("R7", sorted(overtakers(e)), "before an earlier message of their key")


def overtakers(e):
    lanes = defaultdict(list)
    seen = set()
    for record in sorted(e.log, key=lambda record: (record.topic, record.partition, record.offset)):
        if record.key is not None and e.state.get(record.number) == "replayed" and record.number not in seen:
            seen.add(record.number)
            lanes[record.topic, record.partition, record.key].append(record.number)
    return before_smaller(lanes.values())


def delivery_is_as_requested(e):
    """R8: the operation has the expected delivery."""
    wanted = "exactly_once" if e.exactly_once else "at_least_once"
    if e.operation.delivery not in (wanted, None) or (e.exactly_once and e.operation.delivery is None):
        yield Violation(
            "R8", 1, f"delivery {e.operation.delivery} instead of {wanted}: {e.operation.message}"
        )


INVARIANTS = (
    none_is_lost,
    none_is_duplicated,
    states_agree_with_the_log,
    landed_records_are_not_sent,
    records_are_unchanged,
    counts_add_up,
    order_is_kept,
    delivery_is_as_requested,
)


def _some(invariant, numbers, text):
    if numbers:
        some = sorted(numbers)[:8]
        yield Violation(invariant, len(numbers), f"{len(numbers)} {text}: {', '.join(map(str, some))}")


def rows_by_number(rows):
    return {number_of(row["message_id"]): row for row in rows}
