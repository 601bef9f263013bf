"""Second copies that the client itself writes when its epoch rises: where they can be, and how many there are."""

from producer_core.delivery.duplicate_check.check import DuplicateCheck
from producer_core.delivery.duplicate_check.gap_reader import read_gaps

__all__ = ["DuplicateCheck", "read_gaps"]
