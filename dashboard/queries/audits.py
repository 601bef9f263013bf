"""Queries for audits: the latest per topic, and one audit with its findings and ranges."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from producer_core.dashboard.queries.jobs import State, state_of
from producer_core.store import Store

KINDS = (
    "lost",
    "duplicated",
    "reordered",
    "given_up_found",
    "pending",
    "expired",
    "undecided",
    "unledgered",
)
"""Kinds of findings, faults first."""
FAULTS = KINDS[:3]

SHOWN, MANY = 100, 1000
"""The number of findings of a kind on the page initially, and at most; the audit's Parquet files hold all of them."""
BEFORE = 20
"""The number of other audits of the topic that the page lists."""
_STORE_LIMIT = 10_000
"""The number of findings of a kind that the store keeps."""


class AuditedPart(NamedTuple):
    """Holds the audited offsets of a partition, and its low watermark and last stable offset at the time."""

    partition: int
    start: int
    end: int
    low: int
    stable: int

    @property
    def whole(self) -> bool:
        return self.start <= self.low and self.end >= self.stable


@dataclass(frozen=True)
class Audit:
    """Holds one audit; `numbers` counts messages by kind, with None for kinds that were not determined."""

    audit_id: str
    topic: str
    cluster_id: str
    started_at: float
    finished_at: float | None
    state: State
    isolation: str
    since: float | None
    until: float | None
    parts: tuple[AuditedPart, ...]
    records: int | None
    foreign: int | None
    ours: int | None
    acknowledged: int | None
    given_up: int | None
    ledger_gaps: int | None
    ledger_lost: int | None
    strange: int | None
    notes: tuple[str, ...]
    compacted: bool
    numbers: Mapping[str, int | None]
    sentence: str
    findings_path: str | None

    @property
    def faults(self) -> int:
        """Return the number of messages that are lost, duplicated or out of order."""
        return sum(self.numbers.get(kind) or 0 for kind in FAULTS)

    @property
    def unauditable(self) -> bool:
        """Return whether a loss cannot be detected: the topic is compacted, or no ledger covers the range."""
        return self.state == "done" and (self.compacted or bool(self.ours and not self.acknowledged))

    @property
    def holes(self) -> bool:
        """Return whether the ledgers lack acknowledgements."""
        return bool(self.ledger_gaps or self.ledger_lost or self.strange)

    @property
    def whole(self) -> bool:
        """Return whether the audit read everything that was readable."""
        return self.since is None and self.until is None and all(part.whole for part in self.parts)


@dataclass(frozen=True)
class TopicAudit:
    """Holds the latest finished audit of a topic.

    `later` has been started since then and has no result. `earlier` found faults that `audit` cannot confirm or rule out, because
    it read another range or lacked the ledgers.
    """

    audit: Audit
    later: Audit | None = None
    earlier: Audit | None = None


class AuditSources(NamedTuple):
    """Holds what an audit command needs to know: the brokers, whether they require a login, and where the ledger is.

    `servers` is empty if the store does not know them. Without `ledger_in_store`, the ledger is on a telemetry topic.
    """

    servers: str = ""
    secured: bool = False
    ledger_in_store: bool = False


@dataclass(frozen=True)
class AuditFinding:
    """Holds a message with its position, and the state of its dead letter and its replay in this store."""

    message_id: str
    partition: int | None
    offset: int | None
    text: str
    dead_letter: str | None
    operation_id: str | None


