"""The invariants I1 to I10: pure functions over the producer's reports and the records of an independent reader."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.scenarios.faults.ledger import SAFE, Entry, Process

WRITER = 1_000_000
"""Distance between the first numbers of several writers."""


@dataclass
class Evidence:
    """Holds the evidence of a run.

    `guarantee` is "at_least_once" or "exactly_once". `removed`: offsets by partition below which the scenario itself
    deleted records. `excused`: numbers whose loss the scenario caused. `once`: the broker writes a retry of an idempotent
    client once; the embedded broker does not, nor does any broker without idempotence.
    """

    guarantee: str
    lives: list[Process]
    log: list[Entry]
    removed: dict[int, int] = field(default_factory=dict)
    excused: set[int] = field(default_factory=set)
    journaled: bool = False
    ordered: bool = True
    once: bool = True

    def __post_init__(self):
        self.accepted = {number for life in self.lives for number in life.accepted}
        self.reports = [report for life in self.lives for report in life.reports]
        self.acknowledged = {report.number: report for report in self.reports if report.ok}
        self.dead = {
            report.number: report
            for report in self.reports
            if not report.ok and report.number not in self.acknowledged
        }
        self.counts = Counter(entry.number for entry in self.log)


@dataclass(frozen=True)
class Violation:
    invariant: str
    count: int
    text: str


def check(evidence):
    """Return every violation of every invariant."""
    return [violation for invariant in INVARIANTS for violation in invariant(evidence)]


def acknowledged_records_are_on_the_log(e):
    """I1: no acknowledged record is missing."""
    missing = [n for n, report in e.acknowledged.items() if n not in e.counts and not _removed(e, report)]
    yield from _some("I1", sorted(set(missing) - e.excused), "acknowledged, but not in the log")


def accepted_records_are_written(e):
    """I2: every accepted record that is not dead is in the log: once, or (at least once) at least once."""
    dead = set(e.dead)
    left = e.accepted - dead - set(e.acknowledged) - e.excused
    if e.lives and e.lives[-1].closed is not None and not e.lives[-1].closed["journaled"]:
        yield from _some("I2", sorted(left - e.counts.keys()), "accepted, but neither in the log nor dead")
    if e.guarantee == "exactly_once":
        yield from _some("I2", sorted(n for n, count in e.counts.items() if count > 1), "in the log twice")


def order_is_kept(e):
    """I3: records are in order: strictly by partition, or (at least once) by key, except for the counted order breaks."""
    if not e.ordered:
        return
    if e.guarantee == "exactly_once":
        yield from _some(
            "I3",
            sorted(overtakers(e.log, lambda entry: (entry.partition, entry.number // WRITER))),
            "overtook an earlier record",
        )
        return
    counted = sum(life.remarks["order_breaks"] for life in e.lives)
    found = sorted(overtakers(e.log, lambda entry: (entry.partition, entry.key, entry.number // WRITER)))
    if len(found) > counted:
        yield from _some("I3", found, f"overtook an earlier record of their key, {counted} counted")


def overtakers(log, lane):
    """Return numbers before a smaller one of their lane; of several copies the first counts."""
    lanes = defaultdict(list)
    seen = set()
    for entry in sorted(log, key=lambda entry: (entry.partition, entry.offset)):
        if entry.number not in seen:
            seen.add(entry.number)
            lanes[lane(entry)].append(entry.number)
    return before_smaller(lanes.values())


def before_smaller(lanes):
    """Return numbers before a smaller one of their lane."""
    found = set()
    for numbers in lanes:
        least = float("inf")
        for number in reversed(numbers):
            if number > least:
                found.add(number)
            least = min(least, number)
    return found


def safe_verdicts_are_true(e):
    """I4: no record with the verdict not_sent, rejected or absent is in the log."""
    final = {report.number for report in (e.lives[-1].reports if e.lives else [])}
    wrong = [
        n
        for n, report in e.dead.items()
        # A later run of a journaled producer may have sent a record that an earlier run gave up.
        if report.verdict in SAFE and n in e.counts and (not e.journaled or n in final)
    ]
    yield from _some("I4", sorted(wrong), "safe to resend by their verdict, but in the log")


def no_unknown_record_is_on_the_log(e):
    """I5: the log has only records that were sent; a kill may leave one uncertain number for each run."""
    highest = {max(life.accepted) + 1 for life in e.lives if life.accepted} | {0}
    firsts = {life.closed["first"] for life in e.lives if life.closed}
    unknown = sorted(n for n in e.counts if n not in e.accepted and n not in highest and n not in firsts)
    yield from _some("I5", unknown, "in the log, but never accepted")


def reported_offsets_are_correct(e):
    """I6: the record at a reported offset is the reported record."""
    at = {(entry.partition, entry.offset): entry.number for entry in e.log}
    wrong = [
        n
        for n, report in e.acknowledged.items()
        if report.offset is not None and report.offset >= 0 and not _removed(e, report)
        and n not in e.excused and at.get((report.partition, report.offset)) != n
    ]  # fmt: skip
    yield from _some("I6", sorted(wrong), "not at its reported offset")


def each_message_has_one_report(e):
    """I9: each accepted message has one report, unless it is in the journal."""
    for life in e.lives:
        reported = Counter(report.number for report in life.reports)
        yield from _some("I9", sorted(n for n, count in reported.items() if count > 1), "reported twice")
        yield from _some("I9", sorted(set(reported) - set(life.accepted)), "reported, but never accepted")
        if life.closed is not None:
            silent = set(life.accepted) - set(reported)
            if len(silent) > life.closed["journaled"]:
                yield from _some(
                    "I9", sorted(silent), f"never reported; {life.closed['journaled']} journaled"
                )
            if life.closed["lost"]:
                yield Violation("I9", life.closed["lost"], "lost according to close()")


def copies_are_counted(e):
    """I10: with at least once, the log has no more second copies than `possible_duplicates` counts."""
    if e.guarantee != "at_least_once" or not e.once:
        return
    counted = sum(life.remarks["possible_duplicates"] for life in e.lives)
    twice = sorted(number for number, count in e.counts.items() if count > 1)
    copies = sum(e.counts[number] - 1 for number in twice)
    if copies > counted:
        numbers = ", ".join(map(str, twice[:8]))
        yield Violation("I10", copies - counted, f"{copies} second copies, {counted} counted: {numbers}")


INVARIANTS = (
    acknowledged_records_are_on_the_log,
    accepted_records_are_written,
    order_is_kept,
    safe_verdicts_are_true,
    no_unknown_record_is_on_the_log,
    reported_offsets_are_correct,
    each_message_has_one_report,
    copies_are_counted,
)


def _removed(e, report):
    if report.offset is None or report.partition is None:
        return bool(e.removed)
    return report.offset < e.removed.get(report.partition, 0)


def _some(invariant, numbers, text):
    if numbers:
        yield Violation(invariant, len(numbers), f"{len(numbers)} {text}: {', '.join(map(str, numbers[:8]))}")
