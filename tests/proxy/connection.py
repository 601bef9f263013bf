"""One connection through the fault proxy: split both directions into frames, and match responses by correlation id."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.proxy.rules import (
    APIS,
    BlackHole,
    Delay,
    Fault,
    Hold,
    Partition,
    Refuse,
    Reset,
    Rewrite,
    Slow,
    State,
    Swallow,
    Tap,
)

_HEAD_BYTES = 300
"""Bytes of a request that are kept until its response: enough for the transactional id."""


class Proxy(Protocol):
    """The methods of the proxy that a connection uses."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    def decide(self, broker: int, api: int, frame: bytes) -> tuple[Fault, float] | None: ...
    def states(self, broker: int) -> list[State]: ...
    def opened(self, connection: Connection) -> None: ...
    def closed(self, connection: Connection) -> None: ...
    def hold(self, held: Held) -> None: ...
    def answered(self, api: int, request: bytes) -> None: ...
    def late_answer(self, api: int, answer: bytes) -> None: ...


@dataclass(eq=False)
class Held:
    """A request that is held back; its connection to the broker stays open for it."""

    seconds: float
    into_next: bool
    transaction: bytes
    deliver: Callable[[], bool]
    committed: bool = False


@dataclass(slots=True)
class _Pending:
    """A request without a response yet."""

    api: int
    head: bytes
    swallow: float | None = None
    late: bool = False
    tap: Tap | None = None
    code: int | None = None


class _Frames(asyncio.Protocol):
    """Split a stream into Kafka's frames: four bytes with the length, then that many bytes."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connected()

    def data_received(self, data: bytes) -> None:
        buffer, at = self._buffer, 0
        buffer += data
        while len(buffer) - at >= 4:
            end = at + 4 + int.from_bytes(buffer[at : at + 4])
            if len(buffer) < end:
                break
            self.frame(bytes(buffer[at:end]))
            at = end
        del buffer[:at]

    def write(self, frame: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(frame)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Reset the connection: discard unsent data and send an RST to the peer."""
        if self.transport is None or self.transport.is_closing():
            return
        with contextlib.suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        self.transport.abort()

    def connected(self) -> None:
        """Handle a new connection."""

    def frame(self, frame: bytes) -> None:
        """Handle one complete frame, including its length."""


