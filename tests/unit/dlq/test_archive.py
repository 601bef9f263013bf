"""Archive, restore and purge with concurrent operators: the first change counts, and an undo is exact."""

from __future__ import annotations

import dataclasses

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import ConfigError
from producer_core.store import Store
from tests.factories import replay_runner
from tests.fixtures.replays import (
    CLUSTER,
    FakeClock,
    ScriptedSender,
    add_dead_letters,
    dead_letter,
    message_id,
    probe_with,
)
from tests.support import eventually

ALL, ANY = DeadLetterFilter(), DeadLetterFilter(state=None)
ANN, BOB = {"who": "ann", "origin": "cli"}, {"who": "bob", "origin": "dashboard"}


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    return Store.open(tmp_path / "store.duckdb", clock=clock)


@pytest.fixture
def dead_letters(store, clock):
    return DeadLetters(store, clock=clock)


def plan(store, clock, where=ALL):
    return replay.plan(store, where, who="ann", origin="cli", can_run=CLUSTER, clock=clock)


def runner(store, sender, clock):
    return replay_runner(store, sender, probe=probe_with({}), clock=clock, interval=0.01, poll_interval=0.01)


def all_rows(store):
    """Return all rows of the dead letters without the time of their state."""
    with store.borrow() as connection:
        rows = connection.execute(
            "SELECT * EXCLUDE (state_at) FROM dead_letters ORDER BY message_id"
        ).fetchall()
        return rows, connection.execute("SELECT * FROM dead_letter_bodies ORDER BY message_id").fetchall()


# undo


def test_restore_undoes_an_archive_call_exactly(store, dead_letters):
    dead_letters.add(
        [dead_letter(number, quarantined=number % 2 == 0, replay_count=number) for number in range(20)]
    )
    dead_letters.archive(DeadLetterFilter(ids=(message_id(3),)), **ANN)
    before = all_rows(store)

    act = dead_letters.archive(ALL, **ANN)
    undone = dead_letters.restore(ANY, moment=act.moment, **BOB)

    assert (act.count, undone.count, undone.left) == (19, 19, {})
    assert all_rows(store) == before
    assert dead_letters.get(message_id(3)).state == "archived"


def test_an_undo_skips_and_counts_dead_letters_changed_since(dead_letters, clock):
    dead_letters.add([dead_letter(number) for number in range(4)])
    act = dead_letters.archive(ALL, **ANN)
    dead_letters.restore(DeadLetterFilter(ids=(message_id(0),)), **BOB)
    clock.forward(1)
    dead_letters.archive(ALL, **BOB)

    undone = dead_letters.restore(ANY, moment=act.moment, **ANN)

    assert (undone.count, undone.left) == (3, {"changed": 1})
    assert undone.text == "Restored 3 dead letters. 1 has changed since it was archived and was not restored."
    assert dead_letters.get(message_id(0)).state == "archived"


# concurrent changes


@pytest.mark.slow
def test_dead_letters_in_a_replay_are_counted_but_not_archived(store, dead_letters, clock):
    add_dead_letters(store, 3)
    sender = ScriptedSender(hold=True)
    plan(store, clock, DeadLetterFilter(ids=(message_id(0), message_id(1))))
    running = runner(store, sender, clock)
    running.start()
    eventually(lambda: len(sender.sent) == 2, timeout=60)

    result = dead_letters.archive(ALL, **BOB)
    purged = dead_letters.archive(DeadLetterFilter(ids=(message_id(0),)), **BOB)

    assert (result.count, result.left) == (1, {"replaying": 2})
    assert result.text == "Archived 1 dead letter. 2 are being replayed by ann and were not changed."
    assert purged.text == "Archived 0 dead letters. 1 is being replayed by ann and was not changed."
    sender.release()
    eventually(lambda: dead_letters.count(DeadLetterFilter(state="replayed")) == 2, timeout=60)
    running.stop()


@pytest.mark.slow
def test_a_replay_skips_archived_dead_letters_and_both_operators_see_it(store, dead_letters, clock):
    add_dead_letters(store, 5)
    operation = plan(store, clock)

    result = dead_letters.archive(DeadLetterFilter(ids=(message_id(1), message_id(2))), **BOB)
    done = runner(store, ScriptedSender(), clock).run_one(operation.operation_id, 60)

    assert result.text == (
        f"Archived 2 dead letters. Replay {operation.operation_id} by ann skips 2 archived dead letters."
    )
    assert (done.acknowledged, done.skipped) == (3, 2)
    assert "archived" in done.message
    assert dead_letters.count_by(ANY, "state") == {"replayed": 3, "archived": 2}


