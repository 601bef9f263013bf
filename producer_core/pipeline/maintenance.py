"""Maintain a fleet's store and its history beside a job that merges into them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb

from producer_core._internal.log_fields import with_fields
from producer_core._internal.periodic import run_periodically
from producer_core.errors import PipelineError, ProducerError
from producer_core.pipeline.parquet_history import ParquetHistory

if TYPE_CHECKING:
    from producer_core.store import Store

logger = logging.getLogger(__name__)

_INTERVAL = 60.0


@contextmanager
def maintained(store: Store, files: ParquetHistory | None, clock: Callable[[], float]) -> Iterator[None]:
    """Once a minute, on a thread: roll up old seconds, prune old rows, and publish closed hours."""

    def run_maintenance() -> None:
        try:
            maintain(store, files, clock())
        except (ProducerError, OSError, duckdb.Error) as error:
            logger.warning(**with_fields("maintenance failed", error=str(error)))

    with run_periodically(run_maintenance, _INTERVAL, name="pipeline-maintenance"):
        yield


def maintain(store: Store, files: ParquetHistory | None, now: float) -> None:
    """Roll up and prune the store, and publish the history's closed hours."""
    try:
        store.maintain(now)
    finally:
        if files is not None:
            files.publish(before=now)


def finish(store: Store, files: ParquetHistory | None, now: float) -> None:
    """Publish everything that was merged, at the end of a run and of its `maintained` block.

    Raise PipelineError when the history cannot be written; it keeps the rows, and the next run publishes them.
    """
    try:
        store.maintain(now)
    finally:
        if files is not None:
            _publish_all(files)


def _publish_all(files: ParquetHistory) -> None:
    try:
        files.publish()
    except (OSError, duckdb.Error) as error:
        reason = str(error).partition("\n")[0]
        raise PipelineError(
            f"The last hours of the history {files.folder} cannot be published: {reason}.",
            fix="They are kept in its folder. Check its disk; the next run publishes them.",
        ) from error
