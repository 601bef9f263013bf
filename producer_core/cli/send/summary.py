"""The summary of a `send`: what became of the rows, in words and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core.cli import output
from producer_core.cli.lazy_group import INTERRUPTED
from producer_core.errors import ProducerError
from producer_core.metrics.counters import Snapshot
from producer_core.metrics.histogram import quantiles

if TYPE_CHECKING:
    from producer_core.cli.send.file_progress import FileProgress
    from producer_core.cli.send.open_rows import InputRows
    from producer_core.cli.send.send_run import SendRun


@dataclass(frozen=True)
class SendSummary:
    """Counts of rows; latencies in seconds. `dead` are messages, `malformed` lines that never became one."""

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
    already: int = 0
    """Rows that an earlier run had done."""
    dead_before: int = 0
    malformed_before: int = 0
    possibly_twice: int = 0
    """Rows of all runs that were sent again although the broker may have had them."""
    complete: bool = False
    again: str = ""
    """The command that goes on; empty where nothing can be gone on with."""
    skipped_all: bool = False
    """`--skip` left out the whole input."""

    @classmethod
    def of(
        cls, job: SendRun, snapshot: Snapshot, elapsed: float, problem: ProducerError | None
    ) -> SendSummary:
        p50, p95, p99 = quantiles(snapshot.histogram.counts, (0.5, 0.95, 0.99))
        return cls(
            topic=job.topic,
            source=job.rows.name,
            unit=job.rows.unit,
            rows=job.read,
            accepted=job.accepted - (duplicates := int(snapshot.total("duplicates"))),
            acknowledged=snapshot.acknowledged,
            retried=int(snapshot.total("retried")),
            dead=snapshot.dead - job.malformed,
            malformed=job.malformed,
            duplicates=duplicates,
            blank=job.blank,
            p50=p50,
            p95=p95,
            p99=p99,
            elapsed=elapsed,
            last_position=job.position,
            interrupted=job.interrupted,
            stopped=job.stopped,
            error="" if problem is None else str(problem),
            reasons=tuple(_reasons(snapshot)),
            problems=tuple(job.problems),
            kept_in=job.kept_in,
            delivery=job.delivery,
            already=job.already,
            dead_before=job.dead_before,
            malformed_before=job.malformed_before,
            possibly_twice=job.possibly_twice + int(snapshot.total("possible_duplicates")),
            complete=job.complete,
            skipped_all=job.skipped_all,
            again="" if job.complete or job.resume is None else job.again,
        )

    @classmethod
    def of_before(cls, topic: str, rows: InputRows, progress: FileProgress) -> SendSummary:
        """Of a send that was complete already."""
        return cls(
            topic=topic, source=rows.name, unit=rows.unit, rows=progress.done, p50=None, p95=None, p99=None,
            elapsed=0.0, interrupted=False, stopped="", error="", reasons=(), problems=(), kept_in="",
            delivery="exactly_once", already=progress.done, dead_before=progress.dead,
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
        """Latencies in milliseconds, as the contract's statistics have them."""
        return {
            "topic": self.topic,
            "source": self.source,
            "delivery": self.delivery,
            "rows": self.rows,
            "already_done": self.already,
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
            "go_on": self.again or None,
            "exit_code": self.exit_code,
        }

    def lines(self) -> Iterator[str]:
        """The summary in words."""
        yield f"{output.count(self.rows, 'row')} of {self.source} read, {self.accepted:,} accepted for {self.topic}."
        yield f"  acknowledged {self.acknowledged:,}   retried {self.retried:,}   dead {self.dead:,}   malformed {self.malformed:,}   duplicates {self.duplicates:,}"
        if self.acknowledged:
            p50, p95, p99 = map(output.milliseconds, (self.p50, self.p95, self.p99))
            yield f"  latency p50 {p50}, p95 {p95}, p99 {p99}   {self.rate:,.0f} messages/s over {self.elapsed:.1f} s"
        if self.already:
            done = output.count(self.already, "row was", "rows were")
            yield f"  {done} done before: {self.dead_before:,} of them dead, {self.malformed_before:,} malformed."
        if self.possibly_twice:
            yield f"  Up to {output.count(self.possibly_twice, 'row')} may be on {self.topic} twice, under the same id."
        if self.blank:
            yield f"  {output.count(self.blank, 'blank line')} left out."
        if self.skipped_all:
            yield f"  --skip {self.last_position} leaves out every {self.unit} of {self.source}."
        yield from self._troubles()

    def _where_they_are(self) -> str:
        if self.kept_in:
            return f"The dead letters are kept in {self.kept_in}; the next producer with a store there takes them in."
        return "The dead letters are kept: producer-core dlq groups. Why: producer-core explain CODE."

    def _troubles(self) -> Iterator[str]:
        for problem in self.problems:
            yield f"  {problem}"
        if self.malformed > len(self.problems):
            yield f"  ... and {self.malformed - len(self.problems):,} more malformed."
        for reason, number in self.reasons:
            yield f"  {number:,} x {reason}"
        if self.dead or self.malformed:
            yield self._where_they_are()
        if self.error:
            yield f"The input broke off after {self.unit} {self.last_position:,}: {self.error}"
        if self.stopped:
            yield f"Stopped after {self.unit} {self.last_position:,}: {self.stopped}."
            yield self._how_to_go_on()
        elif self.again:
            yield f"Not every row is done. Go on with: {self.again}"

    def _how_to_go_on(self) -> str:
        if self.interrupted and self.again:
            return f"Go on with: {self.again}"
        if self.again:
            return f"Mend it and say --restart --skip {self.last_position}, or leave --strict out."
        mend = "" if self.interrupted else "Mend it, or leave --strict out. "
        return f"{mend}Go on with the same command and --skip {self.last_position}."


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _reasons(snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    """What failed attempts said, most frequent first."""
    ordered = sorted(snapshot.errors.items(), key=lambda item: -item[1])
    yield from ((code, number) for (_, code, _), number in ordered[:5])
