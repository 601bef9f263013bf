"""The change of a partition's leader."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The leader and the leader epoch of a partition, before and after. An epoch of -1 is not known."""

    broker_before: int
    epoch_before: int
    broker: int
    epoch: int

    def __str__(self) -> str:
        if self.broker_before == self.broker:
            text = f"Its leader, broker {self.broker}, was elected again"
        else:
            text = f"Its leader changed from broker {self.broker_before} to broker {self.broker}"
        return text if self.epoch < 0 else f"{text} (leader epoch {self.epoch_before} to {self.epoch})"

    def since(self, earlier: LeaderChange) -> LeaderChange:
        """Both changes as one."""
        return LeaderChange(earlier.broker_before, earlier.epoch_before, self.broker, self.epoch)
