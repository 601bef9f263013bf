"""Call a function that may wait longer than its caller can."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Call(Generic[T]):
    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.results: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.results.append(self._function())
        except BaseException as error:  # noqa: BLE001  raised in the caller
            self.error = error


def call_within(seconds: float, function: Callable[[], T], *, name: str) -> T:
    """Return the result of the function, which runs in a daemon thread with this name. Its exception is raised here.

    Raise TimeoutError after `seconds`; the thread goes on, and its result is discarded.
    """
    call = _Call(function)
    thread = threading.Thread(target=call.run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if call.error is not None:
        raise call.error
    if not call.results:
        raise TimeoutError
    return call.results[0]
