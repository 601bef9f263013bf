"""Test the errors page: its queries on a real store, its texts, its charts, and the page in each state."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from producer_core.dashboard import charts, queries, wording
from producer_core.dashboard.charts.errors import colours, failed_attempts, group_trend, outcomes
from producer_core.dashboard.queries.error_groups import error_group
from producer_core.dashboard.queries.errors import errors
from producer_core.dashboard.queries.view import RANGES, View
from producer_core.dashboard.wording import errors as say
from producer_core.dlq import DeadLetters
from producer_core.events import Attempt
from producer_core.kafka.classify import fingerprint
from producer_core.store import Batch, ErrorRow, Store
from tests.fixtures.pages import (
    HOSTILE,
    counts,
    dead_letter,
    links,
    opened,
    producer,
    rows_of,
    text_of,
    tiles_of,
)

NOW = 0.0
VIEW = View("5 min")
POLICY = fingerprint("POLICY_VIOLATION", "Broker: Policy violation")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


@pytest.fixture
def store(path):
    return Store.open(path)


@pytest.fixture(autouse=True)
def now():
    """Set NOW to the start of the test, because the page uses the real clock."""
    global NOW
    NOW = float(int(time.time()))


def error(ago, code="POLICY_VIOLATION", number=1, topic="payments", kind="permanent"):
    return ErrorRow(int(NOW) - ago, "c", "p", topic, code, kind, number)


def fill(store, *, old=True):
    """Write twenty minutes of orders, with failed and retried payments in the last five minutes.

    With `old`, two payments also failed about seven minutes ago. One code is new.
    """
    begin = 1200 if old else 200
    rows = [counts(NOW - ago, "orders", acknowledged=10) for ago in range(2, begin)]
    rows += [counts(NOW - ago, "payments", dead=1, failed=3, saved=2, acknowledged=2) for ago in (20, 40, 60)]
    failed = [error(ago, number=2) for ago in (20, 40)]
    failed += [error(60, "MSG_SIZE_TOO_LARGE"), error(60, "_TIMED_OUT", 4, kind="timed_out")]
    if old:
        rows.append(counts(NOW - 400, "payments", dead=2, failed=6))
        failed += [error(400, number=5), error(400, "_TIMED_OUT", kind="timed_out")]
    store.append(Batch("p", 0, tuple(rows), (), tuple(failed), producer("p", NOW)))
    dead_letters = [dead_letter(number, failed_at=NOW - 20 * number) for number in (1, 2)]
    dead_letters.append(
        dead_letter(3, failed_at=NOW - 60, code="MSG_SIZE_TOO_LARGE", text="Broker: Message size too large")
    )
    if old:
        dead_letters += [dead_letter(number, failed_at=NOW - 400) for number in (11, 12)]
    DeadLetters(store).add(dead_letters)


# data


def test_attempts_saved_by_a_retry_are_counted_apart_from_failed_messages(store):
    fill(store)
    whole = errors(store, VIEW, NOW).whole
    assert (whole.attempts, whole.saved, whole.dead) == (9, 6, 3)


def test_retry_success_covers_retried_messages_and_agrees_on_both_pages(store):
    fill(store)  # its three dead letters failed on the first attempt
    again = Attempt(NOW - 30, "_TIMED_OUT", "timed out"), Attempt(NOW - 29, "_TIMED_OUT", "timed out")
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 29, attempts=again) for number in (71, 72)])
    page, first = errors(store, VIEW, NOW), queries.overview(store, VIEW, NOW)
    assert page.retry_success[0] == first.sums.retry_success == pytest.approx(6 / 8)
    tile = next(one for one in charts.tiles(first) if one.label == "Retry success")
    assert tile.more.startswith(wording.retries(page.whole.saved, page.given_up[0]))


def test_every_table_counts_the_same_failures_while_statistics_are_late(store):
    fill(store)
    # the statistics count more at the end of the range
    store.append(Batch("p", 1, (counts(NOW - 1, "payments", dead=9),)))
    page = errors(store, VIEW, NOW)
    assert page.whole.dead == page.topics[0].now.dead == 3
    assert sum(line.dead for line in page.codes) == sum(line.group.count for line in page.groups) == 3
    assert sum(line.dead for line in page.kinds) == 3


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


def test_failures_with_dead_letters_in_another_store_are_counted(store):
    fill(store)
    store.append(Batch("q", 0, (counts(NOW - 9, "far", producer="q", dead=7),)))
    page = errors(store, VIEW, NOW)
    assert (page.whole.dead, page.without_dead_letters) == (10, 7)


def test_a_topic_filters_everything(store):
    fill(store)
    page = errors(store, View("5 min", topic="orders"), NOW)
    assert (page.whole.attempts, page.codes, page.groups, page.waiting) == (0, (), (), 0)


def test_a_past_range_ends_at_its_end(store):
    fill(store)
    page = errors(store, View("Custom", start=int(NOW) - 500, end=int(NOW) - 300), NOW)
    assert page.whole.dead == 2
    assert [line.code for line in page.codes] == ["POLICY_VIOLATION", "_TIMED_OUT"]
    assert page.now == NOW - 300


@pytest.mark.parametrize("window", RANGES)
def test_every_range_is_drawn(store, window):
    fill(store)
    store.rollup(NOW + 3 * 3600)
    page = errors(store, View(window), NOW)
    assert sum(sum(trace.y) for trace in failed_attempts(page).data) == page.whole.attempts
    assert sum(sum(trace.y) for trace in outcomes(page).data) == page.whole.dead + page.whole.saved


def test_a_group_has_counts_states_and_a_trend(store):
    fill(store)
    page = error_group(store, POLICY, VIEW, NOW)
    assert (page.ever.count, page.inside.count, page.before, dict(page.states)) == (4, 2, 2, {"dead": 4})
    assert not page.new
    assert sum(group_trend(page).data[0].y) == 2
    assert error_group(store, "missing", VIEW, NOW) is None


def test_a_group_without_recent_failures_is_drawn_over_its_whole_time(store):
    fill(store)
    page = error_group(store, POLICY, View("Custom", start=int(NOW) - 10, end=int(NOW)), NOW)
    assert page.inside is None
    assert sum(group_trend(page).data[0].y) == 4


def test_a_code_keeps_its_colour_when_others_appear():
    few, more = colours(["A", "_TIMED_OUT"]), colours(["A", "B", "C", "_TIMED_OUT"])
    assert few["A"] == more["A"]
    assert len(set(colours([f"C{number}" for number in range(8)]).values())) == 8


# texts


@pytest.mark.parametrize(
    ("known", "tone", "text"),
    [
        ({}, "quiet", "No messages sent in the last 5 min."),
        ({"settled": 1}, "good", "No failures in the last 5 min: the only message was acknowledged on the first attempt."),
        ({"settled": 90, "attempts": 4, "saved": 3}, "good",
         "4 failed attempts and no failed messages in the last 5 min: 3 messages were acknowledged after a retry."),
        ({"settled": 90, "attempts": 1}, "quiet", "1 failed attempt and no failed messages in the last 5 min."),
        ({"settled": 1000, "attempts": 4, "dead": 3, "worst": ("X", "orders", "It is too large.", 2)}, "warning",
         "3 of 1,000 messages failed in the last 5 min, most on orders with X: it is too large."),
        ({"settled": 10, "attempts": 4, "dead": 3, "saved": 1, "new": ("X",)}, "bad",
         "3 of 10 messages failed in the last 5 min. 1 message was acknowledged after a retry. New: X."),
    ],
)  # fmt: skip
def test_the_summary_covers_each_state(known, tone, text):
    base = {"settled": 0, "attempts": 0, "saved": 0, "dead": 0}
    assert say.failing(say.FailingSentence("in the last 5 min", **{**base, **known})) == (tone, text)


def test_new_codes_never_have_a_good_tone():
    assert say.failing(say.FailingSentence("now", 10, 1, 1, 0, new=("A", "B", "C", "D"))) == (
        "warning",
        "1 failed attempt and no failed messages now: 1 message was acknowledged after a retry. "
        "New: A, B, C and 1 more.",
    )


# the page


def test_the_page_of_an_empty_store_has_no_numbers(path, store, monkeypatch):
    page = opened("errors", path, monkeypatch)
    assert not page.exception
    assert "No messages sent in the last 15 min." in text_of(page)
    assert [value for _, value in tiles_of(page)] == ["0", "0", "0", "–", "–", "0"]


def test_the_page_links_to_the_dead_letters_of_codes_and_groups(path, store, monkeypatch):
    fill(store)
    page = opened("errors", path, monkeypatch, range="5 min", topic="payments")
    assert not page.exception
    assert "dead-letters?topic=payments&code=POLICY_VIOLATION" in links(page)
    assert f"dead-letters?topic=payments&group={POLICY}" in links(page)
    assert f"errors?topic=payments&range=5+min&group={POLICY}" in links(page)


def test_the_page_names_new_codes(path, store, monkeypatch):
    fill(store)
    page = opened("errors", path, monkeypatch, range="5 min")
    assert "New: MSG_SIZE_TOO_LARGE." in text_of(page)
    codes = rows_of(page, "Error codes, most dead letters first")
    assert [row[0].split()[:2] for row in codes][1] == ["MSG_SIZE_TOO_LARGE", "new"]
    assert codes[0][2] == "4 before: 5" and codes[0][3] == "2 unchanged"


def test_the_address_opens_one_group(path, store, monkeypatch):
    fill(store)
    page = opened("errors", path, monkeypatch, range="5 min", group=POLICY)
    assert not page.exception
    text = text_of(page)
    assert "2 dead letters, unchanged" in text and "4 dead" in text
    assert f"dead-letters?group={POLICY}" in links(page)


def test_a_missing_group_shows_a_note(path, store, monkeypatch):
    page = opened("errors", path, monkeypatch, group="<b>missing</b>")
    assert not page.exception
    assert "No dead letter in this store has the cause &lt;b&gt;missing&lt;/b&gt;" in text_of(page)


def test_texts_are_masked_and_names_are_never_markup(path, store, monkeypatch):
    fill(store)
    error_text = f"{HOSTILE} password=hunter2"
    DeadLetters(store).add([dead_letter(9, failed_at=NOW - 5, topic=HOSTILE, code="ODD", text=error_text)])
    store.append(Batch("q", 0, (counts(NOW - 5, HOSTILE, dead=1),), (), (error(5, "ODD", topic=HOSTILE),)))
    page = opened("errors", path, monkeypatch)
    assert not page.exception
    assert not any(HOSTILE in element.body for element in page.get("html"))
    assert not any(HOSTILE in element.value for element in page.markdown)
    assert "hunter2" not in text_of(page)
    assert all("evil" not in href or href.startswith(("errors?", "dead-letters?")) for href in links(page))


def test_an_unreadable_store_shows_an_error_and_the_page_stays_up(path, store, monkeypatch):
    from producer_core.dashboard.views import errors as view
    from producer_core.errors import StoreLocked

    def locked(*_):
        raise StoreLocked("Another process holds it.")

    monkeypatch.setattr(view, "read_errors", locked)
    page = opened("errors", path, monkeypatch)
    assert not page.exception
    assert "Another process holds it." in text_of(page)


def test_the_summary_counts_replayed_and_archived_messages():
    known = say.FailingSentence(
        "in the last hour", 1000, 527, 0, 527, ("POLICY_VIOLATION", "payments", "A policy.", 527)
    )
    assert say.failing(known)[0] == "bad"
    tone, text = say.failing(replace(known, replayed=527))
    assert (tone, text.endswith("a policy. All 527 replayed since.")) == ("good", True)
    tone, text = say.failing(replace(known, replayed=500, archived=1))
    assert (tone, text.endswith("500 replayed and 1 archived since.")) == ("bad", True)
    assert say.failing(replace(known, dead=1, replayed=1))[1].endswith("It has since been replayed.")
