"""Dead letters on Kafka topics: the headers of every dialect that we know, publishing, and fetching back."""

from producer_core.dlq.topics.fetcher import Fetched, NotDeadLetters, fetch
from producer_core.dlq.topics.from_record import Place, Record, derived_id, letter_of
from producer_core.dlq.topics.origin import Dialect, Headers, Origin, Written
from producer_core.dlq.topics.publisher import Published, publish
from producer_core.dlq.topics.read_headers import read
from producer_core.dlq.topics.write_headers import write

__all__ = [
    "Dialect",
    "Fetched",
    "Headers",
    "NotDeadLetters",
    "Origin",
    "Place",
    "Published",
    "Record",
    "Written",
    "derived_id",
    "fetch",
    "letter_of",
    "publish",
    "read",
    "write",
]
