"""The messages of one transaction in the native core: passed to the client in groups, their reports as columns."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

from producer_core.native.library import CORE_PATH, CoreUnavailable, core_library

PLUGINS = "plugin.library.paths"
"""The setting of librdkafka that names the core to a client."""


class Produced(NamedTuple):
    """The number of messages passed to the client, and the error code of the one at which it stopped; 0 if none."""

    passed: int
    code: int


class TransactionCore:
    """The native core of one client. Used by one thread, except that librdkafka's threads write the reports.

    `create` creates a client with the given settings. The core keeps the client alive as long as it may be used.
    """

    def __init__(self, create: Callable[[dict[str, Any]], Any], settings: dict[str, Any]) -> None:
        self._library = core_library()
        if settings.get(PLUGINS):
            raise CoreUnavailable(f"The setting {PLUGINS} loads another plugin.")
        self._handle = self._library.core_new()
        if not self._handle:
            raise MemoryError
        attach = self._library.core_attach
        attach(self._handle, 1)
        try:
            self.client = create({**settings, PLUGINS: str(CORE_PATH)})
        finally:
            attached = attach(self._handle, 0)
        if not attached:
            raise CoreUnavailable("The client did not load it.")

    def begin(self) -> None:
        """Expect the messages of a new transaction."""
        if self._library.core_begin(self._handle):
            raise AssertionError("reports of the previous transaction are missing")

    def produce(self, deliveries: list[Any], start: int) -> Produced:
        """Pass the deliveries from `start` on to the client, up to the first that it does not take."""
        code = ctypes.c_int()
        count = self._library.core_produce(self._handle, deliveries, start, code)
        return Produced(count, code.value)

    def missing(self) -> tuple[int, int]:
        """Return the number of messages without a report, and the code of the first report that is not a success."""
        code = ctypes.c_int()
        return self._library.core_missing(self._handle, code), code.value

    def columns(self, count: int) -> tuple[list[int], list[int]]:
        """Return the offsets, and the timestamps in milliseconds, of the first `count` messages."""
        offsets, timestamps = array("q", bytes(8 * count)), array("q", bytes(8 * count))
        addresses = offsets.buffer_info()[0], timestamps.buffer_info()[0]
        if self._library.core_columns(self._handle, *addresses, count) != count:
            raise AssertionError("the core has fewer messages")
        return offsets.tolist(), timestamps.tolist()

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle:
            self._handle = None
            self._library.core_free(handle)
