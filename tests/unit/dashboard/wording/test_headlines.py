"""Test the headline of the overview."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.dashboard import queries, wording

HEALTHY = queries.Situation(
    acknowledged=12_477, dead=0, window="15 min", connected=2, producers=2, closed=0, silent_for=0.5,
    connection_error=None, pending=0,
)  # fmt: skip
TOO_LARGE = queries.Cause("payments", "The message is larger than the topic allows.", 3, "abc")


def headline_of(**changes):
    found = wording.headline(replace(HEALTHY, **changes))
    return found.tone, found.text


def test_the_headline_names_topic_and_cause_with_links():
    found = wording.headline(replace(HEALTHY, dead=3, causes=[TOO_LARGE]))
    assert found.tone == "warning"
    assert found.text == (
        "Delivering. 3 of 12,480 messages failed in the last 15 min, all on payments: "
        "the message is larger than the topic allows. See the dead letters"
    )
    assert wording.sentence(replace(HEALTHY, dead=3, causes=[TOO_LARGE]))[1] == found.text.removesuffix(
        " See the dead letters"
    )
    links = {piece.text: (piece.page, dict(piece.query)) for piece in found.pieces if piece.page}
    assert links["payments"] == ("overview", {"topic": "payments"})
    assert links["See the dead letters"] == ("dead-letters", {"topic": "payments", "group": "abc"})


def test_the_headline_names_the_largest_of_several_causes():
    policy = queries.Cause("payments", "A broker policy forbids the request.", 1, "def")
    elsewhere = queries.Cause("orders", "It timed out.", 1, "ghi")
    assert (
        "all on payments, most (3): the message is larger"
        in headline_of(dead=4, causes=[TOO_LARGE, policy])[1]
    )
    assert (
        "most (3) on payments: the message is larger"
        in headline_of(dead=5, causes=[TOO_LARGE, policy, elsewhere])[1]
    )
    assert (
        "1 of 12,478 messages failed in the last 15 min, on payments:"
        in headline_of(dead=1, causes=[TOO_LARGE])[1]
    )


@pytest.mark.parametrize(
    ("change", "tone", "text"),
    [
        ({}, "good", "Delivering. All 12,477 messages sent in the last 15 min were acknowledged."),
        ({"acknowledged": 1}, "good", "The only message sent in the last 15 min was acknowledged."),
        ({"acknowledged": 0}, "good", "No messages sent in the last 15 min."),
        ({"dead": 1, "failing": True}, "bad", "Failing now. 1 of 12,478 messages failed"),
        ({"dead": 5_000, "failing": True, "degraded": True}, "bad", "Failing now. 5,000 of 17,477 messages failed in the last 15 min."),
        ({"dead": 3, "degraded": True, "causes": [TOO_LARGE]}, "warning", "Delivering, but some messages are failing. 3 of 12,480 messages failed"),
        ({"waiting": 60}, "good", "60 dead letters still pending from before this range."),
        ({"stalled": True, "pending": 7}, "bad", "Not delivering. No message has settled in the last minute. 7 messages pending."),
        ({"circuit": "The circuit of the cluster is open: down.", "pending": 7}, "bad", "The circuit of the cluster is open: down. "),
        ({"connected": 0, "connection_error": "refused", "pending": 1}, "bad", "No broker connection: refused. 1 message pending."),
        ({"connected": 1, "connection_error": "refused"}, "warning", "1 of 2 producers without a broker connection: refused."),
        ({"gone": 1, "gone_for": 40.0}, "warning", "1 of 3 producers not seen for 40 s."),
        ({"producers": 0, "connected": 0, "gone": 1, "silent_for": 61.0}, "bad", "No heartbeat from any producer for 61 s; the process may have crashed."),
        ({"producers": 0, "connected": 0, "closed": 1, "silent_for": None}, "quiet", "No producers running."),
        ({"acknowledged": 0, "producers": 0, "connected": 0, "silent_for": None}, "quiet", "No producer has written to this store yet."),
        ({"acknowledged": 0, "producers": 0, "connected": 0, "silent_for": None, "latest_data_ago": 200_000.0}, "quiet", "No producer of this selection has been seen in the last 24 hours. The latest data of the store is 2 days old."),
    ],
)  # fmt: skip
def test_each_problem_has_its_headline(change, tone, text):
    assert headline_of(**change)[0] == tone
    assert text in headline_of(**change)[1]


def test_replayed_failures_leave_the_headline_good():
    replayed = TOO_LARGE._replace(dead=527, waiting=0)
    tone, text = headline_of(dead=527, replayed=527, causes=[replayed], failed_ago=300.0)
    assert tone == "good"
    assert text == (
        "Delivering. Nothing is failing now. 527 of 13,004 messages failed in the last 15 min, all on payments: "
        "the message is larger than the topic allows; all 527 replayed since."
    )
    links = {
        piece.text: dict(piece.query)
        for piece in wording.headline(replace(HEALTHY, dead=527, replayed=527, causes=[replayed])).pieces
        if piece.page
    }
    assert links["the message is larger than the topic allows"]["state"] == "any"
    assert headline_of(dead=1, replayed=1, causes=[replayed._replace(dead=1)])[1].endswith(
        "allows; replayed since."
    )
    assert headline_of(dead=9, replayed=5, archived=4)[1].endswith(
        "failed in the last 15 min; 5 replayed since and 4 archived."
    )


def test_the_headline_names_the_pending_cause_over_a_larger_replayed_one():
    replayed = TOO_LARGE._replace(dead=527, waiting=0)
    open_ = queries.Cause("audit-log", "A broker policy forbids the request.", 12, "def")
    tone, text = headline_of(dead=539, replayed=527, causes=[open_, replayed], degraded=True)
    assert (tone, text) == (
        "warning",
        "Delivering, but some messages are failing. 539 of 13,016 messages failed in the last 15 min; 527 replayed since, 12 left, "
        "all on audit-log: a broker policy forbids the request. See the dead letters",
    )


def test_the_topic_failing_now_precedes_the_largest_count_of_the_range():
    rejected = queries.Cause("audit-log", "A broker policy forbids the request.", 12, "def", last=50.0)
    earlier = queries.Cause("audit-log", "It timed out.", 20, "ghi", last=10.0)
    most = TOO_LARGE._replace(dead=166, last=20.0)
    found = wording.headline(
        replace(HEALTHY, dead=198, causes=[most, earlier, rejected], failing=True, degraded=True, failing_topics=["audit-log"])
    )  # fmt: skip
    assert found.text == (
        "Failing now on audit-log: a broker policy forbids the request. "
        "198 of 12,675 messages failed in the last 15 min. See the dead letters"
    )
    records = next(piece for piece in found.pieces if piece.button)
    assert dict(records.query) == {"topic": "audit-log", "group": "def"}

    text = headline_of(
        dead=178, causes=[most, rejected], degraded=True, failing_topics=["audit-log", "clicks"]
    )[1]
    assert text.startswith(
        "Delivering, but some messages are failing on audit-log and 1 other topic: a broker policy"
    )

    both = headline_of(
        dead=178, causes=[most, rejected], failing=True, failing_topics=["audit-log", "payments"]
    )[1]
    assert both.startswith(
        "Failing now on audit-log and 1 other topic: a broker policy forbids the request. 178 of"
    )

    text = headline_of(dead=178, causes=[most], failing=True, failing_topics=["elsewhere"])[1]
    assert text.startswith("Failing now on elsewhere. 178 of 12,655 messages failed in the last 15 min.")


def test_a_bad_headline_never_begins_with_delivering():
    for change in ({"failing": True}, {"stalled": True}, {"connected": 0}, {"silent_for": 61.0}):
        tone, text = headline_of(dead=9, causes=[TOO_LARGE], degraded=True, **change)
        assert tone == "bad" and not text.startswith("Delivering")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"failed_ago": 36.0, "delivered": 1204, "recovered": True},
         "Recovered: last failure 36 s ago, 1,204 messages delivered to payments since."),
        ({"failed_ago": 36.0, "delivered": 2}, "Last failure 36 s ago; 2 messages delivered to payments since."),
        ({"failed_ago": 300.0}, "Last failure 5 min ago; nothing delivered to payments since, so delivery may still be failing."),
    ],
)  # fmt: skip
def test_the_end_of_a_fault_is_reported_with_its_evidence(change, text):
    tone, found = headline_of(dead=3, causes=[TOO_LARGE], **change)
    assert tone == "warning" and f"topic allows. {text}" in found
    assert found.startswith("Delivering again. ") == change.get("recovered", False)


@pytest.mark.parametrize(
    ("change", "page"),
    [
        ({"connected": 0, "connection_error": "refused", "pending": 4}, "latency"),
        ({"stalled": True, "pending": 4}, "latency"),
        ({"silent_for": 61.0, "producers": 0, "connected": 0, "gone": 1}, "fleet"),
        ({}, "dead-letters"),
    ],
)
def test_the_button_leads_to_the_next_step(change, page):
    pieces = wording.headline(replace(HEALTHY, dead=3, causes=[TOO_LARGE], degraded=True, **change)).pieces
    assert [piece.page for piece in pieces if piece.button] == [page]


def test_the_headline_of_a_past_range_reports_its_result():
    past = {"window": wording.CUSTOM, "over": True, "since": 0.0, "until": 3600.0, "connected": 0}
    assert headline_of(**past, dead=3, causes=[TOO_LARGE])[1].startswith(
        "3 of 12,480 messages failed from 00:00 to 01:00 on 1970-01-01, all on payments"
    )
    assert headline_of(**past)[0] == "good"
    assert headline_of(**past, acknowledged=0) == (
        "quiet",
        "No messages sent from 00:00 to 01:00 on 1970-01-01.",
    )


def test_screen_readers_announce_only_changes_of_state():
    first, later = (wording.headline(replace(HEALTHY, dead=dead, causes=[TOO_LARGE])) for dead in (3, 4))
    assert first.text != later.text
    assert wording.announcement(first) == wording.announcement(later)
    assert wording.announcement(wording.headline(HEALTHY)) != wording.announcement(first)


def test_the_largest_group_is_called_most_only_above_half():
    policy = queries.Cause("orders", "A broker policy forbids the request.", 3, "def")
    text = headline_of(dead=9, causes=[TOO_LARGE, policy])[1]
    assert "the largest group (3) on payments" in text and "most" not in text


def test_an_announcement_has_no_empty_sentence():
    pieces = tuple(
        wording.HeadlinePart(text)
        for text in ("Failing now on audit-log.", " 5 in 2 s", ". ", "See the dead letters")
    )
    found = wording.headline(HEALTHY)._replace(pieces=pieces)

    assert wording.announcement(found) == "Failing now on audit-log. See the dead letters"


def test_the_announcement_of_several_causes_is_a_sentence():
    policy = queries.Cause("payments", "A broker policy forbids the request.", 1, "def")
    text = wording.announcement(wording.headline(replace(HEALTHY, dead=4, causes=[TOO_LARGE, policy])))
    assert " ," not in text and not text.startswith(",")


def test_the_headline_is_about_now_and_the_range_stands_apart_from_it():
    """Once the headline joined the topic failing now to the largest count of the range."""
    policy = queries.Cause("audit-log", "A broker policy forbids the request.", 12, "def", last=50.0)
    found = wording.headline(
        replace(HEALTHY, dead=15, causes=[TOO_LARGE, policy], failing=True, degraded=True, failing_topics=["audit-log"])
    )  # fmt: skip
    now, past = ("".join(part.text for part in parts) for parts in (found.now, found.past))

    assert now == "Failing now on audit-log: a broker policy forbids the request.  See the dead letters"
    assert past == "15 of 12,492 messages failed in the last 15 min."


def test_one_failing_topic_is_named_once():
    text = headline_of(dead=3, causes=[TOO_LARGE], failing=True, degraded=True, failing_topics=["payments"])[
        1
    ]
    assert text == (
        "Failing now on payments: the message is larger than the topic allows. "
        "3 of 12,480 messages failed in the last 15 min. See the dead letters"
    )


def test_the_headline_of_an_ended_range_has_no_second_line():
    found = wording.headline(replace(HEALTHY, window=wording.CUSTOM, over=True, until=3600.0))
    assert found.pieces and found.now == found.pieces and found.past == ()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, "✓"),
        ({"dead": 9, "failing": True, "degraded": True, "failing_topics": ["payments"]}, "✗ payments"),
        ({"dead": 9, "degraded": True, "failing_topics": ["payments"]}, "▲ payments"),
        ({"dead": 9}, "▲ 9 failed"),
        ({"connected": 1}, "▲ producers"),
        ({"connected": 0, "degraded": True, "failing_topics": ["payments"]}, "✗ not delivering"),
        ({"stalled": True, "pending": 3}, "✗ not delivering"),
        ({"producers": 0, "connected": 0, "silent_for": 61.0, "gone": 1}, "✗ not delivering"),
        ({"producers": 0, "connected": 0, "silent_for": None, "closed": 1}, "○ no producers"),
        ({"over": True, "dead": 9}, ""),
        ({"producers": 0, "connected": 0, "silent_for": None}, ""),
    ],
)
def test_the_tab_names_the_state(change, text):
    assert wording.tab_state(replace(HEALTHY, **change)) == text


@pytest.mark.parametrize(
    ("pending", "text"), [(500, "500 messages pending."), (0, "No messages sent in the last 15 min.")]
)
def test_a_new_producer_is_connecting_instead_of_not_delivering(pending, text):
    now = replace(HEALTHY, connected=0, acknowledged=0, pending=pending, connecting=True)
    found = wording.headline(now)

    assert (found.tone, found.text) == ("quiet", f"Connecting to the brokers. {text}")
    assert wording.tab_state(now) == "○ connecting"
    assert not any(piece.button for piece in found.pieces)


def test_one_connected_producer_delivers_while_another_connects():
    assert headline_of(connected=1, connecting=True)[1].startswith("Delivering. ")
