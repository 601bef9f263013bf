"""The report of an audit: its outcome as numbers, message ids and sentences."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.masking import mask_or_hide
from producer_core.pipeline.integrity import wording
from producer_core.pipeline.integrity.comparison import ComparisonRequest, ComparisonResult
from producer_core.pipeline.integrity.outcome import KINDS, AuditOutcome

if TYPE_CHECKING:
    import pyarrow

_SHOWN = 20


@dataclass(frozen=True, repr=False)
class AuditReport(AuditOutcome):
    """Report an audit. Numbers count messages, each id once, except `records` and `foreign`, which count records.

    `lost`: acknowledged, and not in the log. `duplicated`: in the log more than once. `reordered`: after a message of
    their session with a higher sequence in the same partition. `expired`: acknowledged below the low watermark, so
    they cannot be checked. `pending`: hidden by an open transaction. `unledgered`: in the log, and in no ledger.
    `undecided`: acknowledged without an offset, when the range is not the whole topic. `findings` holds up to 10,000
    of each kind: kind, message_id, partition, offset, other_partition, other_offset. `read_again` counts the offsets
    of the second pass.
    """

    @classmethod
    def made(
        cls,
        request: ComparisonRequest,
        found: ComparisonResult,
        listed: tuple[Mapping[str, int], pyarrow.Table],
        **others: Any,
    ) -> AuditReport:
        """Make a report from the request, the result, and the findings as counts by kind and as a table."""
        counts, table = listed
        numbers: dict[str, Any] = {**counts}
        numbers["expired"] = counts.get("expired", 0) + sum(one.count for one in found.expired)
        return cls(
            topic=request.topic, cluster_id=request.cluster, started_at=request.started, finished_at=time.time(),
            since=request.since, compacted=request.compacted, spans=found.spans, records=found.records,
            foreign=found.foreign, acknowledged=found.acknowledged, read_again=found.read_again,
            expired_ranges=found.expired, findings=table, **numbers, **others,
        )  # fmt: skip

    @property
    def sentence(self) -> str:
        return wording.sentence(self)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return the findings as sentences, the most important first."""
        return tuple(wording.sentences(self))

    def rows(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the findings of one kind or of all, each with its text, as far as the report holds them."""
        listed = [] if self.findings is None else self.findings.to_pylist()
        return [
            row | {"text": wording.finding(row["kind"], row["partition"], row["offset"], row["other_offset"], row["other_partition"])}
            for row in listed
            if kind in (None, row["kind"])
        ]  # fmt: skip

    def ids(self, kind: str) -> list[str]:
        """Return the message ids of one kind, each once, in the order of their offsets."""
        return list(dict.fromkeys(row["message_id"] for row in self.rows(kind)))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible data: the output of `pipeline integrity --json`."""
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

    def __repr__(self) -> str:
        lines = [*self.sentences]
        for kind in KINDS:
            named = self.rows(kind)[:5] if kind != "unledgered" else []
            lines += [f"  {row['message_id']} {row['text']}" for row in named]
            if (left := getattr(self, kind) - len(named)) > 0 and named:
                lines.append(f"  and {left:,} more {kind.replace('_', ' ')}")
        if self.findings_path:
            lines.append(f"All findings: {self.findings_path}")
        return mask_or_hide("\n".join(lines))

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        first, *lines = self.sentences
        facts = [("records", self.records), ("acknowledged", self.acknowledged)]
        facts += [(kind.replace("_", " "), getattr(self, kind)) for kind in KINDS]
        listed = [row for kind in KINDS for row in self.rows(kind)[:_SHOWN]][:_SHOWN]
        rows = [(row["kind"].replace("_", " "), row["message_id"], row["text"]) for row in listed]
        named = sum(getattr(self, kind) for kind in KINDS if kind != "expired")
        more = max(0, named - len(rows)) if rows else 0
        if self.findings_path:
            lines.append(f"All findings: {self.findings_path}")
        return html.page(
            first, facts=facts, columns=("", "message", "where"), rows=rows, lines=lines, more=more
        )