def test_the_result_counts_dead_letters_that_another_operator_changed_first(dead_letters):
    dead_letters.add([dead_letter(number) for number in range(3)])
    selected = DeadLetterFilter(ids=tuple(map(message_id, range(3))))
    dead_letters.archive(DeadLetterFilter(ids=(message_id(0), message_id(1))), **ANN)

    second = dead_letters.archive(selected, **BOB)
    third = dead_letters.restore(dataclasses.replace(selected, state="archived"), **ANN)
    fourth = dead_letters.restore(dataclasses.replace(selected, state="archived"), **BOB)

    assert second.text == "Archived 1 dead letter. 2 are already archived."
    assert third.text == "Restored 3 dead letters."
    assert fourth.text == "Restored 0 dead letters. 3 are already pending."


def test_a_selection_without_ids_does_not_count_unchanged_dead_letters(dead_letters):
    dead_letters.add([dead_letter(number) for number in range(3)])
    dead_letters.archive(DeadLetterFilter(ids=(message_id(0),)), **ANN)

    assert dead_letters.archive(ALL, **BOB).text == "Archived 2 dead letters."


def test_an_undo_does_not_restore_a_message_that_failed_again(dead_letters, clock):
    dead_letters.add([dead_letter(1)])
    act = dead_letters.archive(ALL, **ANN)
    clock.forward(10)
    dead_letters.add([dead_letter(1, failed_at=9000.0)])

    assert dead_letters.restore(ANY, moment=act.moment, **ANN).left == {"changed": 1}
    assert dead_letters.get(message_id(1)).failed_at == 9000.0


# purge


@pytest.mark.slow
def test_a_purge_removes_all_content_from_all_tables(store, dead_letters, clock):
    dead_letters.add(
        [
            dead_letter(
                1,
                key=b"SEKRET",
                value=b"SEKRET",
                headers=(("SEKRET", b"SEKRET"),),
                error_text="SEKRET",
                source="SEKRET",
            )
        ]
    )
    operation = plan(store, clock)
    runner(store, ScriptedSender(refuse=[message_id(1)]), clock).run_one(operation.operation_id, 60)
    dead_letters.archive(ALL, **ANN)
    clock.forward(86401)

    dead_letters.purge(ANY, confirmation="purge 1", **ANN)

    with store.borrow() as connection:
        tables = [
            name
            for (name,) in connection.execute(
                "SELECT DISTINCT table_name FROM duckdb_tables() WHERE NOT internal"
            ).fetchall()
        ]
        for table in {*tables} - {"operations", "audit"}:
            rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()
            assert "SEKRET" not in repr(rows), table
        assert connection.execute("SELECT text FROM operation_records").fetchall() == [(None,)]


@pytest.mark.parametrize("age", [0.0, 86399.0])
def test_a_purge_skips_recently_archived_dead_letters(dead_letters, clock, age):
    dead_letters.add([dead_letter(1)])
    dead_letters.archive(ALL, **ANN)
    clock.forward(age)

    assert dead_letters.purge_phrase(ANY) == "purge 0"
    with pytest.raises(ConfigError, match="Type exactly: purge 0"):
        dead_letters.purge(ANY, confirmation="purge 1", **ANN)
    assert dead_letters.purge(ANY, confirmation="purge 0", **ANN).text == (
        "Nothing was purged: no matching dead letter was archived more than 24 h ago."
    )
    assert dead_letters.get(message_id(1)).value == b"v1"


def test_a_purge_deletes_only_matching_dead_letters(dead_letters, clock):
    dead_letters.add([dead_letter(1, topic="a"), dead_letter(2, topic="b")])
    dead_letters.archive(ALL, **ANN)
    clock.forward(86401)

    dead_letters.purge(DeadLetterFilter(topic="a", state="archived"), confirmation="purge 1", **ANN)

    assert dead_letters.get(message_id(2)) == dead_letter(2, topic="b", state="archived")
    assert dead_letters.restore(ANY, **ANN).count == 1


def test_a_restore_reports_purged_dead_letters(dead_letters, clock):
    dead_letters.add([dead_letter(1, topic="a"), dead_letter(2, topic="a")])
    act = dead_letters.archive(ALL, **ANN)
    clock.forward(86401)
    dead_letters.purge(ANY, confirmation="purge 2", **ANN)

    restored = dead_letters.restore(DeadLetterFilter(topic="a", state="archived"), **ANN)
    undone = dead_letters.restore(ANY, moment=act.moment, **ANN)
    chosen = dead_letters.restore(DeadLetterFilter(ids=(message_id(1),)), **ANN)

    assert restored.text == (
        "Restored 0 dead letters. 2 matching dead letters were purged and cannot be restored."
    )
    assert undone.text.endswith(" 2 matching dead letters were purged and cannot be restored.")
    assert chosen.text == "Restored 0 dead letters. 1 is already purged."
