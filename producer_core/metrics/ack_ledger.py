"""Keep a ledger of acknowledged message ids and offsets, and of dead letters, as additive rows.

A row covers one session, topic, partition and window of 4,096 sequences. A window may be split over several rows; its counts
and sums are the sums of theirs. docs/reference/telemetry.md has the formulas for readers.
"""

from __future__ import annotations

import threading
import uuid
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, groupby, islice
from operator import itemgetter, mul, sub
from typing import NamedTuple

from producer_core.events import Acknowledged, DeadLetter, Hook

WINDOW = 4096
"""Sequences of one window: window w starts at the sequence w * WINDOW."""
MODULUS = 16_777_213
"""A fingerprint uses offsets modulo this prime, so that the sum of a window stays below 2^53."""

_MAX_PLACES = 100_000
"""Places whose highest sequence and offset are kept."""
_FOLD_SIZE = 65_536
"""The number of acknowledgements of a place above which they are stored as arrays."""
_UNBOUNDED = 1 << 62

_TOPIC_AND_PARTITION = itemgetter(0, 1)  # of Acknowledged
_OFFSET, _SEQ = itemgetter(2), itemgetter(6)

Place = tuple[bytes, str, int]
"""A session (16 bytes), a topic and a partition."""


class LedgerRow(NamedTuple):
    """Acknowledgements of one session, topic, partition and window of sequences.

    `seqs` and `offs` are in the order of offsets: the first value, then differences. `fp` is the sum of
    (sequence % WINDOW + 1) * (offset % MODULUS), `sum_seq` the sum of sequence % WINDOW. `late` counts acknowledgements whose
    order this row cannot prove, because they followed a higher sequence or came after a row with a higher offset. For
    acknowledgements with unknown offsets `fp` is None, `off_min` and `off_max` are -1, and `offs` is empty.
    """

    session: str
    topic: str
    partition: int
    first_window: int
    count: int  # type: ignore[assignment]  # the column's name, which replaces tuple.count
    sum_seq: int
    fp: int | None
    late: int
    off_min: int
    off_max: int
    seqs: Sequence[int]
    offs: Sequence[int]


class GivenUpRow(NamedTuple):
    """A message that became a dead letter, with the code and the verdict of that moment."""

    session: str
    seq: int
    topic: str
    code: str
    verdict: str
    given_up_at: float


class PriorCounts(NamedTuple):
    """The highest sequence and offset in earlier rows of a place; an acknowledgement below either is late."""

    seq: int
    offset: int


NOTHING = PriorCounts(-1, -1)
"""The session was not used before."""
UNKNOWN = PriorCounts(_UNBOUNDED, _UNBOUNDED)
"""An earlier process may have used the session."""


