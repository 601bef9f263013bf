"""Publish dead letters to Kafka topics and fetch them, with the headers of several dialects."""

from producer_core.dlq.topics.fetcher import FetchSummary, NotDeadLetters, check_topic, fetch
from producer_core.dlq.topics.from_record import DeadLetterRecord, SourceTopic, dead_letter_of, derived_id
from producer_core.dlq.topics.origin import Dialect, Headers, RecordOrigin, WrittenDialect
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
    "SourceTopic",
    "WrittenDialect",
    "check_topic",
    "dead_letter_of",
    "derived_id",
    "fetch",
    "publish",
    "read",
    "write",
]
