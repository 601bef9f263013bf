"""The store is queried for replays only after it changed."""

from __future__ import annotations

import pytest

from producer_core.errors import StoreError
from producer_core.replay.candidates import Candidates
from producer_core.store import Store
from tests.fixtures.replays import CLUSTER, FakeClock, add_dead_letters, planned


def test_the_store_is_queried_only_after_another_process_wrote_to_it(store, clock, monkeypatch):
    add_dead_letters(store, 1)
    passed, asked = FakeClock(), []
    ask = Store.rows
    monkeypatch.setattr(Store, "rows", lambda *known, **given: asked.append(known[1]) or ask(*known, **given))
    candidates = Candidates(store, by_spark=False, monotonic=passed)

    assert [candidates.of(CLUSTER), candidates.of(CLUSTER)] == [[], []]
    assert asked == ["replay_candidates"]

    elsewhere = Store.open(store.path, clock=clock)  # as another process has it
    operation = planned(elsewhere, clock)
    elsewhere.close()
    assert [held.operation_id for held, _ in candidates.of(CLUSTER)] == [operation.operation_id]

    del asked[:]
    assert candidates.of(CLUSTER) == candidates.of(CLUSTER) != candidates.of("another")
    assert asked == ["replay_candidates"]  # of the other cluster
    passed.forward(20)
    candidates.of("another")
    assert asked == ["replay_candidates"] * 2


def test_the_store_is_queried_again_after_a_failed_read(store, clock):
    candidates = Candidates(store, by_spark=False)
    away = store.path.rename(store.path.with_suffix(".away"))
    store.path.mkdir()
    for _ in range(2):
        with pytest.raises(StoreError):
            candidates.of(CLUSTER)
    store.path.rmdir()
    away.rename(store.path)
    assert candidates.of(CLUSTER) == []
