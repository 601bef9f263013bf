"""The run of one `send`: read the rows, enqueue them, wait until they are settled, summarize."""

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

from producer_core._internal.topic_names import TOPIC_RULE, is_topic_name
from producer_core.cli import output
from producer_core.cli.send.file_progress import FileProgress
from producer_core.cli.send.fingerprint import Fingerprint, transactional_id_of
from producer_core.cli.send.keep_dead_letters import KeptDeadLetters, keep_dead_letters
from producer_core.cli.send.key_field import MissingKeyField, key_of
from producer_core.cli.send.open_rows import InputRow, InputRows, MalformedRow
from producer_core.cli.send.parquet_rows import raw_of
from producer_core.cli.send.resume_check import ResumableJob
from producer_core.cli.send.run_state import RunState
from producer_core.cli.send.summary import SendSummary
from producer_core.cli.send.value_schema import value_of
from producer_core.config import client_config
from producer_core.errors import (
    CircuitOpen,
    ConfigError,
    Fenced,
    InvalidMessage,
    OtherCluster,
    ProducerError,
    QueueFull,
    RateLimited,
    SchemaUnavailable,
    StoreFull,
    StoreLocked,
)
from producer_core.events import Hook, Notice, Remark
from producer_core.kafka.cluster import Cluster
from producer_core.messages import encode_headers
from producer_core.producer.arguments import dead_letter_topic_of
from producer_core.producer.guarantees import DeliveryGuarantee
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.store import Store
from producer_core.store.paths import check_writable

_BLOCK_MS = 500
"""How long one call of `send_message` waits for room in the queue. A signal is handled between two calls."""
_MAX_PAUSE_S = 0.2
"""The longest wait before a row that a rate limit or an open circuit refused is tried again, in seconds."""

_PROBLEMS_SHOWN = 3

_SETTLE_POLL = 0.1
"""Seconds between two checks for unsettled messages."""
_CHECK_ROWS = 256
"""Rows read between two checks that the file is unchanged."""

_REPORTED = frozenset(
    {
        "fenced", "shard_ended", "transactions_failing", "transactions_recovered", "read_back_waits",
        "read_back_done", "read_back_refused", "topic_gone", "acknowledged_lost", "journal_full", "journal_available",
    }
)  # fmt: skip
"""Notices of an exactly_once delivery that are printed when they arrive."""
_FATAL = ("fenced", "shard_ended")


_ReadRow = tuple[InputRow | MalformedRow, int, int]
"""A row, the number of blank lines before it, and how much of the content it and the rows before it cover."""


class _Interrupted(Exception):
    """A signal arrived while a row was being read."""


def check_headers(headers: tuple[tuple[str, str], ...]) -> None:
    """Refuse an invalid header before it makes every row fail."""
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
    """Return the cluster's id once a broker responds and the topic exists. Send nothing."""
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


def check_places(
    store: Path | None, telemetry_topic: str | None, dead_letter_topic: str | None = None
) -> None:
    """Refuse an unusable store, telemetry topic or dead-letter topic before this send writes any state."""
    dead_letter_topic_of(dead_letter_topic, has_store=True)
    if telemetry_topic is not None and not is_topic_name(telemetry_topic):
        raise ConfigError(f"--telemetry-topic {telemetry_topic!r} is not a topic name.", fix=TOPIC_RULE)
    if store is not None:
        with contextlib.suppress(StoreLocked, StoreFull):  # the store may become available during the send
            with contextlib.closing(Store.open(store)) as opened:
                check_writable(opened.path)


class DuplicateCounter(Hook):
    """Records the possible duplicates of a resumable at_least_once send in its progress."""

    def __init__(self, progress: FileProgress) -> None:
        self._progress = progress

    def counted(self, topic: str, what: Remark) -> None:
        if what == "possible_duplicates":
            self._progress.count_possible_duplicate()


