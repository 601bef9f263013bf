"""The interpreter's end: what comes last, after every producer has closed."""

from __future__ import annotations

import atexit
from collections.abc import Callable

_steps: list[Callable[[], None]] = []


def run_last(step: Callable[[], None]) -> None:
    """Run this when the interpreter ends, after all that modules which import this one do then."""
    _steps.append(step)


# What is registered later runs earlier, and whoever imports this registers later.
@atexit.register
def _end() -> None:
    for step in _steps:
        step()
