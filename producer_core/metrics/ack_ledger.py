"""The ledger: what brokers acknowledged, by message id and offset, and what was given up, as rows that add up.

A row is about one session, topic, partition and window of 4,096 sequences. Rows are additive: a window may come in
several, and counts and sums of the whole are the sums of theirs. docs/telemetry.md has the formulas for readers.
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
"""Sequences of one window: window w holds the sequences from w * WINDOW on."""
MODULUS = 16_777_213
"""Offsets count modulo this prime in a fingerprint, so that a window's sum stays below 2^53."""

_MOST_PLACES = 100_000
_FOLDED = 65_536
_BIG = 1 << 62

_WHERE = itemgetter(0, 1)  # of Acknowledged: topic and partition
_OFFSET, _SEQ = itemgetter(2), itemgetter(6)

Place = tuple[bytes, str, int]
"""A session (16 bytes), a topic and a partition."""


class LedgerRow(NamedTuple):
    """Acknowledgements of one session, topic, partition and window of sequences.

    `seqs` and `offs` are in the order of offsets, the first absolute, then differences. `fp` is the sum of
    (sequence % WINDOW + 1) * (offset % MODULUS), `sum_seq` that of sequence % WINDOW. `late` counts those whose order
    cannot be shown from here: after a higher sequence, or after a higher offset was told. Where the broker had a
    message and nobody knows its place, `fp` is None, `off_min` and `off_max` are -1 and `offs` is empty.
    """

    session: str
    topic: str
    partition: int
    first_window: int
    count: int  # type: ignore[assignment]  # the column's name; nobody needs tuple.count here
    sum_seq: int
    fp: int | None
    late: int
    off_min: int
    off_max: int
    seqs: Sequence[int]
    offs: Sequence[int]


class GivenUpRow(NamedTuple):
    """A message that became a dead letter, and what was known of it then."""

    session: str
    seq: int
    topic: str
    code: str
    verdict: str
    given_up_at: float


class PriorCounts(NamedTuple):
    """The highest sequence and offset that a place told before; what lies below either is late."""

    seq: int
    offset: int


NOTHING = PriorCounts(-1, -1)
"""Nobody has used this session before."""
UNKNOWN = PriorCounts(_BIG, _BIG)
"""An earlier process may have."""


class AckLedger(Hook):
    """A hook that keeps what was acknowledged until it is taken, once a second.

    It hears on the poll thread and on the look's. `session` is the producer's own, whose sequences begin at `first`;
    `fresh` says that no earlier process used it.
    """

    def __init__(self, session: bytes, *, fresh: bool = True, first: int = 0) -> None:
        self._own = session
        self._fresh = fresh
        self._first = first
        self._lock = threading.Lock()  # guards the three fields below
        self._placed: dict[Place, _Told] = {}
        self._unplaced: dict[Place, list[int]] = {}
        self._given_up: list[GivenUpRow] = []
        # touched by `take` only
        self._before: dict[Place, PriorCounts] = {}

    def acknowledged(self, batch: Sequence[Acknowledged]) -> None:
        with self._lock:
            for (topic, partition), items in groupby(batch, _WHERE):
                self._add(topic, partition, list(items))

    def died(self, dead_letter: DeadLetter) -> None:
        session, _, seq = dead_letter.message_id.rpartition("-")
        row = GivenUpRow(
            session, int(seq), dead_letter.topic, dead_letter.code, dead_letter.verdict, dead_letter.failed_at
        )
        with self._lock:
            self._given_up.append(row)

    def take(self) -> tuple[tuple[LedgerRow, ...], tuple[GivenUpRow, ...]]:
        """The rows of what was heard since the last time. Called by one thread."""
        with self._lock:
            placed, self._placed = self._placed, {}
            unplaced, self._unplaced = self._unplaced, {}
            given_up, self._given_up = self._given_up, []
        rows: list[LedgerRow] = []
        for place, told in placed.items():
            seqs, offsets = told.columns()
            rows += rows_of(place, seqs, offsets, before=self._known(place))
            self._remember(place, PriorCounts(max(seqs), max(offsets)))
        for place, unknown in unplaced.items():
            rows += unplaced_rows(place, unknown)
        return tuple(rows), tuple(given_up)

    # under the lock

    def _add(self, topic: str, partition: int, items: list[Acknowledged]) -> None:
        """A stretch of one partition: the quick way is for what has its offset and is of our own session."""
        seqs, offsets = list(map(_SEQ, items)), list(map(_OFFSET, items))
        if None in offsets or min(seqs) < self._first:
            for item in items:
                self._add_one(item)
        else:
            self._keep((self._own, topic, partition), seqs, offsets)  # None was looked for

    def _add_one(self, item: Acknowledged) -> None:
        if item.seq >= self._first:
            session, seq = self._own, item.seq
        elif len(item.id) == 24:  # replayed, or of an earlier session or another producer's
            session, seq = item.id[:16], int.from_bytes(item.id[16:])
        else:
            return
        place = (session, item.topic, item.partition)
        if item.offset is None or item.offset < 0:
            self._unplaced.setdefault(place, []).append(seq)
        else:
            self._keep(place, [seq], [item.offset])

    def _keep(self, place: Place, seqs: Sequence[int], offsets: Sequence[int]) -> None:
        found = self._placed.get(place)
        if found is None:
            found = self._placed[place] = _Told()
        found.seqs += seqs
        found.offsets += offsets
        if len(found.seqs) > _FOLDED:
            found.fold()

    # of take

    def _known(self, place: Place) -> PriorCounts:
        nobody = NOTHING if self._fresh and place[0] == self._own else UNKNOWN
        return self._before.get(place, nobody)

    def _remember(self, place: Place, told: PriorCounts) -> None:
        known = self._before.pop(place, NOTHING)
        self._before[place] = PriorCounts(max(known.seq, told.seq), max(known.offset, told.offset))
        if len(self._before) > _MOST_PLACES:  # the one unheard of for longest
            del self._before[next(iter(self._before))]
            self._fresh = False


