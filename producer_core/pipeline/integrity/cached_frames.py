"""Frames that are computed once, and given back when the audit that keeps them ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_kept: ContextVar[list[DataFrame] | None] = ContextVar("kept", default=None)
"""Of the block that this thread is in."""


def keep(frame: DataFrame) -> DataFrame:
    """Computed now, once, and a leaf from here on; in a block of `giving_back` until its end, else until Java forgets it.

    A frame that is merely persisted carries its whole plan into everything made of it, and where frames are joined with
    what they were made of, plans double at each step until analysing them takes minutes (measured). The price: a lost
    executor takes the frame with it and the audit must be run again; it has written nothing.
    """
    found: DataFrame = frame.localCheckpoint()
    if (kept := _kept.get()) is not None:
        kept.append(found)
    return found


@contextmanager
def giving_back(session: SparkSession) -> Iterator[None]:
    """What this thread keeps in the block, Spark need not hold after it, however it ends.

    Spark itself gives a frame back once Java's collector finds that nobody knows it, which is too late for whoever
    audits several times in one session: nothing collects before memory is full (measured: 125 MB for an audit of
    a million records).
    """
    kept: list[DataFrame] = []
    token = _kept.set(kept)
    failed = True
    try:
        yield
        failed = False
    finally:
        _kept.reset(token)
        _give_back(session, kept, failed=failed)


def _give_back(session: SparkSession, kept: list[DataFrame], *, failed: bool) -> None:
    from py4j.protocol import Py4JError

    # Spark may be gone, and what it held with it; the error that says so is on its way.
    with suppress(Py4JError, OSError):
        for frame in kept:
            frame._jdf.queryExecution().logical().rdd().unpersist(False)
        if failed:  # what was being computed then has no name here; only the collector finds it
            session._jvm.System.gc()
