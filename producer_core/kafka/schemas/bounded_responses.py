"""Limit the size and the duration of a registry's responses."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

MAX_BYTES = 4 << 20
"""Bytes of the longest response that is read."""
MAX_SECONDS = 10.0
"""Seconds until the body of a response must be complete. The client's own time-out starts again with each part."""


def bound_responses(client: Any, *, max_bytes: int = MAX_BYTES, max_seconds: float = MAX_SECONDS) -> None:
    """Let the requests of a registry's client fail for a response that is longer, slower or compressed."""
    session = getattr(getattr(client, "_rest_client", None), "session", None)
    if session is None:  # a client without a network, for tests
        return
    httpx: Any = sys.modules[type(session).__module__.partition(".")[0]]  # httpx or httpx2
    stream_type: Any = httpx.SyncByteStream
    session.headers["Accept-Encoding"] = "identity"

    class Bounded(stream_type):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            ends, left = time.monotonic() + max_seconds, max_bytes
            for part in self._stream:
                left -= len(part)
                if left < 0:
                    raise httpx.ReadError(f"the response is longer than {max_bytes >> 20} MiB")
                if time.monotonic() > ends:
                    raise httpx.ReadTimeout(f"the response is not complete after {max_seconds:.0f} s")
                yield part

        def close(self) -> None:
            self._stream.close()

    def on_response(response: Any) -> None:
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise httpx.RemoteProtocolError(
                "the response is compressed"
            )  # its size is not known before it is read
        response.stream = Bounded(response.stream)

    session.event_hooks = {"response": [on_response]}
