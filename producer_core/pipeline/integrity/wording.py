"""Words: what an audit found, said in sentences, the most important first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from producer_core.pipeline.integrity.outcome import AuditOutcome

_SAID = 5


def sentence(report: AuditOutcome) -> str:
    """What a person must know, in one sentence."""
    bad = [
        (number, words)
        for number, words in (
            (report.lost, "lost" if report.compacted is False else "lost or compacted away"),
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
    if bad and report.lost > report.acknowledged:  # of a topic that was made again
        said = _join(bad)
    elif bad:
        said = f"of {_messages(report.acknowledged)} acknowledged {_join(bad)}"
    elif report.acknowledged == 1:
        said = "the 1 message acknowledged is on the log, once"
    else:
        said = f"all {_messages(report.acknowledged)} acknowledged are on the log, each once and in order"
    return f"{report.topic}: {said}{_as_far(report)}."


def _as_far(report: AuditOutcome) -> str:
    """What the ledgers do not tell, where it is anything."""
    batches = "1 batch is" if report.ledger_gaps == 1 else f"{report.ledger_gaps:,} batches are"
    holes = (
        (report.unledgered, f"{_are(report.unledgered, 'on the log')} in none"),
        (report.ledger_gaps, f"{batches} missing"),
        (report.ledger_lost, f"{report.ledger_lost:,} acknowledgements were left out"),
        (report.strange, f"{report.strange:,} records or rows cannot be read"),
    )
    said = [words for number, words in holes if number]
    return f", as far as ledgers tell: {', '.join(said)}" if said else ""


def _unledgered(report: AuditOutcome, bad: Sequence[tuple[int, str]]) -> str:
    hidden = (
        (report.expired, "expired"),
        (report.pending, "hidden by an open transaction"),
        (report.undecided, "at an unknown offset"),
    )
    told = [(number, words) for number, words in hidden if number]
    if told and not report.ours:
        return f"{report.topic}: nothing can be judged: of what was acknowledged {_join(told)}."
    if not report.records:
        return f"{report.topic}: there is nothing in this range, neither on the log nor in a ledger."
    once = _join(bad) if bad else "none is there twice or out of order"
    of = f"of {_messages(report.ours)} {once}" if report.ours else "no record has a message id of ours"
    return f"{report.topic}: no ledger speaks of this range, so nobody can say what is lost; {of}."


def sentences(report: AuditOutcome) -> Iterator[str]:
    """The first, then what else matters."""
    yield sentence(report)
    yield from _undecidable(report)
    if report.unledgered:
        whose = "its producer keeps" if report.unledgered == 1 else "their producers keep"
        their = "its acknowledgement" if report.unledgered == 1 else "their acknowledgement"
        yield f"{_are(report.unledgered, 'on the log')} in no ledger: {whose} none, or never heard of {their}."
    if report.reordered:
        yield "Order is that of one thread's sends, one after another: those of several threads or tasks have none."
    if report.given_up_found:
        yield f"{_are(report.given_up_found, 'that their producer gave up')} on the log all the same."
    if report.foreign:
        yield (
            f"{report.foreign:,} of {report.records:,} records {'has' if report.foreign == 1 else 'have'} no message id of ours; "
            "they were counted, not judged."
        )
    yield from _holes(report)
    yield from report.notes


def _undecidable(report: AuditOutcome) -> Iterator[str]:
    if report.pending:
        yield f"{_are(report.pending, 'acknowledged')} hidden by an open transaction: look again when it has ended."
    if report.expired:
        yield (
            f"{_messages(report.expired)} acknowledged expired before this audit, so nobody can say more of "
            f"{'it' if report.expired == 1 else 'them'}{_expired(report)}."
        )
    if report.undecided:
        they = "it is" if report.undecided == 1 else "they are"
        yield (
            f"{_are(report.undecided, 'acknowledged at an unknown offset')} not in this range; "
            f"only an audit of the whole topic can say whether {they} lost."
        )


def _expired(report: AuditOutcome) -> str:
    said = [
        f"partition {one.partition}, {one.count:,} at offsets {one.first:,} to {one.last:,}"
        for one in report.expired_ranges
    ]
    more = len(said) - _SAID
    return (
        f" ({'; '.join(said[:_SAID])}{f'; and {more} more partitions' if more > 0 else ''})" if said else ""
    )


def _holes(report: AuditOutcome) -> Iterator[str]:
    for gap in report.gaps[:_SAID]:
        batches = (
            f"batch {gap.first:,}" if gap.first == gap.last else f"batches {gap.first:,} to {gap.last:,}"
        )
        yield f"What {gap.producer_id} acknowledged in its {batches} is not in the ledger."
    if len(report.gaps) > _SAID:
        yield f"{len(report.gaps) - _SAID:,} more stretches of batches are missing from ledgers."
    if report.ledger_lost:
        yield f"Producers had to leave {report.ledger_lost:,} acknowledgements out of their ledgers."
    if report.strange:
        yield f"{report.strange:,} records or rows of the ledger could not be read: a newer schema, or no telemetry."


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
        case "pending" if offset is None:
            return f"acknowledged in {here} at an unknown offset, perhaps one that cannot be seen yet"
        case "pending":
            return f"acknowledged at {here}, behind an open transaction"
        case "expired":
            return f"acknowledged in {here}, where records have expired"
        case "given_up_found":
            return f"given up by its producer, and at {here}"
        case "undecided":
            return f"acknowledged in {here} at an unknown offset, and not in this range"
    return f"at {here}, in no ledger"


def _join(parts: Sequence[tuple[int, str]]) -> str:
    """«2 are lost, 3 there more than once and 4 out of order»."""
    (number, words), *rest = parts
    listed = [
        f"{number:,} {'is' if number == 1 else 'are'} {words}",
        *(f"{one:,} {said}" for one, said in rest),
    ]
    return ", ".join(listed[:-1]) + (" and " if rest else "") + listed[-1]


def _messages(number: int) -> str:
    return "1 message" if number == 1 else f"{number:,} messages"


def _are(number: int, which: str) -> str:
    """«1 message on the log is», «2 messages on the log are»."""
    return f"{_messages(number)} {which} {'is' if number == 1 else 'are'}"
