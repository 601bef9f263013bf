"""Read a frame with Spark on a thread of its own, while this process works on something else."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

_CANCEL_INTERVAL = 0.2
"""Seconds after which a cancellation is repeated: the first may come before Spark has the job."""


class ReadAhead:
    """Start to read a frame; its job belongs to the job group of the thread that makes this object."""

    def __init__(self, session: SparkSession, frame: Callable[[], DataFrame]) -> None:
        from pyspark import InheritableThread

        self._context, self._frame = session.sparkContext, frame
        self._tag = f"producer-core-read-{uuid.uuid4().hex[:8]}"
        self._table: Future[pyarrow.Table] = Future()
        self._thread = InheritableThread(self._read, session=session, name="audit-read", daemon=True)
        self._thread.start()

    def table(self) -> pyarrow.Table:
        """Wait for the frame and return it as an Arrow table; raise the error of the read."""
        return self._table.result()

    def cancel(self) -> None:
        """Cancel the read if it still runs, and wait until it has ended."""
        from py4j.protocol import Py4JError

        while not self._table.done():
            with suppress(Py4JError, OSError):  # without a JVM the read ends by itself
                self._context.cancelJobsWithTag(self._tag)
            wait([self._table], timeout=_CANCEL_INTERVAL)
        self._thread.join()

    def _read(self) -> None:
        try:
            self._context.addJobTag(self._tag)
            self._table.set_result(self._frame().toArrow())
        except BaseException as error:  # noqa: BLE001  table() raises it in the thread that waits
            self._table.set_exception(error)
