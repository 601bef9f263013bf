"""How the sending of a frame went: counts that add up, and the rows that were refused or died."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from producer_core._internal.masking import mask_or_hide

LISTED = 1000
"""Refused and dead rows that are named one by one; all are counted."""

_SAID = 5


class RefusedRow(NamedTuple):
    """A row that was not sent: its place in the frame, from 0, and why."""

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
    """Rows `start` to `next` were handled, and each is in one of the counts. `pending` ones are still on their way.

    `stopped` says why the rest was not sent: send it with `start=result.next`. `refusals` and `deaths` name the first
    thousand rows of theirs: `frame.iloc[[one.row for one in result.refusals]]`. `keyless` rows were sent without a key.
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
        """Every row was acknowledged, or was known to be there already."""
        return not (self.stopped or self.dead or self.refused or self.pending)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a person must know, the first one in one line."""
        return tuple(self._sentences())

    def _sentences(self) -> Iterator[str]:
        counts = [
            f"{count:,} {word}"
            for count, word in (
                (self.acknowledged, "acknowledged"),
                (self.dead, "died"),
                (self.refused, "refused"),
                (self.duplicate, "known already and not sent again"),
                (self.pending, "still on their way"),
            )
            if count
        ]
        rows = "1 row" if self.total == 1 else f"{self.total:,} rows"
        yield f"{rows} to {self.topic} in {self.seconds:.1f} s: {', '.join(counts) or 'nothing to send'}."
        if self.stopped:
            yield f"Stopped before row {self.next:,}: {self.stopped} Go on with start={self.next}."
        if self.pending:
            yield "producer.flush() waits for those that are on their way."
        if self.dead:
            yield "What died is in the dead letters: producer.dlq.to_frame() lists it, a replay sends it again."
        if self.keyless:
            yield f"{self.keyless:,} had no key, so any partition may have them."

    def __repr__(self) -> str:
        named = [f"row {one.row:,} refused: {one.text}" for one in self.refusals[:_SAID]]
        named += [f"row {one.row:,} died: {one.text} ({one.verdict})" for one in self.deaths[:_SAID]]
        return mask_or_hide("\n".join([*self.sentences, *named]))

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        rows: list[Sequence[object]] = [(one.row, "refused", one.text) for one in self.refusals]
        rows += [(one.row, f"died, {one.verdict}", one.text) for one in self.deaths]
        first, *lines = self.sentences
        more = self.refused + self.dead - len(rows)
        return html.page(first, columns=("row", "", "why"), rows=rows, lines=lines, more=more)


class FrameInterrupted(KeyboardInterrupt):
    """A frame was interrupted between two rows. `result` says how far it came."""

    def __init__(self, result: FrameResult) -> None:
        super().__init__(f"{result.sentences[0]} Go on with send_frame(…, start={result.next}).")
        self.result = result
