"""Run an audit: read a topic and its producers' ledgers with Spark, and compare them by message id in this process.

The order of requests matters. The topic's end offsets are requested before those of the ledgers, so that every offset
in the ledger below them is in the log or lost; and again after those of the ledgers, so that an acknowledgement above
the log's end is detected. Low watermarks are requested again after everything was read: records that retention
removed in the meantime are expired, not lost.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer_core._internal.plural import plural
from producer_core.config import DEFAULT_SERVERS, ClientConfig, client_config
from producer_core.errors import BrokerError, ConfigError, PipelineError
from producer_core.kafka.clients import admin, cluster_id
from producer_core.pipeline.integrity import caveats, topic_bounds, watermarks
from producer_core.pipeline.integrity.audit_tables import audit_tables
from producer_core.pipeline.integrity.compare import MAX_IDS, run_comparison, select_rows
from producer_core.pipeline.integrity.comparison import ComparisonRequest, ComparisonResult
from producer_core.pipeline.integrity.confirm_losses import confirm
from producer_core.pipeline.integrity.findings import listed, written
from producer_core.pipeline.integrity.ledger_sources import (
    LedgerFacts,
    LedgerSource,
    fresh,
    read_ledgers,
    read_until,
    sources,
)
from producer_core.pipeline.integrity.offset_lookup import ids_at
from producer_core.pipeline.integrity.ranges import Range
from producer_core.pipeline.integrity.read_topic import read_ranges
from producer_core.pipeline.integrity.report import AuditReport
from producer_core.pipeline.integrity.scope import AuditScope
from producer_core.pipeline.integrity.spans import (
    Isolation,
    OffsetSpan,
    PartitionBounds,
    above_low,
    cut_back,
    judged_from,
    lowered,
    refreshed,
    spans,
)
from producer_core.pipeline.integrity.topic_records import FIRST_SLICE, SparkRecords
from producer_core.pipeline.job_status import JobStatus, failure_text, track_job
from producer_core.pipeline.kafka_options import kafka_options
from producer_core.pipeline.progress import announce, clear_line, show_progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from producer_core.store import Store

_TIMEOUT = 10.0
_CLOCK_SKEW = 3_600.0
"""Seconds by which the clocks of a record's producer and of the process that wrote the ledger may differ."""