class AckLedger(Hook):
    """Keeps acknowledgements until `take` collects them, once a second.

    Its hooks are called on the poll thread and on the prober's. `session` is the producer's own, with sequences from `first`
    on; `fresh` means that no earlier process used it.
    """

    def __init__(self, session: bytes, *, fresh: bool = True, first: int = 0) -> None:
        self._own = session
        self._fresh = fresh
        self._first = first
        self._lock = threading.Lock()  # guards the three fields below
        self._placed: dict[Place, _Columns] = {}
        self._unplaced: dict[Place, list[int]] = {}
        self._given_up: list[GivenUpRow] = []
        # used by `take` only
        self._prior: dict[Place, PriorCounts] = {}

    def acknowledged(self, batch: Sequence[Acknowledged]) -> None:
        with self._lock:
            for (topic, partition), items in groupby(batch, _TOPIC_AND_PARTITION):
                self._add(topic, partition, list(items))

    def died(self, dead_letter: DeadLetter) -> None:
        session, _, seq = dead_letter.message_id.rpartition("-")
        row = GivenUpRow(
            session, int(seq), dead_letter.topic, dead_letter.code, dead_letter.verdict, dead_letter.failed_at
        )
        with self._lock:
            self._given_up.append(row)

    def take(self) -> tuple[tuple[LedgerRow, ...], tuple[GivenUpRow, ...]]:
        """Return the rows since the last call. Called by one thread."""
        with self._lock:
            placed, self._placed = self._placed, {}
            unplaced, self._unplaced = self._unplaced, {}
            given_up, self._given_up = self._given_up, []
        rows: list[LedgerRow] = []
        for place, columns in placed.items():
            seqs, offsets = columns.lists()
            rows += rows_of(place, seqs, offsets, before=self._prior_counts(place))
            self._update_prior(place, PriorCounts(max(seqs), max(offsets)))
        for place, seqs in unplaced.items():
            rows += unplaced_rows(place, seqs)
        return tuple(rows), tuple(given_up)

    # The caller of these holds the lock.

    def _add(self, topic: str, partition: int, items: list[Acknowledged]) -> None:
        """Add acknowledgements of one partition: all at once if each has an offset and belongs to this session."""
        seqs, offsets = list(map(_SEQ, items)), list(map(_OFFSET, items))
        if None in offsets or min(seqs) < self._first:
            for item in items:
                self._add_one(item)
        else:
            self._append((self._own, topic, partition), seqs, offsets)

    def _add_one(self, item: Acknowledged) -> None:
        if item.seq >= self._first:
            session, seq = self._own, item.seq
        elif len(item.id) == 24:  # a replay, or a message of an earlier session or another producer
            session, seq = item.id[:16], int.from_bytes(item.id[16:])
        else:
            return
        place = (session, item.topic, item.partition)
        if item.offset is None or item.offset < 0:
            self._unplaced.setdefault(place, []).append(seq)
        else:
            self._append(place, [seq], [item.offset])

    def _append(self, place: Place, seqs: Sequence[int], offsets: Sequence[int]) -> None:
        columns = self._placed.get(place)
        if columns is None:
            columns = self._placed[place] = _Columns()
        columns.seqs += seqs
        columns.offsets += offsets
        if len(columns.seqs) > _FOLD_SIZE:
            columns.fold()

    # helpers of take

    def _prior_counts(self, place: Place) -> PriorCounts:
        default = NOTHING if self._fresh and place[0] == self._own else UNKNOWN
        return self._prior.get(place, default)

    def _update_prior(self, place: Place, counts: PriorCounts) -> None:
        prior = self._prior.pop(place, NOTHING)
        self._prior[place] = PriorCounts(max(prior.seq, counts.seq), max(prior.offset, counts.offset))
        if len(self._prior) > _MAX_PLACES:  # drop the place without acknowledgements for the longest time
            del self._prior[next(iter(self._prior))]
            self._fresh = False


class _Columns:
    """The acknowledgements of one place since the last `take`; folded ones use 16 bytes each."""

    __slots__ = ("_folded", "offsets", "seqs")

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.offsets: list[int] = []
        self._folded: list[tuple[array[int], array[int]]] = []

    def fold(self) -> None:
        self._folded.append((array("q", self.seqs), array("q", self.offsets)))
        self.seqs, self.offsets = [], []

    def lists(self) -> tuple[list[int], list[int]]:
        if self._folded:
            self.fold()
            self.seqs = list(chain.from_iterable(seqs for seqs, _ in self._folded))
            self.offsets = list(chain.from_iterable(offsets for _, offsets in self._folded))
        return self.seqs, self.offsets


