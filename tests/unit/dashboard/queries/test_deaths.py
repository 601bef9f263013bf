"""Test that every page counts the same failed messages."""

from __future__ import annotations

import pytest

from producer_core.dashboard.queries import latency, overview
from producer_core.dashboard.queries.deaths import FailureCounts, delivered_since, retry_success
from producer_core.dashboard.queries.errors import errors
from producer_core.dashboard.queries.fleet import fleet
from producer_core.dlq import DeadLetters
from producer_core.store import Batch
from tests.fixtures.errors import fill
from tests.fixtures.fleet import add
from tests.fixtures.pages import VIEW, counts, dead_letter

NOW = 0.0


def test_every_table_counts_the_same_failures_while_statistics_are_late(store):
    fill(store)
    # the statistics count more at the end of the range
    store.append(Batch("p", 1, (counts(NOW - 1, "payments", dead=9),)))
    page = errors(store, VIEW, NOW)
    assert page.whole.dead == page.topics[0].now.dead == 3
    assert sum(line.dead for line in page.codes) == sum(line.group.count for line in page.groups) == 3
    assert sum(line.dead for line in page.kinds) == 3


def test_failures_with_dead_letters_in_another_store_are_counted(store):
    fill(store)
    store.append(Batch("q", 0, (counts(NOW - 9, "far", producer="q", dead=7),)))
    page = errors(store, VIEW, NOW)
    assert (page.whole.dead, page.without_dead_letters) == (10, 7)


@pytest.mark.slow
def test_every_page_counts_the_same_failures(store):
    """A dead letter counts as one failed message even if its replay failed; statistics count failures without one."""
    add(store, "shop", dead=5, topic="payments")
    add(store, "far", dead=2, topic="refunds")
    DeadLetters(store).add(
        [dead_letter(number, failed_at=NOW - 5, producer_id="shop", topic="payments") for number in range(3)]
    )
    found = fleet(store, VIEW, NOW)
    assert {member.name: member.dead for member in found.members} == {"shop": 3, "far": 2}
    whole = {errors(store, VIEW, NOW).whole.dead, overview(store, VIEW, NOW).situation.dead, found.dead}
    assert whole == {5}
    assert "5 of 1,205 messages became dead letters" in latency(store, VIEW, NOW).findings[0].title


def test_failure_counts_without_failures_are_zero():
    none = FailureCounts()

    assert (none.total, none.replayed, none.archived, none.retried, none.last) == (0, 0, 0, 0, None)
    assert (none.by("topic"), none.last_by_topic) == ({}, {})


def test_failures_are_counted_by_topic_and_by_code():
    row = {"topic": "orders", "code": "A", "count": 3, "cured": 2, "aside": 1, "retried": 0, "last": 50.0}
    other = {**row, "code": "B", "count": 1, "cured": 0, "last": 70.0}
    found = FailureCounts([row, other], {"refunds": 4})

    assert (found.total, found.replayed, found.archived, found.last) == (8, 2, 2, 70.0)
    assert found.by("topic") == {"orders": 4, "refunds": 4}
    assert found.by("code") == {"A": 3, "B": 1}  # a failure without a dead letter has no code
    assert found.by("topic", "retried") == {}
    assert found.last_by_topic == {"orders": 70.0}


def test_a_topic_without_dead_letters_in_the_store_has_no_latest_failure():
    row = {"topic": "orders", "count": 1, "last": 50.0}

    assert FailureCounts([row], {"orders": 1}).last_by_topic == {}


@pytest.mark.parametrize(("saved", "given_up", "share"), [(0, 0, None), (0, 2, 0.0), (3, 1, 0.75)])
def test_retry_success_is_unknown_without_retries(saved, given_up, share):
    assert retry_success(saved, given_up) == share


def test_without_failures_no_delivery_is_counted(store):
    assert delivered_since(store, VIEW, {}) == {}
