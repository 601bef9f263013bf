"""A webhook: one POST in Alertmanager's format, bounded in time, that never tells its address."""

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

_READ = 4096
_RETRY_AFTER_MOST = 3600.0
_OVERLOADED = (408, 425, 429)
"""Codes that say: later. Every other 4xx says: not this."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Implements `Route`. The address and the token appear in no text that leaves this object."""

    name: str
    url: str = field(repr=False)
    token: str = field(default="", repr=False)
    severities: tuple[str, ...] = ("critical", "warning")
    patience: float = 10.0
    heartbeat: float = 0.0
    kind: str = "webhook"

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            good = False
        if not good or not all(_plain(text) for text in (self.url, self.token)):
            raise ConfigError(
                f"The address or the token of the route {self.name!r} is not usable.",
                fix="An address begins with http:// or https://, and neither holds spaces or line breaks.",
            )

    def tell(self, notification: Notification) -> RouteResult:
        """Within `patience` seconds in all, whatever the receiver does."""
        parts = urlsplit(self.url)
        started = time.monotonic()
        connection = self._connection(parts)
        late = threading.Event()
        wire: list[socket.socket] = []
        watch = threading.Timer(self.patience, _cut, (wire, late))
        watch.daemon = True
        watch.start()
        try:
            connection.connect()
            wire.append(connection.sock)  # the connection forgets it once an answer says that it is the last
            if late.is_set():  # a host with many addresses that do not answer
                raise TimeoutError
            connection.request(
                "POST", _target(parts), orjson.dumps(notification.payload), self._headers(notification)
            )
            response = connection.getresponse()
            body = response.read(_READ)
            return self._answer(response, body, time.monotonic() - started)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if late.is_set() or isinstance(error, TimeoutError):
                return RouteResult(False, f"no answer within {self.patience:g} s")
            return RouteResult(False, self._hidden(_in_words(error)))
        finally:
            watch.cancel()
            connection.close()

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname or "", parts.port, timeout=self.patience)

    def _headers(self, notification: Notification) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "producer-core",
            "Idempotency-Key": notification.key,
        }
        return {**headers, "Authorization": f"Bearer {self.token}"} if self.token else headers

    def _answer(self, response: http.client.HTTPResponse, body: bytes, seconds: float) -> RouteResult:
        text = self._hidden(f"HTTP {response.status} {response.reason}".strip())
        shown = self._hidden(body.decode(errors="replace").strip())[:200]
        took = f"{text} in {seconds * 1000:,.0f} ms"
        if 200 <= response.status < 300:
            return RouteResult(True, took, body=shown)
        if 300 <= response.status < 400:
            return RouteResult(False, f"{text}: it sends us elsewhere, and we do not follow", body=shown)
        refused = 400 <= response.status < 500 and response.status not in _OVERLOADED
        return RouteResult(False, text, _retry_after(response), refused, shown)

    def _hidden(self, text: str) -> str:
        """Without anything of the address or the token, however it is written."""
        parts = urlsplit(self.url)
        pieces = {self.url, self.token, parts.netloc, parts.hostname or "", parts.query, _target(parts)}
        pieces |= {parts.username or "", parts.password or "", parts.path, parts.fragment}
        pieces |= {piece for piece in parts.path.split("/") if len(piece) > 5}
        pieces |= {pair.partition("=")[2] for pair in parts.query.split("&")}
        pieces |= {form(piece) for piece in list(pieces) for form in (unquote, quote)}
        for piece in sorted((piece for piece in pieces if len(piece) > 2), key=len, reverse=True):
            text = text.replace(piece, "***")
        return " ".join(text.split())


def _plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _cut(wire: Sequence[socket.socket], late: threading.Event) -> None:
    """Ends a wait that would go on for as long as the receiver sends a byte now and then."""
    late.set()
    for opened in wire:
        with contextlib.suppress(OSError):  # it was closed meanwhile
            opened.shutdown(socket.SHUT_RDWR)


def _in_words(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"the certificate is not trusted: {error.verify_message}"
        case ConnectionRefusedError():
            return "nobody listens at the address"
        case socket.gaierror():
            return "the host's name is not known"
        case http.client.RemoteDisconnected() | ConnectionResetError() | BrokenPipeError():
            return "the receiver closed the connection"
        case http.client.HTTPException():
            return f"the answer is not HTTP ({type(error).__name__})"
        case OSError():
            return error.strerror or type(error).__name__
        case _:
            return type(error).__name__


def _retry_after(response: http.client.HTTPResponse) -> float | None:
    given = (response.headers.get("Retry-After") or "").strip()
    if given.isdigit():
        return min(float(given), _RETRY_AFTER_MOST)
    try:
        moment = parsedate_to_datetime(given).timestamp()
    except (TypeError, ValueError):
        return None
    return min(max(moment - time.time(), 0.0), _RETRY_AFTER_MOST)
