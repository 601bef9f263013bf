"""The hourly counts: every write keeps them correct, and queries on them agree with the dead letters."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters, states
from producer_core.dlq.count import COLUMNS
from producer_core.events import Attempt
from producer_core.replay.claims import ReplayClaims
from producer_core.replay.outcome import RecordOutcome
from producer_core.store import Store, generation
from tests.fixtures.dead_letters import NOW, dead_letter
from tests.fixtures.replays import CLUSTER, add_dead_letters

HOUR = 3600
TOPICS, CAUSES, CLUSTERS = ("orders", "refunds", "carts"), ("fa", "fb", "fc"), ("c", "d")
VERDICTS = ("rejected", "possibly_persisted", "absent")
ALL = DeadLetterFilter(state=None)


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")


@pytest.fixture
def dead_letters(store):
    return DeadLetters(store, clock=lambda: NOW + 100 * HOUR)


def random_dead_letters(count, *, seed=7, hours=30):
    chance = random.Random(seed)
    for number in range(count):
        cause, at = chance.choice(CAUSES), NOW + chance.uniform(0, hours * HOUR)
        yield dead_letter(
            number,
            topic=chance.choice(TOPICS),
            fingerprint=cause,
            code=cause.upper(),
            error_text=f"{cause} {number % 7}",
            cluster_id=chance.choice(CLUSTERS),
            producer_id=chance.choice(("p", "q")),
            verdict=chance.choice(VERDICTS),
            key=chance.choice((None, b"", b"k", b"\xff\x00", "schlüssel".encode())),
            failed_at=at,
            attempts=(Attempt(at, cause.upper(), cause),),
        )


def assert_counts(store):
    """Assert that the counts equal those of the dead letters by hour and the counted columns."""
    keys = "cluster_id, topic, state, verdict, kind, code, fingerprint"
    with store.borrow() as connection:
        dead_letters = connection.execute(
            f"SELECT floor(failed_at / 3600)::BIGINT AS hour, {keys}, count(*) FROM dead_letters GROUP BY ALL"
        ).fetchall()
        counts = connection.execute(
            f"SELECT hour, {keys}, sum(n)::BIGINT FROM dead_letter_counts GROUP BY ALL HAVING sum(n) <> 0"
        ).fetchall()
    assert Counter(dead_letters) == Counter(counts)


@pytest.mark.slow
def test_the_counts_contain_every_change(store, dead_letters):
    operator = {"who": "me", "origin": "python"}
    dead_letters.add(list(random_dead_letters(60)))
    assert_counts(store)
    dead_letters.add(
        [replace(one, failed_at=one.failed_at + HOUR, topic="new") for one in random_dead_letters(20)]
    )
    assert_counts(store)
    dead_letters.archive(DeadLetterFilter(topic="orders"), **operator)
    assert_counts(store)
    dead_letters.restore(DeadLetterFilter(group="fa"), **operator)
    assert_counts(store)
    claimed = dead_letters.claim("op", [one.message_id for one in random_dead_letters(30)])
    assert_counts(store)
    for number, message_id in enumerate(claimed):
        dead_letters.settle_replayed(message_id, 0, number) if number % 2 else dead_letters.settle_landed(
            message_id, 0, 1
        )
    assert_counts(store)
    dead_letters.archive(DeadLetterFilter(), **operator)
    where = DeadLetterFilter(state="archived")
    dead_letters.purge(
        where, **operator, confirmation=dead_letters.purge_phrase(where, min_age=-60), min_age=-60
    )
    assert_counts(store)
    store.prune(NOW + 10_000 * HOUR)
    assert_counts(store)


@pytest.mark.slow
@pytest.mark.parametrize("trigger_limit", [0, 100])
def test_a_replay_updates_rows_in_place_and_keeps_the_counts_correct(store, monkeypatch, trigger_limit):
    monkeypatch.setattr("producer_core.store.dead_letter_counts._TRIGGER_LIMIT", trigger_limit)
    ids = add_dead_letters(store, 30)
    operation = replay.plan(store, DeadLetterFilter(), who="me", origin="python", can_run=CLUSTER)
    claims = ReplayClaims(store, operation.operation_id, "me", lease=60, clock=lambda: NOW)
    assert claims.take()
    before = row_ids(store)

    turn = claims.settle_and_claim([], want=20, busy=False)
    assert_counts(store)
    outcomes = [RecordOutcome(one, "acknowledged", None, 0, at) for at, one in enumerate(ids[:15])]
    doubtful = RecordOutcome(ids[15], "skipped", "unknown", verdict="inconclusive")
    claims.settle_and_claim(
        [*outcomes, doubtful, *(RecordOutcome(one, "pending") for one in ids[16:20])], want=0, busy=False
    )
    assert_counts(store)

    assert [one.message_id for one in turn.dead_letters] == ids[:20]
    assert Counter(row["state"] for row in store.rows("replay_letter_states", ids=ids)) == {
        "replayed": 15,
        "dead": 15,
    }
    if not trigger_limit:
        assert row_ids(store) == before
    DeadLetters(store).archive(DeadLetterFilter(), who="me", origin="python")  # with the trigger restored
    assert_counts(store)


@pytest.mark.slow
def test_bulk_changes_succeed_across_a_row_group_of_duckdb(store, dead_letters):
    """The row group's end is inside a chunk of 2,048 rows, because the first chunk has rows that stay unchanged."""
    operator = {"who": "me", "origin": "python"}
    dead_letters.add([dead_letter(number, topic="other") for number in range(6)])
    dead_letters.add([dead_letter(6, topic="many", cluster_id="", producer_id="q")])
    with store.borrow(write=True) as connection:
        connection.execute(
            "INSERT INTO dead_letters SELECT dead_letters.* REPLACE ('n-' || number AS message_id) "
            "FROM dead_letters, range(122899) AS numbers(number) WHERE topic = 'many'"
        )
    many = DeadLetterFilter(topic="many")

    assert dead_letters.archive(many, **operator).count == 122_900
    assert dead_letters.restore(many, **operator).count == 122_900
    with store.borrow(write=True) as connection:
        states.name_cluster(connection, "q", "c")
        states.move(connection, ("topic = 'many'", []), "dead", "replaying", now=NOW, operation_id="op")
    assert len(dead_letters.unclaim("op")) == 122_900
    dead_letters.archive(many, **operator)
    confirmation = dead_letters.purge_phrase(many, min_age=-60)
    assert dead_letters.purge(many, **operator, confirmation=confirmation, min_age=-60).count == 122_900
    assert_counts(store)


