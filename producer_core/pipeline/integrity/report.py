"""The report of an audit: what was found, as numbers, as ids, and as sentences."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from producer_core.masking import mask_told
from producer_core.pipeline.integrity import words
from producer_core.pipeline.integrity.spans import Isolation, Span

if TYPE_CHECKING:
    import pyarrow

    from producer_core.pipeline.integrity.looking import Found, Question

Kind = Literal[
    "lost", "duplicated", "reordered", "expired", "pending", "unledgered", "given_up_found", "undecided"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
FAULTS: tuple[Kind, ...] = ("lost", "duplicated", "reordered")
KEPT = 10_000
"""Findings of a kind that the report and the store hold; the Parquet has all."""

_SHOWN = 20


class Gap(NamedTuple):
    """Batches of a producer's ledger that are missing, from the first to the last."""

    producer_id: str
    first: int
    last: int


class Expired(NamedTuple):
    """Acknowledgements of a partition that lie below its low watermark: so many, from one offset to another."""

    partition: int
    count: int  # type: ignore[assignment]  # nobody needs tuple.count here
    first: int
    last: int


@dataclass(frozen=True, repr=False)
class AuditReport:
    """Numbers are messages, each id once, but `records` and `foreign`, which are records on the log.

    `lost`: acknowledged, and not on the log. `duplicated`: at more than one place. `reordered`: behind one of their
    session with a higher sequence in the same partition. `expired`: acknowledged below the low watermark, so nobody can
    say. `pending`: hidden by an open transaction. `unledgered`: on the log, and in no ledger. `undecided`: acknowledged
    at an unknown place, and the range is not the whole topic. `findings` are up to 10,000 of each kind: kind,
    message_id, partition, offset, other_partition, other_offset. `read_again` counts the offsets of the second look.
    """

    audit_id: str
    topic: str
    cluster_id: str
    started_at: float
    finished_at: float
    isolation: Isolation
    spans: Mapping[int, Span]
    records: int
    foreign: int
    acknowledged: int
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    expired: int = 0
    pending: int = 0
    unledgered: int = 0
    given_up: int = 0
    given_up_found: int = 0
    undecided: int = 0
    expired_ranges: tuple[Expired, ...] = ()
    gaps: tuple[Gap, ...] = ()
    ledger_lost: int = 0
    strange: int = 0
    compacted: bool = False
    since: float | None = None
    until: float | None = None
    read_again: int = 0
    findings: pyarrow.Table = field(default=None, compare=False)
    findings_path: str | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def made(
        cls, question: Question, found: Found, listed: tuple[Mapping[str, int], pyarrow.Table], **others: Any
    ) -> AuditReport:
        """Of what was asked, what was found, and the findings as counts by kind and as a table."""
        counts, table = listed
        numbers: dict[str, Any] = {**counts}
        numbers["expired"] = counts.get("expired", 0) + sum(one.count for one in found.expired)
        return cls(
            topic=question.topic, cluster_id=question.cluster, started_at=question.started, finished_at=time.time(),
            since=question.since, compacted=question.compacted, spans=found.spans, records=found.records,
            foreign=found.foreign, acknowledged=found.acknowledged, read_again=found.read_again,
            expired_ranges=found.expired, findings=table, **numbers, **others,
        )  # fmt: skip

    @property
    def ours(self) -> int:
        """Records with a message id."""
        return self.records - self.foreign

    @property
    def ledger_gaps(self) -> int:
        """Batches of ledgers that are missing."""
        return sum(gap.last - gap.first + 1 for gap in self.gaps)

    @property
    def auditable(self) -> bool:
        """Whether a loss would show: not where compaction removes records."""
        return not self.compacted

    @property
    def unauditable(self) -> bool:
        """A loss could not have shown: compaction removes records, or no ledger speaks of what is here."""
        return self.compacted or (self.ours > 0 and not self.acknowledged)

    @property
    def sentence(self) -> str:
        return words.sentence(self)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a person must know, the first one in one line."""
        return tuple(words.sentences(self))

    @property
    def clean(self) -> bool:
        """Nothing is lost, duplicated or out of order; `auditable` says whether a loss would have shown."""
        return not any(getattr(self, kind) for kind in FAULTS)

    def found(self, kinds: Sequence[str]) -> list[str]:
        """Of these kinds those that were found: `--fail-on`."""
        return [kind for kind in kinds if getattr(self, kind)]

    def rows(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The findings held here, of one kind or of all, each with its text."""
        listed = [] if self.findings is None else self.findings.to_pylist()
        return [
            row | {"text": words.finding(row["kind"], row["partition"], row["offset"], row["other_offset"], row["other_partition"])}
            for row in listed
            if kind in (None, row["kind"])
        ]  # fmt: skip

    def ids(self, kind: str) -> list[str]:
        """The message ids of one kind, each once, in the order of their places."""
        return list(dict.fromkeys(row["message_id"] for row in self.rows(kind)))

    def to_dict(self) -> dict[str, Any]:
        """For programs: what `pipeline integrity --json` prints."""
        numbers = (
            "records",
            "ours",
            "foreign",
            "acknowledged",
            *KINDS,
            "given_up",
            "ledger_gaps",
            "ledger_lost",
            "strange",
            "read_again",
        )
        return {
            "audit_id": self.audit_id, "topic": self.topic, "cluster_id": self.cluster_id,
            "sentence": self.sentence, "sentences": list(self.sentences), "clean": self.clean, "auditable": self.auditable,
            **{name: getattr(self, name) for name in numbers},
            "isolation": self.isolation, "since": self.since, "until": self.until,
            "started_at": self.started_at, "finished_at": self.finished_at,
            "ranges": self.ranges,
            "expired_ranges": [one._asdict() for one in self.expired_ranges],
            "gaps": [gap._asdict() for gap in self.gaps],
            "findings_path": self.findings_path,
        }  # fmt: skip

    @property
    def ranges(self) -> dict[str, list[int]]:
        """By partition: first offset, the one after the last, low watermark, last stable offset."""
        return {
            str(number): [span.start, span.end, span.low, span.stable] for number, span in self.spans.items()
        }

    def __repr__(self) -> str:
        lines = [*self.sentences]
        for kind in KINDS:
            named = self.rows(kind)[:5] if kind != "unledgered" else []
            lines += [f"  {row['message_id']} {row['text']}" for row in named]
            if (left := getattr(self, kind) - len(named)) > 0 and named:
                lines.append(f"  and {left:,} more {kind.replace('_', ' ')}")
        if self.findings_path:
            lines.append(f"All findings: {self.findings_path}")
        return mask_told("\n".join(lines))

    def _repr_html_(self) -> str:
        from producer_core import shown

        first, *lines = self.sentences
        facts = [("records", self.records), ("acknowledged", self.acknowledged)]
        facts += [(kind.replace("_", " "), getattr(self, kind)) for kind in KINDS]
        listed = [row for kind in KINDS for row in self.rows(kind)[:_SHOWN]][:_SHOWN]
        rows = [(row["kind"].replace("_", " "), row["message_id"], row["text"]) for row in listed]
        named = sum(getattr(self, kind) for kind in KINDS if kind != "expired")
        more = max(0, named - len(rows)) if rows else 0
        if self.findings_path:
            lines.append(f"All findings: {self.findings_path}")
        return shown.page(
            first, facts=facts, columns=("", "message", "where"), rows=rows, lines=lines, more=more
        )
