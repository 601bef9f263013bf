"""Test the issues of the errors page on a real store."""

from __future__ import annotations

from typing import get_args

import pytest

from producer_core.dashboard.queries.errors import errors
from producer_core.dashboard.queries.issues import State
from producer_core.dashboard.queries.view import View
from producer_core.dashboard.wording.errors import ISSUE_STATES
from producer_core.dlq import DeadLetters
from producer_core.store import Batch
from tests.fixtures.errors import error, fill
from tests.fixtures.pages import VIEW, counts, dead_letter, producer

NOW = 0.0


def found(store, view=VIEW, now=None):
    return {(one.topic, one.code): one for one in errors(store, view, NOW if now is None else now).issues}


def set_state(store, state, **where):
    conditions = " AND ".join(f"{name} = '{value}'" for name, value in where.items()) or "true"
    with store.borrow(write=True) as connection:
        connection.execute(f"UPDATE dead_letters SET state = '{state}' WHERE {conditions}")


def test_an_issue_is_a_code_on_a_topic(store):
    fill(store)
    rows = (error(30, topic="refunds"),)
    store.append(Batch("q", 0, (counts(NOW - 30, "refunds", failed=1),), (), rows))
    issues = found(store)
    policy = issues["payments", "POLICY_VIOLATION"]
    assert (policy.attempts, policy.attempts_before, policy.dead, policy.dead_before) == (4, 5, 2, 2)
    assert (policy.waiting, policy.last_seen, policy.first_seen) == (4, int(NOW) - 20, NOW - 400)
    assert issues["refunds", "POLICY_VIOLATION"].attempts == 1
    assert errors(store, VIEW, NOW).issues[0].code == "POLICY_VIOLATION"


def test_issues_add_up_to_the_page(store):
    fill(store)
    page = errors(store, VIEW, NOW)
    assert sum(one.dead for one in page.issues) == page.whole.dead
    assert sum(one.attempts for one in page.issues) == page.whole.attempts
    assert sum(sum(one.trend.counts) for one in page.issues) == page.whole.attempts


def test_a_trend_covers_the_range_with_a_bar_for_each_span(store):
    fill(store)
    trend = found(store)["payments", "POLICY_VIOLATION"].trend
    assert sum(trend.counts) == 4 and trend.of_attempts
    assert len(trend.counts) * trend.width >= VIEW.seconds and sum(trend.counts[-6:]) == 4


def test_a_dead_letter_without_a_failed_attempt_has_a_trend_of_dead_letters(store):
    store.append(Batch("p", 0, (counts(NOW - 30, "orders", acknowledged=1),), (), (), producer("p", NOW)))
    DeadLetters(store).add([dead_letter(1, failed_at=NOW - 30, code="MALFORMED", topic="orders")])
    trend = found(store)["orders", "MALFORMED"].trend
    assert (sum(trend.counts), trend.of_attempts) == (1, False)


@pytest.mark.parametrize("later", [0, 90])
def test_an_issue_fails_now_only_within_a_minute_of_its_last_failure(store, later):
    fill(store)
    one = found(store, now=NOW + later)["payments", "POLICY_VIOLATION"]
    assert one.state == ("failing" if later == 0 else "pending")


@pytest.mark.parametrize(
    ("state", "expected"), [("replayed", "handled"), ("archived", "handled"), ("replaying", "replaying")]
)
def test_an_issue_without_pending_dead_letters_is_handled(store, state, expected):
    fill(store)
    set_state(store, state)
    one = found(store, now=NOW + 90)["payments", "POLICY_VIOLATION"]
    assert (one.state, one.waiting) == (expected, 0)
    assert one.handled == (2 if expected == "handled" else 0)


def test_an_issue_whose_messages_were_all_saved_is_retried(store):
    fill(store)
    one = found(store, now=NOW + 90)["payments", "_TIMED_OUT"]
    assert (one.state, one.dead, one.fingerprint) == ("retried", 0, "")


def test_an_issue_is_new_if_the_store_knows_an_earlier_time_without_it(store):
    fill(store)
    assert {code for (_, code), one in found(store).items() if one.new} == {"MSG_SIZE_TOO_LARGE"}


def test_nothing_is_new_in_a_store_that_begins_within_the_range(store):
    fill(store, old=False)
    assert not any(one.new for one in found(store).values())


def test_no_issue_of_a_past_range_fails_now(store):
    fill(store)
    past = View("Custom", start=int(NOW) - 500, end=int(NOW) - 300)
    one = found(store, past)["payments", "POLICY_VIOLATION"]
    assert (one.state, one.attempts, one.dead) == ("pending", 5, 2)


def test_an_issue_whose_dead_letters_are_in_other_stores_is_not_called_retried(store):
    fill(store)
    rows = (counts(NOW - 30, "refunds", dead=2, producer="q"),)
    store.append(Batch("q", 0, rows, (), (error(30, topic="refunds"),)))
    one = found(store, now=NOW + 90)["refunds", "POLICY_VIOLATION"]
    assert (one.dead, one.state) == (0, "elsewhere")


def test_a_trend_of_years_has_a_bar_for_each_window(store):
    fill(store)
    view = View("Custom", start=int(NOW) - 200 * 86_400, end=int(NOW))
    assert all(len(one.trend.counts) <= 200 for one in errors(store, view, NOW + 1).issues)


@pytest.mark.parametrize("state", get_args(State))
def test_every_state_has_a_text(state):
    assert all(ISSUE_STATES[state])
