"""Dead letters of a replay as columns: rows are made only where a single record is handled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, overload

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.events import SAFE_VERDICTS
from producer_core.messages import ID_HEADER, ORIGINAL_TIMESTAMP, Headers, parse_id

if TYPE_CHECKING:
    import pyarrow

_Header = tuple[str, bytes | None]
RecordHeaders = list[_Header]
ProduceRow = tuple[str, bytes | None, bytes | None, int, RecordHeaders]
"""Topic, value, key, partition (-1: any) and headers of a record."""


class RecordBatch(Sequence[ReplayRecord]):
    """Records of a replay in their order, as an Arrow table with the columns of `ReplayRecord`.

    The table also has `size` (bytes of key and value), and `ord` and `dead_letter`, with which the store finds the rows of
    the record and of its dead letter again; further columns are ignored. No method calls a function of `pyarrow.compute`,
    whose import takes a quarter of a second.
    """

    def __init__(self, table: pyarrow.Table, read_headers: Callable[[str], Headers]) -> None:
        self.table = table
        self._read_headers = read_headers

    @classmethod
    def joined(cls, batches: Sequence[RecordBatch]) -> RecordBatch:
        """Return the records of one or more batches as one batch, in this order."""
        first = batches[0]
        if len(batches) == 1:
            return first
        import pyarrow as pa

        # A batch that was claimed as a wave has further columns.
        common = set.intersection(*(set(batch.table.column_names) for batch in batches))
        names = [name for name in first.table.column_names if name in common]
        return cls(pa.concat_tables([batch.table.select(names) for batch in batches]), first._read_headers)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @overload
    def __getitem__(self, at: int) -> ReplayRecord: ...
    @overload
    def __getitem__(self, at: slice) -> RecordBatch: ...
    def __getitem__(self, at: int | slice) -> ReplayRecord | RecordBatch:
        if isinstance(at, slice):
            return self._slice(*at.indices(len(self))[:2])
        return next(iter(self[at : at + 1]))

    def _slice(self, first: int, end: int) -> RecordBatch:
        if first == 0 and end == len(self):
            return self
        part = RecordBatch(self.table.slice(first, max(0, end - first)), self._read_headers)
        if self.__dict__.get("is_safe"):
            part.note(is_safe=True)
        return part

    def note(self, **values: Any) -> None:
        """Set properties (`size`, `is_safe`) that the caller knows, which saves reading the columns."""
        self.__dict__.update(values)

    def __iter__(self) -> Iterator[ReplayRecord]:
        columns = [
            self._headers if name == "headers" else self._column(name) for name in ReplayRecord._fields
        ]
        return map(ReplayRecord._make, zip(*columns, strict=True))

    @cached_property
    def size(self) -> int:
        """The bytes of all keys and values."""
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """The bytes of key and value of each record."""
        return self._column("size")

    @cached_property
    def is_safe(self) -> bool:
        """Whether every record may be sent without a search on its topic."""
        return set(self._column("verdict")) <= {*SAFE_VERDICTS}

    @cached_property
    def topics(self) -> frozenset[str]:
        return frozenset(self._column("topic"))

    @cached_property
    def range(self) -> tuple[int, int]:
        """The lowest and the highest `ord` of the records."""
        numbers = self.table["ord"]
        return numbers[0].as_py(), numbers[-1].as_py()

    def first(self, count: int, max_bytes: int) -> RecordBatch:
        """Return the first records, at most `count`, up to `max_bytes`; a single larger record is returned alone."""
        part = self[:count]
        if part.size <= max_bytes:
            return part
        end = total = 0
        for size in part.sizes:
            total += size
            if end and total > max_bytes:
                break
            end += 1
        return part[:end]

    def produce_rows(self) -> Iterator[ProduceRow]:
        """Return the records to send: the same ids and headers, the original timestamps in a header."""
        return zip(
            self._topics(),
            self._column("value"),
            self._column("key"),
            self._partitions(),
            self._record_headers(),
            strict=True,
        )

    def _topics(self) -> Iterable[str]:
        if len(self.topics) != 1:
            return self._column("topic")
        (topic,) = self.topics
        return repeat(topic, len(self))

    def _partitions(self) -> Iterable[int]:
        given = self.table["partition"]
        if given.null_count == len(given):
            return repeat(-1, len(given))
        return [-1 if one is None else one for one in given.to_pylist()]

    def _record_headers(self) -> Iterable[RecordHeaders]:
        ids, originals = _parse_ids(self._column("message_id")), self._original_timestamps()
        if not any(given := self._headers):
            return (  # made one by one: many live objects cost time in Python's garbage collector
                [(ID_HEADER, id), original] for id, original in zip(ids, originals, strict=True)
            )
        return map(_record_headers, ids, given, originals)

    def _original_timestamps(self) -> Iterator[_Header]:
        """Yield the header with the original timestamp of each record."""
        given, accepted = self.table["timestamp_ms"], self._column("accepted_at")
        if given.null_count == len(given):
            return _timestamp_headers(accepted)
        return (
            (ORIGINAL_TIMESTAMP, b"%d" % (ms or at * 1000))
            for ms, at in zip(given.to_pylist(), accepted, strict=True)
        )

    @property
    def _headers(self) -> list[Headers]:
        column = self.table["headers"]
        if column.null_count == len(column):
            return [()] * len(column)
        return [() if text is None else self._read_headers(text) for text in column.to_pylist()]

    def _column(self, name: str) -> list[Any]:
        return self.table[name].to_pylist()  # type: ignore[no-any-return]


def _parse_ids(texts: Sequence[str]) -> Iterator[bytes]:
    """Yield what `parse_id` returns for each id, in half the time for consecutive ids of one session."""
    prefix, length, session = "", 0, b""
    for text in texts:
        if text[:length] != prefix or not length:
            session, length = parse_id(text)[:16], text.rindex("-") + 1
            prefix = text[:length]
        yield session + int(text[length:]).to_bytes(8)


def _timestamp_headers(seconds: Iterable[float]) -> Iterator[_Header]:
    """Yield the header of each time; the messages of one batch have the same."""
    last, header = None, (ORIGINAL_TIMESTAMP, b"")
    for at in seconds:
        if at != last:
            last, header = at, (ORIGINAL_TIMESTAMP, b"%d" % (at * 1000))
        yield header


def _record_headers(id: bytes, headers: Headers, original: _Header) -> RecordHeaders:
    if any(name == ORIGINAL_TIMESTAMP for name, _ in headers):
        return [(ID_HEADER, id), *headers]
    return [(ID_HEADER, id), *headers, original]
