"""Remember where the pending records of a replay begin, so that a claim reads only the next ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

LAST = 2**63 - 1


class ClaimPosition:
    """The number in the operation's order below which no record is pending. Used by the runner that holds the lease."""

    def __init__(self) -> None:
        self._first: int | None = None

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

    def ranges(self, count: int) -> list[tuple[int, int]]:
        """Return the first and last number to search for `count` records; later ranges in case the earlier have none."""
        everything = (0, LAST)
        return [everything] if self._first is None else [(self._first, self._first + count - 1), everything]

    def claimed(self, last: int) -> None:
        """Note that no record up to this number is pending any more."""
        self._first = last + 1