def rows_of(
    place: Place, seqs: Sequence[int], offsets: Sequence[int], *, before: PriorCounts = NOTHING
) -> list[LedgerRow]:
    """Return the rows of one place from its sequences and their acknowledged offsets, which may be in any order."""
    steps = _steps(offsets)
    if min(steps, default=1) <= 0:
        offsets, seqs = map(list, zip(*sorted(zip(offsets, seqs, strict=True)), strict=True))
        steps = _steps(offsets)
    rises = _steps(seqs)
    if min(rises, default=1) > 0 and seqs[0] > before.seq and offsets[0] > before.offset:
        return [
            _row(place, seqs[a:b], offsets[a:b], 0, [seqs[a], *rises[a : b - 1]], [offsets[a], *steps[a : b - 1]])
            for a, b in _cuts(seqs)
        ]  # fmt: skip
    highest = accumulate(seqs, max, initial=before.seq)
    late = [
        seq < top or offset <= before.offset for seq, offset, top in zip(seqs, offsets, highest, strict=False)
    ]
    windows: dict[int, tuple[list[int], list[int], list[bool]]] = {}
    for seq, offset, is_late in zip(seqs, offsets, late, strict=True):
        columns = windows.setdefault(seq // WINDOW, ([], [], []))
        columns[0].append(seq)
        columns[1].append(offset)
        columns[2].append(is_late)
    return [
        _row(place, part, offs, sum(flags), [part[0], *_steps(part)], [offs[0], *_steps(offs)])
        for part, offs, flags in windows.values()
    ]


def unplaced_rows(place: Place, seqs: Sequence[int]) -> list[LedgerRow]:
    """Return the rows of acknowledged messages with unknown offsets."""
    ordered = sorted(seqs)
    session, topic, partition = str(uuid.UUID(bytes=place[0])), place[1], place[2]
    rows = []
    for start, end in _cuts(ordered):
        part, window = ordered[start:end], ordered[start] // WINDOW
        total = sum(part) - len(part) * window * WINDOW
        deltas = [part[0], *_steps(part)]
        rows.append(
            LedgerRow(session, topic, partition, window, len(part), total, None, 0, -1, -1, deltas, ())
        )
    return rows


def fingerprint(pairs: Sequence[tuple[int, int]]) -> int:
    """Return the fingerprint of (sequence, offset) pairs, as in `LedgerRow.fp`."""
    return sum((seq % WINDOW + 1) * (offset % MODULUS) for seq, offset in pairs)


def entries(row: LedgerRow) -> Iterator[tuple[int, int | None]]:
    """Iterate over the sequences of a row with their offsets, which are None if unknown."""
    seqs = accumulate(row.seqs)
    if not row.offs:
        return zip(seqs, [None] * len(row.seqs), strict=True)
    return zip(seqs, accumulate(row.offs), strict=True)


def _cuts(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Split ascending sequences by window; yield start and end of each part."""
    start = 0
    while start < len(seqs):
        end = bisect_left(seqs, (seqs[start] // WINDOW + 1) * WINDOW, start)
        yield start, end
        start = end


def _row(
    place: Place,
    seqs: Sequence[int],
    offsets: Sequence[int],
    late: int,
    seq_deltas: list[int],
    offset_deltas: list[int],
) -> LedgerRow:
    """Return the row of one window. All columns are in the order of offsets."""
    window, total = seqs[0] // WINDOW, sum(seqs)
    return LedgerRow(
        str(uuid.UUID(bytes=place[0])), place[1], place[2], window, len(seqs), total - len(seqs) * window * WINDOW,
        _fingerprint(seqs, offsets, window), late, offsets[0], offsets[-1], seq_deltas, offset_deltas,
    )  # fmt: skip


def _fingerprint(seqs: Sequence[int], offsets: Sequence[int], window: int) -> int:
    """Return the fingerprint of one window in the order of offsets, with sums instead of a loop: three times faster.

    The sum of (s - w + 1) * (o - k) is the sum of s * (o - k), less (w - 1) * the sum of (o - k).
    """
    if offsets[0] // MODULUS != offsets[-1] // MODULUS:
        return fingerprint(list(zip(seqs, offsets, strict=True)))
    below = offsets[0] // MODULUS * MODULUS
    products: int = sum(map(mul, seqs, offsets)) - below * sum(seqs)
    return products - (window * WINDOW - 1) * (sum(offsets) - len(offsets) * below)


def _steps(numbers: Sequence[int]) -> list[int]:
    return list(map(sub, islice(numbers, 1, None), numbers))
