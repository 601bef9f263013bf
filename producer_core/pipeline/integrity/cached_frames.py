"""Compute DataFrames once, and release them when the audit that uses them ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_frames: ContextVar[list[DataFrame] | None] = ContextVar("kept", default=None)
"""The frames of the block that this thread runs."""


def materialize(frame: DataFrame) -> DataFrame:
    """Compute a frame now, once, and cut off its plan. A block of `releasing_frames` releases it at its end.

    A frame that is only persisted carries its whole plan into every frame made from it. Where frames are joined with
    the frames that they were made from, plans double at each step until their analysis takes minutes (measured). The
    price: a lost executor takes the frame with it and the audit must be run again; it has written nothing.
    """
    found: DataFrame = frame.localCheckpoint()
    if (frames := _frames.get()) is not None:
        frames.append(found)
    return found


@contextmanager
def releasing_frames(session: SparkSession) -> Iterator[None]:
    """Release the frames that this thread materializes in the block, however it ends.

    Spark releases a frame only after Java's garbage collector has found it unreachable. That is too late for several
    audits in one session, because nothing collects before memory is full (measured: 125 MB for an audit of a million
    records).
    """
    frames: list[DataFrame] = []
    token = _frames.set(frames)
    failed = True
    try:
        yield
        failed = False
    finally:
        _frames.reset(token)
        _release(session, frames, failed=failed)


def _release(session: SparkSession, frames: list[DataFrame], *, failed: bool) -> None:
    from py4j.protocol import Py4JError

    # Spark may have ended and released everything; the error that reports this is already propagating.
    with suppress(Py4JError, OSError):
        for frame in frames:
            frame._jdf.queryExecution().logical().rdd().unpersist(False)
        if failed:  # an unfinished computation has no name here; only the garbage collector finds it
            session._jvm.System.gc()
