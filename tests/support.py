"""The path of the checkout, and a wait for a condition with a deadline."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[1]

T = TypeVar("T")


def eventually(check: Callable[[], T], timeout: float = 60.0, every: float = 0.02) -> T:
    """Return the first true result of `check`. Fail with the last result after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (answer := check()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s; last answer: {answer!r}")
        time.sleep(every)
    return answer


def copied_store(path: Path, folder: Path) -> Path:
    """Copy a store with its generation, so that the copy does not count as restored, and return the path of the copy."""
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copy(file, folder)
    return folder / path.name