def test_revoked_verdicts_keep_the_counts_correct(store, dead_letters, monkeypatch, tmp_path):
    monkeypatch.setattr("producer_core.store.dead_letter_counts._TRIGGER_LIMIT", 0)
    dead_letters.add(list(random_dead_letters(20)))
    with store.borrow(write=True) as connection:
        assert generation.revoke_safe_verdicts(connection, tmp_path / "store.duckdb")

    assert_counts(store)


def test_a_rolled_back_claim_keeps_counts_and_trigger(store, dead_letters, monkeypatch):
    monkeypatch.setattr("producer_core.store.dead_letter_counts._TRIGGER_LIMIT", 0)
    ids = add_dead_letters(store, 10)
    with pytest.raises(KeyboardInterrupt), store.borrow(write=True):
        dead_letters.claim("op", ids)
        raise KeyboardInterrupt

    assert_counts(store)
    dead_letters.archive(ALL, who="me", origin="python")
    assert_counts(store)


KILLED = """
import os, sys
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store, connection_pool, dead_letter_counts
dead_letter_counts._TRIGGER_LIMIT = 0
dead_letters = DeadLetters(Store.open(sys.argv[1]))
ids = dead_letters.ids(DeadLetterFilter())
connection_pool.ConnectionPool._detach = lambda *_, **__: os._exit(9)
dead_letters.claim("op", ids)
"""


@pytest.mark.slow
def test_a_kill_after_a_claim_keeps_counts_and_trigger(store, dead_letters):
    ids = add_dead_letters(store, 10)
    done = subprocess.run([sys.executable, "-c", KILLED, str(store.path)], check=False)

    assert done.returncode == 9
    assert_counts(store)  # replays DuckDB's write-ahead log
    assert dead_letters.unclaim("op") == ids
    assert_counts(store)


def row_ids(store):
    """Return the row ids of dead letters and records; DuckDB assigns new ones to rows that it reinserts."""
    with store.borrow() as connection:
        return [
            sorted(connection.execute(f"SELECT message_id, rowid FROM {table}").fetchall())
            for table in ("dead_letters", "operation_records")
        ]


def test_a_rolled_back_change_is_not_in_the_counts(store, dead_letters):
    dead_letters.add(list(random_dead_letters(10)))
    with pytest.raises(KeyboardInterrupt), store.borrow(write=True) as connection:
        connection.execute("DELETE FROM dead_letters WHERE topic = 'orders'")
        raise KeyboardInterrupt
    assert_counts(store)


@pytest.mark.slow
def test_summed_counts_are_equal_with_fewer_rows(store, dead_letters, monkeypatch):
    monkeypatch.setattr("producer_core.store.dead_letter_counts._MIN_DIFFERENCES", 10)
    for first in range(0, 60, 6):
        dead_letters.add(list(random_dead_letters(60))[first : first + 6])
    dead_letters.archive(DeadLetterFilter(topic="orders"), who="me", origin="python")
    before = count_rows(store)

    store.maintain(NOW)

    assert count_rows(store) < before
    assert_counts(store)
    again = count_rows(store)
    store.add_up()
    assert count_rows(store) == again


def count_rows(store):
    with store.borrow() as connection:
        return connection.execute("SELECT count(*) FROM dead_letter_counts").fetchone()[0]


