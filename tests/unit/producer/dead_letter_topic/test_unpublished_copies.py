"""Copies of dead letters that their store may lose before they are published."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.producer.dead_letter_topic import unpublished_copies
from producer_core.producer.dead_letter_topic.unpublished_copies import UnpublishedCopies
from producer_core.store import Store
from tests.fixtures.replays import dead_letter


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")


def copies_of(store, *dead_letters, limit=10, spilled=False):
    copies = UnpublishedCopies(lambda: store, spilled=lambda: spilled, limit=limit)
    copies.add(dead_letters)
    return copies


def stored(store):
    return sorted((one.message_id, one.verdict) for one in DeadLetters(store).find(DeadLetterFilter()))


def test_a_dead_letter_that_the_store_lacks_is_stored_again_without_a_safe_verdict(store):
    """It may have been replayed from the earlier file."""
    kept, missing = dead_letter(1, verdict="rejected"), dead_letter(2, verdict="rejected")
    DeadLetters(store).add([kept])
    copies = copies_of(store, kept, missing)

    assert [one.message_id for one in copies.restore()] == [missing.message_id]
    assert stored(store) == [
        (kept.message_id, "rejected"),
        (missing.message_id, "possibly_persisted"),
    ]
    assert copies.restore() == [] and copies.lost == 0


@pytest.mark.parametrize("bound", ["number", "bytes"])
def test_what_memory_cannot_hold_is_counted_as_lost(store, monkeypatch, caplog, bound):
    monkeypatch.setattr(unpublished_copies, "_BYTES", 100 if bound == "bytes" else 10_000)
    dead = [dead_letter(number, key=None, value=b"x" * 40) for number in range(5)]
    DeadLetters(store).add(dead[4:])
    copies = copies_of(store, *dead, limit=2 if bound == "number" else 10)

    assert len(copies.restore()) == 2
    assert copies.lost == 2, "one of the three without a copy is in the store"
    assert any("dead letters lost: count=2" in text for text in caplog.messages)
    assert copies.restore() == [] and copies.lost == 2


def test_an_archived_dead_letter_is_not_stored_again(store):
    dead = dead_letter(1)
    DeadLetters(store).add([dead])
    copies = copies_of(store, dead)
    DeadLetters(store).archive(DeadLetterFilter(), who="ann", origin="python")
    assert copies.restore() == []
    assert copies.unpublished() == []


def test_a_dead_letter_that_the_spill_file_may_have_is_not_stored_again(store):
    assert copies_of(store, dead_letter(1), spilled=True).restore() == []
    assert stored(store) == []


def test_a_dead_letter_that_died_again_has_one_copy(store):
    dead = dead_letter(1)
    copies = copies_of(store, dead, replace(dead, failed_at=dead.failed_at + 1), limit=1)
    assert [one.failed_at for one in copies.unpublished()] == [dead.failed_at + 1]


def test_at_the_end_only_what_has_no_place_is_lost(store, tmp_path):
    dead = [dead_letter(number) for number in range(3)]
    copies = copies_of(store, *dead)
    copies.published([dead[0].message_id])
    copies.forget([dead[1].message_id])
    store.path.unlink()
    for one in tmp_path.iterdir():
        one.unlink()
    store.path.parent.rename(tmp_path.with_name("away"))
    tmp_path.write_text("no longer a folder")

    copies.close()
    assert copies.lost == 1
    assert copies.unpublished() == []
