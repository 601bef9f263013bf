"""Merge the telemetry batches of a fleet into one store in this process, without Spark.

The same transaction merges a piece and stores the offsets after it, so a batch counts once, whichever process is killed at
whichever time. A copy of the store that is put back continues at its own offsets. A producer
publishes one batch per second, and one process merges some thousand; `telemetry.py` spreads the reading over Spark's workers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from producer_core._internal.log_fields import with_fields
from producer_core.config import ClientConfig, client_config
from producer_core.errors import BrokerUnreachable, ProducerError, StoreLocked
from producer_core.kafka.clients import reader
from producer_core.pipeline.folder_lock import lock_folder
from producer_core.pipeline.job_status import JobStatus, track_job
from producer_core.pipeline.maintenance import finish, maintained
from producer_core.pipeline.merge_result import MergeResult, RunningJob, summary
from producer_core.pipeline.parquet_history import ParquetHistory
from producer_core.pipeline.piece_merger import PieceMerger, Reached
from producer_core.pipeline.preflight import reach
from producer_core.pipeline.telemetry_reader import Piece, Place, TelemetryReader

if TYPE_CHECKING:
    import duckdb

    from producer_core.store import Store

logger = logging.getLogger(__name__)

_CHECK_S = 30.0
"""Seconds between two looks at the topics, which may have more partitions or be created again. After an error, at once."""
_RETRY = (1.0, 30.0)
"""Seconds until the next attempt after a failure of the brokers or the store: the first time, and at most."""
_TRANSIENT = (BrokerUnreachable, StoreLocked)


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

    `every` is the time between two merges in seconds. Without `once`, the job waits while brokers or the store are
    unavailable; what cannot be right raises at once: ConfigError, BrokerError, or PipelineError when another process
    collects into this store.
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
        stack.enter_context(maintained(store, files, clock))
        collector = _Collector(
            TelemetryReader(consumer), _Offsets(store, config, topics), PieceMerger(store, files, reached, clock),
            store.path.with_name(f"{store.path.name}.collect-set-aside"), _Report(job, on_progress, clock), errors, stopped,
        )  # fmt: skip
        done = collector.run(once=once, every=every, files=files)
        finish(store, files, clock())
    return done


class _Offsets:
    """The offsets that a store has reached, by topic. A topic that is created again has another id, and starts at its beginning."""

    def __init__(self, store: Store, config: ClientConfig, topics: Sequence[str]) -> None:
        self.topics = tuple(topics)
        self._store, self._config = store, config
        self._names: dict[str, str] = {}

    def refresh(self) -> bool:
        """Ask the brokers for the topics' ids. Return whether one is another than before."""
        cluster = reach(self._config, self.topics)
        cluster_id = cluster.view().cluster_id
        names = {
            topic: f"collected.{cluster_id}.{topic}.{cluster.topic(topic).topic_id or ''}"
            for topic in self.topics
        }
        changed, self._names = names != self._names, names
        return changed

    def of(self, topic: str) -> Mapping[int, int]:
        stored = self._store.get_setting(self._names[topic], {})
        return {int(partition): offset for partition, offset in stored.items()}

    def save(self, positions: Mapping[Place, int], connection: duckdb.DuckDBPyConnection) -> None:
        """Store the offsets within the caller's transaction."""
        for topic, name in self._names.items():
            offsets = {str(place.partition): at for place, at in positions.items() if place.topic == topic}
            self._store.set_setting(name, offsets)


class _Report:
    """Report the results of a run to the store's row of the job and to the caller."""

    def __init__(
        self, job: JobStatus, on_progress: Callable[[RunningJob], None], clock: Callable[[], float]
    ) -> None:
        self._job, self._on_progress, self._clock = job, on_progress, clock

    def brokers_respond(self) -> None:
        self._job.succeeded(self._clock())

    def merged(self, done: MergeResult, behind: int) -> None:
        self._job.records(done=done.batches + done.set_aside, lag=behind)
        if done.versions:
            counts = {str(version): count for version, count in done.versions.items()}
            self._job.details({"set_aside": counts})
        self._send(done, behind, "")

    def failed(self, done: MergeResult, behind: int, trouble: ProducerError, pause: float) -> None:
        logger.warning(**with_fields("telemetry not collected", error=str(trouble), again_in=pause))
        self._send(done, behind, str(trouble))

    def _send(self, done: MergeResult, behind: int, trouble: str) -> None:
        self._job.message(trouble or summary(done, behind))
        self._on_progress(RunningJob(done, behind, trouble))


class _Collector:
    """Reads a piece, merges it, and repeats. A piece that the store does not take is merged before more is read."""

    def __init__(
        self, records: TelemetryReader, offsets: _Offsets, pieces: PieceMerger, aside: Path, report: _Report,
        errors: list[KafkaError], stopped: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._records, self._offsets, self._pieces = records, offsets, pieces
        self._aside, self._report, self._errors, self._stopped = aside, report, errors, stopped
        self._done = MergeResult()
        self._pause = 0.0
        self._next_check = 0.0
        self._first = True
        self._until: Mapping[Place, int] | None = None
        self._piece: Piece | None = None

    def run(self, *, once: bool, every: float, files: ParquetHistory | None) -> MergeResult:
        """Collect until the end; `once` fails at the first error, and otherwise transient ones are waited out."""
        while not self._stopped():
            try:
                if files is not None and self._piece is None:
                    files.settle()  # drafts that the store did not merge
                self._step(once=once, every=every)
                if once and self._until is not None and self._records.has_reached(self._until):
                    break
            except _TRANSIENT as error:
                if once:
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
        self._errors.clear()
        if self._offsets.refresh() or self._records.partitions_changed(self._offsets.topics):
            self._records.assign(self._offsets.topics, self._offsets.of)
        self._next_check = time.monotonic() + _CHECK_S
        self._report.brokers_respond()

    def _merge(self, piece: Piece) -> None:
        if piece.records.num_rows:
            position = (piece.records[name][0].as_py() for name in ("topic", "partition", "offset"))
            aside = self._aside / ("-".join(map(str, position)) + ".parquet")
            self._done += self._pieces.merge(
                piece.records,
                aside,
                lambda connection: self._offsets.save(piece.positions, connection),
                first=self._first,
            )
            self._first = False
            self._records.stored(piece)
            self._report.brokers_respond()
        self._pause = 0.0
        self._report.merged(self._done, self._records.behind)

    def _wait(self, trouble: ProducerError) -> None:
        first, longest = _RETRY
        self._pause = min(longest, self._pause * 2 or first)
        self._report.failed(self._done, self._records.behind, trouble, self._pause)
        until = time.monotonic() + self._pause
        while time.monotonic() < until and not self._stopped():
            threading.Event().wait(0.2)
