"""Audits: of each topic the last one, and one of them with its findings and the ranges that it read."""

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
"""Kinds of findings, faults first; docs/integrity.md says what each means."""
FAULTS = KINDS[:3]

SHOWN, MANY = 100, 1000
"""Findings of a kind on the page at first, and at most; all of them are in the audit's Parquet."""
BEFORE = 20
_HELD = 10_000


class AuditedPart(NamedTuple):
    """The offsets of a partition that were read, and its low watermark and last stable offset of then."""

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
    """One audit. Its `numbers` are messages by kind; None where it did not come so far."""

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
        """Messages that are lost, duplicated or out of order."""
        return sum(self.numbers.get(kind) or 0 for kind in FAULTS)

    @property
    def unauditable(self) -> bool:
        """A loss could not have shown: compaction removes records, or no ledger speaks of what is there."""
        return self.state == "done" and (self.compacted or bool(self.ours and not self.acknowledged))

    @property
    def holes(self) -> bool:
        """Producers acknowledged more than the ledgers that were read say."""
        return bool(self.ledger_gaps or self.ledger_lost or self.strange)

    @property
    def whole(self) -> bool:
        """Everything that a reader saw was read."""
        return self.since is None and self.until is None and all(part.whole for part in self.parts)


@dataclass(frozen=True)
class TopicAudit:
    """The audit that says most of a topic: the last that was done. `later` was begun since and says nothing yet; `earlier`
    found faults of which this one cannot speak: in a part that it did not read, or without the ledgers that show them."""

    audit: Audit
    later: Audit | None = None
    earlier: Audit | None = None


@dataclass(frozen=True)
class AuditFinding:
    """A message, where it is or was acknowledged, and what this store knows of it: its dead letter's state, its replay."""

    message_id: str
    partition: int | None
    offset: int | None
    text: str
    dead_letter: str | None
    operation_id: str | None


@dataclass(frozen=True)
class AuditPage:
    """One audit from all sides. `held` counts findings that the store holds by kind, `faults` those of each partition."""

    audit: Audit
    held: Mapping[str, int]
    faults: Mapping[int, Mapping[str, int]]
    others: tuple[Audit, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of which there are findings to show, faults first."""
        return tuple(kind for kind in KINDS if self.held.get(kind))

    @property
    def cut(self) -> bool:
        """Whether the store may hold fewer findings than there were."""
        return any(number >= _HELD for number in self.held.values())


def audits(store: Store, topic: str | None, now: float) -> tuple[TopicAudit, ...]:
    """Of each topic the last word, topics with faults first."""
    with store.borrow():
        rows = store.rows("last_audits", topic=topic)
    by_topic: dict[tuple[str, str], list[Audit]] = defaultdict(list)
    for row in rows:
        by_topic[row["cluster_id"], row["topic"]].append(_audit(row, now))
    return tuple(sorted((_last_word(found) for found in by_topic.values()), key=_trouble))


def one(store: Store, audit_id: str, now: float) -> AuditPage | None:
    """One audit; None where this store knows of none with that id."""
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
    """Findings of one kind, in the order of their places."""
    rows = store.rows("audit_findings_of", audit=audit_id, kind=kind, limit=limit)
    return tuple(
        AuditFinding(
            row["message_id"] or "",
            row["partition"],
            row["offset"],
            row["text"] or "",
            row["letter"],
            row["operation_id"],
        )
        for row in rows
    )


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
    """The ranges as the audit wrote them; none where they make no sense."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        said = orjson.loads(ranges or "{}")
        yield from sorted(AuditedPart(int(number), *map(int, range_)) for number, range_ in said.items())


def _last_word(found: Sequence[Audit]) -> TopicAudit:
    """`found`, the newest first: the last that was begun, the last that was done, the last with faults; some may be one."""
    newest = found[0]
    shown = next((audit for audit in found if audit.state == "done"), newest)
    before = [
        audit for audit in found if audit is not shown and audit.faults and not _speaks_for(shown, audit)
    ]
    if shown.unauditable:  # of copies and order it can speak
        before.sort(key=lambda audit: not audit.numbers["lost"])
    return TopicAudit(shown, None if newest is shown else newest, before[0] if before else None)


def _speaks_for(shown: Audit, before: Audit) -> bool:
    """Whether faults of an audit before would show again: everything was read, and no fewer ledgers were heard."""
    unledgered, then = (audit.numbers["unledgered"] or 0 for audit in (shown, before))
    return shown.whole and not shown.unauditable and unledgered <= then


def _trouble(last: TopicAudit) -> tuple[Any, ...]:
    """What to sort by: what is lost, twice, out of order; then what nobody can say; then the latest."""
    audit = last.audit
    return (
        *(-(audit.numbers[kind] or 0) for kind in FAULTS),
        audit.state == "done" and not audit.unauditable,
        -audit.started_at,
        audit.topic,
    )
