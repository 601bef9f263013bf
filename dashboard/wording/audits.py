"""Audits, in words: what each kind of finding means, which part of a topic was read, and how to have one made."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

from producer_core._internal.masking import mask_text
from producer_core.dashboard.queries.audits import FAULTS, KINDS, Audit, TopicAudit
from producer_core.dashboard.wording.numbers import count, plural
from producer_core.dashboard.wording.time import age, stamp

Tone = Literal["bad", "warning", "good", "quiet"]

LABELS: Mapping[str, str] = {
    "lost": "Lost",
    "duplicated": "Duplicated",
    "reordered": "Out of order",
    "given_up_found": "Given up, yet there",
    "pending": "Pending",
    "expired": "Expired",
    "undecided": "Undecided",
    "unledgered": "In no ledger",
}
MEANINGS: Mapping[str, str] = {
    "lost": "Acknowledged by the broker, and not on the log.",
    "duplicated": "On the log more than once.",
    "reordered": "Behind a message that was sent later, in the same partition and session.",
    "given_up_found": "A dead letter for its producer, and on the log all the same: do not send it again.",
    "pending": "Hidden by an open transaction. Audit again when it has ended.",
    "expired": "Gone by retention before this audit, so nobody can say more.",
    "undecided": "Acknowledged at an unknown offset, and not in the part that was read. Audit the whole topic.",
    "unledgered": "On the log, and in no producer's ledger: its producer keeps none, or died before it told.",
}
_PASSING: Mapping[str, str] = {
    "given_up_found": "given up, yet there",
    "pending": "pending",
    "expired": "expired",
    "undecided": "undecided",
    "unledgered": "in no ledger",
}
LETTERS: Mapping[str, str] = {
    "dead": "dead letter, waits",
    "replaying": "dead letter, is sent again now",
    "replayed": "dead letter, sent again",
    "landed": "dead letter, found on its topic",
    "archived": "dead letter, archived",
    "purged": "dead letter, purged",
}

NONE_YET = (
    "No topic was audited for this store. An audit reads a topic and proves, by message id, what was lost, duplicated or "
    "put out of order. It needs the producers' ledgers: telemetry_topic= or ledger=True, and what `producer-core send` "
    "keeps in its store:"
)
IN_PARQUET = "All findings are written as Parquet, here:"
NO_PARQUET = "This audit wrote no file of all findings; --findings FOLDER does."
UNAUDITABLE = "unauditable"
UNKNOWN = "There is no audit {} in this store: it is older than what is kept, or of another store."


def command(store: str, topic: str = "TOPIC") -> str:
    """What audits a topic for this store."""
    ours = (
        f"--topic {shlex.quote(topic)} --ledger-topic telemetry -b BROKER:9092 --store {shlex.quote(store)}"
    )
    return f"producer-core pipeline integrity {ours} --findings findings"


def query(path: str) -> str:
    """What reads all findings of a folder of Parquet in DuckDB."""
    quoted = path.replace("'", "''")
    return f"SELECT * FROM '{quoted}/*.parquet'"


def verdict(audit: Audit, now: float) -> tuple[Tone, str]:
    """A tone, and what the audit says of its topic."""
    if audit.state == "running":
        return "quiet", f"The audit runs since {age(now - audit.started_at)}."
    if audit.state == "dead":
        return (
            "warning",
            f"The audit began {age(now - audit.started_at)} ago and never ended: it was killed. Run it again.",
        )
    said = mask_text(audit.sentence) or "It found nothing to say."
    if audit.state == "failed":
        return "warning", f"The audit could not be done: {said}"
    if audit.numbers.get("lost"):
        return "bad", said
    return ("warning" if audit.faults or audit.unauditable or audit.holes else "good"), said


def later(audit: Audit, now: float) -> str:
    """What a newer audit of the topic says, which is not done."""
    began = age(now - audit.started_at)
    known = {
        "running": f"A newer one runs since {began}.",
        "dead": f"A newer one was killed; it began {began} ago.",
        "failed": f"A newer one could not be done, {began} ago: {mask_text(audit.sentence)}",
    }
    return known.get(audit.state, "")


def earlier(audit: Audit, now: float) -> str:
    """What an earlier audit found, of which the last one cannot speak."""
    return f"An earlier one, {age(now - audit.started_at)} ago: {mask_text(audit.sentence)}"


def number(audit: Audit, kind: str) -> str:
    """How many messages of a kind: a dash before the audit is done, «?» where nobody can say."""
    found = audit.numbers.get(kind)
    if kind == "lost" and audit.unauditable and not found:
        return "?"
    return "–" if found is None else count(found) if found else "none"


def passing(audit: Audit) -> str:
    """What else was found, which is no fault: «12 expired, 3 in no ledger»."""
    found = [f"{number:,} {name}" for kind, name in _PASSING.items() if (number := audit.numbers.get(kind))]
    found += [f"{audit.foreign:,} of other producers"] if audit.foreign else []
    return ", ".join(found)


def why_unauditable(audit: Audit) -> str:
    """Why nobody can say what is lost; empty where a loss would have shown."""
    if audit.compacted:
        return "The topic is compacted: Kafka itself removes records, so a missing one proves nothing."
    if audit.unauditable:
        return "No ledger speaks of this part. Give the producers telemetry_topic= and name it with --ledger-topic."
    return ""


def part_of_topic(audit: Audit, zone: str | None, now: float) -> str:
    """Which part of the topic was read."""
    if not audit.parts:
        return "–"
    partitions = plural(len(audit.parts), "partition")
    if audit.whole:
        return f"all of it, {partitions}"
    offsets = sum(max(0, part.end - part.start) for part in audit.parts)
    if not offsets:
        return f"nothing new, {partitions}"
    times = [
        f"{word} {stamp(at, zone, now).text}"
        for word, at in (("from", audit.since), ("until", audit.until))
        if at is not None
    ]
    return f"{' '.join(times) or 'a part'}: {plural(offsets, 'offset')} of {partitions}"


def faults(found: Sequence[TopicAudit]) -> str:
    """On which topics the last audit found faults; empty where it found none."""
    bad = [one.audit for one in found if one.audit.faults]
    if not bad:
        return ""
    named = [f"{audit.topic} ({_faults(audit)})" for audit in bad[:3]]
    more = f" and {len(bad) - 3:,} more topics" if len(bad) > 3 else ""
    return f"The last audit found faults: {', '.join(named)}{more}. See Audits below."


def _faults(audit: Audit) -> str:
    listed = [f"{number:,} {LABELS[kind].lower()}" for kind in FAULTS if (number := audit.numbers.get(kind))]
    return " and ".join(listed) if len(listed) < 3 else f"{listed[0]}, {listed[1]} and {listed[2]}"


def kind_of(asked: str | None, kinds: Sequence[str]) -> str | None:
    """The kind that the address asks for, else the worst that there is."""
    return asked if asked in kinds else kinds[0] if kinds else None


def listed(shown: int, held: int, found: int | None) -> str:
    """How many of how many findings are listed; empty where all of them are."""
    everything = max(held, found or 0)
    return "" if shown >= everything else f"The first {shown:,} of {everything:,}, in the order of places."


def counts(audit: Audit) -> list[tuple[str, str, str]]:
    """Each kind that matters: faults always, others where there are any; with its number and meaning."""
    return [
        (kind, number(audit, kind), MEANINGS[kind])
        for kind in KINDS
        if kind in FAULTS or audit.numbers.get(kind)
    ]


def facts(audit: Audit, zone: str | None, now: float) -> list[tuple[str, str]]:
    """How the audit was made."""
    took = f", took {age(audit.finished_at - audit.started_at)}" if audit.finished_at else ""
    known = [
        ("When", f"{stamp(audit.started_at, zone, now).text}{took}"),
        ("Which part", part_of_topic(audit, zone, now)),
        ("Read as", audit.isolation.replace("_", " ")),
        ("Records read", count(audit.records)),
        ("Acknowledged", f"{count(audit.acknowledged)} by the ledgers"),
        (
            "Of other producers",
            f"{count(audit.foreign)} {'record' if audit.foreign == 1 else 'records'} without a message id of ours; not judged",
        ),
        ("Cluster", audit.cluster_id or "–"),
    ]
    if audit.ledger_gaps:
        holes = (
            plural(audit.ledger_gaps, "batch") if audit.ledger_gaps == 1 else f"{audit.ledger_gaps:,} batches"
        )
        known.append(("Missing in ledgers", f"{holes}; what they told is not known"))
    if audit.ledger_lost:
        left = plural(audit.ledger_lost, "acknowledgement")
        known.append(("Left out of ledgers", f"{left}; there was no room for them"))
    if audit.strange:
        unread = "1 record or row" if audit.strange == 1 else f"{audit.strange:,} records or rows"
        known.append(("Unreadable in ledgers", f"{unread}; a newer schema, or no telemetry"))
    return known