class _Told:
    """What one place acknowledged since the last time; 16 bytes a message where nobody takes it for long."""

    __slots__ = ("_folded", "offsets", "seqs")

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.offsets: list[int] = []
        self._folded: list[tuple[array[int], array[int]]] = []

    def fold(self) -> None:
        self._folded.append((array("q", self.seqs), array("q", self.offsets)))
        self.seqs, self.offsets = [], []

    def columns(self) -> tuple[list[int], list[int]]:
        if self._folded:
            self.fold()
            self.seqs = list(chain.from_iterable(seqs for seqs, _ in self._folded))
            self.offsets = list(chain.from_iterable(offsets for _, offsets in self._folded))
        return self.seqs, self.offsets


def rows_of(
    place: Place, seqs: Sequence[int], offsets: Sequence[int], *, before: PriorCounts = NOTHING
) -> list[LedgerRow]:
    """The rows of one place: sequences and the offsets at which they were acknowledged, in any order."""
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
    for seq, offset, doubtful in zip(seqs, offsets, late, strict=True):
        columns = windows.setdefault(seq // WINDOW, ([], [], []))
        columns[0].append(seq)
        columns[1].append(offset)
        columns[2].append(doubtful)
    return [
        _row(place, one, two, sum(three), [one[0], *_steps(one)], [two[0], *_steps(two)])
        for one, two, three in windows.values()
    ]


def unplaced_rows(place: Place, seqs: Sequence[int]) -> list[LedgerRow]:
    """The rows of messages that the broker has, nobody knows where."""
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
    """Of (sequence, offset) pairs, as `LedgerRow.fp` has it."""
    return sum((seq % WINDOW + 1) * (offset % MODULUS) for seq, offset in pairs)


def entries(row: LedgerRow) -> Iterator[tuple[int, int | None]]:
    """What a row acknowledges: sequences with their offsets, None where nobody knows."""
    seqs = accumulate(row.seqs)
    if not row.offs:
        return zip(seqs, [None] * len(row.seqs), strict=True)
    return zip(seqs, accumulate(row.offs), strict=True)


def _cuts(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Rising sequences, as stretches of one window each."""
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
    """Of one window, in the order of offsets."""
    window, total = seqs[0] // WINDOW, sum(seqs)
    return LedgerRow(
        str(uuid.UUID(bytes=place[0])), place[1], place[2], window, len(seqs), total - len(seqs) * window * WINDOW,
        _fingerprint(seqs, offsets, window), late, offsets[0], offsets[-1], seq_deltas, offset_deltas,
    )  # fmt: skip


def _fingerprint(seqs: Sequence[int], offsets: Sequence[int], window: int) -> int:
    """As `fingerprint`, for one window in the order of offsets: three sums instead of a loop, which is three times
    quicker. Sum of (s - w + 1) * (o - k) is sum of s * (o - k), less (w - 1) * sum of (o - k)."""
    if offsets[0] // MODULUS != offsets[-1] // MODULUS:
        return fingerprint(list(zip(seqs, offsets, strict=True)))
    below = offsets[0] // MODULUS * MODULUS
    products: int = sum(map(mul, seqs, offsets)) - below * sum(seqs)
    return products - (window * WINDOW - 1) * (sum(offsets) - len(offsets) * below)


def _steps(numbers: Sequence[int]) -> list[int]:
    return list(map(sub, islice(numbers, 1, None), numbers))