class _Direction:
    """One direction of a connection: frames leave in order, possibly delayed, throttled or paused."""

    def __init__(self, connection: Connection, name: str, write: Callable[[bytes], None]) -> None:
        self._connection = connection
        self._name = name
        self._write = write
        self._queue: deque[tuple[float, bytes]] = deque()
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def put(self, frame: bytes, delay: float = 0.0) -> None:
        ready = self._connection.proxy.loop.time() + delay
        if self._queue:
            ready = max(ready, self._queue[-1][0])  # no frame overtakes another
        self._queue.append((ready, frame))
        self.pump()

    def pump(self) -> None:
        while self._queue:
            states = self._connection.proxy.states(self._connection.broker)
            if any(isinstance(one, Partition) and one.direction in ("both", self._name) for one in states):
                return  # pump() is called again when the rules change
            now = self._connection.proxy.loop.time()
            wait = max(self._queue[0][0], self._not_before) - now
            if wait > 0.0005:
                self._later(wait)
                return
            _, frame = self._queue.popleft()
            self._write(frame)
            for one in states:
                if isinstance(one, Slow):
                    self._not_before = max(now, self._not_before) + len(frame) / one.bytes_per_second

    def _later(self, wait: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._connection.proxy.loop.call_later(wait, self.pump)

    def discard(self) -> None:
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()


class _Broker(_Frames):
    """The connection to the broker."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def frame(self, frame: bytes) -> None:
        self._connection.answer(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.broker_gone(error)


class Connection(_Frames):
    """The connection to the client, and the owner of both."""

    def __init__(self, proxy: Proxy, broker: int, target: tuple[str, int]) -> None:
        super().__init__()
        self.proxy = proxy
        self.broker = broker
        self._target = target
        self._upstream: _Broker | None = None
        self._connecting: list[bytes] | None = []
        self._pending: dict[int, _Pending] = {}
        self._drop_answers = False  # responses are lost
        self._drop_requests = False  # requests are lost
        self._held = 0
        self._requests = _Direction(self, "requests", self._to_broker)
        self._answers = _Direction(self, "answers", self.write)
        self._task: asyncio.Task[None] | None = None

    def connected(self) -> None:
        self.proxy.opened(self)
        if any(isinstance(state, Refuse) for state in self.proxy.states(self.broker)):
            self.abort()
        else:
            self._task = self.proxy.loop.create_task(self._connect())

    def frame(self, frame: bytes) -> None:
        """Handle a request of the client."""
        if self._drop_requests:
            return
        api, _, number = struct.unpack_from(">hhi", frame, 4)
        decision = self.proxy.decide(self.broker, api, frame)
        pending = _Pending(api, frame[:_HEAD_BYTES])
        delay = 0.0
        if decision is not None:
            fault, seconds = decision
            match fault:
                case Reset():
                    self.reset()
                    return
                case BlackHole(after=after):
                    self._drop_requests = True
                    if after is not None:
                        self.proxy.loop.call_later(after, self.reset)
                    return
                case Hold(into_next=into_next):
                    self._hold(number, frame, pending, seconds, into_next)
                    return
                case Swallow(after=after):
                    pending.swallow = after
                case Delay():
                    delay = seconds
                case Rewrite(code=code):
                    pending.code = code
                case Tap():
                    pending.tap = fault if fault.answer else None
                    if not fault.answer:
                        fault.callback(frame)
        self._pending[number] = pending
        self._requests.put(frame, delay)

    def answer(self, frame: bytes) -> None:
        """Handle a response from the broker."""
        pending = self._pending.pop(int.from_bytes(frame[4:8]), None)
        if pending is None:
            self._answers.put(frame)
            return
        if pending.late:
            self.proxy.late_answer(pending.api, frame)
            self._release_held()
            return
        if pending.tap is not None:
            pending.tap.callback(pending.head)
        if pending.swallow is not None:
            self._drop_answers = True
            self.proxy.loop.call_later(pending.swallow, self.reset)
        if pending.code is not None:
            frame = with_error(frame, pending.head, pending.code)
        if not self._drop_answers:
            self._answers.put(frame)
            self.proxy.answered(pending.api, pending.head)

    def pump(self) -> None:
        """Apply changed rules to frames in the queues."""
        self._requests.pump()
        self._answers.pump()

    def reset(self) -> None:
        """Reset the client's connection; close the broker's, unless a held request needs it."""
        self._drop_requests = self._drop_answers = True
        self.abort()
        if self._upstream is not None and not self._held:
            self._upstream.close()

    def end(self) -> None:
        self._held = 0
        if self._task is not None:
            self._task.cancel()
        self.reset()
        if self._upstream is not None:
            self._upstream.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._drop_requests = self._drop_answers = True
        self._answers.discard()
        if not self._held:
            self._requests.discard()
            self.proxy.closed(self)
            if self._upstream is not None:
                self._upstream.close()

    def broker_gone(self, error: Exception | None) -> None:
        self._held = 0
        self.proxy.closed(self)
        if error is not None:
            self.abort()
        else:
            self.close()

    async def _connect(self) -> None:
        try:
            _, self._upstream = await self.proxy.loop.create_connection(lambda: _Broker(self), *self._target)
        except OSError:
            self.abort()
            return
        waiting, self._connecting = self._connecting or [], None
        for frame in waiting:
            self._upstream.write(frame)
        if self.transport is None or (self.transport.is_closing() and not self._held):
            self._upstream.close()

    def _to_broker(self, frame: bytes) -> None:
        if self._connecting is not None:
            self._connecting.append(frame)
        elif self._upstream is not None:
            self._upstream.write(frame)

    def _hold(self, number: int, frame: bytes, pending: _Pending, seconds: float, into_next: bool) -> None:
        self._held += 1
        self._drop_answers = self._drop_requests = True
        pending.late = True

        def deliver() -> bool:
            upstream = self._upstream
            if upstream is None or upstream.transport is None or upstream.transport.is_closing():
                return False
            self._pending[number] = pending
            upstream.write(frame)
            return True

        self.proxy.hold(Held(seconds, into_next, transactional_id(frame), deliver))
        self.abort()

    def _release_held(self) -> None:
        self._held -= 1
        if self._held <= 0 and self._upstream is not None:
            self._upstream.close()


def with_error(frame: bytes, request: bytes, code: int) -> bytes:
    """Return the response to a Produce request with this error code instead of success, for its first partition.

    librdkafka's requests have one partition.
    """
    version = struct.unpack_from(">h", request, 6)[0]
    if version >= 9:  # flexible: tagged fields of the header, then lengths of one byte
        at = 11 + frame[10] - 1
        at += 1 + 4
    else:
        at = 14 + struct.unpack_from(">h", frame, 12)[0]
        at += 4 + 4
    if struct.unpack_from(">h", frame, at)[0]:
        return frame
    return frame[:at] + struct.pack(">h", code) + frame[at + 2 :]


def transactional_id(frame: bytes) -> bytes:
    """Return the transactional id of an EndTxn request; for other requests an empty value, which every frame contains."""
    api, version = struct.unpack_from(">hh", frame, 4)
    if api != APIS["EndTxn"]:
        return b""
    client = struct.unpack_from(">h", frame, 12)[0]
    at = 14 + max(client, 0)
    if version >= 3:  # flexible: tagged fields of the header, then a compact string
        length = frame[at + 1] - 1
        return frame[at + 2 : at + 2 + length]
    length = struct.unpack_from(">h", frame, at)[0]
    return frame[at + 2 : at + 2 + length]
