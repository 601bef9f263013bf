"""Reprocess: a large DLQ replayed in parallel by Spark, each dead letter exactly once for a read_committed reader.

The operation, its dead letters and their outcomes live in the store, as those of any replay do, and so do its canary, its
stop rule, its pace, its lease: `producer_core.replay`'s runner carries it out. What is different is the way (here
`spreading`): a claimed wave is cut into slices, and Spark's workers send each slice in transactions of its own id.
"""

from producer_core.pipeline.reprocess.job import (
    RECORDS_PER_BATCH,
    ReprocessOptions,
    carried_out,
    end_cancelled,
    reprocess,
    spark_runner,
)
from producer_core.pipeline.reprocess.progress_topic import PROGRESS_TOPIC
from producer_core.pipeline.reprocess.record_sources import ImportedSource, bring, brought
from producer_core.pipeline.reprocess.slicing import Slicing

__all__ = [
    "PROGRESS_TOPIC",
    "RECORDS_PER_BATCH",
    "ImportedSource",
    "ReprocessOptions",
    "Slicing",
    "bring",
    "brought",
    "carried_out",
    "end_cancelled",
    "reprocess",
    "spark_runner",
]
