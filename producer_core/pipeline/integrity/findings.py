"""Count an audit's findings by kind, take the first of each, and write all of them as Parquet."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from producer_core._internal import private_files
from producer_core.pipeline.integrity.audit_tables import AuditTables
from producer_core.pipeline.integrity.outcome import KEPT
from producer_core.pipeline.integrity.report import AuditReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WRITTEN_AT_ONCE = 1_000_000
"""Findings that are handed to Spark at once."""


def listed(tables: AuditTables) -> tuple[dict[str, int], pa.Table]:
    """Return the number of messages of each kind, and the first of each as an Arrow table in the order of offsets."""
    return dict(tables.rows("finding_counts")), tables.arrow("first_findings", kept=KEPT)


def written(
    report: AuditReport, tables: AuditTables, folder: Path | str, session: SparkSession
) -> AuditReport:
    """Write all findings as a folder of Parquet and return the report with its path.

    The folder is complete once it has its name. A folder with a scheme (`s3a://…`) is written by Spark's own commits;
    with workers on other hosts it must be one that they share.
    """
    name = report.audit_id or str(uuid.uuid4())
    if "://" in str(folder):
        path = f"{str(folder).rstrip('/')}/{name}"
        for batch in tables.batches("named_findings", _WRITTEN_AT_ONCE):
            session.createDataFrame(pa.Table.from_batches([batch])).write.mode("append").parquet(path)
        return replace(report, findings_path=path)
    target = Path(folder).absolute() / name
    draft = target.with_name(f".{name}.draft")
    private_files.make_folder(target.parent)
    shutil.rmtree(draft, ignore_errors=True)
    try:
        private_files.make_folder(draft)
        tables.write_parquet("named_findings", draft / "findings.parquet")
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return replace(report, findings_path=str(target))
