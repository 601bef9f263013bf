"""The invariants I1 to I10: pure functions over what was promised and what an independent reader found."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.faults.ledger import SAFE, Entry, Process

WRITER = 1_000_000
"""Several writers number from multiples of this."""


@dataclass
class Evidence:
    """`guarantee` is "at_least_once" or "exactly_once". `removed`: offsets by partition below which the scenario
    itself deleted records. `excused`: numbers whose loss the scenario caused and the product had to tell. `once`: the
    broker writes a retry of the idempotent client once, which the embedded broker does not, nor any without idempotence."""

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
    """Every violation of every invariant."""
    return [violation for invariant in INVARIANTS for violation in invariant(evidence)]


def acknowledged_is_on_the_log(e):
    """I1: no acknowledged record is missing."""
    gone = [n for n, report in e.acknowledged.items() if n not in e.counts and not _removed(e, report)]
    yield from _some("I1", sorted(set(gone) - e.excused), "acknowledged, and not on the log")


def accepted_is_written(e):
    """I2: what was accepted and not declared dead is there: once, or (at least once) at all."""
    dead = set(e.dead)
    left = e.accepted - dead - set(e.acknowledged) - e.excused
    if e.lives and e.lives[-1].closed is not None and not e.lives[-1].closed["journaled"]:
        yield from _some("I2", sorted(left - e.counts.keys()), "accepted, and neither on the log nor dead")
    if e.guarantee == "exactly_once":
        yield from _some("I2", sorted(n for n, count in e.counts.items() if count > 1), "on the log twice")


def order_is_kept(e):
    """I3: exactly once, strictly by partition; at least once, first copies by key, but for the breaks it counted."""
    if not e.ordered:
        return
    if e.guarantee == "exactly_once":
        yield from _some(
            "I3",
            sorted(overtakers(e.log, lambda entry: (entry.partition, entry.number // WRITER))),
            "overtook an earlier one",
        )
        return
    told = sum(life.remarks["order_breaks"] for life in e.lives)
    found = sorted(overtakers(e.log, lambda entry: (entry.partition, entry.key, entry.number // WRITER)))
    if len(found) > told:
        yield from _some("I3", found, f"overtook an earlier one of their key, {told} were told")


def overtakers(log, lane):
    """Numbers that stand before a smaller one of their lane; of several copies the first counts."""
    lanes = defaultdict(list)
    seen = set()
    for entry in sorted(log, key=lambda entry: (entry.partition, entry.offset)):
        if entry.number not in seen:
            seen.add(entry.number)
            lanes[lane(entry)].append(entry.number)
    return before_smaller(lanes.values())


def before_smaller(lanes):
    """Numbers that stand before a smaller one of their lane."""
    found = set()
    for numbers in lanes:
        least = float("inf")
        for number in reversed(numbers):
            if number > least:
                found.add(number)
            least = min(least, number)
    return found


def safe_verdicts_are_true(e):
    """I4: nothing that was called not_sent, rejected or absent is on the log."""
    final = {report.number for report in (e.lives[-1].reports if e.lives else [])}
    wrong = [
        n
        for n, report in e.dead.items()
        # What an earlier life of a journaled producer gave up, a later one may have sent.
        if report.verdict in SAFE and n in e.counts and (not e.journaled or n in final)
    ]
    yield from _some("I4", sorted(wrong), "called safe to resend, and on the log")


def nothing_strange_is_there(e):
    """I5: the log has nothing that nobody tried to send; a kill may leave one number in doubt for each life."""
    highest = {max(life.accepted) + 1 for life in e.lives if life.accepted} | {0}
    firsts = {life.closed["first"] for life in e.lives if life.closed}
    strange = sorted(n for n in e.counts if n not in e.accepted and n not in highest and n not in firsts)
    yield from _some("I5", strange, "on the log, and never accepted")


def offsets_are_true(e):
    """I6: at the reported offset is the reported record."""
    at = {(entry.partition, entry.offset): entry.number for entry in e.log}
    wrong = [
        n
        for n, report in e.acknowledged.items()
        if report.offset is not None and report.offset >= 0 and not _removed(e, report)
        and n not in e.excused and at.get((report.partition, report.offset)) != n
    ]  # fmt: skip
    yield from _some("I6", sorted(wrong), "not at its reported offset")


def every_report_came_once(e):
    """I9: one report for each accepted message, unless it was journaled; none twice."""
    for life in e.lives:
        told = Counter(report.number for report in life.reports)
        yield from _some("I9", sorted(n for n, count in told.items() if count > 1), "reported twice")
        yield from _some("I9", sorted(set(told) - set(life.accepted)), "reported, and never accepted")
        if life.closed is not None:
            silent = set(life.accepted) - set(told)
            if len(silent) > life.closed["journaled"]:
                yield from _some(
                    "I9", sorted(silent), f"never reported; {life.closed['journaled']} journaled"
                )
            if life.closed["lost"]:
                yield Violation("I9", life.closed["lost"], "lost, said close()")


def copies_are_counted(e):
    """I10: at least once, the log has no more second copies than `possible_duplicates` counted."""
    if e.guarantee != "at_least_once" or not e.once:
        return
    told = sum(life.remarks["possible_duplicates"] for life in e.lives)
    twice = sorted(number for number, count in e.counts.items() if count > 1)
    copies = sum(e.counts[number] - 1 for number in twice)
    if copies > told:
        numbers = ", ".join(map(str, twice[:8]))
        yield Violation("I10", copies - told, f"{copies} second copies, {told} counted: {numbers}")


INVARIANTS = (
    acknowledged_is_on_the_log,
    accepted_is_written,
    order_is_kept,
    safe_verdicts_are_true,
    nothing_strange_is_there,
    offsets_are_true,
    every_report_came_once,
    copies_are_counted,
)


def _removed(e, report):
    if report.offset is None or report.partition is None:
        return bool(e.removed)
    return report.offset < e.removed.get(report.partition, 0)


def _some(invariant, numbers, text):
    if numbers:
        yield Violation(invariant, len(numbers), f"{len(numbers)} {text}: {', '.join(map(str, numbers[:8]))}")
