"""A greeting in Spark's own protocol: only a Spark process answers it, and at once."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time

_STREAM_REQUEST = 6
_TYPES = range(11)
"""Of the messages of Spark's transport (org.apache.spark.network.protocol.Message)."""
_LONGEST = 1 << 20
_HEAD = struct.Struct(">qb")  # length of the whole frame, then its type
_STREAM = b"/files/producer-core"
_GREETING = (
    _HEAD.pack(_HEAD.size + 4 + len(_STREAM), _STREAM_REQUEST) + struct.pack(">i", len(_STREAM)) + _STREAM
)
"""Asks for a file that nobody offers: answered with «not found», before any authentication, and logged nowhere."""


def handshake_error(host: str, port: int, timeout: float) -> str | None:
    """Why what listens there is no Spark; None when it answers as Spark does, or speaks TLS (as Spark may be told to).

    OSError where nobody listens.
    """
    deadline = time.monotonic() + timeout
    with contextlib.closing(socket.create_connection((host, port), timeout=timeout)) as line:
        try:
            line.sendall(_GREETING)
            answer = _read(line, _HEAD.size, deadline)
        except TimeoutError:
            return f"what listens there said nothing within {timeout:g} s"
        except OSError:
            answer = b""  # closed on us
    if len(answer) == _HEAD.size:
        length, kind = _HEAD.unpack(answer)
        if _HEAD.size <= length <= _LONGEST and kind in _TYPES:
            return None
    if _in_tls(host, port, max(0.5, deadline - time.monotonic())):
        return None
    return "what listens there answers as no Spark does"


def _read(line: socket.socket, size: int, deadline: float) -> bytes:
    """So many bytes, or fewer where the other side ends."""
    found = b""
    while len(found) < size:
        line.settimeout(max(0.01, deadline - time.monotonic()))
        more = line.recv(size - len(found))
        if not more:
            break
        found += more
    return found


def _in_tls(host: str, port: int, timeout: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is told to it but hello
    try:
        with socket.create_connection((host, port), timeout=timeout) as line, context.wrap_socket(line):
            return True
    except OSError:
        return False
