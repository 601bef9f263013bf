"""Confirm losses: look up their offsets again, one by one, with a client other than Spark's.

A record that a read left out is not yet lost: Spark's reader skips records that a leader does not have at that
moment, and records that retention removes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from producer_core._internal.plural import plural
from producer_core.errors import PipelineError
from producer_core.messages import parse_id
from producer_core.pipeline.integrity.offset_lookup import MAX_LOOKUPS, ids_at
from producer_core.pipeline.integrity.report import AuditReport

if TYPE_CHECKING:
    from producer_core.config import ClientConfig


def confirm(config: ClientConfig, report: AuditReport) -> None:
    """Raise PipelineError when a lost message is at its acknowledged offset.

    Of more than `MAX_LOOKUPS` losses, an evenly spread sample is looked up: a read leaves out whole ranges.
    """
    candidates = [row for row in report.rows("lost") if _in_range(report, row)]
    chosen = candidates[:: max(1, -(-len(candidates) // MAX_LOOKUPS))]
    ids = ids_at(
        config, report.topic, [(row["partition"], row["offset"]) for row in chosen], report.isolation
    )
    found = [row for row, one in zip(chosen, ids, strict=True) if one == parse_id(row["message_id"])]
    if found:
        first = found[0]
        raise PipelineError(
            f"Spark did not read all records: of {plural(len(chosen), 'record')} that seemed lost, "
            f"{'1 is in the log:' if len(found) == 1 else f'{len(found):,} are in the log, such as'} "
            f"{first['message_id']} in partition {first['partition']} at offset {first['offset']:,}.",
            fix="A partition's leader may have changed during the audit: audit again.",
        )


def _in_range(report: AuditReport, row: dict[str, Any]) -> bool:
    span = report.spans.get(row["partition"])
    return span is not None and row["offset"] is not None and row["offset"] < span.end
