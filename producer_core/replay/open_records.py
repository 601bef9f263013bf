"""The open records of an operation, for its preflight check: as totals by topic, or one by one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from producer_core.store.queries import run

if TYPE_CHECKING:
    from producer_core.store import Store

_PAGE_SIZE = 50_000
READ_LIMIT = 5.0
"""Seconds for one query of the check. A replay of many records on a busy machine can exceed the usual limit."""


class ListedRecord(NamedTuple):
    """The fields of a dead letter that the check needs.

    `partition` is the requested partition; `value_size` is None for a tombstone.
    """

    message_id: str
    topic: str
    partition: int | None
    key: bytes | None
    value_size: int | None
    accepted_at: float
    failed_at: float

    @property
    def size(self) -> int:
        return (self.value_size or 0) + len(self.key or b"")


class TopicTotals(NamedTuple):
    """The records of a topic, the bytes of their keys and values, the records that request a partition that the topic
    does not have, and those that are too large."""

    records: int
    bytes: int
    lost: int
    too_large: int


class OpenRecords:
    """The open records of an operation, read from the store on request; the totals of all topics are read once."""

    def __init__(self, store: Store, operation_id: str) -> None:
        self._store = store
        self._operation_id = operation_id

    @cached_property
    def _by_topic(self) -> dict[str, dict[str, Any]]:
        with self._store.borrow(limit=READ_LIMIT):
            rows = self._store.rows("replay_topics", operation=self._operation_id)
        return {row["topic"]: row for row in rows}

    def all_topics(self) -> list[str]:
        """Return the topics of pending and claimed records, in alphabetical order."""
        return sorted(self._by_topic)

    def topics(self) -> list[str]:
        """Return the topics of the pending records, that of the first record first."""
        return [topic for topic, row in self._by_topic.items() if row["records"]]

    def totals(self, topic: str, *, partitions: int | None, max_size: int | None) -> TopicTotals:
        """Return the totals of a topic with this number of partitions, on which records of up to `max_size` bytes fit.

        None means that the number or the limit is unknown.
        """
        row = self._by_topic[topic]
        lost = too_large = 0
        partition_count = (row["highest_partition"] or 0) + 1
        if _exceeds(partition_count, partitions) or _exceeds(row["largest"], max_size):
            lost, too_large = self._unsuitable(topic, partitions, max_size)
        return TopicTotals(row["records"], row["bytes"], lost, too_large)

    def _unsuitable(self, topic: str, partitions: int | None, max_size: int | None) -> tuple[int, int]:
        """Return how many records request a partition that the topic lacks, and how many are too large."""
        with self._store.borrow(limit=READ_LIMIT):
            (row,) = self._store.rows(
                "replay_unsuitable", operation=self._operation_id, topic=topic, partitions=partitions,
                max_size=max_size,
            )  # fmt: skip
        return row["lost"], row["too_large"]

    def of(self, topic: str) -> Iterator[ListedRecord]:
        """Yield the records of a topic, read page by page."""
        after = 0
        while True:
            with self._store.borrow(limit=READ_LIMIT) as connection:
                rows = run(
                    connection, "replay_listed", operation=self._operation_id, topic=topic, after=after,
                    count=_PAGE_SIZE,
                ).fetchall()  # fmt: skip
            if not rows:
                return
            after = rows[-1][0]
            yield from (ListedRecord._make(row[1:]) for row in rows)


def _exceeds(value: int, limit: int | None) -> bool:
    """Return whether a value is above the limit; None means that the limit is unknown."""
    return limit is not None and value > limit
