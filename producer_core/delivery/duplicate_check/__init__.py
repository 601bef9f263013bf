"""Count the duplicates that the idempotent client itself writes when its epoch rises."""

from producer_core.delivery.duplicate_check.check import DuplicateCheck
from producer_core.delivery.duplicate_check.gap_reader import read_gaps

__all__ = ["DuplicateCheck", "read_gaps"]