@dataclass(frozen=True)
class AuditPage:
    """Holds one audit; `held` counts the findings in the store by kind, and `faults` the faults by partition."""

    audit: Audit
    held: Mapping[str, int]
    faults: Mapping[int, Mapping[str, int]]
    others: tuple[Audit, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds that have findings to show, faults first."""
        return tuple(kind for kind in KINDS if self.held.get(kind))

    @property
    def cut(self) -> bool:
        """Return whether the store may hold fewer findings than the audit found."""
        return any(number >= _STORE_LIMIT for number in self.held.values())


def audits(store: Store, topic: str | None, now: float) -> tuple[TopicAudit, ...]:
    """Return the latest result per topic, topics with faults first."""
    with store.borrow():
        rows = store.rows("last_audits", topic=topic)
    by_topic: dict[tuple[str, str], list[Audit]] = defaultdict(list)
    for row in rows:
        by_topic[row["cluster_id"], row["topic"]].append(_audit(row, now))
    return tuple(sorted((_latest_result(found) for found in by_topic.values()), key=_severity))


def one(store: Store, audit_id: str, now: float) -> AuditPage | None:
    """Return one audit; None where the store has no audit of that id."""
    with store.borrow():
        rows = store.rows("one_audit", audit=audit_id)
        if not rows:
            return None
        audit = _audit(rows[0], now)
        counted = store.rows("audit_findings_by", audit=audit_id)
        of_topic = store.rows("audits_of_topic", topic=audit.topic, cluster=audit.cluster_id, limit=BEFORE)
    held: Counter[str] = Counter()
    by_part: dict[int, dict[str, int]] = defaultdict(dict)
    for row in counted:
        held[row["kind"]] += row["findings"]
        if row["kind"] in FAULTS and row["partition"] is not None:
            by_part[row["partition"]][row["kind"]] = row["messages"]
    others = tuple(_audit(row, now) for row in of_topic if row["audit_id"] != audit_id)
    return AuditPage(audit, dict(held), dict(by_part), others)


def findings(store: Store, audit_id: str, kind: str, limit: int) -> tuple[AuditFinding, ...]:
    """Return findings of one kind, by partition and offset."""
    rows = store.rows("audit_findings_of", audit=audit_id, kind=kind, limit=limit)
    return tuple(
        AuditFinding(
            row["message_id"] or "",
            row["partition"],
            row["offset"],
            row["text"] or "",
            row["dead_letter_state"],
            row["operation_id"],
        )
        for row in rows
    )


def sources(store: Store, topic: str | None, cluster: str | None = None) -> AuditSources:
    """Return the sources of an audit of this topic. None means any topic or cluster."""
    (row,) = store.rows("audit_sources", topic=topic, cluster=cluster)
    settings = orjson.loads(row["settings"] or "{}")
    protocol = str(settings.get("security.protocol", "plaintext")).lower()
    return AuditSources(settings.get("bootstrap.servers", ""), protocol != "plaintext", row["has_ledger"])


def _audit(row: Mapping[str, Any], now: float) -> Audit:
    return Audit(
        audit_id=row["audit_id"],
        topic=row["topic"],
        cluster_id=row["cluster_id"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        state=state_of(row["state"], now - row["seen_at"]),
        isolation=row["isolation"],
        since=row["since"],
        until=row["until"],
        parts=tuple(_parts(row["ranges"])),
        records=row["records"],
        foreign=row["foreign_records"],
        ours=row["ours"],
        acknowledged=row["acknowledged"],
        given_up=row["given_up"],
        ledger_gaps=row["ledger_gaps"],
        ledger_lost=row["ledger_lost"],
        strange=row["strange"],
        notes=tuple((row["notes"] or "").splitlines()),
        compacted=row["auditable"] is False,
        numbers={kind: row[kind] for kind in KINDS},
        sentence=row["sentence"] or "",
        findings_path=row["findings_path"],
    )


def _parts(ranges: str | None) -> Iterable[AuditedPart]:
    """Parse the ranges that the audit wrote; yield none where they are malformed."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        parsed = orjson.loads(ranges or "{}")
        yield from sorted(AuditedPart(int(number), *map(int, range_)) for number, range_ in parsed.items())


def _latest_result(found: Sequence[Audit]) -> TopicAudit:
    """Return the latest finished audit of a topic, a newer unfinished one, and an earlier one with faults.

    `found` holds the audits of the topic, newest first.
    """
    newest = found[0]
    shown = next((audit for audit in found if audit.state == "done"), newest)
    before = [
        audit for audit in found if audit is not shown and audit.faults and not _supersedes(shown, audit)
    ]
    if shown.unauditable:  # it still detects duplicates and wrong order, so an earlier loss matters most
        before.sort(key=lambda audit: not audit.numbers["lost"])
    return TopicAudit(shown, None if newest is shown else newest, before[0] if before else None)


def _supersedes(shown: Audit, before: Audit) -> bool:
    """Return whether `shown` would repeat earlier faults: it read the whole topic, with no fewer ledgers."""
    unledgered, then = (audit.numbers["unledgered"] or 0 for audit in (shown, before))
    return shown.whole and not shown.unauditable and unledgered <= then


def _severity(last: TopicAudit) -> tuple[Any, ...]:
    """Return the sort key: losses, duplicates, wrong order, then undetermined results, then the latest."""
    audit = last.audit
    return (
        *(-(audit.numbers[kind] or 0) for kind in FAULTS),
        audit.state == "done" and not audit.unauditable,
        -audit.started_at,
        audit.topic,
    )
