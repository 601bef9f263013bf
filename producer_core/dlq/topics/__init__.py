"""Dead letters on Kafka topics: the headers of every dialect that we know, publishing, and fetching back."""

from producer_core.dlq.topics.fetcher import FetchSummary, NotDeadLetters, fetch
from producer_core.dlq.topics.from_record import DeadLetterRecord, RecordPlace, dead_letter_of, derived_id
from producer_core.dlq.topics.origin import Dialect, Headers, RecordOrigin, Written
from producer_core.dlq.topics.publisher import PublishSummary, publish
from producer_core.dlq.topics.read_headers import read
from producer_core.dlq.topics.write_headers import write

__all__ = [
    "DeadLetterRecord",
    "Dialect",
    "FetchSummary",
    "Headers",
    "NotDeadLetters",
    "PublishSummary",
    "RecordOrigin",
    "RecordPlace",
    "Written",
    "dead_letter_of",
    "derived_id",
    "fetch",
    "publish",
    "read",
    "write",
]