moments = st.none() | st.one_of(
    st.floats(-2 * HOUR, 32 * HOUR).map(lambda at: NOW + at),
    st.integers(-1, 31).map(lambda hour: (NOW // HOUR + hour) * HOUR),
)
selections = st.builds(
    DeadLetterFilter,
    topic=st.none() | st.sampled_from([*TOPICS, "nowhere", ""]),
    group=st.none() | st.sampled_from(CAUSES),
    code=st.none() | st.sampled_from(["FA", "FB"]),
    verdict=st.none() | st.sampled_from(VERDICTS),
    state=st.sampled_from(["dead", "archived", "replaying", None]),
    since=moments,
    until=moments,
    key=st.none() | st.sampled_from(["k", "0xff00", "0x", "", "schlüssel", "none"]),
    message_id=st.none() | st.sampled_from(["m-3", "m-400"]),
    text=st.none() | st.sampled_from(["FA", "b 3", "%", "_", "$", "a 1"]),
    cluster_id=st.none() | st.sampled_from(CLUSTERS),
    producer_id=st.none() | st.sampled_from(["p", "z"]),
    ids=st.sampled_from([(), ("m-1", "m-2", "m-3"), ("",)]),
)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    dead_letters = DeadLetters(Store.open(tmp_path_factory.mktemp("full") / "store.duckdb"))
    dead_letters.add(list(random_dead_letters(300)))
    dead_letters.archive(DeadLetterFilter(code="FC"), who="me", origin="python")
    dead_letters.claim("op", [f"m-{number}" for number in range(20)])
    return dead_letters


@pytest.mark.slow
@given(selections, st.sampled_from(COLUMNS))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_listing_counts_and_groups_agree_with_the_filter_in_memory(full, where, column):
    expected = [one for one in full.bodies([f"m-{number}" for number in range(300)]) if where.matches(one)]

    assert {one.message_id for one in full.find(where, limit=1000)} == {one.message_id for one in expected}
    assert full.count(where) == len(expected)
    assert full.count_by(where, column) == Counter(getattr(one, column) for one in expected)
    groups = {group.fingerprint: group for group in full.groups(where)}
    assert {fingerprint: group.count for fingerprint, group in groups.items()} == Counter(
        one.fingerprint for one in expected
    )
    for fingerprint, group in groups.items():
        members = [one for one in expected if one.fingerprint == fingerprint]
        latest = max(members, key=lambda one: one.failed_at)
        assert group.first_seen == min(one.failed_at for one in members)
        assert (group.last_seen, group.sample_text, group.code) == (
            latest.failed_at, latest.error_text, latest.code
        )  # fmt: skip
        assert group.topics == tuple(sorted({one.topic for one in members}))
        assert group.verdicts == Counter(one.verdict for one in members)
        assert sum(group.trend.counts) == group.count


def test_all_groups_have_the_same_trend_bars_over_the_filter_range(dead_letters):
    dead_letters.add(list(random_dead_letters(200)))

    groups = dead_letters.groups(DeadLetterFilter(since=NOW, until=NOW + 24 * HOUR))

    assert len({(group.trend.start, group.trend.width, len(group.trend.counts)) for group in groups}) == 1
    trend = groups[0].trend
    assert trend.width == HOUR
    assert trend.start <= NOW < trend.start + trend.width
    assert trend.start + len(trend.counts) * trend.width >= NOW + 24 * HOUR
    for number, count in enumerate(trend.counts):
        begin = max(trend.start + number * HOUR, NOW)
        end = min(trend.start + (number + 1) * HOUR, NOW + 24 * HOUR)
        assert count == dead_letters.count(
            DeadLetterFilter(group=groups[0].fingerprint, since=begin, until=end)
        )


def test_a_short_run_has_a_fine_trend(dead_letters):
    dead_letters.add([dead_letter(number, failed_at=NOW + number) for number in range(90)])

    (group,) = dead_letters.groups(DeadLetterFilter())

    assert group.trend.width == 5
    assert len(group.trend.counts) in (18, 19)
    assert max(group.trend.counts) == 5


def test_a_trend_over_years_has_few_bars(dead_letters):
    dead_letters.add([dead_letter(number, failed_at=NOW + number * 900 * HOUR) for number in range(20)])

    (group,) = dead_letters.groups(DeadLetterFilter())

    assert len(group.trend.counts) <= 49
    assert sum(group.trend.counts) == 20


def test_a_dead_letter_at_the_end_of_an_hour_is_in_its_group(dead_letters):
    edge = (NOW // HOUR + 1) * HOUR
    dead_letters.add(
        [
            dead_letter(1, failed_at=math.nextafter(edge, 0)),
            dead_letter(2, failed_at=float(edge), fingerprint="f2"),
        ]
    )
    assert {group.fingerprint: group.last_seen for group in dead_letters.groups(DeadLetterFilter())} == {
        "f1": math.nextafter(edge, 0),
        "f2": edge,
    }


@pytest.mark.parametrize("since", [-1e15, 0.0])
def test_the_trend_of_an_extreme_range_has_limited_length(dead_letters, since):
    dead_letters.add([dead_letter(1)])

    (group,) = dead_letters.groups(DeadLetterFilter(since=since, until=1e15))

    assert len(group.trend.counts) < 200
    assert sum(group.trend.counts) == 1
