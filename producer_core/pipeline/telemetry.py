"""The telemetry job: batches of a whole fleet, from their Kafka topics into one store.

Stateless on purpose: a micro-batch is parsed and typed by Spark, and merged by one DuckDB transaction that also
records which batches it holds. So a batch counts once whatever is killed when, and however late it comes; a
watermark would drop late ones silently (measured), and needs state.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer_core._internal.periodic import run_periodically
from producer_core.config import ClientConfig, client_config
from producer_core.errors import BrokerError, BrokerUnreachable, ProducerError, StoreLocked
from producer_core.kafka.cluster import Cluster
from producer_core.pipeline import checkpoint as notes
from producer_core.pipeline.job_status import JobStatus, noted
from producer_core.pipeline.kafka_options import kafka_options
from producer_core.pipeline.parquet_history import ParquetHistory
from producer_core.pipeline.preflight import reach
from producer_core.pipeline.sink import MergeResult, Reached, TelemetrySink
from producer_core.pipeline.spark_errors import spark_error
from producer_core.pipeline.telemetry_stream import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from producer_core.store import Store

logger = logging.getLogger(__name__)

_LOOK = 0.5
_UPKEEP = 60.0
_AGAIN = (1.0, 30.0)
"""Seconds until a stream that the brokers or the store failed is tried again: the first time, and at most."""
_PASSING = (BrokerUnreachable, StoreLocked)
"""What may be over in a while: a continuous job waits for it."""


@dataclass(frozen=True)
class RunningStream:
    """How a run stands: what it did, how many records wait on the topics (None: not known yet), and what is wrong."""

    done: MergeResult
    behind: int | None = None
    trouble: str = ""


@dataclass(frozen=True)
class TelemetrySource:
    """Topics that answered, as Spark reaches them, and the ids of those that have one."""

    topics: tuple[str, ...]
    options: Mapping[str, str]
    cluster_id: str
    topic_ids: Mapping[str, str]


def check(config: ClientConfig, topics: Sequence[str], checkpoint: Path) -> TelemetrySource:
    """Everything that can be known before Spark starts: brokers, topics, and the checkpoint; within 15 seconds."""
    notes.free(checkpoint)
    notes.examine(checkpoint)
    options = kafka_options(config)
    cluster = reach(config, topics)
    cluster_id = cluster.view().cluster_id
    ids = _ids(cluster, topics)
    notes.same_cluster(checkpoint, cluster_id, ids)
    return TelemetrySource(tuple(topics), options, cluster_id, ids)


def _ids(cluster: Cluster, topics: Sequence[str]) -> dict[str, str]:
    return {topic: its_id for topic in topics if (its_id := cluster.topic(topic, timeout=4.0).topic_id)}


def go_together(store: Store | None, place: Path, checkpoint: Path, history: Path | None) -> None:
    """ConfigError when a checkpoint or a history is further than the store at `place` (None: there is none)."""
    notes.goes_with(checkpoint, place, store)
    if history is not None:
        ParquetHistory(history).check(store, place)


def default_checkpoint(store: Path) -> Path:
    """A folder beside the store."""
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
    told: Callable[[RunningStream], None] = lambda going: None,
    stopped: Callable[[], bool] = lambda: False,
    reached: Reached = lambda point: None,
    clock: Callable[[], float] = time.time,
) -> MergeResult:
    """Merge until `stopped()`, or with `once` what is there now; the sum of what was done.

    The session is the caller's and stays open, so that a notebook on a cluster can call this; store, checkpoint and
    history are folders of the driver's machine. `every` is the time between micro-batches in seconds. `told` hears
    twice a second how it stands. Without `once` it waits for brokers and a store that are away for a while.
    """
    folder = checkpoint or default_checkpoint(store.path)
    source = check(client_config(servers, settings), topics, folder)
    files = ParquetHistory(history, reached=reached) if history is not None else None
    with ExitStack() as stack:
        stack.enter_context(notes.held(folder, source.cluster_id, source.topic_ids))
        go_together(store, store.path, folder, None)  # the history looks for itself, once it is held
        if files is not None:
            stack.callback(files.close)
            files.open(store)
        job = stack.enter_context(noted(store, name=f"telemetry {', '.join(topics)}", kind="telemetry"))
        cluster = Cluster(client_config(servers, settings))
        stream = _Stream(
            session, source, store, folder, files, once, every, reached, clock, lambda: _ids(cluster, topics)
        )
        going = _Run(job, told, stopped)
        with _upkeep(store, files, clock):
            while not stream.played(going):
                going.wait()
        _finish(store, files, clock())
    return going.done


class _Run:
    """What all streams of a run did, and who hears of it."""

    def __init__(
        self, job: JobStatus, told: Callable[[RunningStream], None], stopped: Callable[[], bool]
    ) -> None:
        self.done = MergeResult()
        self.stopped = stopped
        self._job, self._told = job, told
        self._pause = 0.0
        self._behind: int | None = None

    def merged(self, more: MergeResult) -> None:
        """Called by the sink, after each micro-batch."""
        self.done, self._pause = self.done + more, 0.0
        self._job.succeeded(time.time())
        self._job.records(done=self.done.batches + self.done.set_aside)
        self._say()

    def progress(self, query: Any) -> None:
        self._behind = behind(query.lastProgress)
        self._say()

    def failed(self, trouble: ProducerError) -> None:
        """Something that may be over in a while: say it, and wait longer each time."""
        first, most = _AGAIN
        self._pause = min(most, self._pause * 2 or first)
        logger.warning("telemetry stream failed", extra={"error": str(trouble), "again_in": self._pause})
        self._say(str(trouble))

    def wait(self) -> None:
        until = time.monotonic() + self._pause
        while time.monotonic() < until and not self.stopped():
            threading.Event().wait(_LOOK)

    def _say(self, trouble: str = "") -> None:
        self._job.records(lag=self._behind)
        self._job.message(trouble or words(self.done, self._behind))
        if self.done.versions:
            counts = {str(version): count for version, count in self.done.versions.items()}
            self._job.details({"set_aside": counts})
        self._told(RunningStream(self.done, self._behind, trouble))


@dataclass(frozen=True)
class _Stream:
    """Where a stream reads from and writes to; it can be played again after it failed."""

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

    def played(self, run: _Run) -> bool:
        """One stream, to its end; False when it failed by something that may be over in a while."""
        sink = TelemetrySink(
            self.store, self.folder / "set_aside", self.files, run.merged, self.reached,
            options=self.source.options, clock=self.clock,
        )  # fmt: skip
        query = None
        try:
            if self.files is not None:
                self.files.settle()  # what an earlier play drafted, and a busy store did not take
            self._same_topics()
            query = self._start(sink)
            asked = time.monotonic()
            while not query.awaitTermination(_LOOK) and not run.stopped():
                run.progress(query)
                if time.monotonic() - asked >= _UPKEEP:
                    self._same_topics()
                    asked = time.monotonic()
            return True
        except Exception as error:
            if run.stopped():
                return True  # SIGTERM to a group ends Spark's JVM as well; what was merged is merged
            trouble = spark_error(sink.error or error)
            if not self.once and isinstance(trouble, _PASSING):
                run.failed(trouble)
                return False
            raise (trouble or sink.error or error) from error
        finally:
            sink.end()
            _stop(query)

    def _same_topics(self) -> None:
        """ConfigError when a topic was made again: Spark would go on at its old offset, or at the new end, and say
        nothing. Brokers that do not answer now are asked the next time."""
        try:
            ids = self.ids()
        except BrokerError:
            return
        notes.same_cluster(self.folder, self.source.cluster_id, ids)

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
        logger.debug("Spark was gone before its stream was stopped")


def words(done: MergeResult, behind: int | None) -> str:
    """How a run stands, in a line."""
    text = f"merged {done.merged:,} of {done.batches:,} batches" if done.batches else "no batches yet"
    if done.set_aside:
        text += f", {done.set_aside:,} record{'s' * (done.set_aside != 1)} set aside"
    return text + (f"; {behind:,} records behind" if behind else "")


def behind(progress: Any) -> int | None:
    """Records on the topics that a stream has not read yet, by its own progress; None before its first word."""
    if progress is None:
        return None
    total = 0
    for source in progress.sources:
        end, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        total += sum(max(0, offset - end.get(place, offset)) for place, offset in latest.items())
    return total


def _offsets(text: str | None) -> dict[tuple[str, str], int]:
    """Spark's JSON of offsets, by topic and partition."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        found = None  # PySpark makes the text "None" of nothing
    if not isinstance(found, dict):
        return {}
    return {(topic, part): offset for topic, parts in found.items() for part, offset in parts.items()}


@contextmanager
def _upkeep(store: Store, files: ParquetHistory | None, clock: Callable[[], float]) -> Iterator[None]:
    """Once a minute, beside the stream: old seconds become minutes, old rows go, closed hours become one file."""

    def keep() -> None:
        try:
            maintain(store, files, clock())
        except (ProducerError, OSError) as error:
            logger.warning("upkeep failed", extra={"error": str(error)})

    with run_periodically(keep, _UPKEEP, name="pipeline-upkeep"):
        yield


def maintain(store: Store, files: ParquetHistory | None, now: float) -> None:
    """Roll up and prune the store, and publish the history's closed hours."""
    try:
        store.maintain(now)
    finally:
        if files is not None:
            files.publish(before=now)


def _finish(store: Store, files: ParquetHistory | None, now: float) -> None:
    """At the end of a run everything merged is in the history's files."""
    store.maintain(now)
    if files is not None:
        files.publish()
