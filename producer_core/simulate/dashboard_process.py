"""The dashboard as a child process of `make run`."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence

from producer_core.errors import MissingTool
from producer_core.simulate.parent_watchdog import leashed

HOST = "127.0.0.1"

_PORTS = 100
_TAIL = 15

Command = Callable[[int], Sequence[str]]


class DashboardProcess:
    """A server process in a process group of its own; its output is kept, not shown."""

    def __init__(self, command: Command, port: ReservedPort) -> None:
        self.port = port.number
        self._lines: deque[str] = deque(maxlen=_TAIL)
        self._process = subprocess.Popen(
            leashed(command(port.number)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="dashboard-output", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def answers(self) -> bool:
        """Whether Streamlit says at this port that it is well."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=2)
        try:
            connection.request("GET", "/_stcore/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def last_lines(self) -> list[str]:
        """The end of its output, complete once it has ended."""
        if self.exit_code is not None:
            self._reader.join(1)
        return list(self._lines)

    def terminate(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def finish(self, timeout: float = 2.0) -> None:
        """Wait for its end, and make it end when it takes longer than `timeout` seconds."""
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join(1)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()

    def _signal(self, number: signal.Signals) -> None:
        """To the whole group: what it may have started ends with it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line.rstrip())


class ReservedPort:
    """A port that nobody listens on, kept from other `make run`s of this machine until released."""

    def __init__(self, number: int, claim: socket.socket | None) -> None:
        self.number = number
        self._claim = claim

    def release(self) -> None:
        if self._claim is not None:
            self._claim.close()

    @classmethod
    def first_free(cls, wanted: int) -> ReservedPort:
        """The wanted port or the next free one above."""
        for number in range(wanted, min(wanted + _PORTS, 65536)):
            claim = _claim(number)
            if claim is not None and _free(number):
                return cls(number, claim)
            if claim is not None:
                claim.close()
        raise MissingTool(
            f"No port from {wanted} to {wanted + _PORTS - 1} is free.", fix="Choose another with --port."
        )


def _free(number: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, number))
        except OSError:
            return False
    return True


def _claim(number: int) -> socket.socket | None:
    """A name that one process at a time can hold and that dies with it; None when another holds it.

    The dashboard needs a second until it listens: without the claim two starts at the same moment would
    choose the same port.
    """
    claim = socket.socket(socket.AF_UNIX)
    if sys.platform == "linux":
        try:
            claim.bind(f"\0producer-core-dashboard-{os.getuid()}-{number}")
        except OSError:
            claim.close()
            return None
    return claim
