"""Count an audit's findings by kind, keep the first of each, and write all of them as Parquet."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from producer_core._internal import private_files
from producer_core.pipeline.integrity.outcome import KEPT
from producer_core.pipeline.integrity.report import AuditReport
from producer_core.pipeline.integrity.verdicts import message_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCHEMA = pa.schema(
    [("kind", pa.string()), ("message_id", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
     ("other_partition", pa.int32()), ("other_offset", pa.int64())]
)  # fmt: skip
_COLUMNS = tuple(_SCHEMA.names)
_FETCH_LIMIT = 50_000


def listed(findings: DataFrame | None) -> tuple[dict[str, int], pa.Table]:
    """Return the number of messages of each kind, and the first of each as an Arrow table in the order of offsets."""
    if findings is None:
        return {}, _SCHEMA.empty_table()
    return _listed_locally(findings) if findings.count() <= _FETCH_LIMIT else _listed_by_spark(findings)


def _listed_locally(findings: DataFrame) -> tuple[dict[str, int], pa.Table]:
    """Fetch and count a few findings in this process; a Spark job costs more."""
    table = named(findings).select(*_COLUMNS).toArrow().cast(_SCHEMA)
    found = table.group_by("kind").aggregate([("message_id", "count_distinct")])
    counts = dict(zip(found["kind"].to_pylist(), found["message_id_count_distinct"].to_pylist(), strict=True))
    ordered = table.sort_by([(name, "ascending") for name in ("kind", "partition", "offset", "message_id")])
    first = [ordered.filter(pc.equal(ordered["kind"], kind)).slice(0, KEPT) for kind in counts]
    return counts, pa.concat_tables(first) if first else _SCHEMA.empty_table()


def _listed_by_spark(findings: DataFrame) -> tuple[dict[str, int], pa.Table]:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    counted = findings.groupBy("kind").agg(F.countDistinct("session", "seq").alias("n")).collect()
    order = Window.partitionBy("kind").orderBy("partition", "offset", "session", "seq")
    first = findings.withColumn("place", F.row_number().over(order)).where(F.col("place") <= KEPT)
    table = named(first.orderBy("kind", "place")).select(*_COLUMNS).toArrow()
    return {row["kind"]: row["n"] for row in counted}, table.cast(_SCHEMA)


def named(findings: DataFrame) -> DataFrame:
    """Add the message id as text."""
    return findings.withColumn("message_id", message_id())


def written(report: AuditReport, findings: DataFrame, folder: Path | str) -> AuditReport:
    """Write all findings as a folder of Parquet and return the report with its path.

    The folder is complete once it has its name. A folder with a scheme (`s3a://…`) is written by Spark's own commit;
    with workers on other hosts it must be one that they share.
    """
    name = report.audit_id or str(uuid.uuid4())
    everything = named(findings).select(*_COLUMNS, "session", "seq").orderBy("kind", "partition", "offset")
    if "://" in str(folder):
        path = f"{str(folder).rstrip('/')}/{name}"
        everything.write.parquet(path)
        return replace(report, findings_path=path)
    target = Path(folder).absolute() / name
    draft = target.with_name(f".{name}.draft")
    private_files.make_folder(target.parent)
    shutil.rmtree(draft, ignore_errors=True)
    try:
        everything.write.parquet(draft.as_uri())
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return replace(report, findings_path=str(target))
