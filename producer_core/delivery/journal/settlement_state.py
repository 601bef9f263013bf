"""The progress: what is done, written down so that a crash counts all of a step or nothing of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol


class SettlementState(Protocol):
    """What exactly-once delivery needs of a journal, or of the file that stands for one."""

    @property
    def offsets(self) -> Mapping[tuple[str, int], int]:
        """By topic and partition: the offset of the last own record such that every own one up to it is settled."""

    def unsettled_topics(self) -> Mapping[str, float]:
        """By topic of what is unsettled: the earliest time, in seconds since 1970, that a record of it may carry.

        Its partitions without an offset are read back from that time on: a progress that was put back from a copy
        may not know that records were sent there.
        """

    def settle(self, seqs: Iterable[int], offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Write down that these are done and how far the log is known, as one step. JournalFull without room."""

    def is_settled(self, seq: int) -> bool:
        """Whether this one is done."""
