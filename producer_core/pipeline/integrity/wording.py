"""Describe an audit's findings in sentences, the most important first, in pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from producer_core._internal.plural import plural
from producer_core.pipeline.integrity.outcome import AuditOutcome

_MAX_LISTED = 5


def sentence(report: AuditOutcome) -> str:
    """Return the result in one sentence."""
    bad = [
        (number, words)
        for number, words in (
            (report.lost, "lost" if report.compacted is False else "lost or compacted away"),
            (report.duplicated, "duplicated"),
            (report.reordered, "out of order"),
        )
        if number
    ]
    if report.compacted:
        return f"{report.topic} is compacted, so losses cannot be detected; {_checked(report.ours, bad)}."
    if not report.acknowledged and not report.lost:
        return _unledgered(report, bad)
    if bad and report.lost > report.acknowledged:  # of a topic that was re-created
        result = _join(bad)
    elif bad:
        result = f"of {_messages(report.acknowledged, 'acknowledged')}, {_join(bad)}"
    elif report.acknowledged == 1:
        result = "the only acknowledged message is in the log, once"
    else:
        result = (
            f"all {_messages(report.acknowledged, 'acknowledged')} are in the log, each once and in order"
        )
    return f"{report.topic}: {result}{_limits(report)}."


def _limits(report: AuditOutcome) -> str:
    """Return what the ledgers do not cover, or an empty text."""
    batches = plural(report.ledger_gaps, "batch is", "batches are")
    unrecorded = plural(report.ledger_lost, "acknowledgement was", "acknowledgements were")
    holes = (
        (report.unledgered, f"{_are(report.unledgered, 'in the log')} in no ledger"),
        (report.ledger_gaps, f"{batches} missing"),
        (report.ledger_lost, f"{unrecorded} not recorded"),
        (report.strange, f"{_unreadable(report.strange)} cannot be read"),
    )
    limits = [text for number, text in holes if number]
    return f", as far as the ledgers show: {', '.join(limits)}" if limits else ""


def _unledgered(report: AuditOutcome, bad: Sequence[tuple[int, str]]) -> str:
    hidden = (
        (report.expired, "expired"),
        (report.pending, "hidden by an open transaction"),
        (report.undecided, "at an unknown offset"),
    )
    hidden_counts = [(number, text) for number, text in hidden if number]
    if hidden_counts and not report.ours:
        return (
            f"{report.topic}: nothing can be checked: of the acknowledged messages, {_join(hidden_counts)}."
        )
    if not report.records:
        return f"{report.topic}: this range is empty, both in the log and in the ledgers."
    ids = _checked(report.ours, bad) if report.ours else "no record has a producer_core message id"
    return f"{report.topic}: no ledger covers this range, so losses cannot be detected; {ids}."


def _checked(ours: int, bad: Sequence[tuple[int, str]]) -> str:
    if bad:
        return f"of {_messages(ours)}, {_join(bad)}"
    if ours == 1:
        return "the only message is neither duplicated nor out of order"
    return f"of {_messages(ours)}, none is duplicated or out of order"


def sentences(report: AuditOutcome) -> Iterator[str]:
    """Yield the result, then all other important facts."""
    yield sentence(report)
    yield from _undecidable(report)
    if report.unledgered:
        whose = "its producer keeps" if report.unledgered == 1 else "their producers keep"
        yield f"{_are(report.unledgered, 'in the log')} in no ledger: {whose} none, or never received the acknowledgement."
    if report.reordered:
        yield "Order is defined only for messages sent one after another by one thread, not across threads or tasks."
    if report.given_up_found:
        whose = "its producer" if report.given_up_found == 1 else "their producers"
        yield f"{_are(report.given_up_found, f'dropped by {whose}')} in the log."
    if report.foreign:
        yield (
            f"{report.foreign:,} of {plural(report.records, 'record')} {'has' if report.foreign == 1 else 'have'} no "
            f"producer_core message id; {'it was' if report.foreign == 1 else 'they were'} counted, not checked."
        )
    yield from _holes(report)
    yield from report.notes


def _undecidable(report: AuditOutcome) -> Iterator[str]:
    if report.pending:
        verb = "is" if report.pending == 1 else "are"
        yield f"{_messages(report.pending, 'acknowledged')} {verb} hidden by an open transaction: audit again after it completes."
    if report.expired:
        yield (
            f"{_messages(report.expired, 'acknowledged')} expired before this audit and cannot be checked"
            f"{_expired(report)}."
        )
    if report.undecided:
        they = "it is" if report.undecided == 1 else "they are"
        yield (
            f"{_are(report.undecided, 'acknowledged at an unknown offset')} not in this range; "
            f"only an audit of the whole topic can determine whether {they} lost."
        )


def _expired(report: AuditOutcome) -> str:
    listed = [
        f"partition {one.partition}, {one.count:,} at "
        + (f"offset {one.first:,}" if one.first == one.last else f"offsets {one.first:,} to {one.last:,}")
        for one in report.expired_ranges
    ]
    more = len(listed) - _MAX_LISTED
    shown = [*listed[:_MAX_LISTED], *([f"and {plural(more, 'more partition')}"] if more > 0 else [])]
    return f" ({'; '.join(shown)})" if shown else ""


def _holes(report: AuditOutcome) -> Iterator[str]:
    for gap in report.gaps[:_MAX_LISTED]:
        batches = (
            f"batch {gap.first:,}" if gap.first == gap.last else f"batches {gap.first:,} to {gap.last:,}"
        )
        yield f"{batches.capitalize()} of producer {gap.producer_id} {'is' if gap.first == gap.last else 'are'} missing from the ledger."
    more = len(report.gaps) - _MAX_LISTED
    if more > 0:
        ranges = plural(more, "more range of batches is", "more ranges of batches are")
        yield f"{ranges} missing from the ledgers."
    if report.ledger_lost:
        lost = plural(report.ledger_lost, "acknowledgement")
        yield f"Producers could not record {lost} in their ledgers."
    if report.strange:
        yield f"{_unreadable(report.strange)} of the ledger could not be read: a newer schema, or not telemetry."


def finding(
    kind: str, partition: int | None, offset: int | None, other: int | None, elsewhere: int | None
) -> str:
    """Return a finding as text; `other` and `elsewhere` are the other record's offset and partition."""
    here = f"partition {partition}, offset {offset:,}" if offset is not None else f"partition {partition}"
    there = "" if elsewhere in (None, partition) else f"partition {elsewhere}, "
    match kind:
        case "lost":
            return f"acknowledged at {here}; not in the log"
        case "duplicated":
            return f"a copy at {here}; the original is at {there}offset {other:,}"
        case "reordered" if other == -1:
            return f"at {here}, after a message of its session that has a higher sequence and is below this range"
        case "reordered":
            return f"at {here}, after a message of its session with a higher sequence at offset {other:,}"
        case "pending" if offset is None:
            return f"acknowledged in {here} at an unknown offset, which may not be visible yet"
        case "pending":
            return f"acknowledged at {here}; hidden by an open transaction"
        case "expired":
            return f"acknowledged in {here}, where records have expired"
        case "given_up_found":
            return f"dropped by its producer, but in the log at {here}"
        case "undecided":
            return f"acknowledged in {here} at an unknown offset; not in this range"
    return f"at {here}; in no ledger"


def _join(parts: Sequence[tuple[int, str]]) -> str:
    """Return a list such as "2 are lost, 3 duplicated and 4 out of order"."""
    (number, words), *rest = parts
    listed = [
        f"{number:,} {'is' if number == 1 else 'are'} {words}",
        *(f"{one:,} {text}" for one, text in rest),
    ]
    return ", ".join(listed[:-1]) + (" and " if rest else "") + listed[-1]


def _messages(number: int, adjective: str = "") -> str:
    return plural(number, f"{adjective} message".lstrip())


def _unreadable(number: int) -> str:
    return plural(number, "record or row", "records or rows")


def _are(number: int, which: str) -> str:
    """Return a phrase such as "1 message in the log is" or "2 messages in the log are"."""
    return f"{_messages(number)} {which} {'is' if number == 1 else 'are'}"
