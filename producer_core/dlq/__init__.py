"""Dead letters: add, find, group, archive and restore them, in a store or in memory."""

from producer_core.dlq.archive import MIN_AGE, ArchiveResult
from producer_core.dlq.dead_letters import DeadLetters
from producer_core.dlq.filter import DeadLetterFilter
from producer_core.dlq.groups import Group, Groups, GroupTrend
from producer_core.dlq.listing import Page, PageCursor
from producer_core.dlq.memory_queue import DeadLetterQueue, message_of
from producer_core.dlq.search import SearchResult
from producer_core.dlq.spill_file import Spill

__all__ = [
    "MIN_AGE",
    "ArchiveResult",
    "DeadLetterFilter",
    "DeadLetterQueue",
    "DeadLetters",
    "Group",
    "GroupTrend",
    "Groups",
    "Page",
    "PageCursor",
    "SearchResult",
    "Spill",
    "message_of",
]
