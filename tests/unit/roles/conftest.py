"""The tests of roles have a store with a clock that the test moves."""

from __future__ import annotations

from tests.fixtures.clocked_store import clock, store

__all__ = ["clock", "store"]
