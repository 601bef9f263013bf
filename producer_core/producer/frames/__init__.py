"""Send the rows of pandas, polars or Arrow frames as messages."""

from producer_core._internal.dataframe import Kind, make_frame
from producer_core.producer.frames.result import DeadRow, FrameInterrupted, FrameResult, RefusedRow
from producer_core.producer.frames.rows import Missing, frame_of
from producer_core.producer.frames.send import send_frame

__all__ = [
    "DeadRow",
    "FrameInterrupted",
    "FrameResult",
    "Kind",
    "Missing",
    "RefusedRow",
    "frame_of",
    "make_frame",
    "send_frame",
]
