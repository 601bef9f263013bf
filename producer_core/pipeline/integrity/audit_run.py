"""An audit: a topic and the ledgers of its producers, read and compared; what differs is looked at by message id.

The order of looking matters. The topic's ends are asked for before the ledger's, so that whatever the ledger says lies
below them is on the log or lost; and once more after the ledger's, so that an acknowledgement above the log's end shows.
Low watermarks are asked for again when everything was read: what retention took meanwhile is expired, not lost.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer_core.config import ClientConfig, client_config
from producer_core.errors import BrokerError, ConfigError, PipelineError
from producer_core.kafka.clients import admin, cluster_id
from producer_core.pipeline.integrity import caveats, ledgers, topic_bounds, watermarks
from producer_core.pipeline.integrity.cached_frames import giving_back, keep
from producer_core.pipeline.integrity.compare import about, look
from producer_core.pipeline.integrity.comparison import ComparisonRequest, ComparisonResult, LedgerFrames
from producer_core.pipeline.integrity.confirm_losses import confirm
from producer_core.pipeline.integrity.findings import listed, written
from producer_core.pipeline.integrity.ledger_sources import (
    LedgerRange,
    LedgerSource,
    fresh,
    hear,
    read_until,
    sources,
)
from producer_core.pipeline.integrity.offset_lookup import looked_up
from producer_core.pipeline.integrity.outcome import LedgerGap
from producer_core.pipeline.integrity.ranges import Range
from producer_core.pipeline.integrity.read_topic import bounded, decoded
from producer_core.pipeline.integrity.report import AuditReport
from producer_core.pipeline.integrity.scope import AuditScope
from producer_core.pipeline.integrity.spans import (
    Isolation,
    OffsetSpan,
    PartitionBounds,
    anew,
    judged_from,
    left_of,
    lowered,
    seen_after,
    spans,
)
from producer_core.pipeline.job_status import JobStatus, failure_text, track_job
from producer_core.pipeline.kafka_options import kafka_options
from producer_core.pipeline.progress import announce, clear_line, show_progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from producer_core.store import Store

_TIMEOUT = 10.0
_CLOCKS = 3_600.0
"""Seconds by which the clocks of a record's producer and of whoever told it may differ."""


def audit(
    session: SparkSession,
    topic: str,
    *,
    bootstrap_servers: str | Sequence[str] | ClientConfig = "localhost:9092",
    config: Mapping[str, Any] | None = None,
    ledger_topics: Sequence[str] = (),
    store: Store | None = None,
    since: float | None = None,
    until: float | None = None,
    from_offsets: Mapping[int, int] | None = None,
    incremental: bool = False,
    isolation: Isolation = "read_committed",
    findings: Path | str | None = None,
) -> AuditReport:
    """Reads the topic once, and what is suspect twice, and says of each acknowledged message whether it is there.

    Ledgers come from `ledger_topics` (the producers' telemetry topics) and from the store's own. `since` and `until`
    are seconds since 1970, as records' timestamps; with `incremental` only what the last such audit of this `store` did
    not read. `findings` is a folder: all findings go to a new folder of Parquet there. A store keeps the report, the
    first 10,000 findings of each kind, and the marks. The session stays open.
    """
    scope = AuditScope(since, until, from_offsets or {}, incremental, isolation)
    if incremental and store is None:
        raise ConfigError(
            "An incremental audit needs a store, where it keeps how far it came.", fix="Pass store=."
        )
    if not isinstance(bootstrap_servers, ClientConfig):
        bootstrap_servers = client_config(bootstrap_servers, config)
    with (
        track_job(store, name=f"integrity {topic}", kind="integrity") as job,
        giving_back(session),
    ):
        return _Audit(
            session, topic, bootstrap_servers, tuple(ledger_topics), store, scope, findings, job
        ).run()


