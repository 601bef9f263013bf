"""The store of a run on the embedded broker."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.simulate.live_run import LiveRun
from producer_core.store import Store
from tests.fixtures.replays import dead_letter


@pytest.mark.slow
def test_only_a_demo_on_the_embedded_broker_starts_with_a_new_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for given in ({}, {"bootstrap_servers": "127.0.0.1:1"}, {"store": tmp_path / "mine.duckdb"}):
        run = LiveRun(**given)
        DeadLetters(Store.open(run.store)).add([dead_letter(1)])
        with run:
            run.open_store()
            left = DeadLetters(Store.open(run.store)).count(DeadLetterFilter())
        assert left == (1 if given else 0)
