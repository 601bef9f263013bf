"""The summary of a `send`: the outcome of its rows, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.plural import plural
from producer_core.cli import output
from producer_core.cli.lazy_group import INTERRUPTED
from producer_core.errors import ProducerError
from producer_core.metrics.counters import Snapshot
from producer_core.metrics.histogram import quantiles

if TYPE_CHECKING:
    from producer_core.cli.send.file_progress import FileProgress
    from producer_core.cli.send.open_rows import InputRows
    from producer_core.cli.send.run_state import RunState


@dataclass(frozen=True)
class SendSummary:
    """Counts of rows; latencies in seconds.

    `dead` counts messages that became dead letters, `malformed` rows that never became a message.
    """

    topic: str
    source: str
    unit: str
    rows: int
    accepted: int
    acknowledged: int
    retried: int
    dead: int
    malformed: int
    duplicates: int
    blank: int
    p50: float | None
    p95: float | None
    p99: float | None
    elapsed: float
    last_position: int
    interrupted: bool
    stopped: str
    error: str
    reasons: tuple[tuple[str, int], ...]
    problems: tuple[str, ...]
    kept_in: str
    delivery: str = "at_least_once"
    already_done: int = 0
    """Rows that an earlier run settled."""
    dead_before: int = 0
    malformed_before: int = 0
    possibly_twice: int = 0
    """Rows, over all runs, that were sent again although a broker may already have them."""
    topic_unread: bool = False
    """Whether more rows may be on the topic twice than `possibly_twice` counts, because it could not be read."""
    held_back: int = 0
    """Rows that were not sent because their key has a newer record; `dead` includes them."""
    first_held_back: int = 0
    """The number of the first of them, counted from 1."""
    complete: bool = False
    resume_command: str = ""
    """The command that resumes this send; empty where it cannot be resumed."""
    skipped_all: bool = False
    """`--skip` left out the whole input."""

    @classmethod
    def of(
        cls, state: RunState, snapshot: Snapshot, elapsed: float, problem: ProducerError | None
    ) -> SendSummary:
        p50, p95, p99 = quantiles(snapshot.histogram.counts, (0.5, 0.95, 0.99))
        return cls(
            topic=state.topic,
            source=state.rows.name,
            unit=state.rows.unit,
            rows=state.read,
            accepted=state.accepted - (duplicates := int(snapshot.total("duplicates"))),
            acknowledged=snapshot.acknowledged,
            retried=int(snapshot.total("retried")),
            dead=snapshot.dead - state.malformed,
            malformed=state.malformed,
            duplicates=duplicates,
            blank=state.blank,
            p50=p50,
            p95=p95,
            p99=p99,
            elapsed=elapsed,
            last_position=state.position,
            interrupted=state.interrupted,
            stopped=state.stopped,
            error="" if problem is None else str(problem),
            reasons=tuple(_reasons(snapshot)),
            problems=tuple(state.problems),
            kept_in=state.kept_in,
            delivery=state.delivery,
            already_done=state.already_done,
            dead_before=state.dead_before,
            malformed_before=state.malformed_before,
            possibly_twice=state.possibly_twice(int(snapshot.total("possible_duplicates"))),
            topic_unread=state.topic_unread,
            held_back=len(state.held_back),
            first_held_back=min(state.held_back, default=-1) + 1,
            complete=state.complete,
            skipped_all=state.skipped_all,
            resume_command="" if state.complete or state.progress is None else state.resume_command,
        )

    @classmethod
    def of_complete(cls, topic: str, rows: InputRows, progress: FileProgress) -> SendSummary:
        """Return the summary of a send that an earlier run completed."""
        return cls(
            topic=topic, source=rows.name, unit=rows.unit, rows=progress.done, p50=None, p95=None, p99=None,
            elapsed=0.0, interrupted=False, stopped="", error="", reasons=(), problems=(), kept_in="",
            delivery="exactly_once", already_done=progress.done, dead_before=progress.dead,
            malformed_before=progress.malformed_rows, complete=True, accepted=0, acknowledged=0, retried=0, dead=0,
            malformed=0, duplicates=0, blank=0, last_position=0,
        )  # fmt: skip

    @property
    def rate(self) -> float:
        return self.acknowledged / max(self.elapsed, 1e-9)

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return INTERRUPTED
        if self.error:
            return 2
        dead = self.dead or self.malformed or self.dead_before or self.malformed_before
        return 1 if dead or self.stopped else 0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object. Latencies are in milliseconds, as in the producer's statistics."""
        return {
            "topic": self.topic,
            "source": self.source,
            "delivery": self.delivery,
            "rows": self.rows,
            "already_done": self.already_done,
            "accepted": self.accepted,
            "acknowledged": self.acknowledged,
            "retried": self.retried,
            "dead": self.dead,
            "malformed": self.malformed,
            "duplicates": self.duplicates,
            "possible_duplicates": self.possibly_twice,
            "dead_before": self.dead_before,
            "malformed_before": self.malformed_before,
            "complete": self.complete,
            "blank": self.blank,
            "p50_ms": _ms(self.p50),
            "p95_ms": _ms(self.p95),
            "p99_ms": _ms(self.p99),
            "messages_per_second": round(self.rate, 1),
            "elapsed_seconds": round(self.elapsed, 3),
            "last_position": self.last_position,
            "interrupted": self.interrupted,
            "stopped": self.stopped or None,
            "error": self.error or None,
            "go_on": self.resume_command or None,
            "exit_code": self.exit_code,
        }

    def lines(self) -> Iterator[str]:
        """Return the summary as text."""
        yield f"{plural(self.rows, 'row')} of {self.source} read, {self.accepted:,} accepted for {self.topic}."
        yield (
            f"  acknowledged {self.acknowledged:,}   retried {self.retried:,}   dead {self.dead:,}   "
            f"malformed {self.malformed:,}   duplicates {self.duplicates:,}"
        )
        if self.acknowledged:
            p50, p95, p99 = map(output.milliseconds, (self.p50, self.p95, self.p99))
            yield f"  latency p50 {p50}, p95 {p95}, p99 {p99}   {self.rate:,.0f} messages/s over {self.elapsed:.1f} s"
        if self.already_done:
            done = plural(self.already_done, "row was", "rows were")
            yield (
                f"  {done} settled by earlier runs ({self.dead_before:,} dead, {self.malformed_before:,} malformed)."
            )
        if self.possibly_twice:
            rows = plural(self.possibly_twice, "row")
            yield f"  Up to {rows} may be on {self.topic} twice, with the same message id."
        if self.topic_unread:
            yield f"  {self.topic} could not be read: if the state file was an older copy, more rows may be there twice."
        if self.held_back:
            rows = plural(self.held_back, "row was", "rows were")
            yield (
                f"  {rows} not sent (row {self.first_held_back:,}): an earlier run may have sent it, and {self.topic} has a "
                "newer record with its key."
                if self.held_back == 1
                else f"  {rows} not sent, from row {self.first_held_back:,} on: an earlier run may have sent them, and "
                f"{self.topic} has newer records with their keys."
            )
        if self.blank:
            yield f"  {plural(self.blank, 'blank line')} skipped."
        if self.skipped_all:
            yield f"  --skip {self.last_position} skips every {self.unit} of {self.source}."
        yield from self._troubles()

    def _dead_letter_hint(self) -> str:
        if self.kept_in:
            return f"The dead letters are in {self.kept_in}. The next producer that uses the store in that folder imports them."
        return (
            "List the dead letters: producer-core dlq groups. Explain an error: producer-core explain CODE."
        )

    def _troubles(self) -> Iterator[str]:
        for problem in self.problems:
            yield f"  {problem}"
        if self.malformed > len(self.problems):
            yield f"  ... and {self.malformed - len(self.problems):,} more malformed."
        for reason, number in self.reasons:
            yield f"  {number:,} x {reason}"
        if self.dead or self.malformed:
            yield self._dead_letter_hint()
        if self.error:
            yield f"Reading failed after {self.unit} {self.last_position:,}: {self.error}"
        if self.stopped:
            yield f"Stopped after {self.unit} {self.last_position:,}: {self.stopped}."
            yield self._how_to_resume()
        elif self.resume_command:
            yield f"Some rows are not settled. Resume with: {self.resume_command}"

    def _how_to_resume(self) -> str:
        if self.interrupted and self.resume_command:
            return f"Resume with: {self.resume_command}"
        if self.resume_command:
            return f"Correct the input and use --restart --skip {self.last_position}, or omit --strict."
        fix = "" if self.interrupted else "Correct the input, or omit --strict. "
        return f"{fix}Resume with the same command and --skip {self.last_position}."


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _reasons(snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    """Return the error codes of failed attempts with their counts, most frequent first."""
    ordered = sorted(snapshot.errors.items(), key=lambda item: -item[1])
    yield from ((code, number) for (_, code, _), number in ordered[:5])
