"""The sending of one input: read, hand over, settle, and the summary of what became of the rows."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import orjson

from producer_core.cli.summary import Summary
from producer_core.cluster import Cluster
from producer_core.config import client_config
from producer_core.dlq import Spill
from producer_core.errors import ConfigError, InvalidMessage, OtherCluster, ProducerError, QueueFull
from producer_core.inputs import Malformed, Row, Rows
from producer_core.inputs.keys import key_of
from producer_core.inputs.parquet import raw_of
from producer_core.keeping import spill_path
from producer_core.producer import ReliableKafkaProducer
from producer_core.store import default_path

_BLOCK_MS = 500  # how long one hand-over waits for room, so that Ctrl-C is heard

_PROBLEMS_SHOWN = 3


class _Interrupted(Exception):
    """A signal came while a row was being read."""


def check_cluster(
    servers: str, config: Mapping[str, Any], topic: str, expected: str | None, *, timeout: float
) -> str:
    """The cluster's id, once a broker has answered and the topic is there; nothing is sent before."""
    settings = client_config(servers, config)
    cluster = Cluster(settings)
    found = cluster.view(timeout=timeout).cluster_id
    if expected and found != expected:
        raise OtherCluster(
            f"{settings.bootstrap_servers} is cluster {found}, not {expected}.", fix="Nothing was sent."
        )
    cluster.require_topic(topic)
    return found


def open_producer(
    servers: str, config: Mapping[str, Any], *, store: Path | str | None, cluster_id: str, dedup: bool
) -> ReliableKafkaProducer:
    return ReliableKafkaProducer(
        servers,
        {"max_block_ms": _BLOCK_MS, **config},
        store=store,
        cluster_id=cluster_id,
        enable_deduplication=dedup,
        run_replays=False,
    )


class Sending:
    """One run of `send`. Its counts are read from the thread that shows progress."""

    def __init__(
        self,
        producer: ReliableKafkaProducer,
        rows: Rows,
        topic: str,
        *,
        key: str | None,
        headers: tuple[tuple[str, str], ...],
        partition: int | None,
        limit: int | None,
        strict: bool,
        dedup: bool,
    ) -> None:
        self.producer = producer
        self.rows = rows
        self.topic = topic
        self.read = self.accepted = self.malformed = self.refused = 0
        self.position = rows.skip
        self.problems: list[str] = []
        self.stopped = self.kept_in = ""
        self.interrupted = False
        self.phase = "reading"
        self.started = time.monotonic()
        self._key = key
        self._headers = headers
        self._partition = partition
        self._limit = limit
        self._strict = strict
        self._dedup = dedup
        self._waiting = False  # in the input: a signal may break this off
        self._problem: ProducerError | None = None

    def run(self) -> None:
        """Send every row, then wait until each is settled. The input's own failure ends the reading only."""
        try:
            self._send_all()
        except _Interrupted:
            pass
        except ProducerError as error:
            if not self.read:
                self.producer.close(timeout=0)
                raise
            self._problem = error
        self.phase = "settling"
        self.producer.flush()
        self.producer.close()
        self._keep_without_store()
        self.phase = "done"

    def interrupt(self, signal_number: int, frame: FrameType | None) -> None:
        """Stop reading; heard again, give up what is on its way."""
        if self.interrupted:
            self.stopped = "given up by a second Ctrl-C"
            raise KeyboardInterrupt
        self.interrupted = True
        self.stopped = "interrupted"
        self.rows.stop()
        if self._waiting:
            raise _Interrupted

    def give_up(self) -> None:
        """Keep what is on its way as dead letters, at once."""
        self.producer.close(timeout=0.5)
        self._keep_without_store()

    def summary(self) -> Summary:
        elapsed = time.monotonic() - self.started
        return Summary.of(self, self.producer.metrics.snapshot(), elapsed, self._problem)

    def _send_all(self) -> None:
        self._begin()
        while not self.interrupted and (self._limit is None or self.read < self._limit):
            row = self._next()
            if row is None:
                return
            self.read += 1
            if isinstance(row, Malformed):
                if self._strict:
                    self._stop_at(row.position, row.text)
                    return
                self._bury(row.position, row.raw, row.text)
            elif not self._send(row):
                return
            self.position = row.position

    def _begin(self) -> None:
        """Read up to the first row: the columns are known then, and what is wrong with the input as a whole."""
        self._waiting = True
        try:
            self.rows.prepare()
            self._rows = iter(self.rows)
            self._first = next(self._rows, None)
        finally:
            self._waiting = False
        columns = self.rows.columns
        if self._key is not None and columns is not None and self._key not in columns:
            raise ConfigError(
                f"{self.rows.name} has no column {self._key!r} for the key.",
                fix=f"It has {', '.join(columns)}.",
            )

    def _next(self) -> Row | Malformed | None:
        if self._first is not None:
            row, self._first = self._first, None
            return row
        self._waiting = True
        try:
            return next(self._rows, None)
        finally:
            self._waiting = False

    def _send(self, row: Row) -> bool:
        """False when it was not accepted because we are stopping, or because --strict ends here."""
        try:
            key = None if self._key is None else key_of(row, self._key)
            while not self.interrupted:
                try:
                    self.producer.send_message(
                        self.topic, row.value, key, headers=self._headers, partition=self._partition,
                        dedup_key=self._identity(row) if self._dedup else None,
                    )  # fmt: skip
                except QueueFull:
                    continue
                self.accepted += 1
                return True
        except InvalidMessage as error:
            if self._strict:
                self._stop_at(row.position, str(error))
                return False
            self._bury(row.position, row.raw or raw_of(row.value), str(error))
            return True
        self.read -= 1
        return False

    def _stop_at(self, position: int, text: str) -> None:
        self.read -= 1
        self.stopped = f"{self.rows.unit} {position}: {text}"

    def _bury(self, position: int, raw: bytes, text: str) -> None:
        source = f"{self.rows.unit} {position} of {self.rows.name}"
        self.producer.dead_letter(self.topic, raw, code="malformed", text=text, source=source)
        self.malformed += 1
        if len(self.problems) < _PROBLEMS_SHOWN:
            self.problems.append(f"{self.rows.unit} {position}: {text}")

    def _keep_without_store(self) -> None:
        """Dead letters that only this process has go to the spill file, which the next store takes in."""
        letters = self.producer.dlq.letters() if self.producer.store is None else []
        if letters:
            spill = Spill(spill_path(default_path()))
            spill.append(letters)
            self.producer.dlq.remove([letter.message_id for letter in letters])
            self.kept_in = str(spill.path)

    def _identity(self, row: Row) -> str:
        """What makes a row the same as another: the bytes of the whole row."""
        return hashlib.sha256(row.raw or orjson.dumps(row.value, default=str)).hexdigest()


@contextlib.contextmanager
def interruptible(job: Sending) -> Iterator[None]:
    """SIGINT and SIGTERM stop the reading; the second one gives up. The handlers before are put back."""
    before = {number: signal.signal(number, job.interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        job.give_up()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
