"""The delivery reports of a batch that is sent in one transaction, by row."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from producer_core.delivery.dead_letter import delivery_of
from producer_core.delivery.delivery import Report
from producer_core.delivery.record_batch import RecordBatch


class BatchReports:
    """Partition and offset of each row, and the errors; `rejected` are the rows that the client refused to send.

    Used by the thread that polls the client. The object and its callbacks serve one batch after another.
    """

    __slots__ = ("_callbacks", "errors", "missing", "offsets", "partitions", "rejected")

    def __init__(self, count: int) -> None:
        self._callbacks: list[Callable[[KafkaError | None, Any], None]] = []
        self.missing = 0
        self.begin(count)

    def begin(self, count: int) -> None:
        """Expect the reports of a new batch. A late report of the previous batch would count for the new one."""
        if self.missing:
            raise AssertionError("reports of the previous batch are missing")
        self.partitions = [-1] * count
        self.offsets: list[int | None] = [None] * count
        self.errors: dict[int, KafkaError] = {}
        self.rejected: dict[int, KafkaError] = {}
        self.missing = count

    def callbacks(self) -> list[Callable[[KafkaError | None, Any], None]]:
        """Return the delivery callback of each row.

        Thousands of new objects for each batch would make Python's garbage collector run often.
        """
        known, count = len(self._callbacks), len(self.partitions)
        self._callbacks += [functools.partial(self.receive, row) for row in range(known, count)]
        return self._callbacks[:count]

    def receive(self, row: int, error: KafkaError | None, message: Any) -> None:
        self.missing -= 1
        if error is None:
            self.partitions[row] = message.partition()
            self.offsets[row] = message.offset()
        else:
            self.errors[row] = error

    def reject(self, row: int, error: KafkaError) -> None:
        self.missing -= 1
        self.rejected[row] = error

    @property
    def lacks_offset(self) -> bool:
        """Whether a record was acknowledged without its offset."""
        return self.offsets.count(None) > len(self.errors) + len(self.rejected) + self.missing

    def of(self, batch: RecordBatch) -> list[Report]:
        """Return the reports received, as `TransactionalClient.transact` returns them; without messages."""
        return [
            (delivery_of(record), self.errors.get(row), None)
            for row, record in enumerate(batch)
            if row in self.errors or self.partitions[row] >= 0
        ]
