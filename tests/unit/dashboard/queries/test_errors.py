"""Test the data of the errors page on a real store."""

from __future__ import annotations

import pytest

from producer_core.dashboard import charts, queries, wording
from producer_core.dashboard.queries.errors import errors
from producer_core.dashboard.queries.view import View
from producer_core.dlq import DeadLetters
from producer_core.events import Attempt
from tests.fixtures.errors import fill
from tests.fixtures.pages import VIEW, dead_letter

NOW = 0.0


def test_attempts_saved_by_a_retry_are_counted_separately_from_failed_messages(store):
    fill(store)
    whole = errors(store, VIEW, NOW).whole
    assert (whole.attempts, whole.saved, whole.dead) == (9, 6, 3)


@pytest.mark.slow
def test_retry_success_covers_retried_messages_and_agrees_on_both_pages(store):
    fill(store)  # its three dead letters failed on the first attempt
    again = Attempt(NOW - 30, "_TIMED_OUT", "timed out"), Attempt(NOW - 29, "_TIMED_OUT", "timed out")
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 29, attempts=again) for number in (71, 72)])
    page, first = errors(store, VIEW, NOW), queries.overview(store, VIEW, NOW)
    assert page.retry_success[0] == first.sums.retry_success == pytest.approx(6 / 8)
    tile = next(one for one in charts.tiles(first) if one.label == "Retry success")
    assert tile.more.startswith(wording.retries(page.whole.saved, page.given_up[0]))


def test_every_code_has_its_meaning_and_the_previous_count(store):
    fill(store)
    page = errors(store, VIEW, NOW)
    policy, size, timed_out = page.codes
    assert (policy.code, policy.attempts, policy.attempts_before) == ("POLICY_VIOLATION", 4, 5)
    assert (policy.dead, policy.dead_before, policy.waiting) == (2, 2, 4)
    assert (size.code, size.dead, size.new) == ("MSG_SIZE_TOO_LARGE", 1, True)
    assert (timed_out.code, timed_out.dead, timed_out.new) == ("_TIMED_OUT", 0, False)
    assert (
        policy.failure.meaning and policy.failure.advice and policy.failure.error_type == "POLICY_VIOLATION"
    )
    assert policy.topics == ("payments",)
    assert policy.last_seen == int(NOW) - 20


def test_kinds_and_topics_add_up_to_the_whole(store):
    fill(store)
    page = errors(store, VIEW, NOW)
    assert [(line.kind, line.codes, line.dead) for line in page.kinds] == [
        ("permanent", 2, 3),
        ("timed_out", 1, 0),
    ]
    assert [line.topic for line in page.topics] == ["payments"]
    assert page.topics[0].codes[:1] == ("POLICY_VIOLATION",)
    assert sum(line.attempts for line in page.kinds) == sum(line.attempts for line in page.codes) == 9


def test_groups_show_new_and_pending_dead_letters(store):
    fill(store)
    groups = {line.group.code: line for line in errors(store, VIEW, NOW).groups}
    policy, size = groups["POLICY_VIOLATION"], groups["MSG_SIZE_TOO_LARGE"]
    assert (policy.group.count, policy.before, policy.waiting, policy.new) == (2, 2, 4, False)
    assert (size.group.count, size.before, size.waiting, size.new) == (1, 0, 1, True)
    assert sum(policy.group.trend.counts) == 2


def test_nothing_is_new_in_a_store_that_begins_within_the_range(store):
    fill(store, old=False)
    page = errors(store, VIEW, NOW)
    assert not page.detects_new and not page.compares
    assert page.new_codes == () and not any(line.new for line in page.groups)


def test_a_failed_replay_makes_no_new_group(store):
    fill(store)
    DeadLetters(store).add(
        [dead_letter(1, failed_at=NOW - 9, code="INVALID_RECORD", text="no key", replay_count=1), dead_letter(2, failed_at=NOW - 9, code="_ALL_BROKERS_DOWN", text="down")]
    )  # fmt: skip
    new = {line.group.code for line in errors(store, VIEW, NOW).groups if line.new}
    assert new == {"MSG_SIZE_TOO_LARGE", "_ALL_BROKERS_DOWN"}


def test_the_topic_filter_applies_to_every_number(store):
    fill(store)
    page = errors(store, View("5 min", topic="orders"), NOW)
    assert (page.whole.attempts, page.codes, page.groups, page.waiting) == (0, (), (), 0)


def test_a_past_range_ends_at_its_end(store):
    fill(store)
    page = errors(store, View("Custom", start=int(NOW) - 500, end=int(NOW) - 300), NOW)
    assert page.whole.dead == 2
    assert [line.code for line in page.codes] == ["POLICY_VIOLATION", "_TIMED_OUT"]
    assert page.now == NOW - 300
