"""Frames that are computed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def keep(frame: DataFrame) -> DataFrame:
    """Computed now, once, and a leaf from here on.

    A frame that is merely persisted carries its whole plan into everything made of it, and where frames are joined with
    what they were made of, plans double at each step until analysing them takes minutes (measured). The price: a lost
    executor takes the frame with it and the audit must be run again; it has written nothing.
    """
    found: DataFrame = frame.localCheckpoint()
    return found
