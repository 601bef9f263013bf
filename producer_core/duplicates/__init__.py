"""Second copies that the client itself writes when its epoch rises: where they can be, and how many there are."""

from producer_core.duplicates.check import DuplicateCheck
from producer_core.duplicates.reading import read_gaps

__all__ = ["DuplicateCheck", "read_gaps"]
