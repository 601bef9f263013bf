"""Dead letters in a store: unchanged content, filters, and only allowed state changes."""

from __future__ import annotations

import itertools
import threading

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters, Group, states
from producer_core.dlq.files.selection import freeze
from producer_core.dlq.topics import publisher
from producer_core.errors import ConfigError
from producer_core.events import Attempt, DeadLetter
from producer_core.store import Store

NOW = 1_800_000_000.0
EVERYTHING = DeadLetterFilter(state=None)


def dead_letter(number=1, **fields):
    defaults = {
        "message_id": f"m-{number}",
        "cluster_id": "c",
        "producer_id": "p",
        "topic": "orders",
        "key": b"key",
        "value": b'{"n":1}',
        "headers": (),
        "partition": None,
        "timestamp_ms": None,
        "verdict": "rejected",
        "verdict_reason": "one transmission",
        "kind": "permanent",
        "code": "MSG_SIZE_TOO_LARGE",
        "error_text": "Broker: Message size too large",
        "fingerprint": "f1",
        "attempts": (Attempt(NOW + number, "MSG_SIZE_TOO_LARGE", "too large"),),
        "accepted_at": NOW + number - 1,
        "failed_at": NOW + number,
        "host": "h",
        "version": "0.1",
    }
    return DeadLetter(**{**defaults, **fields})


@pytest.fixture
def now():
    return [NOW + 100]


@pytest.fixture
def dead_letters(tmp_path, now):
    return DeadLetters(Store.open(tmp_path / "store.duckdb"), clock=lambda: now[0])


def state_of(dead_letters, message_id):
    return dead_letters.get(message_id).state


WHOLE = dead_letter(
    1,
    key=b"\x00\xff",
    value=bytes(range(256)) * 40,
    headers=(("a", b"1"), ("a", None), ("b", b""), ("a", b"\xff\x00")),
    partition=3,
    timestamp_ms=1_700_000_000_123,
    attempts=(Attempt(1.25, "X", "first"), Attempt(2.5, "Y", "second")),
    replayable=False,
    source="line 17 of flights.csv",
    quarantined=True,
    replay_count=4,
)


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


def test_a_listing_has_the_latest_failure_first_and_no_bodies(dead_letters):
    dead_letters.add([dead_letter(1), dead_letter(3, headers=(("a", b"1"),)), dead_letter(2)])

    found = dead_letters.find(DeadLetterFilter())

    assert [one.message_id for one in found] == ["m-3", "m-2", "m-1"]
    assert {(one.value, one.headers, one.attempts) for one in found} == {(None, (), ())}
    assert [one.message_id for one in dead_letters.find(DeadLetterFilter(), limit=1, offset=1)] == ["m-2"]
    table = dead_letters.table(DeadLetterFilter(), limit=2)
    assert table["value_size"].to_pylist() == [7, 7] and table["attempts"].to_pylist() == [1, 1]


def test_messages_accepted_at_the_same_time_keep_their_order(tmp_path, monkeypatch):
    """Ids end with a number. In text order 10 precedes 9, so an old value of a key would be replayed last."""
    store = Store.open(tmp_path / "store.duckdb")
    dead_letters = DeadLetters(store, clock=lambda: NOW + 100)
    dead_letters.add([dead_letter(number, accepted_at=NOW, failed_at=NOW + 1) for number in (11, 9, 10, 8)])
    monkeypatch.setattr(publisher, "_LISTING_ROWS", 3)
    in_order = ["m-8", "m-9", "m-10", "m-11"]

    assert dead_letters.ids(EVERYTHING) == in_order
    assert [one.message_id for one in dead_letters.bodies(in_order[::-1])] == in_order
    with freeze(store, EVERYTHING, tmp_path) as exported:
        assert [one.message_id for slice_ in exported.slices() for one in slice_] == in_order
    published = publisher._slices(store, EVERYTHING, NOW)
    assert [one.message_id for slice_ in published for one in slice_] == in_order


def test_bodies_are_returned_oldest_message_first(dead_letters):
    dead_letters.add([dead_letter(2), dead_letter(1), dead_letter(3)])

    assert [one.message_id for one in dead_letters.bodies(["m-3", "m-1", "unknown"])] == ["m-1", "m-3"]
    assert dead_letters.ids(DeadLetterFilter()) == ["m-1", "m-2", "m-3"]
    assert dead_letters.get("unknown") is None


