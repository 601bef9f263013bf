"""Confirming losses: their very offsets are looked up once more, one by one, by another client than Spark's.

Nothing is called lost because a read left something out: Spark's reader skips what a leader does not have at that
moment, and what retention takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from producer_core.errors import PipelineError
from producer_core.messages import parse_id
from producer_core.pipeline.integrity.offset_lookup import MOST, looked_up
from producer_core.pipeline.integrity.report import AuditReport

if TYPE_CHECKING:
    from producer_core.config import ClientConfig


def confirm(config: ClientConfig, report: AuditReport) -> None:
    """PipelineError when one of them stands where it was acknowledged; of more than `MOST` some are looked up, spread
    evenly: what a read leaves out are stretches."""
    places = [row for row in report.rows("lost") if _in_range(report, row)]
    chosen = places[:: max(1, -(-len(places) // MOST))]
    there = looked_up(
        config, report.topic, [(row["partition"], row["offset"]) for row in chosen], report.isolation
    )
    found = [row for row, one in zip(chosen, there, strict=True) if one == parse_id(row["message_id"])]
    if found:
        first = found[0]
        raise PipelineError(
            f"Spark did not read {len(found):,} of {len(chosen):,} records that seemed lost and are there, such as "
            f"{first['message_id']} in partition {first['partition']} at offset {first['offset']:,}.",
            fix="A partition's leader may have changed meanwhile: audit again.",
        )


def _in_range(report: AuditReport, row: dict[str, Any]) -> bool:
    span = report.spans.get(row["partition"])
    return span is not None and row["offset"] is not None and row["offset"] < span.end
