"""Test the rows of the topic table: severity, order and recovery."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.dashboard import queries, wording
from producer_core.dashboard.html import text_of
from producer_core.dashboard.queries.topics import TopicRow
from producer_core.dashboard.views import tiles
from producer_core.dlq import DeadLetters
from tests.fixtures.overview import counts, dead_letter, shop, write

NOW = 0.0


def set_state(store, state, **where):
    """Set the state of dead letters directly in the store."""
    conditions = " AND ".join(f"{name} = '{value}'" for name, value in where.items()) or "true"
    with store.borrow(write=True) as connection:
        connection.execute(f"UPDATE dead_letters SET state = '{state}' WHERE {conditions}")


def test_topics_are_sorted_by_severity_with_their_cause(store):
    shop(store)
    write(store, [counts(NOW - 9, "ledger", acknowledged=1, dead=9)])
    DeadLetters(store).add(
        [
            dead_letter(20, topic="old", failed_at=NOW - 9000),
            dead_letter(21, topic="ledger", code="POLICY_VIOLATION"),
        ]
    )
    rows = queries.overview(store, "15 min", NOW).topics
    assert [(row.topic, row.trouble) for row in rows] == [
        ("ledger", 3),
        ("payments", 2),
        ("old", 1),
        ("orders", 0),
    ]
    assert rows[0].cause.meaning == "A broker policy forbids the request."
    assert rows[1].cause.fingerprint == dead_letter(0).fingerprint
    assert (rows[1].waiting, rows[3].throughput) == (3, pytest.approx(100, rel=0.15))


def test_a_topic_is_healthy_again_once_its_dead_letters_are_replayed(store):
    write(
        store,
        [counts(NOW - 200, "payments", acknowledged=5, dead=3), counts(NOW - 9, "payments", acknowledged=90)],
    )
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 200) for number in range(3)])
    pending = queries.overview(store, "15 min", NOW)
    assert (pending.topics[0].trouble, pending.situation.failing) == (1, False)
    assert wording.headline(pending.situation).tone == "warning"
    set_state(store, "replayed")
    page = queries.overview(store, "15 min", NOW)
    assert (page.topics[0].trouble, page.topics[0].replayed, page.situation.replayed) == (0, 3, 3)
    assert wording.headline(page.situation).tone == "good"
    assert "all 3 replayed since" in wording.headline(page.situation).text
    assert "replayed since" in text_of(tiles._topic(page.topics[0], page.situation))
    assert "no broker connection" in text_of(
        tiles._topic(page.topics[0], replace(page.situation, connected=0))
    )


@pytest.mark.parametrize(("ago", "trouble"), [(20, 3), (200, 1), (20_000, 1)])
def test_only_the_failures_of_the_last_minute_are_failures_now(store, ago, trouble):
    write(store, [counts(NOW - ago, "payments", dead=3), counts(NOW - 9, acknowledged=90)])
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - ago) for number in range(3)])
    page = queries.overview(store, "24 hours", NOW)
    row = next(row for row in page.topics if row.topic == "payments")
    assert row.trouble == trouble
    assert ("Failing now" in wording.headline(page.situation).text) == (ago == 20)


@pytest.mark.parametrize("window", ["5 min", "24 hours"])
def test_failures_minutes_ago_do_not_count_as_current_in_any_range(store, window):
    rows = [counts(at, "payments", acknowledged=9) for at in range(int(NOW) - 200, int(NOW))]
    write(store, [*rows, counts(NOW - 180, "payments", dead=50)])
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 180) for number in range(50)])
    page = queries.overview(store, window, NOW)
    assert (page.topics[0].trouble, page.situation.failing, page.situation.dead) == (1, False, 50)


@pytest.mark.parametrize(("each", "over"), [(1, False), (10, True)])
def test_a_fault_is_over_after_enough_deliveries_without_a_failure(store, each, over):
    """With half of the messages failing, twenty in a row without a failure prove recovery; eight are too few."""
    rows = [counts(at, "payments", acknowledged=5, dead=5) for at in range(int(NOW) - 60, int(NOW) - 14)]
    rows += [counts(at, "payments", acknowledged=each) for at in range(int(NOW) - 11, int(NOW) - 3)]
    write(store, rows)
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 60 + number / 5) for number in range(230)])
    page = queries.overview(store, "15 min", NOW)
    found, (row,) = page.situation, page.topics
    assert (found.recovered, found.failing, row.recovered) == (over, not over, over)
    assert (found.delivered, row.trouble) == (8 * each, 1 if over else 3)
    assert wording.headline(found).tone == ("warning" if over else "bad")


def test_a_topic_that_starts_to_fail_is_bad_regardless_of_earlier_deliveries(store):
    rows = [counts(at, acknowledged=100) for at in range(int(NOW) - 600, int(NOW) - 45)]
    write(store, [*rows, *(counts(at, acknowledged=5, dead=5) for at in range(int(NOW) - 45, int(NOW)))])
    page = queries.overview(store, "15 min", NOW)
    assert (page.topics[0].trouble, page.situation.failing) == (3, True)


def test_topics_with_similar_failures_keep_their_order(store):
    write(
        store,
        [
            counts(NOW - 9, name, acknowledged=1, dead=dead)
            for name, dead in (("b", 51), ("a", 50), ("c", 500))
        ],
    )
    assert [row.topic for row in queries.overview(store, "15 min", NOW).topics] == ["c", "a", "b"]


@pytest.mark.parametrize("window", queries.RANGES)
def test_a_sparkline_covers_the_whole_range(store, window):
    shop(store)
    row = queries.overview(store, window, NOW).topics[0]
    assert len(row.rates) == len(row.failures) <= 51
    assert sum(count or 0 for count in row.failures) == 3


TOPIC = TopicRow(
    topic="orders", acknowledged=0, dead=0, throughput=0.0, failing=None, p99=None, waiting=0, rates=(), failures=(),
    cause=None, causes=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("acknowledged", "dead", "rate"), [(0, 0, None), (3, 0, 0.0), (0, 2, 1.0), (3, 1, 0.25)]
)
def test_a_topic_without_settled_messages_has_no_error_rate(acknowledged, dead, rate):
    assert replace(TOPIC, acknowledged=acknowledged, dead=dead).error_rate == rate


@pytest.mark.parametrize(
    ("failing", "waiting", "trouble"),
    [(None, 0, 0), (0.0, 0, 0), (None, 1, 1), (0.0001, 0, 2), (0.05, 9, 2), (0.051, 0, 3), (1.0, 0, 3)],
)
def test_the_severity_of_a_topic_depends_on_its_error_rate_and_pending_dead_letters(
    failing, waiting, trouble
):
    assert replace(TOPIC, failing=failing, waiting=waiting).trouble == trouble
