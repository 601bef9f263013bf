"""The settlement state of a producer's messages, updated in atomic steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol


class SettlementState(Protocol):
    """The part of a journal that exactly-once delivery needs. A resumable input file implements it too."""

    @property
    def offsets(self) -> Mapping[tuple[str, int], int]:
        """By topic and partition: the offset up to which all of this producer's records are settled."""

    def unsettled_topics(self) -> Mapping[str, float]:
        """Return each topic with unsettled messages and the earliest timestamp, in seconds since 1970, of its records.

        Partitions of these topics without an offset are read back from that time on. State that was restored from a
        backup may not include records sent there.
        """

    def settle(self, seqs: Iterable[int], offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Mark messages as settled and store the offsets, in one step. Raise JournalFull when there is no room."""

    def is_settled(self, seq: int) -> bool:
        """Return whether the message is settled."""
