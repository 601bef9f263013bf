"""Run steps at interpreter exit: after all producers have closed, or before threads are joined."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable

_steps: list[Callable[[], None]] = []


def run_last(step: Callable[[], None]) -> None:
    """Run `step` at interpreter exit, after the exit handlers of all modules that import this one."""
    _steps.append(step)


def run_before_threads_are_joined(step: Callable[[], None]) -> None:
    """Run `step` at interpreter exit before `concurrent.futures` joins its threads, which may wait for it."""
    import concurrent.futures.thread  # noqa: F401  registers its own step before this one: the last one runs first

    threading._register_atexit(step)  # type: ignore[attr-defined]  # as concurrent.futures does


# Handlers run in reverse order of registration, and modules that import this one register later.
@atexit.register
def _end() -> None:
    for step in _steps:
        step()
