"""Serve `/metrics` over HTTP."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import weakref
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from producer_core._internal import forks
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.errors import ConfigError, ProducerError
from producer_core.producer.prometheus.arguments import check_address, check_port

logger = queued_logger(__name__)

PATH = "/metrics"
LOOPBACK = "127.0.0.1"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PLAIN = "text/plain; charset=utf-8"
_CLIENT_TIMEOUT = 10.0
"""Seconds after which a client that sends or reads nothing is disconnected."""


class MetricsServer:
    """Answers `/metrics` with the text of `render`, in a daemon thread for each client.

    `port` 0 chooses a free one. Raises ConfigError if the address cannot be used. A ProducerError of `render` becomes the
    status 503 with the problem as text, so that Prometheus shows the target as down. A forked child does not listen.
    """

    def __init__(self, render: Callable[[], bytes], *, port: int, address: str = LOOPBACK) -> None:
        self._fork_mark = forks.mark()
        self._server = _listen(render, address, port)
        _open.add(self._server)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="producer-core-metrics",
            daemon=True,
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The address of the metrics."""
        host = str(self._server.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}{PATH}"

    def close(self) -> None:
        """Stop listening. Answers in progress are not awaited. In a forked child, the parent continues to listen."""
        if self._fork_mark[0]:  # a child has no thread to stop
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, render: Callable[[], bytes], address: str, port: int) -> None:
        self.render = render
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), _Handler)

    def server_bind(self) -> None:
        """Bind without the look-up of the host's name that HTTPServer makes, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a failed request at DEBUG: usually, the client has disconnected."""
        logger.debug(**with_fields("metrics request failed", error=str(sys.exc_info()[1])))


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _CLIENT_TIMEOUT
    server_version, sys_version = "producer-core", ""

    def do_GET(self) -> None:
        if urlsplit(self.path).path != PATH:
            self._answer(HTTPStatus.NOT_FOUND, f"Not found. The metrics are at {PATH}.\n".encode())
            return
        try:
            text = self.server.render()
        except ProducerError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode())
        except Exception:
            logger.exception(**with_fields("metrics could not be collected"))
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"The metrics could not be collected.\n")
        else:
            self._answer(HTTPStatus.OK, text, CONTENT_TYPE)

    do_HEAD = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is malformed, or has a method without a `do_` function; the base class writes HTML."""
        self.close_connection = True
        if code == HTTPStatus.NOT_IMPLEMENTED:
            text = b"Method not allowed. The metrics are read with GET.\n"
            self._answer(HTTPStatus.METHOD_NOT_ALLOWED, text, allow="GET, HEAD")
        else:
            self._answer(HTTPStatus(code), f"{HTTPStatus(code).phrase}.\n".encode())

    def _answer(self, status: HTTPStatus, text: bytes, kind: str = _PLAIN, *, allow: str = "") -> None:
        self.send_response(status)
        if allow:
            self.send_header("Allow", allow)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Log nothing: a scrape every few seconds is no event."""


def _listen(render: Callable[[], bytes], address: str, port: int) -> _Server:
    check_port(port)
    check_address(address)
    try:
        return _Server(render, address, port)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label of the host's name is too long
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise ConfigError(
                f"Port {port} on {address} is in use.",
                fix="Choose another port (0 chooses a free one), or stop the process that uses it. One "
                "`producer-core metrics serve` has the metrics of all processes of a host.",
            ) from error
        raise ConfigError(
            f"The metrics cannot be served on {address}, port {port}: {getattr(error, 'strerror', None) or error}.",
            fix="Choose an address of this host, and a port above 1023.",
        ) from error


_open: weakref.WeakSet[_Server] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close the copies of the listening sockets: a child has no thread that answers, and would keep the port in use."""
    for server in list(_open):
        server.socket.close()
    _open.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_in_child)
