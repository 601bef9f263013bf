"""Report the outcome of a frame: counts that add up, and the rows that were refused or became dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from producer_core._internal.masking import mask_or_hide
from producer_core._internal.plural import plural

LISTED = 1000
"""Maximum number of refused and of dead rows listed. The counts include all."""

_IN_REPR = 5


class RefusedRow(NamedTuple):
    """A row that was not sent: its position in the frame, from 0, and the reason."""

    row: int
    text: str


class DeadRow(NamedTuple):
    """A row that became a dead letter."""

    row: int
    message_id: str
    text: str
    verdict: str


@dataclass(frozen=True, repr=False)
class FrameResult:
    """The outcome of rows `start` to `next`. Each is in one of the counts; `pending` rows are not settled yet.

    `stopped` says why the rest was not sent: continue with `start=result.next`. `refusals` and `deaths` list the first
    thousand rows each: `frame.iloc[[one.row for one in result.refusals]]`. `keyless` rows were sent without a key.
    """

    topic: str
    start: int
    next: int
    acknowledged: int
    dead: int
    duplicate: int
    refused: int
    pending: int
    seconds: float
    refusals: tuple[RefusedRow, ...] = ()
    deaths: tuple[DeadRow, ...] = ()
    keyless: int = 0
    stopped: str = ""

    @property
    def total(self) -> int:
        return self.next - self.start

    @property
    def complete(self) -> bool:
        """Whether every row was acknowledged or suppressed as a duplicate."""
        return not (self.stopped or self.dead or self.refused or self.pending)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The outcome in sentences. The first one is a summary."""
        return tuple(self._sentences())

    def _sentences(self) -> Iterator[str]:
        counts = [
            plural(count, word, words)
            for count, word, words in (
                (self.acknowledged, "acknowledged", "acknowledged"),
                (self.dead, "dead letter", "dead letters"),
                (self.refused, "refused", "refused"),
                (self.duplicate, "duplicate suppressed", "duplicates suppressed"),
                (self.pending, "pending", "pending"),
            )
            if count
        ]
        rows = plural(self.total, "row")
        yield f"{rows} to {self.topic} in {self.seconds:.1f} s: {', '.join(counts) or 'nothing to send'}."
        if self.stopped:
            yield f"Stopped before row {self.next:,}: {self.stopped} Continue with start={self.next}."
        if self.pending:
            yield "producer.flush() waits for the pending messages."
        if self.dead:
            yield "producer.dlq.to_frame() lists the dead letters; a replay sends them again."
        if self.keyless:
            partitions = "its partition" if self.keyless == 1 else "their partitions"
            yield f"{self.keyless:,} had no key; the partitioner chose {partitions}."

    def __repr__(self) -> str:
        named = [f"row {one.row:,} refused: {one.text}" for one in self.refusals[:_IN_REPR]]
        named += [
            f"row {one.row:,} is a dead letter: {one.text} ({one.verdict})" for one in self.deaths[:_IN_REPR]
        ]
        return mask_or_hide("\n".join([*self.sentences, *named]))

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        rows: list[Sequence[object]] = [(one.row, "refused", one.text) for one in self.refusals]
        rows += [(one.row, f"dead letter, {one.verdict}", one.text) for one in self.deaths]
        first, *lines = self.sentences
        more = self.refused + self.dead - len(rows)
        return html.page(first, columns=("row", "", "why"), rows=rows, lines=lines, more=more)


class FrameInterrupted(KeyboardInterrupt):
    """The sending of a frame was interrupted between two rows. `result` covers the rows sent so far."""

    def __init__(self, result: FrameResult) -> None:
        super().__init__(f"{result.sentences[0]} Continue with send_frame(…, start={result.next}).")
        self.result = result