class _Audit:
    """One audit from its first question to its report."""

    def __init__(
        self,
        session: SparkSession,
        topic: str,
        config: ClientConfig,
        ledger_topics: tuple[str, ...],
        store: Store | None,
        scope: AuditScope,
        folder: Path | str | None,
        job: JobStatus,
    ) -> None:
        self._session, self._topic, self._store, self._scope, self._job = session, topic, store, scope, job
        self._folder = folder
        self._ledger_topics = ledger_topics
        self._admin = admin(config.settings)
        self._options = kafka_options(config)
        self._config = config
        self._cluster = _cluster(config, topic)
        self._notes: list[str] = []

    def run(self) -> AuditReport:
        began = time.time()
        try:
            report = self._noted(began)
        finally:
            clear_line()
        if not sys.stderr.isatty():
            self._say(f"done in {time.time() - began:.0f} s")
        return report

    def _noted(self, started: float) -> AuditReport:
        """The audit, and its line in the store."""
        self._facts = topic_bounds.facts(self._admin, self._topic)
        self._marks = watermarks.AuditWatermarks(
            self._store, self._cluster, self._topic, self._facts.incarnation, self._scope.isolation, self._ledger_topics
        )  # fmt: skip
        if self._store is None:
            return self._run("", started)[0]
        audit_id = watermarks.begin(
            self._store, self._topic, self._cluster, isolation=self._scope.isolation, now=started
        )
        self._job.add_heartbeat("audit_seen", id=audit_id)
        try:
            report, moved = self._run(audit_id, started)
            watermarks.finish(self._store, report, moved)
        except BaseException as error:
            watermarks.fail(self._store, audit_id, time.time(), failure_text(error))
            raise
        return report

    def _run(self, audit_id: str, started: float) -> tuple[AuditReport, Mapping[str, watermarks.Offsets]]:
        self._say("reading what its producers' ledgers tell")
        asked = self._spans(topic_bounds.edges(self._admin, self._facts))
        heard_of = sources(self._admin, self._ledger_topics)
        now = topic_bounds.edges(self._admin, topic_bounds.facts(self._admin, self._topic))
        asked = left_of(seen_after(asked, now))
        heard = hear(
            self._session, heard_of, self._store, self._options, topic=self._topic, cluster=self._cluster
        )
        rows = keep(ledgers.rows(heard.batches))
        self._notes += caveats.unheard(self._admin, heard_of, self._heard_before, self._scope.since)
        told = LedgerFrames(ledgers.sound(rows), keep(ledgers.given_up(heard.batches, self._topic)))
        question = self._question(told.rows, asked, heard_of, started)
        found = self._look(question, told)
        report = AuditReport.made(
            question, found, listed(found.findings), audit_id=audit_id, isolation=self._scope.isolation,
            until=self._scope.until, notes=tuple(self._notes), **_of_ledger(heard, rows, told),
        )  # fmt: skip
        self._still_the_same()
        if report.lost:
            confirm(self._config, report)
            more = caveats.of_loss(self._facts, made_anew=self._marks.made_anew())
            report = replace(report, notes=(*report.notes, *more))
        if self._folder is not None and found.findings is not None:
            report = written(report, found.findings, self._folder)
        return report, self._moved(heard_of, started, found)

    def _question(
        self,
        rows: DataFrame,
        asked: Mapping[int, OffsetSpan],
        heard_of: Sequence[LedgerSource],
        started: float,
    ) -> ComparisonRequest:
        scope, facts = self._scope, self._facts
        first = ComparisonRequest(
            self._topic, self._cluster, asked, started, since=scope.since, compacted=facts.compacted
        )
        if scope.since is not None:
            long_ago = f"at < {scope.since - _CLOCKS!r}"
            return replace(
                first, fresh=f"at >= {scope.since!r}", old=long_ago, spans=judged_from(asked, {}, 0)
            )
        if not scope.incremental:
            return first
        new = fresh(heard_of, self._marks.heard)
        known = judged_from(asked, self._marks.judged())
        late = replace(first, fresh=new, old=f"not ({new})", waiting=self._marks.waiting(), spans=known)
        return replace(late, spans=self._from_late_told(rows, late))

    def _look(self, question: ComparisonRequest, told: LedgerFrames) -> ComparisonResult:
        self._job.records(done=0, total=sum(span.end - span.start for span in question.spans.values()))
        return look(
            self._session, question, told, read=self._read, reading=self._reading,
            edges_now=lambda: topic_bounds.edges(self._admin, self._facts),
            look_up=lambda places: looked_up(self._config, self._topic, places, self._scope.isolation),
        )  # fmt: skip

    @contextmanager
    def _reading(self, records: int, again: bool) -> Iterator[None]:
        """A bar for each of the two passes; what Spark does before and between them is not in records."""
        self._say(f"reading {records:,} records{' again, where something differs' if again else ''}")
        text = f"auditing {self._topic}{', what differs' if again else ''}"
        with show_progress(
            self._session, text, records=records, on_share=None if again else self._job.fraction_done
        ):
            yield
        self._say("comparing it with the ledgers")

    def _say(self, text: str) -> None:
        announce(f"auditing {self._topic}: {text}")

    # what is asked of the brokers

    def _spans(self, ends: Mapping[int, PartitionBounds]) -> dict[int, OffsetSpan]:
        scope = self._scope
        until = (
            None if scope.until is None else topic_bounds.first_since(self._admin, self._facts, scope.until)
        )
        begin: Mapping[int, int] = scope.from_offsets
        if scope.since is not None:
            begin = topic_bounds.begin_since(topic_bounds.first_since(self._admin, self._facts, scope.since))
        if scope.incremental:
            verified = self._marks.verified()
            cut = anew(verified, ends)
            begin = {
                number: mark for number, mark in verified.items() if number in ends and number not in cut
            }
            self._notes += [
                f"Partition {number} ends below what was audited before: its log was cut." for number in cut
            ]
        if scope.since is not None or scope.until is not None:
            self._notes += caveats.timestamps_ahead(self._admin, self._facts, time.time())
        return spans(
            ends, isolation=scope.isolation, begin=begin, until=until, floor_is_begin=scope.since is None
        )

    def _still_the_same(self) -> None:
        if topic_bounds.facts(self._admin, self._topic).incarnation != self._facts.incarnation:
            raise PipelineError(
                f"Topic {self._topic!r} was deleted and made anew while it was read.", fix="Audit it again."
            )

    # the ledger

    def _heard_before(self, ledger: str) -> Mapping[int, int]:
        return self._marks.heard(ledger) if self._scope.incremental else {}

    def _from_late_told(self, rows: DataFrame, question: ComparisonRequest) -> Mapping[int, OffsetSpan]:
        """An incremental audit begins earlier where the ledger has told of earlier offsets since the last one."""
        from pyspark.sql import functions as F

        asked = question.spans
        if all(span.start <= span.low for span in asked.values()):
            return asked
        below = about(self._session, question, rows, asked).where("off_min >= 0 and off_min < span_start")
        told = below.where(question.fresh).groupBy("partition").agg(F.min("off_min").alias("first")).collect()
        return lowered(asked, {row["partition"]: row["first"] for row in told})

    def _read(self, asked: Mapping[int, Range], among: int | None = None) -> DataFrame:
        options = {**self._options, "kafka.isolation.level": self._scope.isolation}
        return decoded(bounded(self._session, self._topic, asked, options, among=among))

    # the end

    def _moved(
        self, heard_of: Sequence[LedgerSource], started: float, found: ComparisonResult
    ) -> Mapping[str, watermarks.Offsets]:
        """The marks that this audit moves: to the ends that it read."""
        if not self._scope.incremental:
            return {}
        return self._marks.moved(found.spans, read_until(heard_of, started))


def _cluster(config: ClientConfig, topic: str) -> str:
    """Its id: without it, what ledgers tell of a topic of this name on other clusters would count here."""
    found = cluster_id(config.settings, topic, _TIMEOUT)
    if not found:
        raise BrokerError(
            "No broker told the id of its cluster.", fix="Check that they answer, and audit again."
        )
    return found


def _of_ledger(heard: LedgerRange, rows: DataFrame, told: LedgerFrames) -> dict[str, Any]:
    """What the report says of the ledger itself."""
    return {
        "gaps": tuple(LedgerGap(*row) for row in ledgers.gaps(heard.stretches).collect()),
        "ledger_lost": heard.left_out,
        "strange": heard.strange + ledgers.odd(rows).count(),
        "given_up": told.dead_letters.count(),
    }
