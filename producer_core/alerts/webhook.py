"""The webhook route: one POST in Alertmanager's format with a time limit. It never reveals its URL."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult, quote, unquote, urlsplit

import orjson

from producer_core.alerts.notification import Notification, RouteResult
from producer_core.errors import ConfigError

_READ_BYTES = 4096
_MAX_RETRY_AFTER = 3600.0
_LAST_PORT = (1 << 16) - 1
_OVERLOADED = (408, 425, 429)
"""Status codes after which the same request may succeed later. Every other 4xx rejects this request."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Sends notifications to an HTTP endpoint. The URL and the token appear in no text that it returns."""

    name: str
    url: str = field(repr=False)
    token: str = field(default="", repr=False)
    severities: tuple[str, ...] = ("critical", "warning")
    timeout: float = 10.0
    heartbeat: float = 0.0
    kind: str = "webhook"

    def __post_init__(self) -> None:
        if problem := _url_problem(self.url):
            raise ConfigError(f"The URL of the route {self.name!r} is invalid.", fix=problem)
        if not _plain(self.token):
            raise ConfigError(
                f"The token of the route {self.name!r} is invalid.",
                fix="It may contain only printable ASCII characters without spaces.",
            )

    def send(self, notification: Notification) -> RouteResult:
        """Send one request within `timeout` seconds in total, whatever the receiver does."""
        parts = urlsplit(self.url)
        started = time.monotonic()
        connection = self._connection(parts)
        expired = threading.Event()
        sockets: list[socket.socket] = []
        timer = threading.Timer(self.timeout, _shut_down, (sockets, expired))
        timer.daemon = True
        timer.start()
        try:
            connection.connect()
            # the connection drops it after a response with "Connection: close"
            sockets.append(connection.sock)
            if expired.is_set():  # a host with many addresses that do not respond
                raise TimeoutError
            connection.request(
                "POST", self._target(parts), self._body(notification), self._headers(notification)
            )
            response = connection.getresponse()
            body = response.read(_READ_BYTES)
            return self._answer(response, body, time.monotonic() - started)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if expired.is_set() or isinstance(error, TimeoutError):
                return RouteResult(False, f"no response within {self.timeout:g} s")
            return RouteResult(False, self._redacted(_description(error)))
        finally:
            timer.cancel()
            connection.close()

    def _target(self, parts: SplitResult) -> str:
        return _target(parts)

    def _body(self, notification: Notification) -> bytes:
        return orjson.dumps(notification.payload)

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname or "", parts.port, timeout=self.timeout)

    def _headers(self, notification: Notification) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "producer-core",
            "Idempotency-Key": notification.key,
        }
        return {**headers, "Authorization": f"Bearer {self.token}"} if self.token else headers

    def _answer(self, response: http.client.HTTPResponse, body: bytes, seconds: float) -> RouteResult:
        text = self._redacted(f"HTTP {response.status} {response.reason}".strip())
        excerpt = self._redacted(body.decode(errors="replace").strip())[:200]
        timed = f"{text} in {seconds * 1000:,.0f} ms"
        if 200 <= response.status < 300:
            return RouteResult(True, timed, body=excerpt)
        if 300 <= response.status < 400:
            return RouteResult(False, f"{text}: redirects are not followed", body=excerpt)
        refused = 400 <= response.status < 500 and response.status not in _OVERLOADED
        return RouteResult(False, text, _retry_after(response), refused, excerpt)

    def _redacted(self, text: str) -> str:
        """Return the text without any part of the URL or the token, quoted or unquoted."""
        parts = urlsplit(self.url)
        pieces = {self.url, self.token, parts.netloc, parts.hostname or "", parts.query, _target(parts)}
        pieces |= {parts.username or "", parts.password or "", parts.path, parts.fragment}
        pieces |= {piece for piece in parts.path.split("/") if len(piece) > 5}
        pieces |= {pair.partition("=")[2] for pair in parts.query.split("&")}
        pieces |= {form(piece) for piece in list(pieces) for form in (unquote, quote)}
        for piece in sorted((piece for piece in pieces if len(piece) > 2), key=len, reverse=True):
            text = text.replace(piece, "***")
        return " ".join(text.split())


def _url_problem(url: str) -> str:
    """Return what is wrong with a URL, without any part of it."""
    if not _plain(url):
        return "A URL may contain only printable ASCII characters, without spaces and line breaks."
    try:
        parts = urlsplit(url)
    except ValueError:
        return "Its host is not valid. An IPv6 address is written in brackets: http://[::1]:9093."
    if parts.scheme not in ("http", "https"):
        return "A URL begins with http:// or https://."
    if not parts.hostname:
        return "It has no host. For example: http://127.0.0.1:9093."
    try:
        good = parts.port != 0
    except ValueError:
        good = False
    return "" if good else f"The port must be a number from 1 to {_LAST_PORT}."


def _plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _shut_down(sockets: Sequence[socket.socket], expired: threading.Event) -> None:
    """End the request at the time limit. The socket's own timeout restarts with every byte from the receiver."""
    expired.set()
    for opened in sockets:
        with contextlib.suppress(OSError):  # the socket is already closed
            opened.shutdown(socket.SHUT_RDWR)


def _description(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"the certificate is not trusted: {error.verify_message}"
        case ConnectionRefusedError():
            return "connection refused"
        case socket.gaierror():
            return "the host name cannot be resolved"
        case http.client.RemoteDisconnected() | ConnectionResetError() | BrokenPipeError():
            return "the receiver closed the connection"
        case http.client.HTTPException():
            return f"the response is not HTTP ({type(error).__name__})"
        case OSError():
            return error.strerror or type(error).__name__
        case _:
            return type(error).__name__


def _retry_after(response: http.client.HTTPResponse) -> float | None:
    given = (response.headers.get("Retry-After") or "").strip()
    if given.isdigit():
        return min(float(given), _MAX_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(given).timestamp()
    except (TypeError, ValueError):
        return None
    return min(max(moment - time.time(), 0.0), _MAX_RETRY_AFTER)
