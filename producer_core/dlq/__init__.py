"""Dead letters: add, find, group, archive and restore them, in a store or in memory."""

from producer_core.dlq.archive import MIN_AGE, Result
from producer_core.dlq.dead_letters import DeadLetters
from producer_core.dlq.filter import DeadLetterFilter
from producer_core.dlq.groups import Group, Groups, Trend
from producer_core.dlq.listing import Cursor, Page
from producer_core.dlq.memory_queue import DeadLetterQueue, message_of
from producer_core.dlq.search import Found
from producer_core.dlq.spill_file import Spill

__all__ = [
    "MIN_AGE",
    "Cursor",
    "DeadLetterFilter",
    "DeadLetterQueue",
    "DeadLetters",
    "Found",
    "Group",
    "Groups",
    "Page",
    "Result",
    "Spill",
    "Trend",
    "message_of",
]
