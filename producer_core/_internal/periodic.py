"""What is done again and again beside a block, by a thread of its own that ends with the block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def run_periodically(work: Callable[[], bool | None], every: float, *, name: str) -> Iterator[None]:
    """`work` each `every` seconds, the first time after as many, until it returns False; the block's end waits for one that
    is under way."""
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
