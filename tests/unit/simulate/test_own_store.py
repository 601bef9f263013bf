"""The demo's own store."""

from __future__ import annotations

import contextlib

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.simulate.own_store import own_store
from producer_core.store import Store
from tests.fixtures.replays import dead_letter


@pytest.mark.slow
def test_a_second_demo_run_shows_no_dead_letters_of_the_first_broker(tmp_path):
    """It used to show 1,272 dead letters that could not be replayed, and an alert 49 minutes old."""
    path = tmp_path / "state" / "demo.duckdb"
    with own_store(path) as earlier:
        assert earlier is None
        DeadLetters(Store.open(path)).add([dead_letter(1), dead_letter(2)])
        path.with_name("demo.duckdb.spill").write_bytes(b"of the first run")

    with own_store(path) as earlier:
        assert DeadLetters(Store.open(path)).count(DeadLetterFilter()) == 0
        assert DeadLetters(Store.open(earlier, create=False)).count(DeadLetterFilter()) == 2
        assert not path.with_name("demo.duckdb.spill").exists()
        DeadLetters(Store.open(path)).add([dead_letter(3)])

        joined = contextlib.ExitStack()
        assert joined.enter_context(own_store(path)) is None
    with joined, own_store(path) as third:  # the second run still uses it
        assert third is None
        assert DeadLetters(Store.open(path)).count(DeadLetterFilter()) == 1

    with own_store(path) as earlier:
        assert DeadLetters(Store.open(earlier, create=False)).count(DeadLetterFilter()) == 1
