"""Words: what an audit found, said in sentences, the most important first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from producer_core.pipeline.integrity.report import AuditReport

_SAID = 5


def sentence(report: AuditReport) -> str:
    """What a person must know, in one sentence."""
    bad = [
        f"{_count(number)} {words}"
        for number, words in (
            (report.lost, "lost"),
            (report.duplicated, "there more than once"),
            (report.reordered, "out of order"),
        )
        if number
    ]
    if report.compacted:
        once = _join(bad) if bad else "none is there twice or out of order"
        return f"{report.topic} is compacted, so nobody can say what is lost; of {_messages(report.ours)} {once}."
    if not report.acknowledged and not report.lost:
        return _unledgered(report, bad)
    if bad:
        verb = "is" if sum((report.lost, report.duplicated, report.reordered)) == 1 else "are"
        return f"{report.topic}: of {_messages(report.acknowledged)} acknowledged {_join(bad, verb)}."
    if report.acknowledged == 1:
        return f"{report.topic}: the 1 message acknowledged is on the log, once."
    return f"{report.topic}: all {_messages(report.acknowledged)} acknowledged are on the log, each once and in order."


def _unledgered(report: AuditReport, bad: Sequence[str]) -> str:
    if not report.records:
        return f"{report.topic}: there is nothing in this range, neither on the log nor in a ledger."
    once = _join(bad) if bad else "none is there twice or out of order"
    of = f"of {_messages(report.ours)} {once}" if report.ours else "no record has a message id of ours"
    return f"{report.topic}: no ledger speaks of this range, so nobody can say what is lost; {of}."


def sentences(report: AuditReport) -> Iterator[str]:
    """The first, then what else matters."""
    yield report.sentence
    if report.pending:
        yield f"{_messages(report.pending)} acknowledged {_are(report.pending)} hidden by an open transaction: look again when it has ended."
    if report.expired:
        yield f"{_messages(report.expired)} acknowledged expired before this audit, so nobody can say more of them{_expired(report)}."
    if report.undecided:
        yield f"{_messages(report.undecided)} acknowledged without an offset are not in this range; only an audit of the whole topic can say whether they are lost."
    if report.unledgered:
        yield f"{_messages(report.unledgered)} on the log {_are(report.unledgered)} in no ledger: sent by a producer that keeps none, or never acknowledged."
    if report.given_up_found:
        yield f"{_messages(report.given_up_found)} that their producer gave up {_are(report.given_up_found)} on the log all the same."
    if report.foreign:
        yield f"{_count(report.foreign)} of {_count(report.records)} records have no message id of ours; they were counted, not judged."
    yield from _holes(report)
    yield from report.notes


def _expired(report: AuditReport) -> str:
    said = [
        f"partition {one.partition}, {one.count:,} at offsets {one.first:,} to {one.last:,}"
        for one in report.expired_ranges
    ]
    more = len(said) - _SAID
    return (
        f" ({'; '.join(said[:_SAID])}{f'; and {more} more partitions' if more > 0 else ''})" if said else ""
    )


def _holes(report: AuditReport) -> Iterator[str]:
    for gap in report.gaps[:_SAID]:
        batches = (
            f"batch {gap.first:,}" if gap.first == gap.last else f"batches {gap.first:,} to {gap.last:,}"
        )
        yield f"What {gap.producer_id} acknowledged in its {batches} is not in the ledger."
    if len(report.gaps) > _SAID:
        yield f"{len(report.gaps) - _SAID:,} more stretches of batches are missing from ledgers."
    if report.ledger_lost:
        yield f"Producers had to leave {_messages(report.ledger_lost)} acknowledged out of their ledgers."
    if report.strange:
        yield f"{_count(report.strange)} records or rows of the ledger could not be read: a newer schema, or no telemetry."


def finding(
    kind: str, partition: int | None, offset: int | None, other: int | None, elsewhere: int | None
) -> str:
    """One finding; `other` and `elsewhere` are the other record's offset and partition."""
    here = f"partition {partition}, offset {offset:,}" if offset is not None else f"partition {partition}"
    there = "" if elsewhere in (None, partition) else f"partition {elsewhere}, "
    match kind:
        case "lost":
            return f"acknowledged at {here}, and not on the log"
        case "duplicated":
            return f"a copy at {here}; the message is at {there}offset {other:,}"
        case "reordered" if other == -1:
            return f"at {here}, behind a later one of its session that stands before this range"
        case "reordered":
            return f"at {here}, behind offset {other:,}, where a later one of its session is"
        case "pending":
            return f"acknowledged at {here}, behind an open transaction"
        case "expired":
            return f"acknowledged in {here}, where records have expired"
        case "given_up_found":
            return f"given up by its producer, and at {here}"
        case "undecided":
            return f"acknowledged in {here} at an unknown offset, and not in this range"
    return f"at {here}, in no ledger"


def _join(parts: Sequence[str], verb: str = "are") -> str:
    first, *rest = parts
    listed = [f"{first.split(' ', 1)[0]} {verb} {first.split(' ', 1)[1]}", *rest]
    return ", ".join(listed[:-1]) + (" and " if len(listed) > 1 else "") + listed[-1]


def _messages(number: int) -> str:
    return "1 message" if number == 1 else f"{number:,} messages"


def _count(number: int) -> str:
    return f"{number:,}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
