"""Send a frame from a separate thread, so that an interrupt never falls inside a send."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Protocol

from producer_core.delivery.reports import DeliveryReport
from producer_core.errors import InvalidMessage, NotAccepted
from producer_core.messages import encode_value
from producer_core.producer.frames.result import LISTED, DeadRow, FrameInterrupted, FrameResult, RefusedRow
from producer_core.producer.frames.rows import Missing, RowFrame, Unreadable, field, frame_of

FieldSpec = str | Callable[[Mapping[str, Any]], Any] | None
"""The name of a column, or a function of the row."""


class FrameTarget(Protocol):
    """A producer that can send the rows."""

    def send_message(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        record_id: Any = None,
        dedup_key: str | None = None,
        on_delivery: Callable[[DeliveryReport], None] | None = None,
    ) -> str | None: ...


_INTERRUPT_WAIT_S = 5.0
"""Seconds after an interrupt for the current row, which may be waiting for room."""


def send_frame(
    producer: FrameTarget,
    data: Any,
    topic: str,
    *,
    key: FieldSpec = None,
    value: FieldSpec = None,
    dedup_key: FieldSpec = None,
    start: int = 0,
    nan: Missing = "null",
    timeout: float | None = None,
) -> FrameResult:
    """Send each row as one message; see `ReliableKafkaProducer.send_frame`."""
    frame = frame_of(data, nan=nan)
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise InvalidMessage(f"start={start!r} is not a row number.", fix="Rows are counted from 0.")
    for name, what in ((key, "key"), (value, "value"), (dedup_key, "dedup_key")):
        if isinstance(name, str):
            field(frame.columns, name, what)
    return _FrameSend(producer, frame, topic, key, value, dedup_key, start).run(timeout)


class _FrameSend:
    """Runs one call of `send_frame`."""

    def __init__(
        self,
        producer: FrameTarget,
        frame: RowFrame,
        topic: str,
        key: FieldSpec,
        value: FieldSpec,
        dedup_key: FieldSpec,
        start: int,
    ) -> None:
        self._producer, self._frame, self._topic = producer, frame, topic
        self._key, self._value, self._dedup_key = key, value, dedup_key
        self._start, self._next = start, start
        self._began = time.monotonic()
        self._changed = threading.Condition()  # guards the counts below, up to the lists
        self._accepted = self._acknowledged = self._dead = self._duplicate = self._refused = self._keyless = 0
        self._deaths: list[DeadRow] = []
        self._refusals: list[RefusedRow] = []
        self._stopped = ""
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, name="send-frame", daemon=True)

    def run(self, timeout: float | None) -> FrameResult:
        deadline = None if timeout is None else self._began + timeout
        self._thread.start()
        try:
            self._wait(deadline)
        except KeyboardInterrupt:
            self._stop.set()
            self._thread.join(_INTERRUPT_WAIT_S)
            with self._changed:
                self._stopped = "interrupted."
                if self._thread.is_alive():
                    self._stopped = "interrupted while that row waited for room; it may still be sent."
            raise FrameInterrupted(self._result()) from None
        if self._error is not None:
            self._error.add_note(
                f"The error occurred at row {self._next:,}. All rows before it were handled."
            )
            raise self._error
        return self._result()

    def _wait(self, deadline: float | None) -> None:
        """Wait until every row is settled or the timeout has passed."""
        if not self._ended.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
            self._stop.set()
            self._thread.join(_INTERRUPT_WAIT_S)
            self._stopped = "the timeout has passed."
        with self._changed:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            self._changed.wait_for(lambda: not self._pending, left)

    @property
    def _pending(self) -> int:
        return self._accepted - self._acknowledged - self._dead - self._duplicate

    # send thread

    def _send(self) -> None:
        try:
            for row in self._frame.rows(self._start):
                if self._stop.is_set() or not self._send_row(self._next, row):
                    return
                self._next += 1
        except Exception as error:  # noqa: BLE001  raised in the caller's thread: the caller's function, a broken frame
            self._error = error
        finally:
            self._ended.set()

    def _send_row(self, number: int, row: dict[str, Any]) -> bool:
        """Send a row. Return False if no further row can be sent."""
        try:
            key = _key(self._key, row)
            message_id = self._producer.send_message(
                self._topic,
                _value(self._value, row),
                key,
                record_id=number,
                dedup_key=None if self._dedup_key is None else str(_extract(self._dedup_key, row)),
                on_delivery=self._on_delivery,
            )
        except InvalidMessage as error:
            self._refuse(RefusedRow(number, str(error) if self._value else _with_column(row, error)))
            return True
        except NotAccepted as error:
            with self._changed:
                self._stopped = str(error)
            return False
        with self._changed:
            self._accepted += 1
            self._duplicate += message_id is None
            self._keyless += key is None and self._key is not None
        return True

    def _refuse(self, refusal: RefusedRow) -> None:
        with self._changed:
            self._refused += 1
            if len(self._refusals) < LISTED:
                self._refusals.append(refusal)

    def _on_delivery(self, report: DeliveryReport) -> None:
        """Count a delivery report. Runs on the poll thread."""
        with self._changed:
            if report.duplicate:
                self._duplicate += 1
            elif report.error is None:
                self._acknowledged += 1
            else:
                self._dead += 1
                if len(self._deaths) < LISTED:
                    self._deaths.append(
                        DeadRow(report.record_id, report.message_id, report.error, report.verdict or "")
                    )
            self._changed.notify_all()

    def _result(self) -> FrameResult:
        with self._changed:
            return FrameResult(
                topic=self._topic,
                start=self._start,
                next=self._next,
                acknowledged=self._acknowledged,
                dead=self._dead,
                duplicate=self._duplicate,
                refused=self._refused,
                pending=self._pending,
                seconds=time.monotonic() - self._began,
                refusals=tuple(self._refusals),
                deaths=tuple(sorted(self._deaths)),
                keyless=self._keyless,
                stopped=self._stopped,
            )


def _extract(spec: FieldSpec, row: Mapping[str, Any]) -> Any:
    return spec(row) if callable(spec) else row[spec] if spec is not None else None


def _key(spec: FieldSpec, row: Mapping[str, Any]) -> Any:
    """Return a key that every producer of this topic encodes alike. Raise InvalidMessage for an ambiguous one."""
    key = _extract(spec, row)
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, float):
        raise InvalidMessage(
            f"The key {key!r} is a float.",
            fix="Missing values turn whole numbers into floats: use frame[key].astype('Int64'), or text keys.",
        )
    if isinstance(key, Decimal):
        return str(key)
    return key.isoformat() if isinstance(key, date) else key


def _value(spec: FieldSpec, row: dict[str, Any]) -> Any:
    """Return the message's value: the whole row, or the requested column or function result."""
    value = row if spec is None else _extract(spec, row)
    for cell in row.values() if spec is None else (value,):
        if isinstance(cell, Unreadable):
            raise InvalidMessage(f"The value cannot be read: {cell.reason}.")
    return value


def _with_column(row: Mapping[str, Any], error: InvalidMessage) -> str:
    """Return the error text, with the name of the column that caused it."""
    for name, cell in row.items():
        try:
            encode_value({name: cell})
            readable = not isinstance(cell, Unreadable)
        except InvalidMessage:
            readable = False
        if not readable:
            return f"Column {name!r}: {str(error).removeprefix(f'At value[{name!r}]: ')}"
    return str(error)
