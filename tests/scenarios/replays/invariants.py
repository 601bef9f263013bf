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
from tests.scenarios.replays.reading import Record, as_shown

DOUBTFUL = ("possibly_persisted", "inconclusive")


@dataclass
class Evidence:
    """`there`: numbers that were on their topic before the replay. `states` is what the store says of each dead letter,
    `records` the operation's. `doubtful`: the ids that the operation lists as such. `exactly_once`: what is judged.
    `slept_with`: the numbers that a process had claimed when it was stopped."""

    dead_letters: list[DeadLetter]
    there: frozenset[int]
    log: list[Record]
    states: dict[int, dict[str, Any]]
    records: dict[int, str]
    operation: Operation
    doubtful: set[str] = field(default_factory=set)
    ends: int = 1  # entries «replay_end» in the audit
    exactly_once: bool = True
    slept_with: set[int] = field(default_factory=set)

    def __post_init__(self):
        self.counts = Counter(record.number for record in self.log)
        self.state = {number: row["state"] for number, row in self.states.items()}
        self.places = {(record.topic, record.partition, record.offset): record.number for record in self.log}

    def missing(self):
        """On no topic, and not a dead letter either."""
        return [
            n for n in range(len(self.dead_letters)) if not self.counts[n] and self.state.get(n) != "dead"
        ]

    def twice(self):
        return [n for n, count in self.counts.items() if count > 1]


@dataclass(frozen=True)
class Violation:
    invariant: str
    count: int
    text: str


def check(evidence):
    return [violation for invariant in INVARIANTS for violation in invariant(evidence)]


def none_is_lost(e):
    """R1: what is not a dead letter any more is on its topic."""
    yield from _some("R1", e.missing(), "on no topic, and not a dead letter")


def none_is_there_twice(e):
    """R2: each once for a read_committed reader. At least once, a second copy is one that we say to be in doubt, or
    that whoever was stopped had in its client and sends when it wakes, after somebody else has looked for it."""
    twice = [
        n for n in e.twice() if e.exactly_once or (message_id(n) not in e.doubtful and n not in e.slept_with)
    ]
    yield from _some("R2", twice, "on their topic twice")


def states_agree_with_the_log(e):
    """R3: replayed or landed where the store says; dead and called safe: not there; none is left in between."""
    wrong = [n for n, state in e.state.items() if state not in ("replayed", "landed", "dead")]
    yield from _some("R3", wrong, "neither replayed nor landed nor dead")
    wrong = [
        n
        for n, row in e.states.items()
        if row["state"] in ("replayed", "landed")
        and row["landed_offset"] is not None
        and e.places.get((row["topic"], row["landed_partition"], row["landed_offset"])) != n
    ]
    yield from _some("R3", wrong, "not where the store says that it landed")
    wrong = [
        n
        for n, row in e.states.items()
        if row["state"] == "dead" and row["verdict"] in SAFE_VERDICTS and e.counts[n]
    ]
    yield from _some("R3", wrong, "a dead letter that is called safe to send, and on its topic")
    wrong = [
        n
        for n, row in e.states.items()
        if row["state"] == "dead" and row["verdict"] in DOUBTFUL and message_id(n) not in e.doubtful
        and e.records.get(n) in ("failed", "skipped")
    ]  # fmt: skip
    yield from _some("R3", wrong, "in doubt, and not listed")


def what_was_there_was_not_sent(e):
    """R4: a dead letter that was on its topic before is settled as landed, unless nobody could look."""
    sent = [n for n in e.there if e.state.get(n) == "replayed"]
    yield from _some("R4", sent, "there before, and sent")


def nothing_was_altered(e):
    """R5: key, value, partition asked for, and headers in their order: only the id and the first time are added."""
    yield from _some(
        "R5",
        [record.number for record in e.log if not _same(record, e.dead_letters[record.number])],
        "altered",
    )


def _same(record, dead_letter):
    headers = [(ID_HEADER, as_shown(parse_id(dead_letter.message_id))), *dead_letter.headers]
    first_time = str(dead_letter.timestamp_ms or int(dead_letter.accepted_at * 1000)).encode()
    return (
        (record.topic, record.key, record.value) == (dead_letter.topic, dead_letter.key, dead_letter.value)
        and dead_letter.partition in (None, record.partition)
        and list(record.headers) in (headers, [*headers, (ORIGINAL_TIMESTAMP, first_time)])
    )


def counts_add_up(e):
    """R6: the operation's numbers are those of its records, and they are all of them."""
    operation, found = e.operation, Counter(e.records.values())
    said = Counter(
        acknowledged=operation.acknowledged, landed=operation.landed, failed=operation.failed_again,
        skipped=operation.skipped,
    )  # fmt: skip
    if +said != +found:
        yield Violation("R6", 1, f"it says {dict(said)}, and its records {dict(found)}")
    if operation.total != len(e.records) or operation.left:
        yield Violation("R6", 1, f"{operation.total} in all, {len(e.records)} records, {operation.left} left")
    states = Counter(e.state.values())
    if (states["replayed"], states["landed"]) != (operation.acknowledged, operation.landed):
        yield Violation("R6", 1, f"it says {dict(said)}, and the dead letters are {dict(states)}")
    if e.ends != 1:
        yield Violation("R6", 1, f"its end is in the audit {e.ends} times")


def order_is_kept(e):
    """R7: of one key in one partition, what was replayed stands in the order of its acceptance."""
    if e.exactly_once:
        yield from _some("R7", sorted(overtakers(e)), "overtook an earlier one of their key")


def overtakers(e):
    lanes = defaultdict(list)
    seen = set()
    for record in sorted(e.log, key=lambda record: (record.topic, record.partition, record.offset)):
        if record.key is not None and e.state.get(record.number) == "replayed" and record.number not in seen:
            seen.add(record.number)
            lanes[record.topic, record.partition, record.key].append(record.number)
    return before_smaller(lanes.values())


def delivered_as_asked(e):
    """R8: exactly once where that was to be had."""
    wanted = "exactly_once" if e.exactly_once else "at_least_once"
    if e.operation.delivery not in (wanted, None) or (e.exactly_once and e.operation.delivery is None):
        yield Violation("R8", 1, f"delivered {e.operation.delivery}, not {wanted}: {e.operation.message}")


INVARIANTS = (
    none_is_lost,
    none_is_there_twice,
    states_agree_with_the_log,
    what_was_there_was_not_sent,
    nothing_was_altered,
    counts_add_up,
    order_is_kept,
    delivered_as_asked,
)


def _some(invariant, numbers, text):
    if numbers:
        some = sorted(numbers)[:8]
        yield Violation(invariant, len(numbers), f"{len(numbers)} {text}: {', '.join(map(str, some))}")


def rows_by_number(rows):
    return {number_of(row["message_id"]): row for row in rows}
