"""Test that every page counts the same failed messages."""

from __future__ import annotations

from producer_core.dashboard.queries import latency, overview
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