def audit(
    session: SparkSession,
    topic: str,
    *,
    bootstrap_servers: str | Sequence[str] | ClientConfig = DEFAULT_SERVERS,
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
    """Find out for each acknowledged message whether it is in the log, which is read once (for a long
    range, the suspects are read twice).

    Ledgers come from `ledger_topics` (the producers' telemetry topics) and from the store's own ledger. `since` and
    `until` are seconds since 1970 and refer to record timestamps; `incremental` reads only the offsets that the
    previous incremental audit of this `store` did not read. `findings` is a folder: a new folder in it gets all
    findings as Parquet. A store keeps the report, the first 10,000 findings of each kind, and the watermarks. The
    session stays open.
    """
    scope = AuditScope(since, until, from_offsets or {}, incremental, isolation)
    if incremental and store is None:
        raise ConfigError(
            "An incremental audit needs a store, which keeps its watermarks.", fix="Pass store=."
        )
    if not isinstance(bootstrap_servers, ClientConfig):
        bootstrap_servers = client_config(bootstrap_servers, config)
    with track_job(store, name=f"integrity {topic}", kind="integrity") as job:
        return _Audit(
            session, topic, bootstrap_servers, tuple(ledger_topics), store, scope, findings, job
        ).run()


class _Audit:
    """Run one audit, from the first request to the report."""

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
            with audit_tables() as self._tables:
                report = self._recorded(began)
        finally:
            clear_line()
        if not sys.stderr.isatty():
            self._announce(f"finished in {time.time() - began:.0f} s")
        return report

    def _recorded(self, started: float) -> AuditReport:
        """Run the audit and record it in the store."""
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
        self._announce("reading the ledgers of its producers")
        spans_read = self._spans(topic_bounds.bounds(self._admin, self._facts))
        ledger_topics = sources(self._admin, self._ledger_topics)
        now = topic_bounds.bounds(self._admin, topic_bounds.facts(self._admin, self._topic))
        spans_read = above_low(refreshed(spans_read, now))
        read_ledgers = cache(lambda: self._read_ledgers(ledger_topics))
        request = self._request(spans_read, ledger_topics, started, read_ledgers)
        found = self._compare(request, read_ledgers)
        ledger = read_ledgers()
        report = AuditReport.made(
            request, found, listed(self._tables), audit_id=audit_id, isolation=self._scope.isolation,
            until=self._scope.until, notes=tuple(self._notes), gaps=ledger.gaps, ledger_lost=ledger.left_out,
            strange=ledger.strange, given_up=self._tables.count("dead_letters"),
        )  # fmt: skip
        self._check_not_recreated()
        if report.lost:
            confirm(self._config, report)
            more = caveats.of_loss(self._facts, recreated=self._marks.is_recreated())
            report = replace(report, notes=(*report.notes, *more))
        if self._folder is not None and found.suspicious:
            report = written(report, self._tables, self._folder, self._session)
        return report, self._moved(ledger_topics, started, found)

    def _request(
        self,
        spans_read: Mapping[int, OffsetSpan],
        ledger_topics: Sequence[LedgerSource],
        started: float,
        read_ledgers: Callable[[], object],
    ) -> ComparisonRequest:
        scope, facts = self._scope, self._facts
        first = ComparisonRequest(
            self._topic, self._cluster, spans_read, started, since=scope.since, compacted=facts.compacted
        )
        if scope.since is not None:
            long_ago = f"written_at < {scope.since - _CLOCK_SKEW!r}"
            return replace(
                first,
                fresh=f"written_at >= {scope.since!r}",
                old=long_ago,
                spans=judged_from(spans_read, {}, 0),
            )
        if not scope.incremental:
            return first
        new = fresh(ledger_topics, self._marks.ledger_read_until)
        known = judged_from(spans_read, self._marks.judged())
        late = replace(first, fresh=new, old=f"not ({new})", waiting=self._marks.waiting(), spans=known)
        return replace(late, spans=self._from_late_rows(late, read_ledgers))

    def _compare(self, request: ComparisonRequest, read_ledgers: Callable[[], object]) -> ComparisonResult:
        self._job.records(done=0, total=sum(span.end - span.start for span in request.spans.values()))
        return run_comparison(
            self._tables, request, SparkRecords(self._session, self._read), reading=self._reading,
            bounds_now=lambda: topic_bounds.bounds(self._admin, self._facts), read_ledgers=read_ledgers,
            look_up=lambda places: ids_at(self._config, self._topic, places, self._scope.isolation),
        )  # fmt: skip

    @contextmanager
    def _reading(self, records: int, again: bool) -> Iterator[None]:
        """Show a bar for each of the two passes; `records` does not cover the work before and between them."""
        self._announce(
            f"reading {plural(records, 'record')}{' again, where ledger and log differ' if again else ''}"
        )
        text = f"auditing {self._topic}{', differences' if again else ''}"
        slices = -(-records // FIRST_SLICE) if records <= MAX_IDS else 0
        with show_progress(
            self._session, text, records=records, on_share=None if again else self._job.fraction_done,
            tasks=slices * len(self._facts.partitions),
        ):  # fmt: skip
            yield
        self._announce("comparing with the ledgers")

    def _announce(self, text: str) -> None:
        announce(f"auditing {self._topic}: {text}")

    # requests to the brokers

    def _spans(self, bounds: Mapping[int, PartitionBounds]) -> dict[int, OffsetSpan]:
        scope = self._scope
        until = (
            None if scope.until is None else topic_bounds.first_since(self._admin, self._facts, scope.until)
        )
        begin: Mapping[int, int] = scope.from_offsets
        if scope.since is not None:
            begin = topic_bounds.begin_since(topic_bounds.first_since(self._admin, self._facts, scope.since))
        if scope.incremental:
            verified = self._marks.verified()
            cut = cut_back(verified, bounds)
            begin = {
                number: mark for number, mark in verified.items() if number in bounds and number not in cut
            }
            self._notes += [
                f"Partition {number} ends below its audited offset: its log was truncated." for number in cut
            ]
        if scope.since is not None or scope.until is not None:
            self._notes += caveats.timestamps_ahead(self._admin, self._facts, time.time())
        return spans(
            bounds, isolation=scope.isolation, begin=begin, until=until, floor_is_begin=scope.since is None
        )

    def _check_not_recreated(self) -> None:
        if topic_bounds.facts(self._admin, self._topic).incarnation != self._facts.incarnation:
            raise PipelineError(
                f"Topic {self._topic!r} was deleted and re-created during the audit.", fix="Audit it again."
            )

    # the ledger

    def _read_ledgers(self, ledger_topics: Sequence[LedgerSource]) -> LedgerFacts:
        facts = read_ledgers(
            self._config, self._tables, ledger_topics, self._store, topic=self._topic, cluster=self._cluster
        )  # fmt: skip
        self._notes += caveats.expired_ledger(
            self._admin, ledger_topics, self._read_before, self._scope.since
        )
        return facts

    def _read_before(self, ledger: str) -> Mapping[int, int]:
        return self._marks.ledger_read_until(ledger) if self._scope.incremental else {}

    def _from_late_rows(
        self, request: ComparisonRequest, read_ledgers: Callable[[], object]
    ) -> Mapping[int, OffsetSpan]:
        """Start an incremental audit earlier when the ledger got rows about earlier offsets since the previous one."""
        before = request.spans
        if all(span.start <= span.low for span in before.values()):
            return before
        read_ledgers()
        select_rows(self._tables, request, before)
        return lowered(before, dict(self._tables.rows("late_starts")))

    def _read(self, ranges: Mapping[int, Range], among: int | None = None) -> DataFrame:
        options = {**self._options, "kafka.isolation.level": self._scope.isolation}
        return read_ranges(self._session, self._topic, ranges, options, among=among)

    # results

    def _moved(
        self, ledger_topics: Sequence[LedgerSource], started: float, found: ComparisonResult
    ) -> Mapping[str, watermarks.Offsets]:
        """Return the watermarks that this audit moves to the ends that it read."""
        if not self._scope.incremental:
            return {}
        return self._marks.moved(found.spans, read_until(ledger_topics, started))


def _cluster(config: ClientConfig, topic: str) -> str:
    """Return the cluster's id; without it, ledger rows of a topic of this name on other clusters would count here."""
    found = cluster_id(config.settings, topic, _TIMEOUT)
    if not found:
        raise BrokerError(
            "No broker returned the id of its cluster.", fix="Check the brokers, then audit again."
        )
    return found
