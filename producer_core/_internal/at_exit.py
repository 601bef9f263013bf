"""Run steps at interpreter exit after all producers have closed."""

from __future__ import annotations

import atexit
from collections.abc import Callable

_steps: list[Callable[[], None]] = []


def run_last(step: Callable[[], None]) -> None:
    """Run `step` at interpreter exit, after the exit handlers of all modules that import this one."""
    _steps.append(step)


# Handlers run in reverse order of registration, and modules that import this one register later.
@atexit.register
def _end() -> None:
    for step in _steps:
        step()
