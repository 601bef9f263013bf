"""Delivery reports in columns: what nearly every message costs is a place in each, and nothing for the garbage collector.

The client's own message is a copy of key and value that the collector would visit until the batch is settled: it is let
go of in the callback, unless somebody hears of this message alone. Measured with 200 bytes: a tenth of all that a send
costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress, repeat
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from producer_core.delivery.delivery import Delivery, Report

_WIDTH = 5
_TOLD, _OFFSET = 1, 3


@dataclass(frozen=True, slots=True)
class KnownOffset:
    """Stands for the client's message where only its place was kept."""

    at_partition: int
    at_offset: int | None
    seconds: float | None

    def partition(self) -> int:
        return self.at_partition

    def offset(self) -> int | None:
        return self.at_offset

    def latency(self) -> float | None:
        return self.seconds


@dataclass(frozen=True, slots=True)
class UnknownOffset:
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


class ReportBatch(Sequence["Report"]):
    """Reports whose rows lie one behind the other in one list, as `Delivery.row` makes them:
    (delivery, None, partition, offset, latency), or (delivery, (error, message), None, offset, None) where more is
    wanted than to count it.
    """

    __slots__ = ("rows",)

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    @classmethod
    def of(cls, batch: Sequence[Report]) -> ReportBatch:
        """The same, whatever it is kept in."""
        if isinstance(batch, cls):
            return batch
        rows: list[Any] = []
        for delivery, error, message in batch:
            rows += delivery.row(error, message)
        return cls(rows)

    def take(self) -> ReportBatch:
        """What was written so far; the list stays with whoever writes to it, perhaps at this moment."""
        count = len(self.rows)
        taken = ReportBatch(self.rows[:count])
        del self.rows[:count]
        return taken

    @property
    def plain(self) -> bool:
        """Whether all were acknowledged at the first try, and nobody hears of one alone."""
        return not any(self.rows[_TOLD::_WIDTH])

    def only(self, these: Sequence[bool]) -> ReportBatch:
        """Those for which it says so."""
        return ReportBatch(
            list(compress(self.rows, chain.from_iterable(repeat(one, _WIDTH) for one in these)))
        )

    def deliveries(self) -> list[Delivery]:
        return self.rows[::_WIDTH]

    def places(self) -> tuple[list[int], list[int | None], list[float]]:
        """Of plain ones: partitions, offsets (None where nobody knows it), latencies in seconds (0 likewise)."""
        latencies = self.rows[4::_WIDTH]
        if None in latencies:
            latencies = [latency or 0.0 for latency in latencies]
        return self.rows[2::_WIDTH], self.rows[_OFFSET::_WIDTH], latencies

    def truly_placed(self) -> ReportBatch:
        """The same without the offsets that librdkafka made up.

        A broker that has a batch already (DUPLICATE_SEQUENCE_NUMBER, a success) answers with the offset -1, and the
        client counts on from there: none for the first message of the batch, then 0, 1, 2 for those behind it
        (rdkafka_msg.c, rd_kafka_msgq_set_metadata). A batch's reports come together and in order.
        """
        if None in self.rows[_OFFSET::_WIDTH]:
            self._take_back()
        return self

    def _take_back(self) -> None:
        counting: dict[tuple[str, int], int] = {}
        for at, (delivery, error, message) in zip(range(0, len(self.rows), _WIDTH), self, strict=True):
            if error is not None:
                continue
            where, offset = (delivery.topic, message.partition()), message.offset()
            if offset is None:
                counting[where] = 0
            elif counting.get(where) == offset:
                counting[where] += 1
                self.rows[at + _OFFSET] = None
                if self.rows[at + _TOLD] is not None:
                    self.rows[at + _TOLD] = (None, UnknownOffset(message))
            else:
                counting.pop(where, None)

    def __len__(self) -> int:
        return len(self.rows) // _WIDTH

    def each_row(self) -> Iterator[tuple[Any, ...]]:
        """As `Delivery.row` made it."""
        return zip(*[iter(self.rows)] * _WIDTH, strict=True)

    def __iter__(self) -> Iterator[Report]:
        for delivery, told, partition, offset, latency in self.each_row():
            yield (
                (delivery, None, KnownOffset(partition, offset, latency))
                if told is None
                else (delivery, *told)
            )

    @overload
    def __getitem__(self, index: int) -> Report: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Report]: ...
    def __getitem__(self, index: int | slice) -> Report | Sequence[Report]:
        return list(self)[index]