def test_a_message_that_fails_again_stays_one_dead_letter_with_all_attempts(dead_letters, now):
    dead_letters.add([dead_letter(1, replay_count=2)])
    dead_letters.archive(DeadLetterFilter(), who="ada", origin="cli")

    again = Attempt(NOW + 50, "_MSG_TIMED_OUT", "timed out")
    dead_letters.add(
        [dead_letter(1, failed_at=NOW + 50, code="_MSG_TIMED_OUT", attempts=(again,), accepted_at=NOW + 49)]
    )

    one = dead_letters.get("m-1")
    assert (one.state, one.code, one.replay_count, one.failed_at) == ("dead", "_MSG_TIMED_OUT", 2, NOW + 50)
    assert one.accepted_at == NOW
    assert [attempt.code for attempt in one.attempts] == ["MSG_SIZE_TOO_LARGE", "_MSG_TIMED_OUT"]
    assert dead_letters.count(EVERYTHING) == 1


def test_adding_the_same_dead_letter_twice_changes_nothing(dead_letters):
    dead_letters.add([dead_letter(1), dead_letter(1)])
    dead_letters.archive(DeadLetterFilter(), who="ada", origin="cli")

    dead_letters.add([dead_letter(1)])

    assert state_of(dead_letters, "m-1") == "archived"
    assert dead_letters.count(EVERYTHING) == 1


def test_two_failures_of_a_message_in_one_batch_are_merged(dead_letters):
    later = dead_letter(1, failed_at=NOW + 9, attempts=(Attempt(NOW + 9, "Y", "again"),))
    dead_letters.add([dead_letter(1), later])

    assert len(dead_letters.get("m-1").attempts) == 2


def test_a_text_that_is_invalid_in_utf8_does_not_prevent_storing(dead_letters):
    dead_letters.add([dead_letter(1, error_text="bad \udcff", attempts=(Attempt(1.0, "X", "\ud800"),))])

    assert dead_letters.get("m-1").error_text == "bad ?"


def test_adding_no_dead_letters_does_nothing(dead_letters):
    dead_letters.add([])

    assert dead_letters.count(EVERYTHING) == 0


SOME = [
    dead_letter(
        1,
        topic="orders",
        code="A",
        verdict="not_sent",
        fingerprint="fa",
        key=b"k1",
        error_text="Broker 17 down",
    ),
    dead_letter(
        2, topic="orders", code="B", verdict="rejected", fingerprint="fb", key=b"k2", producer_id="q"
    ),
    dead_letter(3, topic="refunds", code="A", verdict="possibly_persisted", fingerprint="fa", cluster_id="d"),
    dead_letter(
        4, topic="refunds", code="B", verdict="rejected", fingerprint="fb", error_text="100% wrong_topic"
    ),
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    dead_letters = DeadLetters(Store.open(tmp_path_factory.mktemp("some") / "store.duckdb"))
    dead_letters.add(SOME)
    return dead_letters


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (DeadLetterFilter(), "1234"),
        (DeadLetterFilter(topic="orders"), "12"),
        (DeadLetterFilter(group="fa"), "13"),
        (DeadLetterFilter(code="B", topic="refunds"), "4"),
        (DeadLetterFilter(verdict="rejected"), "24"),
        (DeadLetterFilter(state="archived"), ""),
        (DeadLetterFilter(since=NOW + 2, until=NOW + 4), "23"),
        (DeadLetterFilter(key="k1"), "1"),
        (DeadLetterFilter(message_id="m-3"), "3"),
        (DeadLetterFilter(text="BROKER 17"), "1"),
        (DeadLetterFilter(text="100%"), "4"),
        (DeadLetterFilter(text="wrong_"), "4"),
        (DeadLetterFilter(cluster_id="d"), "3"),
        (DeadLetterFilter(producer_id="q"), "2"),
        (DeadLetterFilter(ids=("m-1", "m-4", "x")), "14"),
        (DeadLetterFilter(topic="'; DROP TABLE dead_letters; --"), ""),
    ],
)
def test_a_filter_selects_the_same_in_the_store_and_in_memory(stored, where, expected):
    found = "".join(sorted(one.message_id[-1] for one in stored.find(where)))

    assert found == expected
    assert found == "".join(one.message_id[-1] for one in SOME if where.matches(one))
    assert stored.count(where) == len(expected)


def test_dead_letters_are_counted_by_a_column(dead_letters):
    dead_letters.add(SOME)

    assert dead_letters.count_by(DeadLetterFilter(), "topic") == {"orders": 2, "refunds": 2}
    assert dead_letters.count_by(DeadLetterFilter(topic="orders"), "verdict") == {
        "not_sent": 1,
        "rejected": 1,
    }
    with pytest.raises(ConfigError, match="cannot be counted by 'key'"):
        dead_letters.count_by(DeadLetterFilter(), "key")


