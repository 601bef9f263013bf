"""Remember where a replay's last claim ended, so that the next claim reads only the rows after it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

LAST = 2**63 - 1


class ClaimPosition:
    """The number in the operation's order below which no record is pending, and where the last dead letters are stored.

    Used by the runner that holds the lease.
    """

    def __init__(self) -> None:
        self._first: int | None = None
        self._row_ids: dict[str, tuple[int, int]] = {}
        self.in_order = True
        """Whether the dead letters may be stored in exactly the order in which they are replayed."""
        self.alone_up_to = 0
        """The number up to which the records are claimed one by one, because some of them must be."""

    def forget(self) -> None:
        """Search from the first record again, because a record has been returned or may be."""
        self._first = None

    @contextlib.contextmanager
    def forgotten_on_error(self) -> Iterator[None]:
        """Forget the position if the block fails: its transaction may have been rolled back."""
        try:
            yield
        except BaseException:
            self.forget()
            raise

    @property
    def first(self) -> int:
        """The number below which no record is pending; 0 if unknown."""
        return self._first or 0

    def ranges(self, count: int) -> list[tuple[int, int]]:
        """Return the first and last number to search for `count` records; later ranges in case the earlier have none."""
        everything = (0, LAST)
        return [everything] if self._first is None else [(self._first, self._first + count - 1), everything]

    def likely_row_ids(self, table: str, count: int) -> tuple[int, int] | None:
        """Return the row ids that `count` further records probably have in this table; None if unknown.

        Dead letters are stored in about the order in which they are replayed.
        """
        if (found := self._row_ids.get(table)) is None:
            return None
        return found[0], found[1] + 2 * count

    def likely_rows(self, count: int) -> list[tuple[int, int]]:
        """Return these row ids of the dead letters and of their bodies; nothing if one is unknown."""
        found = [self.likely_row_ids(what, count) for what in ("dead_letter", "body")]
        return [one for one in found if one is not None] if None not in found else []

    def next_rows(self, count: int) -> list[tuple[int, int]]:
        """Return the row ids right after those of the last claim; nothing if they are unknown."""
        found = [self._row_ids.get(what) for what in ("dead_letter", "body")]
        return [(one[1] + 1, one[1] + count) for one in found if one] if None not in found else []

    def located(self, table: str, row_ids: tuple[int, int]) -> None:
        """Note the lowest and the highest row id of located records."""
        self._row_ids[table] = row_ids

    def claimed(self, last: int) -> None:
        """Note that no record up to this number is pending any more."""
        self._first = last + 1
