"""What stands in a delivery report's place, where the client has none of a message or says too much of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from producer_core.events import Verdict


@dataclass(frozen=True, slots=True)
class Unreported:
    """Stands for the report that never came; `verdict` is what is proved all the same, None leaves it in doubt."""

    verdict: Verdict | None
    at_partition: int | None

    def partition(self) -> int | None:
        return self.at_partition

    def latency(self) -> None:
        return None


_Report = tuple[Any, KafkaError | None, Any]

NOT_SENT = Unreported("not_sent", None)
"""It provably never left us."""
SILENT = Unreported(None, 0)
"""Nothing is known: it may have been assigned to a partition, and sent."""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Stands for an acknowledgement whose offset was made up."""

    message: Any

    def topic(self) -> str:
        return str(self.message.topic())

    def partition(self) -> int:
        return int(self.message.partition())

    def offset(self) -> None:
        return None

    def latency(self) -> Any:
        return self.message.latency()

    def timestamp(self) -> Any:
        return self.message.timestamp()

    def headers(self) -> Any:
        return self.message.headers()


def truly_placed(batch: Sequence[_Report]) -> Sequence[_Report]:
    """The reports without the offsets that librdkafka made up.

    A broker that has a batch already (DUPLICATE_SEQUENCE_NUMBER, a success) answers with the offset -1, and the
    client counts on from there: none for the first message of the batch, then 0, 1, 2 for those behind it
    (rdkafka_msg.c, rd_kafka_msgq_set_metadata). A batch's reports come together and in order.
    """
    return _counted_on(batch) if None in [message.offset() for _, _, message in batch] else batch


def _counted_on(batch: Sequence[_Report]) -> Sequence[_Report]:
    counting: dict[tuple[str, int], int] = {}
    told: list[_Report] = []
    for delivery, error, message in batch:
        if error is None:
            where, offset = (delivery.topic, message.partition()), message.offset()
            if offset is None:
                counting[where] = 0
            elif counting.get(where) == offset:
                counting[where] += 1
                message = Unplaced(message)
            else:
                counting.pop(where, None)
        told.append((delivery, error, message))
    return told
