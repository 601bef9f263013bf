"""Where partitions begin for a journal, kept apart from the settle log."""

from __future__ import annotations

from collections.abc import Mapping

from producer_core.delivery.journal.folder import JournalFolder
from producer_core.delivery.journal.settle_log import Offsets, SettleStep, decode, encode

_NAME = "beginnings"
_FROM_THE_START = -1


class StartOffsets:
    """Every record of this journal lies above these offsets. Guarded by the journal's lock.

    A settle log that was damaged, cut off or deleted forgets how far a partition is settled. Its records are then
    read from here on, so that none is sent a second time.
    """

    def __init__(self, folder: JournalFolder) -> None:
        self._folder = folder
        content = folder.kept(_NAME)
        self._known = content is not None
        self.offsets: dict[tuple[str, int], int] = {} if content is None else dict(decode(content).offsets)

    def add(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Keep the lowest offset of each partition. OSError when the disk does not take it."""
        merged = {**self.offsets, **{where: self._merged(where, offset) for where, offset in offsets.items()}}
        if merged != self.offsets:
            self._folder.keep(_NAME, encode(SettleStep([], merged)))
            self.offsets = merged

    def adopt(self, offsets: Offsets) -> None:
        """Add what only the settle log knows. Without the file the beginning of a partition is not known any more."""
        self.add(
            {
                where: offset if self._known or _is_note(where) else _FROM_THE_START
                for where, offset in offsets.items()
                if where not in self.offsets
            }
        )

    def _merged(self, where: tuple[str, int], offset: int) -> int:
        before = self.offsets.get(where, offset)
        return max(before, offset) if _is_note(where) else min(before, offset)


def _is_note(where: tuple[str, int]) -> bool:
    """Return whether this is a note of the transport, such as the number of shards: a topic has no slash."""
    return "/" in where[0]
