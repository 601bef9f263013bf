"""The journal: messages on disk from their acceptance until they are settled."""

from producer_core.delivery.journal.journal import Journal, Level
from producer_core.delivery.journal.record import Record
from producer_core.delivery.journal.settlement_state import Progress

__all__ = ["Journal", "Level", "Progress", "Record"]
