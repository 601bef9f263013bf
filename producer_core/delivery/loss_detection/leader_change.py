"""A change of a partition's leader."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The leader and leader epoch of a partition before and after a change. An epoch of -1 is unknown."""

    broker_before: int
    epoch_before: int
    broker: int
    epoch: int

    def __str__(self) -> str:
        if self.broker_before == self.broker:
            text = f"Its leader, broker {self.broker}, was re-elected"
        else:
            text = f"Its leader changed from broker {self.broker_before} to broker {self.broker}"
        return text if self.epoch < 0 else f"{text} (leader epoch {self.epoch_before} to {self.epoch})"

    def since(self, earlier: LeaderChange) -> LeaderChange:
        """Return both changes as one."""
        return LeaderChange(earlier.broker_before, earlier.epoch_before, self.broker, self.epoch)
