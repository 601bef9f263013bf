"""Merge the telemetry batches of a fleet into one store in this process, without Spark.

The same transaction merges a piece and stores the offsets after it, so a batch counts once, whichever process is killed at
whichever time. A copy of the store that is put back continues at its own offsets. A producer
publishes one batch per second, and one process merges some thousand; `telemetry.py` spreads the reading over Spark's workers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from producer_core._internal.join_names import join_names
from producer_core._internal.log_fields import with_fields
from producer_core._internal.plural import plural
from producer_core.config import client_config
from producer_core.errors import BrokerError, BrokerUnreachable, ProducerError, StoreLocked, StoreUnavailable
from producer_core.kafka.clients import reader
from producer_core.pipeline.collected_offsets import CollectedOffsets, OffsetsChanged
from producer_core.pipeline.folder_lock import lock_folder
from producer_core.pipeline.job_status import JobStatus, track_job
from producer_core.pipeline.maintenance import finish, maintained
from producer_core.pipeline.merge_result import MergeResult, RunningJob
from producer_core.pipeline.parquet_history import ParquetHistory
from producer_core.pipeline.piece_merger import PieceMerger, Reached
from producer_core.pipeline.preflight import MissingPermission, reach
from producer_core.pipeline.telemetry_reader import Piece, Place, TelemetryReader

if TYPE_CHECKING:
    from producer_core.store import Store

logger = logging.getLogger(__name__)

_CHECK_S = 30.0
"""Seconds between two looks at the topics, which may have more partitions or be created again. After an error, at once."""
_RETRY = (1.0, 30.0)
"""Seconds until the next attempt after a failure of the brokers or the store: the first time, and at most."""
_TRANSIENT_AT_START = (BrokerUnreachable, StoreLocked)
_TRANSIENT = (BrokerError, StoreLocked, StoreUnavailable, OSError)
"""Errors that a running job waits out: they pass, or an operator solves them."""


def collect(
    store: Store,
    *,
    servers: str | Sequence[str],
    topics: Sequence[str],
    once: bool = False,
    history: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    every: float = 1.0,
    on_progress: Callable[[RunningJob], None] = lambda running: None,
    stopped: Callable[[], bool] = lambda: False,
    reached: Reached = lambda point: None,
    clock: Callable[[], float] = time.time,
) -> MergeResult:
    """Merge until `stopped()` is true, or with `once` the records that are there now; return the sum of the results.

    `every` is the time between two merges in seconds. At the start, anything that cannot be right raises: ConfigError,
    BrokerError, StoreError, or PipelineError when another process collects into this store. Without `once`, a running
    job waits while the brokers, a topic or the store are unavailable, or a disk is full. It ends only when READ on a
    topic is revoked, the store is damaged or newer, a query of it fails, or the history belongs to another store.
    """
    config = client_config(servers, settings)
    reach(config, topics)
    files = ParquetHistory(history, reached=reached) if history is not None else None
    with ExitStack() as stack:
        place = store.path.with_name(f"{store.path.name}.collect-lock")
        stack.callback(lock_folder(place, f"telemetry collect with the store {store.path}").release)
        if files is not None:
            stack.callback(files.close)
            files.open(store)
        job = stack.enter_context(track_job(store, name=f"telemetry {', '.join(topics)}", kind="telemetry"))
        errors: list[KafkaError] = []
        consumer = stack.enter_context(reader(config.settings, name="collect", on_error=errors.append))
        collector = _Collector(
            TelemetryReader(consumer), CollectedOffsets(store, config, topics), PieceMerger(store, files, reached, clock),
            files, store.path.with_name(f"{store.path.name}.collect-set-aside"), _Report(job, on_progress, clock),
            errors, stopped,
        )  # fmt: skip
        with maintained(store, files, clock):
            done = collector.run(once=once, every=every)
        finish(store, files, clock())
    return done


class _Report:
    """Report the results of a run to the store's row of the job and to the caller.

    An error is logged when it begins and when it ends, and so are partitions without a leader.
    """

    def __init__(
        self, job: JobStatus, on_progress: Callable[[RunningJob], None], clock: Callable[[], float]
    ) -> None:
        self._job, self._on_progress, self._clock = job, on_progress, clock
        self._failing: type[Exception] | None = None
        self._note = ""

    def brokers_respond(self) -> None:
        self._job.succeeded(self._clock())

    def leaderless(self, places: Collection[Place]) -> None:
        """Report the partitions that are not read, because they have no leader."""
        before, self._note = self._note, ""
        if places:
            names = join_names((f"{place.topic}/{place.partition}" for place in sorted(places)), most=5)
            self._note = f"{plural(len(places), 'partition')} without a leader: {names}"
        if self._note and self._note != before:
            logger.warning(**with_fields("telemetry partitions have no leader", partitions=names))
        elif before and not self._note:
            logger.warning("telemetry partitions have leaders again")

    def merged(self, done: MergeResult, behind: int) -> None:
        if self._failing is not None:
            logger.warning("telemetry collected again")
            self._failing = None
        self._job.records(done=done.batches + done.set_aside, lag=behind)
        if done.versions:
            counts = {str(version): count for version, count in done.versions.items()}
            self._job.details({"set_aside": counts})
        self._send(done, behind, "")

    def failed(self, done: MergeResult, behind: int, error: Exception) -> None:
        text = f"A file cannot be used: {error}." if isinstance(error, OSError) else str(error)
        if self._failing is not type(error):
            logger.warning(**with_fields("telemetry not collected", error=text))
            self._failing = type(error)
        self._send(done, behind, text)

    def _send(self, done: MergeResult, behind: int, trouble: str) -> None:
        running = RunningJob(done, behind, trouble, self._note)
        self._job.message(running.text)
        self._on_progress(running)


class _Collector:
    """Reads a piece, merges it, and repeats. A piece that the store does not take is merged before more is read."""

    def __init__(
        self, records: TelemetryReader, offsets: CollectedOffsets, pieces: PieceMerger, files: ParquetHistory | None,
        aside: Path, report: _Report, errors: list[KafkaError], stopped: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._records, self._offsets, self._pieces, self._files = records, offsets, pieces, files
        self._aside, self._report, self._errors, self._stopped = aside, report, errors, stopped
        self._done = MergeResult()
        self._pause = 0.0
        self._next_check = 0.0
        self._checked = False
        self._assigned = False
        self._until: Mapping[Place, int] | None = None
        self._piece: Piece | None = None

    def run(self, *, once: bool, every: float) -> MergeResult:
        """Collect until the end; `once` fails at the first error, and otherwise transient ones are waited out."""
        while not self._stopped():
            try:
                if self._files is not None:
                    # drafts that the store did not merge; a piece that is merged again gets another draft
                    self._files.settle()
                self._step(once=once, every=every)
                if once and self._until is not None and self._records.has_reached(self._until):
                    break
            except OffsetsChanged as error:
                self._read_again(error)
            except (ProducerError, OSError) as error:
                if once or not self._is_transient(error):
                    raise
                self._wait(error)
        return self._done

    def _step(self, *, once: bool, every: float) -> None:
        if self._piece is None:
            self._check_topics()
            if once and self._until is None:
                self._until = self._records.ends()
            self._piece = self._records.read(every, self._stopped, self._until)
        self._merge(self._piece)
        self._piece = None

    def _check_topics(self) -> None:
        if time.monotonic() < self._next_check and not self._errors:
            return
        self._next_check = 0.0  # a check that fails is repeated
        self._errors.clear()
        if self._offsets.refresh() or self._records.partitions_changed(self._offsets.topics):
            self._assigned = False
        if not self._assigned:
            self._assign()
        self._report.leaderless(self._records.leaderless)
        self._checked = True
        self._next_check = time.monotonic() + _CHECK_S
        self._report.brokers_respond()

    def _assign(self) -> None:
        if self._files is not None:
            self._files.check_store()
        self._records.assign(self._offsets.topics, self._offsets.load)
        self._until = None  # the ends of other partitions, or of a deleted topic, may never be reached
        self._assigned = True

    def _read_again(self, reason: OffsetsChanged) -> None:
        """Drop the piece, and continue at the offsets of the store."""
        logger.warning(**with_fields("telemetry is read again from the store's offsets", reason=str(reason)))
        self._piece, self._assigned, self._next_check = None, False, 0.0

    def _merge(self, piece: Piece) -> None:
        if piece.records.num_rows:
            self._done += self._pieces.merge(
                piece.records,
                self._aside / self._offsets.file_name(piece.records),
                lambda connection: self._offsets.save(piece.positions, connection),
                first=self._offsets.is_new,
            )
            self._offsets.committed(piece.positions)
            self._records.stored(piece)
            self._report.brokers_respond()
        self._pause = 0.0
        self._report.merged(self._done, self._records.behind)

    def _is_transient(self, error: Exception) -> bool:
        if not self._checked:
            return isinstance(error, _TRANSIENT_AT_START)
        return isinstance(error, _TRANSIENT) and not isinstance(error, MissingPermission)

    def _wait(self, error: Exception) -> None:
        first, longest = _RETRY
        self._pause = min(longest, self._pause * 2 or first)
        self._report.failed(self._done, self._records.behind, error)
        until = time.monotonic() + self._pause
        while time.monotonic() < until and not self._stopped():
            threading.Event().wait(0.2)