def test_groups_are_sorted_by_size_and_have_a_sample_and_advice(dead_letters):
    dead_letters.add([*SOME, dead_letter(5, fingerprint="fa", code="MSG_SIZE_TOO_LARGE", topic="orders")])

    first, second = dead_letters.groups(DeadLetterFilter())

    assert isinstance(first, Group)
    assert (first.fingerprint, first.count, first.topics) == ("fa", 3, ("orders", "refunds"))
    assert (first.first_seen, first.last_seen) == (NOW + 1, NOW + 5)
    assert first.verdicts == {"not_sent": 1, "possibly_persisted": 1, "rejected": 1}
    assert first.sample_text == "Broker: Message size too large"
    assert first.advice and first.meaning
    assert (second.fingerprint, second.advice) == ("fb", "")


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


def test_a_claim_gets_only_dead_and_replayable_dead_letters(dead_letters):
    dead_letters.add([dead_letter(1), dead_letter(2), dead_letter(3, replayable=False)])

    assert dead_letters.claim("op-1", ["m-2", "m-1", "m-3", "unknown"]) == ["m-2", "m-1"]
    assert dead_letters.claim("op-2", ["m-1", "m-2"]) == []
    assert dead_letters.claim("op-2", []) == []


def test_concurrent_claims_never_get_the_same_dead_letter(tmp_path):
    path = tmp_path / "store.duckdb"
    ids = [f"m-{number}" for number in range(40)]
    DeadLetters(Store.open(path)).add([dead_letter(number) for number in range(40)])
    claimed, start = [], threading.Barrier(4)

    def run(name):
        dead_letters = DeadLetters(Store.open(path))
        start.wait()
        for first in range(0, 40, 5):
            claimed.extend(dead_letters.claim(name, ids[first : first + 5]))

    threads = [threading.Thread(target=run, args=(str(number),)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(claimed) == sorted(ids)


def test_a_replay_settles_a_dead_letter_once(dead_letters):
    dead_letters.add([dead_letter(1), dead_letter(2)])
    dead_letters.claim("op", ["m-1", "m-2"])

    assert dead_letters.settle_replayed("m-1", 2, 77)
    assert not dead_letters.settle_replayed("m-1", 2, 78)
    assert dead_letters.settle_landed("m-2", 0, 5)
    row = dead_letters.table(DeadLetterFilter(state="replayed")).to_pylist()[0]
    assert (row["landed_partition"], row["landed_offset"], row["operation_id"]) == (2, 77, "op")


def test_a_failed_replay_returns_the_dead_letter_to_dead_and_counts_it(dead_letters):
    dead_letters.add([dead_letter(1)])
    dead_letters.claim("op", ["m-1"])
    again = dead_letter(1, failed_at=NOW + 60, code="X", attempts=(Attempt(NOW + 60, "X", "again"),))

    assert dead_letters.settle_failed(again)

    one = dead_letters.get("m-1")
    assert (one.state, one.replay_count, one.code, len(one.attempts)) == ("dead", 1, "X", 2)
    assert not dead_letters.settle_failed(dead_letter(9))


def test_unclaimed_dead_letters_are_unchanged(dead_letters):
    dead_letters.add(SOME)
    dead_letters.claim("op", ["m-1", "m-2"])
    dead_letters.claim("other", ["m-3"])

    assert dead_letters.unclaim("op", ["m-2", "m-3"]) == ["m-2"]
    assert dead_letters.unclaim("op") == ["m-1"]
    assert dead_letters.count_by(EVERYTHING, "state") == {"dead": 3, "replaying": 1}
    assert dead_letters.get("m-1") == SOME[0]


def test_a_claimed_dead_letter_cannot_be_archived(dead_letters):
    dead_letters.add([dead_letter(1)])
    dead_letters.claim("op", ["m-1"])

    assert dead_letters.archive(DeadLetterFilter(ids=("m-1",)), who="ada", origin="cli").count == 0
    assert dead_letters.settle_replayed("m-1", 0, 1)
    assert dead_letters.restore(EVERYTHING, who="ada", origin="cli").count == 0


def test_only_allowed_state_changes_are_possible(dead_letters):
    for before, after in itertools.product(
        ("dead", "replaying", "replayed", "landed", "archived", "purged"), repeat=2
    ):
        if (before, after) not in states.ALLOWED:
            with pytest.raises(ValueError, match="cannot go"):
                states.move(None, ("true", []), before, after, now=0)


def test_several_changes_can_be_one_transaction(dead_letters):
    dead_letters.add(SOME)

    with pytest.raises(ZeroDivisionError):
        with dead_letters._store.borrow(write=True):
            dead_letters.claim("op", ["m-1"])
            dead_letters.archive(DeadLetterFilter(), who="ada", origin="cli")
            raise ZeroDivisionError

    assert dead_letters.count(DeadLetterFilter()) == 4


def test_groups_reset_duckdb_to_one_thread(dead_letters):
    dead_letters.add([dead_letter(1)])

    assert dead_letters.groups(DeadLetterFilter(producer_id=dead_letter(1).producer_id))

    with dead_letters._store.borrow() as connection:
        assert connection.execute("SELECT current_setting('threads')").fetchone() == (1,)
