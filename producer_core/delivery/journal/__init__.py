"""Store messages on disk from acceptance until they are settled."""

from producer_core.delivery.journal.journal import Journal, Level
from producer_core.delivery.journal.record import JournalRecord
from producer_core.delivery.journal.settlement_state import SettlementState

__all__ = ["Journal", "JournalRecord", "Level", "SettlementState"]
