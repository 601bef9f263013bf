"""Merge the telemetry batches of a whole fleet from their Kafka topics into one store.

The job keeps no state: Spark fetches a micro-batch, and one DuckDB transaction merges it and records which batches it
contains. So a batch counts once, whichever process is killed at whichever time, and however late the batch comes. A
Spark watermark would need state and drop late batches silently (measured).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer_core._internal.log_fields import with_fields
from producer_core.config import ClientConfig, client_config
from producer_core.errors import BrokerError, BrokerUnreachable, ProducerError, StoreLocked
from producer_core.kafka.cluster import Cluster
from producer_core.pipeline import checkpoint as notes
from producer_core.pipeline.job_status import JobStatus, track_job
from producer_core.pipeline.kafka_options import kafka_options
from producer_core.pipeline.maintenance import finish, maintained
from producer_core.pipeline.merge_result import MergeResult, RunningJob, summary
from producer_core.pipeline.parquet_history import ParquetHistory
from producer_core.pipeline.piece_merger import Reached
from producer_core.pipeline.preflight import reach
from producer_core.pipeline.sink import TelemetrySink
from producer_core.pipeline.spark_errors import spark_error
from producer_core.pipeline.telemetry_stream import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from producer_core.store import Store

logger = logging.getLogger(__name__)

_POLL = 0.5
_MAINTENANCE = 60.0
_RETRY = (1.0, 30.0)
"""Seconds until the stream restarts after a failure of the brokers or the store: the first time, and at most."""
_TRANSIENT = (BrokerUnreachable, StoreLocked)
"""Errors that a continuous job waits out."""


@dataclass(frozen=True)
class TelemetrySource:
    """Hold topics that were described, the options with which Spark reads them, and the ids of topics that have one."""

    topics: tuple[str, ...]
    options: Mapping[str, str]
    cluster_id: str
    topic_ids: Mapping[str, str]


def check(config: ClientConfig, topics: Sequence[str], checkpoint: Path) -> TelemetrySource:
    """Check brokers, topics and the checkpoint before Spark starts, within 15 seconds."""
    notes.check_unlocked(checkpoint)
    notes.check_files(checkpoint)
    options = kafka_options(config)
    cluster = reach(config, topics)
    cluster_id = cluster.view().cluster_id
    ids = _ids(cluster, topics)
    notes.check_cluster(checkpoint, cluster_id, ids)
    return TelemetrySource(tuple(topics), options, cluster_id, ids)


def _ids(cluster: Cluster, topics: Sequence[str]) -> dict[str, str]:
    return {topic: topic_id for topic in topics if (topic_id := cluster.topic(topic, timeout=4.0).topic_id)}


def check_consistency(store: Store | None, place: Path, checkpoint: Path, history: Path | None) -> None:
    """Raise ConfigError when a checkpoint or a history is ahead of the store at `place` (None: it does not exist)."""
    notes.check_store(checkpoint, place, store)
    if history is not None:
        ParquetHistory(history).check(store, place)


def default_checkpoint(store: Path) -> Path:
    """Return the folder beside the store."""
    return store.with_name(store.name + ".telemetry")


def run(
    session: SparkSession,
    store: Store,
    *,
    servers: str | Sequence[str],
    topics: Sequence[str],
    checkpoint: Path | None = None,
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

    The session belongs to the caller and stays open, so that a notebook on a cluster can call this. Store, checkpoint
    and history are paths on the driver's machine. `every` is the time between micro-batches in seconds. `on_progress`
    is called twice a second. Without `once` the job waits while brokers or the store are unavailable.
    """
    folder = checkpoint or default_checkpoint(store.path)
    source = check(client_config(servers, settings), topics, folder)
    files = ParquetHistory(history, reached=reached) if history is not None else None
    with ExitStack() as stack:
        stack.enter_context(notes.locked(folder, source.cluster_id, source.topic_ids))
        check_consistency(store, store.path, folder, None)  # the history checks itself once it is locked
        if files is not None:
            stack.callback(files.close)
            files.open(store)
        job = stack.enter_context(track_job(store, name=f"telemetry {', '.join(topics)}", kind="telemetry"))
        cluster = Cluster(client_config(servers, settings))
        stream = _Stream(
            session, source, store, folder, files, once, every, reached, clock, lambda: _ids(cluster, topics)
        )
        run = _Run(job, on_progress, stopped)
        with maintained(store, files, clock):
            while not stream.run_once(run):
                run.wait()
        finish(store, files, clock())
    return run.done


