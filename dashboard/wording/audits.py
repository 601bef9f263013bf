"""Texts about audits: the kinds of findings, the audited range of a topic, and the commands that run an audit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

from producer_core._internal.masking import mask_text
from producer_core._internal.plural import plural
from producer_core.dashboard.queries.audits import FAULTS, KINDS, Audit, AuditSources, TopicAudit
from producer_core.dashboard.wording.numbers import count
from producer_core.dashboard.wording.time import age, stamp

Tone = Literal["bad", "warning", "good", "quiet"]

LABELS: Mapping[str, str] = {
    "lost": "Lost",
    "duplicated": "Duplicated",
    "reordered": "Out of order",
    "given_up_found": "Dead letter in log",
    "pending": "Pending",
    "expired": "Expired",
    "undecided": "Undecided",
    "unledgered": "Not in ledger",
}
MEANINGS: Mapping[str, str] = {
    "lost": "Acknowledged by the broker, but missing from the log.",
    "duplicated": "In the log more than once.",
    "reordered": "Out of send order within its partition and producer session.",
    "given_up_found": "A dead letter that is in the log. Do not replay it.",
    "pending": "Hidden by an open transaction. Repeat the audit after it ends.",
    "expired": "Deleted by retention before this audit; cannot be checked.",
    "undecided": "Acknowledged, offset unknown; not found in the audited range. Audit the whole topic.",
    "unledgered": "In the log, but in no ledger: the producer keeps none or crashed before reporting.",
}
_OTHER_KINDS: Mapping[str, str] = {
    "given_up_found": "dead letters in the log",
    "pending": "pending",
    "expired": "expired",
    "undecided": "undecided",
    "unledgered": "not in any ledger",
}
DEAD_LETTER_STATES: Mapping[str, str] = {
    "dead": "dead letter, pending",
    "replaying": "dead letter, replay in progress",
    "replayed": "dead letter, replayed",
    "landed": "dead letter, found on its topic",
    "archived": "dead letter, archived",
    "purged": "dead letter, purged",
}

NONE_YET = (
    "No topic has been audited yet. An audit reads a topic and checks every message for loss, duplication and reordering. "
    "It compares the topic with the ledgers of its producers. producer-core send writes a ledger, and so does a producer with "
    "telemetry_topic= or ledger=True. To audit a topic:"
)
IN_PARQUET = "All findings are available as Parquet:"
NO_PARQUET = (
    "This audit did not keep a complete list of its findings. Run it with --findings FOLDER to write one."
)
UNAUDITABLE = "unauditable"
UNKNOWN = "Audit {} is not in this store. It may have expired or belong to another store."


_UNKNOWN = AuditSources()


def command(store: str, topic: str = "TOPIC", sources: AuditSources = _UNKNOWN) -> str:
    """Return the shell command that audits a topic for this store, with the values that the store knows."""
    ledger = "" if sources.ledger_in_store else " --ledger-topic telemetry"
    login = " --config-file client.properties" if sources.secured else ""
    return (
        f"producer-core pipeline integrity --topic {shlex.quote(topic)}{ledger} -b {shlex.quote(sources.servers or 'BROKER:9092')}"
        f"{login} --store {shlex.quote(store)} --findings findings"
    )


def query(path: str) -> str:
    """Return the DuckDB query that reads all findings from a folder of Parquet files."""
    quoted = path.replace("'", "''")
    return f"SELECT * FROM '{quoted}/*.parquet'"


def verdict(audit: Audit, now: float) -> tuple[Tone, str]:
    """Return a tone and the result of the audit, or its state while it has none."""
    began = age(now - audit.started_at)
    if audit.state == "running":
        return "quiet", f"Audit running for {began}."
    if audit.state == "dead":
        return "warning", f"The audit started {began} ago and was killed before it finished. Run it again."
    result = mask_text(audit.sentence) or "The audit reported no result."
    if audit.state == "failed":
        return "warning", f"The audit failed: {result}"
    if audit.numbers.get("lost"):
        return "bad", result
    return ("warning" if audit.faults or audit.unauditable or audit.holes else "good"), result


def later(audit: Audit, now: float) -> str:
    """Return the state of a newer audit of the topic that has no result."""
    began = age(now - audit.started_at)
    known = {
        "running": f"A newer audit has been running for {began}.",
        "dead": f"A newer audit started {began} ago and was killed.",
        "failed": f"A newer audit failed {began} ago: {mask_text(audit.sentence)}",
    }
    return known.get(audit.state, "")


def earlier(audit: Audit, now: float) -> str:
    """Return the result of an earlier audit whose faults the latest audit could not confirm or rule out."""
    return f"Earlier audit, {age(now - audit.started_at)} ago: {mask_text(audit.sentence)}"


def number(audit: Audit, kind: str) -> str:
    """Return the number of findings of a kind: a dash before the audit finishes, "?" where it cannot be determined."""
    found = audit.numbers.get(kind)
    if kind == "lost" and audit.unauditable and not found:
        return "?"
    return "–" if found is None else count(found) if found else "none"


def other_counts(audit: Audit) -> str:
    """Return the findings that are not faults, such as "12 expired, 3 not in any ledger"."""
    found = [_other_count(number, kind) for kind in _OTHER_KINDS if (number := audit.numbers.get(kind))]
    found += [f"{audit.foreign:,} from other producers"] if audit.foreign else []
    return ", ".join(found)


def _other_count(number: int, kind: str) -> str:
    if kind == "given_up_found" and number == 1:
        return "1 dead letter in the log"
    return f"{number:,} {_OTHER_KINDS[kind]}"


def why_unauditable(audit: Audit) -> str:
    """Return why a loss cannot be detected; empty where it can."""
    if audit.compacted:
        return "The topic is compacted: Kafka itself removes records, so a missing record proves nothing."
    if audit.unauditable:
        return "No ledger covers this range. Set telemetry_topic= on the producers and pass it as --ledger-topic."
    return ""


def audited_range(audit: Audit, zone: str | None, now: float) -> str:
    """Return the part of the topic that the audit read."""
    if not audit.parts:
        return "–"
    partitions = plural(len(audit.parts), "partition")
    if audit.whole:
        return f"whole topic, {partitions}"
    offsets = sum(max(0, part.end - part.start) for part in audit.parts)
    if not offsets:
        return f"nothing new, {partitions}"
    times = [
        f"{word} {stamp(at, zone, now).text}"
        for word, at in (("from", audit.since), ("until", audit.until))
        if at is not None
    ]
    return f"{' '.join(times) or 'part of the topic'}: {plural(offsets, 'offset')} in {partitions}"


def faults(found: Sequence[TopicAudit]) -> str:
    """Return the topics whose last audit found faults, three at most; empty where there are none."""
    bad = [one.audit for one in found if one.audit.faults]
    if not bad:
        return ""
    named = [f"{audit.topic} ({_faults(audit)})" for audit in bad[:3]]
    more = f" and {plural(len(bad) - 3, 'more topic')}" if len(bad) > 3 else ""
    return f"Audits found faults: {', '.join(named)}{more}. See Audits below."


def _faults(audit: Audit) -> str:
    listed = [f"{number:,} {LABELS[kind].lower()}" for kind in FAULTS if (number := audit.numbers.get(kind))]
    return " and ".join(listed) if len(listed) < 3 else f"{listed[0]}, {listed[1]} and {listed[2]}"


def kind_of(requested: str | None, kinds: Sequence[str]) -> str | None:
    """Return the kind that the URL names, else the worst one present."""
    return requested if requested in kinds else kinds[0] if kinds else None


def listed(shown: int, held: int, found: int | None) -> str:
    """Return how many of the findings are listed; empty where all are."""
    total = max(held, found or 0)
    return "" if shown >= total else f"Showing the first {shown:,} of {total:,}, by partition and offset."


def counts(audit: Audit) -> list[tuple[str, str, str]]:
    """Return kind, number and meaning: every fault, and the other kinds that have findings."""
    return [
        (kind, number(audit, kind), MEANINGS[kind])
        for kind in KINDS
        if kind in FAULTS or audit.numbers.get(kind)
    ]


def facts(audit: Audit, zone: str | None, now: float) -> list[tuple[str, str]]:
    """Return the parameters of the audit and what limits its result."""
    took = f", took {age(audit.finished_at - audit.started_at)}" if audit.finished_at else ""
    foreign = "record" if audit.foreign == 1 else "records"
    known = [
        ("Started", f"{stamp(audit.started_at, zone, now).text}{took}"),
        ("Range", audited_range(audit, zone, now)),
        ("Isolation level", audit.isolation.replace("_", " ")),
        ("Records read", count(audit.records)),
        ("Acknowledged", f"{count(audit.acknowledged)} according to the ledgers"),
        (
            "Other producers",
            f"{count(audit.foreign)} {foreign} without a producer-core message id; not checked",
        ),
        ("Cluster", audit.cluster_id or "–"),
    ]
    if audit.ledger_gaps:
        batches = (
            "1 batch; its contents are unknown"
            if audit.ledger_gaps == 1
            else f"{audit.ledger_gaps:,} batches; their contents are unknown"
        )
        known.append(("Missing from ledgers", batches))
    if audit.ledger_lost:
        lost = plural(audit.ledger_lost, "acknowledgement")
        known.append(("Dropped from ledgers", f"{lost}; the buffer was full"))
    if audit.strange:
        unread = "1 record or row" if audit.strange == 1 else f"{audit.strange:,} records or rows"
        known.append(("Unreadable in ledgers", f"{unread}; a newer schema, or not telemetry"))
    return known
