"""Reprocess: replay a large DLQ in parallel by Spark, each dead letter exactly once for a read_committed reader.

The operation, its dead letters and their outcomes are in the store, like those of any replay, and so are its canary,
its stop rule, its rate and its lease: the runner of `producer_core.replay` runs it. Only the sending differs
(`SparkReplay`): a claimed batch is cut into slices, and Spark's workers send each slice in transactions under a
transactional id of its own.
"""

from producer_core.pipeline.reprocess.job import (
    RECORDS_PER_BATCH,
    ReprocessOptions,
    end_cancelled,
    reprocess,
    run_operation,
    spark_runner,
)
from producer_core.pipeline.reprocess.progress_topic import PROGRESS_TOPIC
from producer_core.pipeline.reprocess.record_sources import ImportedSource, from_sources, import_sources
from producer_core.pipeline.reprocess.slicing import Slicing

__all__ = [
    "PROGRESS_TOPIC",
    "RECORDS_PER_BATCH",
    "ImportedSource",
    "ReprocessOptions",
    "Slicing",
    "end_cancelled",
    "from_sources",
    "import_sources",
    "reprocess",
    "run_operation",
    "spark_runner",
]
