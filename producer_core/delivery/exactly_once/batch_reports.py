"""The delivery reports of a batch that is sent in one transaction, by row."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError

from producer_core.delivery.dead_letter import delivery_of
from producer_core.delivery.delivery import Report
from producer_core.delivery.record_batch import RecordBatch


class BatchReports:
    """Partition and offset of each row, and the errors; `rejected` are the rows that the client refused to send.

    Used by the thread that polls the client.
    """

    __slots__ = ("errors", "missing", "offsets", "partitions", "rejected")

    def __init__(self, count: int) -> None:
        self.partitions = [-1] * count
        self.offsets: list[int | None] = [None] * count
        self.errors: dict[int, KafkaError] = {}
        self.rejected: dict[int, KafkaError] = {}
        self.missing = count

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
