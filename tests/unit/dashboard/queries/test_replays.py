"""Test the data of the replays page on a real store."""

from __future__ import annotations

import time

import pytest

from producer_core import replay
from producer_core.dashboard import actions, queries
from producer_core.dashboard.wording import replays as replay_wording
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.replay.outcome import RecordOutcome
from tests.fixtures import replay_pages as replay_pages_fixtures
from tests.fixtures.replay_pages import NOW, started
from tests.fixtures.replays import add_dead_letters, dead_letter, preflight_done, write_heartbeat

store = replay_pages_fixtures.store


@pytest.mark.slow
def test_the_replay_list_reports_whether_there_are_more(store):
    for number in range(3):
        DeadLetters(store).add([dead_letter(number, topic=f"t{number}")])
        done = actions.start_replay(store, DeadLetterFilter(topic=f"t{number}"))
        replay.cancel(store, done.operation_id, who="ann", origin="cli")

    page = queries.replays(store, time.time(), limit=2)

    assert (len(page.ended), page.more) == (2, True)
    assert not queries.replays(store, time.time(), limit=3).more


@pytest.mark.slow
def test_only_live_runners_are_counted(store):
    add_dead_letters(store, 2)
    one, _ = started(store)
    later = time.time() + 30
    assert queries.one_replay(store, one, time.time()).runners == 1
    assert queries.one_replay(store, one, later).runners == 0

    write_heartbeat(store, later, producer_id="p-2")

    assert queries.one_replay(store, one, later).runners == 1


@pytest.mark.parametrize(("until", "later"), [(None, 2), (NOW + 100, 0)])
def test_later_dead_letters_outside_a_fixed_range_are_not_counted(store, until, later):
    """The page must not report that 2 more have died since, because they are outside the filter's range."""
    DeadLetters(store).add([dead_letter(number, failed_at=NOW + number) for number in range(3)])
    page = queries.dead_letters(store, DeadLetterFilter(until=until))
    done = actions.plan_replay(store, page.seen)
    DeadLetters(store).add([dead_letter(number, failed_at=NOW + 200 + number) for number in (3, 4)])

    assert queries.one_replay(store, done.operation_id, time.time()).later == later


@pytest.mark.slow
def test_the_pace_covers_recently_settled_records(store):
    add_dead_letters(store, 4)
    one, claims = started(store)
    claimed = claims.settle_and_claim([], want=4, busy=False).dead_letters
    claims.settle_and_claim(
        [RecordOutcome(dead.message_id, "acknowledged") for dead in claimed[:3]], want=0, busy=True
    )

    assert queries.one_replay(store, one, time.time()).pace == pytest.approx(3.0, rel=0.5)
    assert queries.one_replay(store, one, time.time() + 60).pace is None


@pytest.mark.slow
def test_a_queued_replay_names_the_replay_ahead_of_it(store):
    add_dead_letters(store, 3)
    started(store)
    DeadLetters(store).add([dead_letter(9, topic="late")])
    second = actions.start_replay(store, DeadLetterFilter(topic="late")).operation_id
    assert queries.one_replay(store, second, time.time()).blocked_by is None, (
        "the preflight does not wait for replays"
    )
    preflight_done(store, second, topic="late")

    seen = queries.one_replay(store, second, time.time())

    assert seen.blocked_by is not None
    assert replay_wording.replay_status(seen.operation, owner="", runners=1, now=time.time(), blocked_by=seen.blocked_by) == (
        "quiet", "Queued behind a replay started by ann, 3 records left.",
    )  # fmt: skip
    write_heartbeat(store, time.time() + 60, producer_id="p-2")
    assert queries.one_replay(store, second, time.time()).blocked_by is None
