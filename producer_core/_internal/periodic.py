"""Run a function periodically while a block runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def run_periodically(work: Callable[[], bool | None], every: float, *, name: str) -> Iterator[None]:
    """Call `work` every `every` seconds on a thread until it returns False or the block ends.

    The first call comes after `every` seconds. The end of the block waits for a call in progress.
    """
    done = threading.Event()

    def loop() -> None:
        while not done.wait(every):
            if work() is False:
                return

    thread = threading.Thread(target=loop, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
