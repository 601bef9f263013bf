"""The sending of one input: read, hand over, settle, and the summary of what became of the rows."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import orjson

from producer_core.cli import output
from producer_core.cli.send.fingerprint import Fingerprint, transactional_id_of
from producer_core.cli.send.key_field import key_of
from producer_core.cli.send.open_rows import InputRow, InputRows, MalformedRow
from producer_core.cli.send.parquet_rows import raw_of
from producer_core.cli.send.resume_check import ResumableJob
from producer_core.cli.send.summary import SendSummary
from producer_core.config import client_config
from producer_core.dlq import Spill
from producer_core.errors import (
    ConfigError,
    Fenced,
    InvalidMessage,
    OtherCluster,
    ProducerError,
    QueueFull,
    StoreFull,
    StoreLocked,
)
from producer_core.events import Hook, Notice
from producer_core.kafka.cluster import Cluster
from producer_core.messages import encode_headers
from producer_core.producer.arguments import TOPIC_RULE, is_topic_name
from producer_core.producer.dead_letter_backend import spill_path
from producer_core.producer.guarantees import DeliveryGuarantee
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.store import Store, default_path
from producer_core.store.paths import check_writable

_BLOCK_MS = 500  # how long one hand-over waits for room, so that Ctrl-C is heard

_PROBLEMS_SHOWN = 3

_LOOK = 0.1
"""Seconds between two looks at what is not settled."""
_AT_ONCE = 256
"""Rows read before it is asked whether the file is still the one that was looked at."""

_SAID = frozenset(
    {
        "fenced", "shard_ended", "transactions_failing", "transactions_recovered", "read_back_waits",
        "read_back_done", "read_back_refused", "topic_gone", "acknowledged_lost", "journal_full",
    }
)  # fmt: skip
"""Notices of an exactly_once delivery that its user is told as they come."""
_THE_END = ("fenced", "shard_ended")


class _Interrupted(Exception):
    """A signal came while a row was being read."""


def check_headers(headers: tuple[tuple[str, str], ...]) -> None:
    """Refuse a header that no message can have, instead of every row."""
    try:
        for name, value in headers:
            encode_headers({name: value})
    except InvalidMessage as error:
        raise ConfigError(f"--header cannot be sent. {error}", fix="Nothing was sent.") from error


def check_cluster(
    servers: str,
    config: Mapping[str, Any],
    topic: str,
    expected: str | None,
    *,
    partition: int | None = None,
    timeout: float,
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
    if partition is not None:
        cluster.require_partition(topic, partition)
    return found


def check_places(store: Path | None, telemetry_topic: str | None) -> None:
    """Refuse a store or a telemetry topic that cannot be used before anything of this send is written down."""
    if telemetry_topic is not None and not is_topic_name(telemetry_topic):
        raise ConfigError(f"--telemetry-topic {telemetry_topic!r} is not a topic name.", fix=TOPIC_RULE)
    if store is not None:
        with contextlib.suppress(StoreLocked, StoreFull):  # it may come later
            with contextlib.closing(Store.open(store)) as opened:
                check_writable(opened.path)


class ReportListener(Hook):
    """Tells the notices that matter to who sends a file, and remembers one that ends the sending."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def notice(self, notice: Notice) -> None:
        if notice.kind in _SAID:
            output.say(f"Note: {notice.text}", err=True)
        if notice.kind in _THE_END:
            self.ended.set()


def open_producer(
    servers: str,
    config: Mapping[str, Any],
    *,
    store: Path | str | None,
    cluster_id: str,
    dedup: bool,
    telemetry_topic: str | None = None,
    ready: ResumableJob | None = None,
    listener: ReportListener | None = None,
) -> ReliableKafkaProducer:
    exactly = ready is not None and ready.job.delivery == "exactly_once"
    delivery: DeliveryGuarantee = "exactly_once" if exactly else "at_least_once"
    return ReliableKafkaProducer(
        servers,
        {"max_block_ms": _BLOCK_MS, **config},
        store=store,
        telemetry_topic=telemetry_topic,
        ledger=store is not None,
        cluster_id=cluster_id,
        enable_deduplication=dedup,
        run_replays=False,
        delivery=delivery,
        journal=None if ready is None else ready.begun.progress,
        transactional_id=transactional_id_of(ready.job) if ready is not None and exactly else None,
        hooks=() if listener is None or not exactly else (listener,),
    )


