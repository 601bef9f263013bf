"""Find out whether a process speaks Spark's own protocol, to which every Spark process responds at once."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time

_STREAM_REQUEST = 6
_TYPES = range(11)
"""Message types of Spark's transport (org.apache.spark.network.protocol.Message)."""
_MAX_FRAME = 1 << 20
_HEADER = struct.Struct(">qb")  # length of the whole frame, then its type
_STREAM = b"/files/producer-core"
_REQUEST = (
    _HEADER.pack(_HEADER.size + 4 + len(_STREAM), _STREAM_REQUEST) + struct.pack(">i", len(_STREAM)) + _STREAM
)
"""Requests a file that does not exist. Spark responds "was not found", before any authentication, and logs nothing."""


def handshake_error(host: str, port: int, timeout: float) -> str | None:
    """Return why the process at this address is not Spark, or None when it answers as Spark does or speaks TLS.

    Spark can be configured to speak TLS. Raises OSError when nothing listens at the address.
    """
    deadline = time.monotonic() + timeout
    with contextlib.closing(socket.create_connection((host, port), timeout=timeout)) as connection:
        try:
            connection.sendall(_REQUEST)
            answer = _read(connection, _HEADER.size, deadline)
        except TimeoutError:
            return f"the process there sent nothing within {timeout:g} s"
        except OSError:
            answer = b""  # it closed the connection
    if len(answer) == _HEADER.size:
        length, kind = _HEADER.unpack(answer)
        if _HEADER.size <= length <= _MAX_FRAME and kind in _TYPES:
            return None
    if _speaks_tls(host, port, max(0.5, deadline - time.monotonic())):
        return None
    return "the process there does not speak Spark's protocol"


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Read `size` bytes, or fewer when the peer closes the connection."""
    found = b""
    while len(found) < size:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        more = connection.recv(size - len(found))
        if not more:
            break
        found += more
    return found


def _speaks_tls(host: str, port: int, timeout: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # sends a ClientHello and no data
    try:
        with (
            socket.create_connection((host, port), timeout=timeout) as connection,
            context.wrap_socket(connection),
        ):
            return True
    except OSError:
        return False
