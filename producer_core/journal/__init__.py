"""The journal: messages on disk from their acceptance until they are settled."""

from producer_core.journal.journal import Journal, Level
from producer_core.journal.progress import Progress
from producer_core.journal.record import Record

__all__ = ["Journal", "Level", "Progress", "Record"]