@dataclass(frozen=True)
class RowOptions:
    """How rows become messages: `key` names a field, `limit` ends the run after so many rows, `strict` at the first bad one."""

    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    partition: int | None = None
    limit: int | None = None
    strict: bool = False
    dedup: bool = False


class SendRun:
    """One run of `send`. Its counts are read from the thread that shows progress."""

    def __init__(
        self,
        producer: ReliableKafkaProducer,
        rows: InputRows,
        topic: str,
        options: RowOptions,
        *,
        ready: ResumableJob | None = None,
        listener: ReportListener | None = None,
        again: str = "",
    ) -> None:
        self.producer = producer
        self.rows = rows
        self.topic = topic
        self.read = self.accepted = self.malformed = self.refused = 0
        self.position = rows.skip
        self.blank = 0
        self.problems: list[str] = []
        self.stopped = self.kept_in = ""
        self.interrupted = False
        self.phase = "reading"
        self.started = time.monotonic()
        self.resume = None if ready is None else ready.begun.progress
        self.delivery = "at_least_once" if ready is None else ready.job.delivery
        self.already = 0
        self.dead_before = 0 if self.resume is None else self.resume.dead
        self.malformed_before = 0 if self.resume is None else self.resume.malformed_rows
        self.complete = False
        self._again = again
        self._restarts = ready is not None and ready.restart
        self._content: Fingerprint | None = None if ready is None else ready.content
        self._listener = listener or ReportListener()
        self._row = -1  # the number of the row that is handed over
        self._exhausted = False
        self._options = options
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
        self._settle()
        self.producer.close(timeout=0.0 if self._listener.ended.is_set() else 30.0)
        self._keep_without_store()
        self._finish()
        self.phase = "done"

    def _settle(self) -> None:
        """Until everything is settled, or somebody else has taken our place."""
        if self.delivery != "exactly_once":
            return self.producer.flush()
        while self.producer.pending_count and not self._listener.ended.wait(_LOOK):
            pass
        if self._listener.ended.is_set() and self._problem is None:
            self._problem = Fenced(
                "The sending ended before its time; see the note above.",
                fix="Rows that were not committed are in the file.",
            )
        return None

    def _finish(self) -> None:
        whole = self._exhausted or (self._options.limit is not None and self.read >= self._options.limit)
        if self.resume is None:
            self.complete = whole and self._problem is None
        elif whole and self._problem is None and not self.stopped:
            self.complete = self.resume.finish(self._row + 1, all_of_them=self._exhausted)

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
        """Keep what is on its way as dead letters, at once; what can be gone on with is still in the file."""
        self.producer.close(timeout=0.5)
        self._keep_without_store()

    @property
    def skipped_all(self) -> bool:
        """Whether the input ended before its first row that --skip does not leave out."""
        return self._exhausted and not self.read and self.rows.skip > 0

    @property
    def again(self) -> str:
        """The command that goes on; a restart that sent nothing is still to come."""
        restart = self._restarts and self.resume is not None and not self.resume.begun
        return f"{self._again} --restart" if restart else self._again

    @property
    def possibly_twice(self) -> int:
        return 0 if self.resume is None else self.resume.possibly_twice

    def summary(self) -> SendSummary:
        elapsed = time.monotonic() - self.started
        return SendSummary.of(self, self.producer.metrics.snapshot(), elapsed, self._problem)

    def _send_all(self) -> None:
        self._begin()
        while not self.interrupted and (self._options.limit is None or self.read < self._options.limit):
            row = self._next()
            if row is None:
                self._exhausted = not self.interrupted
                if self._exhausted and self.resume is not None:
                    self.resume.ends_at(self._row + 1)
                return
            self.read += 1
            self._row += 1
            if self.resume is not None:
                self.resume.row.at = self._row
                if self.resume.is_settled(self._row):
                    self.already += 1
                    self.position = row.position
                    continue
            if isinstance(row, MalformedRow):
                if self._options.strict:
                    self._stop_at(row.position, row.text)
                    return
                self._give_up(row.position, row.raw, row.text)
            elif not self._send(row):
                return
            self.position = row.position

    def _begin(self) -> None:
        """Read up to the first row: the columns are known then, and what is wrong with the input as a whole."""
        self._waiting = True
        try:
            self.rows.prepare()
            self._rows = self._read_rows() if self._content is None else self._unchanged(self._content)
            self._first = next(self._rows, None)
        finally:
            self._waiting = False
        columns = self.rows.columns
        if self._options.key is not None and columns is not None and self._options.key not in columns:
            raise ConfigError(
                f"{self.rows.name} has no column {self._options.key!r} for the key.",
                fix=f"It has {', '.join(columns)}.",
            )

    def _read_rows(self) -> Iterator[tuple[InputRow | MalformedRow, int]]:
        """The rows, each with the number of blank lines before it."""
        for row in self.rows:
            yield row, self.rows.blank

    def _unchanged(self, content: Fingerprint) -> Iterator[tuple[InputRow | MalformedRow, int]]:
        """The rows, as long as the file is what its checksum was made of; an error comes after what precedes it."""
        file = os.dup(self.rows.source.raw.fileno())  # the reader closes its own with the last row
        rows = self._read_rows()
        problem: ProducerError | None = None
        more = True
        try:
            while more and problem is None:
                some: list[tuple[InputRow | MalformedRow, int]] = []
                try:
                    some += itertools.islice(rows, _AT_ONCE)
                except ProducerError as error:
                    problem = error
                more = bool(some)
                content.check(file, self.rows.name)
                yield from some
        finally:
            os.close(file)
        if problem is not None:
            raise problem

    def _next(self) -> InputRow | MalformedRow | None:
        found, self._first = self._first, None
        if found is None:
            self._waiting = True
            try:
                found = next(self._rows, None)
            finally:
                self._waiting = False
        row, self.blank = (None, self.rows.blank) if found is None else found
        return row

    def _send(self, row: InputRow) -> bool:
        """False when it was not accepted because we are stopping, or because --strict ends here."""
        try:
            key = None if self._options.key is None else key_of(row, self._options.key)
            while not self.interrupted:
                try:
                    self.producer.send_message(
                        self.topic, row.value, key, headers=self._options.headers, partition=self._options.partition,
                        dedup_key=self._identity(row) if self._options.dedup else None,
                    )  # fmt: skip
                except QueueFull:
                    continue
                self.accepted += 1
                return True
        except InvalidMessage as error:
            if self._options.strict:
                self._stop_at(row.position, str(error))
                return False
            self._give_up(row.position, row.raw or raw_of(row.value), str(error))
            return True
        self._unread()
        return False

    def _unread(self) -> None:
        self.read -= 1
        self._row -= 1

    def _stop_at(self, position: int, text: str) -> None:
        self._unread()
        self.stopped = f"{self.rows.unit} {position}: {text}"

    def _give_up(self, position: int, raw: bytes, text: str) -> None:
        if self.resume is not None:
            self.resume.malformed(self._row)
        source = f"{self.rows.unit} {position} of {self.rows.name}"
        self.producer.dead_letter(self.topic, raw, code="malformed", text=text, source=source)
        self.malformed += 1
        if len(self.problems) < _PROBLEMS_SHOWN:
            self.problems.append(f"{self.rows.unit} {position}: {text}")

    def _keep_without_store(self) -> None:
        """Dead letters that only this process has go to the spill file, which the next store takes in."""
        dead_letters = self.producer.dlq.dead_letters() if self.producer.store is None else []
        if dead_letters:
            spill = Spill(spill_path(default_path()))
            spill.append(dead_letters)
            ids = [dead_letter.message_id for dead_letter in dead_letters]
            self.producer.dlq.remove(ids)
            if self.resume is not None:
                self.resume.give_up(self.resume.rows_of(ids))
                self.resume.save()
            self.kept_in = str(spill.path)

    def _identity(self, row: InputRow) -> str:
        """What makes a row the same as another: the bytes of the whole row."""
        return hashlib.sha256(row.raw or orjson.dumps(row.value, default=str)).hexdigest()


@contextlib.contextmanager
def interruptible(job: SendRun) -> Iterator[None]:
    """SIGINT and SIGTERM stop the reading; the second one gives up. The handlers before are put back."""
    before = {number: signal.signal(number, job.interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        job.give_up()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
