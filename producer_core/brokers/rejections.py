"""Reject produce requests until told otherwise: one thread keeps the mock's error stacks filled."""

from __future__ import annotations

import select
import socket
import struct
import time
from threading import Event, RLock, Thread, current_thread

from producer_core.brokers.mock import PRODUCE, MockCluster
from producer_core.errors import BrokerError

_DEPTH = 500  # errors on a rejecting broker's stack
_INTERVAL = 0.02  # seconds between two refills: enough for 25,000 requests a second
_DRAIN_WITHIN = 5.0


class Rejections:
    """Keep the error codes of rejecting brokers; the thread exists while there is at least one."""

    def __init__(self, mock: MockCluster) -> None:
        self._mock = mock
        self._lock = RLock()  # guards the fields below; a lifted rejection is never refilled
        self._codes: dict[int, int] = {}
        self._thread: Thread | None = None
        self._stop = Event()

    def start(self, broker: int, code: int) -> None:
        with self._lock:
            self._codes[broker] = code
            self._fill()
            if self._thread is None:
                self._stop = Event()
                self._thread = Thread(
                    target=self._run, args=(self._stop,), name="embedded-broker-rejections", daemon=True
                )
                self._thread.start()

    def lift(self, broker: int) -> None:
        """Stop refilling this broker's stack; errors on the stack stay."""
        with self._lock:
            self._codes.pop(broker, None)
            if not self._codes:
                self._stop.set()
                self._thread = None

    def close(self) -> None:
        with self._lock:
            self._codes.clear()
            self._stop.set()
            thread, self._thread = self._thread, None
        if thread is not None and thread is not current_thread():  # a finalizer may run in any thread
            thread.join()

    def _run(self, stop: Event) -> None:
        while not stop.wait(_INTERVAL):
            with self._lock:
                self._fill()

    def _fill(self) -> None:
        for broker, code in list(self._codes.items()):
            missing = _DEPTH - self._mock.errors_left(broker)
            if missing > 0:
                self._mock.push_errors(broker, [code] * missing)


def drain(mock: MockCluster, broker: int, address: tuple[str, int]) -> None:
    """Empty a broker's error stack.

    librdkafka can push errors but not remove them, so this uses them up: each empty Produce request (without a topic)
    takes one error and writes nothing.
    """
    deadline = time.monotonic() + _DRAIN_WITHIN
    with socket.create_connection(address, timeout=_DRAIN_WITHIN) as connection:
        while left := mock.errors_left(broker):
            connection.sendall(_EMPTY_PRODUCE * left)
            while mock.errors_left(broker) and time.monotonic() < deadline:
                if select.select([connection], [], [], 0.002)[0]:  # responses may arrive much later (latency)
                    connection.recv(1 << 16)
            if time.monotonic() > deadline:
                raise BrokerError(f"Embedded broker {broker} did not use up its pending errors.")


def _request(key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", key, version, 0, -1)  # correlation 0, client id null
    return struct.pack(">i", len(header) + len(body)) + header + body


# Produce v3: transactional id null, acks 1, timeout 1 s, no topics
_EMPTY_PRODUCE = _request(PRODUCE, 3, struct.pack(">hhii", -1, 1, 1000, 0))
