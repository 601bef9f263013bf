"""Dead letters on Kafka topics: the headers of every dialect that we know, publishing, and fetching back."""

from producer_core.dialects.fetching import Fetched, NotDeadLetters, fetch
from producer_core.dialects.letters import Place, Record, derived_id, letter_of
from producer_core.dialects.origin import Dialect, Headers, Origin, Written
from producer_core.dialects.publishing import Published, publish
from producer_core.dialects.reading import read
from producer_core.dialects.writing import write

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