class ReportListener(Hook):
    """Prints the notices that matter to the user of `send`, and remembers one that ends the send."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def notice(self, notice: Notice) -> None:
        if notice.kind in _REPORTED:
            output.say(f"Note: {notice.text}", err=True)
        if notice.kind in _FATAL:
            self.ended.set()


def open_producer(
    servers: str,
    config: Mapping[str, Any],
    *,
    store: Path | str | None,
    cluster_id: str,
    dedup: bool,
    circuit_breaker: bool = False,
    application: str | None = None,
    application_version: str | None = None,
    telemetry_topic: str | None = None,
    dead_letter_topic: str | None = None,
    resumable: ResumableJob | None = None,
    listener: ReportListener | None = None,
) -> ReliableKafkaProducer:
    exactly_once = resumable is not None and resumable.job.delivery == "exactly_once"
    delivery: DeliveryGuarantee = "exactly_once" if exactly_once else "at_least_once"
    return ReliableKafkaProducer(
        servers,
        {"max_block_ms": _BLOCK_MS, **config},
        store=store,
        telemetry_topic=telemetry_topic,
        dead_letter_topic=dead_letter_topic,
        ledger=store is not None,
        cluster_id=cluster_id or None,
        enable_deduplication=dedup,
        circuit_breaker=circuit_breaker,
        application=application,
        application_version=application_version,
        run_replays=False,
        delivery=delivery,
        journal=None if resumable is None else resumable.start.progress,
        transactional_id=(
            transactional_id_of(resumable.job) if resumable is not None and exactly_once else None
        ),
        hooks=_hooks(resumable, listener),
    )


def _hooks(resumable: ResumableJob | None, listener: ReportListener | None) -> tuple[Hook, ...]:
    if resumable is None:
        return ()
    if resumable.job.delivery == "at_least_once":
        progress = resumable.start.progress
        return progress.acks, DuplicateCounter(progress)
    return () if listener is None else (listener,)


@dataclass(frozen=True)
class RowOptions:
    """How rows become messages.

    `key` names a field, `limit` bounds the number of rows, and `strict` ends the run at the first malformed row. With
    `by_schema` the producer's serializer writes the fields of a row.
    """

    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    partition: int | None = None
    limit: int | None = None
    strict: bool = False
    dedup: bool = False
    by_schema: bool = False


class SendRun:
    """Sends every row of one input. `state` holds the counts, which the progress thread reads."""

    def __init__(
        self,
        producer: ReliableKafkaProducer,
        rows: InputRows,
        topic: str,
        options: RowOptions,
        *,
        resumable: ResumableJob | None = None,
        listener: ReportListener | None = None,
        command: str = "",
    ) -> None:
        self.state = RunState(
            producer,
            rows,
            topic,
            progress=None if resumable is None else resumable.start.progress,
            delivery="at_least_once" if resumable is None else resumable.job.delivery,
            command=command,
            restart=resumable is not None and resumable.restart,
        )
        self._producer = producer
        self._input = rows
        self._options = options
        self._content: Fingerprint | None = None if resumable is None else resumable.content
        self._listener = listener or ReportListener()
        self._row = -1  # the number of the row that is being enqueued
        self._covered = 0  # see RunState.covered, with the row that is being enqueued
        self._reading = False  # the input may block; a signal interrupts it
        self._problem: ProducerError | None = None
        self._stopping = threading.Event()  # set by the first signal
        self._circuit_noted = ""  # the reason of the outage that was printed

    def run(self) -> None:
        """Send every row, then wait until each is settled. An error of the input ends only the reading."""
        try:
            self._send_all()
        except _Interrupted:
            pass
        except ProducerError as error:
            if not self.state.read:
                self._producer.close(timeout=0)
                raise
            self._problem = error
        self.state.phase = "settling"
        self._settle()
        self._producer.close(timeout=0.0 if self._listener.ended.is_set() else 30.0)
        self._keep_dead_letters()
        self._finish()
        self.state.phase = "done"

    def _settle(self) -> None:
        """Wait until every message is settled, or until another process has fenced this one."""
        if self.state.delivery != "exactly_once":
            return self._producer.flush()
        while self._producer.pending_count and not self._listener.ended.wait(_SETTLE_POLL):
            pass
        if self._listener.ended.is_set() and self._problem is None:
            self._problem = Fenced(
                "The send stopped early; see the note above.",
                fix="Rows that were not committed are still in the file.",
            )
        return None

    def _finish(self) -> None:
        state = self.state
        limited = self._options.limit is not None and state.read >= self._options.limit
        whole = state.exhausted or limited
        if state.progress is None:
            state.complete = whole and self._problem is None
        elif whole and self._problem is None and not state.stopped:
            state.complete = state.progress.finish(self._row + 1, all_of_them=state.exhausted)

    def interrupt(self, signal_number: int, frame: FrameType | None) -> None:
        """Stop reading at the first signal; abandon the messages in flight at the second."""
        if self.state.interrupted:
            self.state.stopped = "abandoned after a second Ctrl-C"
            raise KeyboardInterrupt
        self.state.interrupted = True
        self.state.stopped = "interrupted"
        self._stopping.set()
        self._input.stop()
        if self._reading:
            raise _Interrupted

    def give_up(self) -> None:
        """Make messages in flight dead letters at once. A resumable send reads them from the file again."""
        self._producer.close(timeout=0.5)
        self._keep_dead_letters()

    def summary(self) -> SendSummary:
        elapsed = time.monotonic() - self.state.started
        return SendSummary.of(self.state, self._producer.metrics.snapshot(), elapsed, self._problem)

    def _send_all(self) -> None:
        state, limit = self.state, self._options.limit
        self._begin()
        while not state.interrupted and (limit is None or state.read < limit):
            row = self._next()
            if row is None:
                state.exhausted = not state.interrupted
                if state.exhausted and state.progress is not None:
                    state.progress.ends_at(self._row + 1)
                return
            state.read += 1
            self._row += 1
            if state.progress is not None:
                state.progress.row.at = self._row
                if state.progress.is_settled(self._row):
                    state.already_done += 1
                    self._passed(row)
                    continue
            if isinstance(row, MalformedRow):
                if self._options.strict:
                    self._stop_at(row.position, row.text)
                    return
                self._reject(row.position, row.raw, row.text)
            elif not self._send(row):
                return
            self._passed(row)

    def _passed(self, row: InputRow | MalformedRow) -> None:
        """Note that the row was accepted, rejected, or settled by an earlier run."""
        self.state.position, self.state.covered = row.position, self._covered

    def _begin(self) -> None:
        """Read up to the first row, so that the columns and any damage of the whole input are known."""
        self._reading = True
        try:
            self._input.prepare()
            self._rows = self._read_rows() if self._content is None else self._unchanged(self._content)
            self._first = next(self._rows, None)
        finally:
            self._reading = False
        columns = self._input.columns
        if self._options.key is not None and columns is not None and self._options.key not in columns:
            raise ConfigError(
                f"{self._input.name} has no column {self._options.key!r} for the key.",
                fix=f"Columns: {', '.join(columns)}.",
            )

    def _read_rows(self) -> Iterator[_ReadRow]:
        for row in self._input:
            yield row, self._input.blank, self._input.covered

    def _unchanged(self, content: Fingerprint) -> Iterator[_ReadRow]:
        """Return the rows while the file matches its fingerprint. Raise a read error after the rows before it."""
        # the reader closes its own descriptor after the last row
        file = os.dup(self._input.source.raw.fileno())
        rows = self._read_rows()
        problem: ProducerError | None = None
        more = True
        try:
            while more and problem is None:
                batch: list[_ReadRow] = []
                try:
                    batch += itertools.islice(rows, _CHECK_ROWS)
                except ProducerError as error:
                    problem = error
                more = bool(batch)
                content.check(file, self._input.name)
                yield from batch
        finally:
            os.close(file)
        if problem is not None:
            raise problem

    def _next(self) -> InputRow | MalformedRow | None:
        found, self._first = self._first, None
        if found is None:
            self._reading = True
            try:
                found = next(self._rows, None)
            finally:
                self._reading = False
        if found is None:
            self.state.blank = self._input.blank
            return None
        row, self.state.blank, self._covered = found
        return row

    def _send(self, row: InputRow) -> bool:
        """Enqueue the row. Return False when the run stops before the row is accepted."""
        try:
            key = None if self._options.key is None else key_of(row, self._options.key)
            value = value_of(row, by_schema=self._options.by_schema)
            while not self.state.interrupted:
                try:
                    self._producer.send_message(
                        self.state.topic, value, key,
                        headers=self._options.headers, partition=self._options.partition,
                        dedup_key=self._dedup_key(row) if self._options.dedup else None,
                    )  # fmt: skip
                except RateLimited as error:
                    self._pause(error.retry_after_s)
                except QueueFull:
                    pass
                except CircuitOpen as refusal:
                    self._wait_for_circuit(refusal)
                else:
                    self.state.accepted += 1
                    return True
        except InvalidMessage as error:
            if self._options.strict:
                self._stop_at(row.position, str(error))
                return False
            # The fields of a row would split one cause into many groups of dead letters.
            text = error.what if isinstance(error, MissingKeyField) else str(error)
            self._reject(row.position, row.raw or raw_of(row.value), text, shown=str(error))
            return True
        except SchemaUnavailable:
            self._unread()
            raise
        self._unread()
        return False

    def _pause(self, seconds: float) -> None:
        """Wait before the row is tried again, or until a signal arrives."""
        self._stopping.wait(min(seconds, _MAX_PAUSE_S))

    def _wait_for_circuit(self, refusal: CircuitOpen) -> None:
        """Wait until the circuit may let a message through, or a signal arrives. Print a note once per outage."""
        if refusal.reason != self._circuit_noted:
            self._circuit_noted = refusal.reason
            output.say(f"Note: {refusal.what} Reading continues when the brokers respond.", err=True)
        self._pause(max(refusal.retry_after_s, 0.05))

    def _unread(self) -> None:
        self.state.read -= 1
        self._row -= 1

    def _stop_at(self, position: int, text: str) -> None:
        self._unread()
        self.state.stopped = f"{self._input.unit} {position}: {text.rstrip('.')}"

    def _reject(self, position: int, raw: bytes, text: str, *, shown: str = "") -> None:
        """Keep a malformed row as a dead letter with this text. The summary has the text `shown`, if there is one."""
        state = self.state
        if state.progress is not None:
            state.progress.malformed(self._row)
        key = f', with the field "{self._options.key}" as its key' if self._options.key else ""
        source = f"{self._input.unit} {position} of {self._input.name}{key}"
        self._producer.dead_letter(state.topic, raw, code="malformed", text=text, source=source)
        state.malformed += 1
        if len(state.problems) < _PROBLEMS_SHOWN:
            state.problems.append(f"{self._input.unit} {position}: {shown or text}")

    def _keep_dead_letters(self) -> None:
        """Keep the dead letters once. A second Ctrl-C at the end of a run calls this again."""
        if self.state.kept == KeptDeadLetters():
            self.state.kept = keep_dead_letters(self._producer, self.state.progress)

    def _dedup_key(self, row: InputRow) -> str:
        """Return a hash of the whole row's bytes: identical rows are duplicates."""
        return hashlib.sha256(row.raw or orjson.dumps(row.value, default=str)).hexdigest()


@contextlib.contextmanager
def interruptible(run: SendRun) -> Iterator[None]:
    """Stop the reading on SIGINT or SIGTERM, and give up on the second. Restore the earlier handlers at the end."""
    before = {number: signal.signal(number, run.interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        run.give_up()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
