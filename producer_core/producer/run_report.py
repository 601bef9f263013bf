"""Record what a producer does while a block runs, and write one HTML file about it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from operator import attrgetter, sub
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from producer_core._internal import private_files
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.config import ClientConfig
from producer_core.errors import ConfigError, ProducerError
from producer_core.metrics.counters import Metrics, Snapshot, TopicCounters
from producer_core.producer.run_facts import RunFacts, Sample, TopicRun
from producer_core.producer.run_report_page import page

logger = queued_logger(__name__)

_SAMPLE_S = 1.0
_MAX_SAMPLES = 3_600
"""Samples that are kept. Then every second one is dropped, and samples are taken half as often."""
_NAMES = ("acknowledged", "dead", "failed_attempts", "retried", "duplicates", "bytes", "latency_sum")
_counts_of = attrgetter(*_NAMES)
_NO_COUNTS = TopicCounters()


class ReportedProducer(Protocol):
    """The part of a producer that a report reads."""

    config: ClientConfig

    @property
    def metrics(self) -> Metrics: ...
    @property
    def pending_count(self) -> int: ...
    @property
    def application(self) -> str: ...
    @property
    def cluster_id(self) -> str: ...
    def flush(self, timeout: float | None = None) -> None: ...


class RunReport:
    """A context manager that writes the report of its block to a file with mode 0600, which it replaces.

    At the end of the block, messages have `flush_timeout` seconds to be settled. Messages that other threads send through
    the producer during the block are counted too. Raise ConfigError at the start if the file cannot be written there, and
    ProducerError at the end if it could not be written. An exception of the block is not replaced.
    """

    def __init__(
        self,
        producer: ReportedProducer,
        path: Path | str,
        *,
        flush_timeout: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(path)
        self._producer = producer
        self._flush_timeout = flush_timeout
        self._clock = clock
        self._samples: list[Sample] = []
        self._interval = _SAMPLE_S
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer-core-report", daemon=True)

    def __enter__(self) -> Self:
        folder = self.path.absolute().parent
        if not folder.is_dir() or self.path.is_dir() or not os.access(folder, os.W_OK):
            raise ConfigError(
                f"The report {self.path} cannot be written.",
                fix="Name a file in an existing, writable folder.",
            )
        self._pid = os.getpid()
        self._began_at, self._began = self._clock(), time.monotonic()
        self._before = self._producer.metrics.snapshot()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._pid:  # a forked child leaves the block
            return
        try:
            if self._flush_timeout > 0 and not isinstance(error, KeyboardInterrupt):
                with contextlib.suppress(ProducerError):  # in a callback, or in a forked child
                    self._producer.flush(self._flush_timeout)
        finally:
            self._ended.set()
            self._thread.join(5.0)
            self._write("" if kind is None else kind.__name__)

    def _write(self, ended_with: str) -> None:
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        try:
            private_files.write(draft, page(self._facts(ended_with)))
            draft.replace(self.path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            if ended_with:
                logger.error(**with_fields("report not written", path=str(self.path), error=str(error)))
                return
            raise ProducerError(
                f"The report {self.path} could not be written: {error.strerror or error}."
            ) from error

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            self._take_sample()

    def _take_sample(self) -> None:
        now = self._producer.metrics.snapshot()
        self._samples.append(
            Sample(
                time.monotonic() - self._began,
                now.acknowledged - self._before.acknowledged,
                now.dead - self._before.dead,
            )
        )
        if len(self._samples) > _MAX_SAMPLES:
            del self._samples[::2]
            self._interval *= 2

    def _facts(self, ended_with: str) -> RunFacts:
        self._take_sample()
        producer, after = self._producer, self._producer.metrics.snapshot()
        errors: Counter[tuple[str, str]] = Counter()
        for (topic, code, _), count in after.errors.items():
            errors[topic, code] += count
        for (topic, code, _), count in self._before.errors.items():
            errors[topic, code] -= count
        return RunFacts(
            self._began_at,
            time.monotonic() - self._began,
            _topics(self._before, after),
            {key: count for key, count in errors.items() if count > 0},
            producer.pending_count,
            tuple(self._samples),
            producer.application,
            producer.cluster_id,
            producer.config.masked(),
            ended_with,
        )


def _topics(before: Snapshot, after: Snapshot) -> dict[str, TopicRun]:
    found = {}
    for topic, counters in after.topics.items():
        earlier = before.topics.get(topic, _NO_COUNTS)
        counts = dict(zip(_NAMES, map(sub, _counts_of(counters), _counts_of(earlier)), strict=True))
        if any(counts.values()):
            latencies = counters.histogram.counts - earlier.histogram.counts
            found[topic] = TopicRun(**counts, latencies=latencies)
    return found
