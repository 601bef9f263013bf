"""Findings of an audit: counted by kind, the first of each held, and all of them written as Parquet."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer_core.pipeline.integrity.judging import message_id
from producer_core.pipeline.integrity.report import KEPT, AuditReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMNS = ("kind", "message_id", "partition", "offset", "other_partition", "other_offset")


def listed(findings: DataFrame) -> tuple[dict[str, int], Any]:
    """How many messages of each kind there are, and the first of each as an Arrow table, in the order of places."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    found = findings.where("kind is not null")
    counted = found.groupBy("kind").agg(F.countDistinct("session", "seq").alias("n")).collect()
    order = Window.partitionBy("kind").orderBy("partition", "offset", "session", "seq")
    first = found.withColumn("place", F.row_number().over(order)).where(F.col("place") <= KEPT)
    table = first.orderBy("kind", "place").withColumn("message_id", message_id()).select(*_COLUMNS).toArrow()
    return {row["kind"]: row["n"] for row in counted}, table


def written(report: AuditReport, findings: DataFrame, folder: Path | str) -> AuditReport:
    """The report, with the path of all its findings: a folder of Parquet, complete as soon as it has its name.

    A folder with a scheme (`s3a://…`) is written by Spark's own commit; with workers on other hosts it must be one that
    they share.
    """
    name = report.audit_id or str(uuid.uuid4())
    all_of_it = findings.where("kind is not null").withColumn("message_id", message_id())
    all_of_it = all_of_it.select(*_COLUMNS, "session", "seq").orderBy("kind", "partition", "offset")
    if "://" in str(folder):
        path = f"{str(folder).rstrip('/')}/{name}"
        all_of_it.write.parquet(path)
        return replace(report, findings_path=path)
    target = Path(folder).absolute() / name
    draft = target.with_name(f".{name}.draft")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(draft, ignore_errors=True)
    try:
        all_of_it.write.parquet(draft.as_uri())
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return replace(report, findings_path=str(target))
