"""Run the dashboard as a child process of `make run`."""

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
from producer_core.simulate.parent_watchdog import with_watchdog

HOST = "127.0.0.1"

_PORTS = 100
_TAIL = 15

Command = Callable[[int], Sequence[str]]


class DashboardProcess:
    """A server process in its own process group; its output is kept, not printed."""

    def __init__(self, command: Command, port: ReservedPort) -> None:
        self.port = port.number
        self._lines: deque[str] = deque(maxlen=_TAIL)
        self._process = subprocess.Popen(
            with_watchdog(command(port.number)),
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
        """Return the exit code; None while it runs."""
        return self._process.poll()

    def answers(self) -> bool:
        """Return whether Streamlit's health check succeeds at this port."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=2)
        try:
            connection.request("GET", "/_stcore/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def last_lines(self) -> list[str]:
        """Return the end of the output, which is complete once the process has ended."""
        if self.exit_code is not None:
            self._reader.join(1)
        return list(self._lines)

    def terminate(self) -> None:
        """Ask the process to end."""
        self._signal(signal.SIGTERM)

    def finish(self, timeout: float = 2.0) -> None:
        """Wait for the process to end; kill it after `timeout` seconds."""
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join(1)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group, so that its children end, too."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line.rstrip())


class ReservedPort:
    """A free port, reserved against other `make run`s on this machine until it is released."""

    def __init__(self, number: int, claim: socket.socket | None) -> None:
        self.number = number
        self._claim = claim

    def release(self) -> None:
        if self._claim is not None:
            self._claim.close()

    @classmethod
    def first_free(cls, wanted: int) -> ReservedPort:
        """Return the wanted port or the next free one above it."""
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
    """Bind a name that one process at a time can hold and that ends with it; return None when another process holds it.

    The dashboard takes a second to start listening. Without this claim, two starts at the same moment would choose the
    same port.
    """
    claim = socket.socket(socket.AF_UNIX)
    if sys.platform == "linux":
        try:
            claim.bind(f"\0producer-core-dashboard-{os.getuid()}-{number}")
        except OSError:
            claim.close()
            return None
    return claim
