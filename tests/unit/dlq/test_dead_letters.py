"""Dead letters in a store: kept whole, archived, restored, purged, and audited."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetterFilter
from producer_core.errors import ConfigError
from tests.fixtures.dead_letters import EVERYTHING, SOME, WHOLE, dead_letter, state_of


@pytest.mark.parametrize(
    "added",
    [
        WHOLE,
        dead_letter(value=None),
        dead_letter(value=b""),
        dead_letter(key=None),
        dead_letter(key=b""),
        dead_letter(attempts=()),
    ],
    ids=["everything", "tombstone", "empty value", "no key", "empty key", "no attempts"],
)
def test_a_stored_dead_letter_is_read_unchanged(dead_letters, added):
    dead_letters.add([added])

    assert dead_letters.get(added.message_id) == added


def test_bodies_are_returned_oldest_message_first(dead_letters):
    dead_letters.add([dead_letter(2), dead_letter(1), dead_letter(3)])

    assert [one.message_id for one in dead_letters.bodies(["m-3", "m-1", "unknown"])] == ["m-1", "m-3"]
    assert dead_letters.ids(DeadLetterFilter()) == ["m-1", "m-2", "m-3"]
    assert dead_letters.get("unknown") is None


def test_adding_no_dead_letters_does_nothing(dead_letters):
    dead_letters.add([])

    assert dead_letters.count(EVERYTHING) == 0


def test_dead_letters_are_counted_by_a_column(dead_letters):
    dead_letters.add(SOME)

    assert dead_letters.count_by(DeadLetterFilter(), "topic") == {"orders": 2, "refunds": 2}
    assert dead_letters.count_by(DeadLetterFilter(topic="orders"), "verdict") == {
        "not_sent": 1,
        "rejected": 1,
    }
    with pytest.raises(ConfigError, match="cannot be counted by 'key'"):
        dead_letters.count_by(DeadLetterFilter(), "key")


@pytest.mark.slow
def test_undo_restores_exactly_the_dead_letters_of_one_archive_call(dead_letters):
    dead_letters.add(SOME)
    first = dead_letters.archive(DeadLetterFilter(topic="orders"), who="ada", origin="dashboard")
    second = dead_letters.archive(DeadLetterFilter(), who="ada", origin="dashboard")

    undone = dead_letters.restore(DeadLetterFilter(), who="ada", origin="dashboard", moment=second.moment)

    assert (first.text, second.count, undone.text) == (
        "Archived 2 dead letters.",
        2,
        "Restored 2 dead letters.",
    )
    assert {one.message_id for one in dead_letters.find(DeadLetterFilter())} == {"m-3", "m-4"}
    assert dead_letters.restore(DeadLetterFilter(topic="orders"), who="ada", origin="cli").count == 2
    assert dead_letters.bodies(["m-1", "m-2", "m-3", "m-4"]) == SOME


@pytest.mark.parametrize("state", ["archived", "replayed", "replaying", None])
def test_archive_changes_only_dead_letters_in_the_state_dead(dead_letters, state):
    dead_letters.add(SOME)
    dead_letters.claim("op", ["m-1", "m-2"])
    dead_letters.settle_replayed("m-2", 0, 1)

    dead_letters.archive(DeadLetterFilter(state=state), who="ada", origin="cli")

    assert (state_of(dead_letters, "m-1"), state_of(dead_letters, "m-2")) == ("replaying", "replayed")


def test_a_dead_letter_added_after_the_archive_call_is_not_archived(dead_letters):
    dead_letters.add([dead_letter(1)])
    dead_letters.archive(DeadLetterFilter(), who="ada", origin="cli")
    dead_letters.add([dead_letter(2)])

    assert [one.message_id for one in dead_letters.find(DeadLetterFilter())] == ["m-2"]


def purge(dead_letters, phrase, where=EVERYTHING, **more):
    return dead_letters.purge(where, who="ada", origin="cli", confirmation=phrase, **more)


def test_a_purge_needs_the_count_typed_and_an_age_of_one_day(dead_letters, now):
    dead_letters.add(SOME)
    dead_letters.archive(DeadLetterFilter(topic="orders"), who="ada", origin="cli")

    assert dead_letters.purge_phrase(EVERYTHING) == "purge 0"
    now[0] += 86401
    for wrong in ("", "yes", "purge", "purge 4"):
        with pytest.raises(ConfigError, match="Type exactly: purge 2"):
            purge(dead_letters, wrong)
    assert dead_letters.count_by(EVERYTHING, "state") == {"archived": 2, "dead": 2}

    result = purge(dead_letters, "purge 2")

    assert result.text.startswith("Purged 2 dead letters permanently.")
    assert dead_letters.count_by(EVERYTHING, "state") == {"dead": 2, "purged": 2}
    purged = dead_letters.get("m-1")
    assert (purged.key, purged.value, purged.error_text, purged.attempts) == (None, None, "", ())
    assert dead_letters.get("m-3") == SOME[2]


def test_pending_dead_letters_are_never_purged(dead_letters, now):
    dead_letters.add(SOME)
    now[0] += 1e6

    assert purge(dead_letters, "purge 0").count == 0
    assert dead_letters.bodies(["m-1", "m-2", "m-3", "m-4"]) == SOME


def test_each_change_is_audited_once(dead_letters, now):
    dead_letters.add(SOME)
    dead_letters.archive(DeadLetterFilter(topic="orders"), who="ada", origin="dashboard")
    dead_letters.restore(DeadLetterFilter(topic="orders"), who="bob", origin="cli")
    dead_letters.archive(DeadLetterFilter(), who="ada", origin="cli")
    now[0] += 1
    purge(dead_letters, dead_letters.purge_phrase(EVERYTHING, min_age=0), min_age=0)

    rows = dead_letters._store.rows("audit_latest")
    assert sorted((row["who"], row["origin"], row["action"], row["count"]) for row in rows) == [
        ("ada", "cli", "archive", 4),
        ("ada", "cli", "purge", 4),
        ("ada", "dashboard", "archive", 2),
        ("bob", "cli", "restore", 2),
    ]


def test_several_changes_can_be_one_transaction(dead_letters):
    dead_letters.add(SOME)

    with pytest.raises(ZeroDivisionError):
        with dead_letters._store.borrow(write=True):
            dead_letters.claim("op", ["m-1"])
            dead_letters.archive(DeadLetterFilter(), who="ada", origin="cli")
            raise ZeroDivisionError

    assert dead_letters.count(DeadLetterFilter()) == 4
