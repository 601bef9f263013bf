"""The offsets at which partitions start for a journal, stored apart from the settle log."""

from __future__ import annotations

from collections.abc import Mapping

from producer_core.delivery.journal.folder import JournalFolder
from producer_core.delivery.journal.settle_log import Offsets, SettleStep, decode, encode

_NAME = "beginnings"
_BEGINNING = -1


class StartOffsets:
    """Keep lower bounds for the offsets of this journal's records. Guarded by the journal's lock.

    When the settle log is damaged, truncated or deleted, it no longer has the settled offset of a partition. The
    partition is then read back from the lower bound, so that no record is sent a second time.
    """

    def __init__(self, folder: JournalFolder) -> None:
        self._folder = folder
        content = folder.read_file(_NAME)
        self._known = content is not None
        self.offsets: dict[tuple[str, int], int] = {} if content is None else dict(decode(content).offsets)

    def add(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Keep the lowest offset of each partition. Raise OSError when the file cannot be written."""
        merged = {
            **self.offsets,
            **{partition: self._merge(partition, offset) for partition, offset in offsets.items()},
        }
        if merged != self.offsets:
            self._folder.write_file(_NAME, encode(SettleStep([], merged)))
            self.offsets = merged

    def add_missing(self, offsets: Offsets) -> None:
        """Add the partitions that only the settle log has. Without the file their start offsets are unknown."""
        self.add(
            {
                partition: offset if self._known or _is_transport_note(partition) else _BEGINNING
                for partition, offset in offsets.items()
                if partition not in self.offsets
            }
        )

    def _merge(self, partition: tuple[str, int], offset: int) -> int:
        before = self.offsets.get(partition, offset)
        return max(before, offset) if _is_transport_note(partition) else min(before, offset)


def _is_transport_note(partition: tuple[str, int]) -> bool:
    """Return whether the entry belongs to the transport, such as the number of shards. Topic names have no slash."""

    return "/" in partition[0]