class _Run:
    """Accumulate the results of a run's streams and report them."""

    def __init__(
        self, job: JobStatus, on_progress: Callable[[RunningJob], None], stopped: Callable[[], bool]
    ) -> None:
        self.done = MergeResult()
        self.stopped = stopped
        self._job, self._on_progress = job, on_progress
        self._pause = 0.0
        self._behind: int | None = None

    def merged(self, more: MergeResult) -> None:
        """Add a micro-batch's result; the sink calls this."""
        self.done, self._pause = self.done + more, 0.0
        self._job.succeeded(time.time())
        self._job.records(done=self.done.batches + self.done.set_aside)
        self._report()

    def progress(self, query: Any) -> None:
        self._behind = behind(query.lastProgress)
        self._report()

    def failed(self, trouble: ProducerError) -> None:
        """Report a transient error, and wait longer after each one."""
        first, longest = _RETRY
        self._pause = min(longest, self._pause * 2 or first)
        logger.warning(**with_fields("telemetry stream failed", error=str(trouble), again_in=self._pause))
        self._report(str(trouble))

    def wait(self) -> None:
        until = time.monotonic() + self._pause
        while time.monotonic() < until and not self.stopped():
            threading.Event().wait(_POLL)

    def _report(self, trouble: str = "") -> None:
        self._job.records(lag=self._behind)
        self._job.message(trouble or summary(self.done, self._behind))
        if self.done.versions:
            counts = {str(version): count for version, count in self.done.versions.items()}
            self._job.details({"set_aside": counts})
        self._on_progress(RunningJob(self.done, self._behind, trouble))


@dataclass(frozen=True)
class _Stream:
    """Run a stream from its topics to the store; it can run again after a failure."""

    session: SparkSession
    source: TelemetrySource
    store: Store
    folder: Path
    files: ParquetHistory | None
    once: bool
    every: float
    reached: Reached
    clock: Callable[[], float]
    ids: Callable[[], Mapping[str, str]]

    def run_once(self, run: _Run) -> bool:
        """Run one stream to its end; return False when it failed with a transient error."""
        sink = TelemetrySink(
            self.store, self.folder / "set_aside", self.files, run.merged, self.reached,
            options=self.source.options, clock=self.clock,
        )  # fmt: skip
        query = None
        try:
            if self.files is not None:
                self.files.settle()  # drafts of an earlier run that the store did not merge
            self._check_topics()
            query = self._start(sink)
            checked_at = time.monotonic()
            while not query.awaitTermination(_POLL) and not run.stopped():
                run.progress(query)
                if time.monotonic() - checked_at >= _MAINTENANCE:
                    self._check_topics()
                    checked_at = time.monotonic()
            return True
        except Exception as error:
            if run.stopped():
                return (
                    True  # SIGTERM to the process group ends Spark's JVM as well; merged batches stay merged
                )
            trouble = spark_error(sink.error or error)
            if not self.once and isinstance(trouble, _TRANSIENT):
                run.failed(trouble)
                return False
            raise (trouble or sink.error or error) from error
        finally:
            sink.end()
            _stop(query)

    def _check_topics(self) -> None:
        """Raise ConfigError when a topic was re-created: Spark would silently continue at its old offset, or at the
        new end.

        Brokers that do not respond are queried again at the next check.
        """
        try:
            ids = self.ids()
        except BrokerError:
            return
        notes.check_cluster(self.folder, self.source.cluster_id, ids)

    def _start(self, sink: TelemetrySink) -> Any:
        stream = read(self.session, self.source.topics, self.source.options).writeStream.foreachBatch(sink)
        stream = stream.option("checkpointLocation", (self.folder / "spark").absolute().as_uri())
        if self.once:
            return stream.trigger(availableNow=True).start()
        return stream.trigger(processingTime=f"{round(self.every * 1000)} milliseconds").start()


def _stop(query: Any) -> None:
    from py4j.protocol import Py4JError

    try:
        if query is not None:
            query.stop()
    except (Py4JError, OSError):
        logger.debug("Spark exited before its stream was stopped")


def behind(progress: Any) -> int | None:
    """Return the records that a stream has not read yet, from its own progress; None before its first report."""
    if progress is None:
        return None
    total = 0
    for source in progress.sources:
        end, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        total += sum(max(0, offset - end.get(partition, offset)) for partition, offset in latest.items())
    return total


def _offsets(text: str | None) -> dict[tuple[str, str], int]:
    """Parse Spark's JSON of offsets by topic and partition."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        found = None  # PySpark turns null into the text "None"
    if not isinstance(found, dict):
        return {}
    return {(topic, part): offset for topic, parts in found.items() for part, offset in parts.items()}
