"""The time range of an incident."""

from __future__ import annotations

from dataclasses import dataclass

from producer_core.errors import TransferError

_LONGEST = 31 * 86_400.0
_SHORTEST_MARGIN = 120.0


@dataclass(frozen=True)
class IncidentWindow:
    """A range [since, until) in seconds since 1970. Raise TransferError if it is empty or longer than 31 days."""

    since: float
    until: float

    def __post_init__(self) -> None:
        if self.since < 0:
            raise TransferError("The incident begins before 1970.", fix="Set --since.")
        if not self.since < self.until:
            raise TransferError("The incident ends before it begins.", fix="Set --since before --until.")
        if self.seconds > _LONGEST:
            raise TransferError("The incident is longer than 31 days.", fix="Choose a shorter range.")

    @property
    def seconds(self) -> float:
        return self.until - self.since

    @property
    def begin(self) -> float:
        """Return the start of the previous period of the same length, with which the pages compare the range.

        Pages align a range to the windows of their charts, which takes at most a tenth of its length.
        """
        return self.since - self.seconds - max(_SHORTEST_MARGIN, self.seconds / 5)
