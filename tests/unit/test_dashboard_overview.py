"""The overview: its numbers, its words and its page; and the header that all pages share."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from producer_core.alerts import AlertChange, AlertLog, alert, rule_set_of
from producer_core.dashboard import charts as dashboard_charts
from producer_core.dashboard import queries, wording
from producer_core.dashboard.charts import chart
from producer_core.dashboard.html import text_of
from producer_core.dashboard.queries.alerts import alerts as alerts_page
from producer_core.dashboard.queries.situation import outage
from producer_core.dashboard.views import common, header, overview, tiles
from producer_core.dlq import DeadLetters
from producer_core.errors import StoreLocked
from producer_core.events import Attempt, DeadLetter
from producer_core.kafka.classify import fingerprint
from producer_core.metrics.histogram import RELATIVE_ERROR, bucket_of
from producer_core.store import Batch, ClientRow, LatencyRow, ProducerRow, StatisticsRow, Store

NOW = 0.0


@pytest.fixture(autouse=True)
def now():
    global NOW
    NOW = float(int(time.time()))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


@pytest.fixture
def store(path):
    return Store.open(path)


def counts(at, topic="orders", *, acknowledged=0, dead=0, accepted=None, **more):
    accepted = acknowledged + dead if accepted is None else accepted
    row = StatisticsRow(int(at), "c", "p", topic, accepted, acknowledged, dead, dead, 0, 0, 0, 0, 10, 0.1)
    return row._replace(**more)


def producer(**changes):
    row = ProducerRow(
        "p", "c", "shop", "host", 7, "0.1", NOW - 600, NOW, None, True, None, 0, 0, 4, 100_000, 2**27, 2**28,
        True, "at_least_once", "{}",
    )  # fmt: skip
    return row._replace(**changes)


def dead_letter(number, **changes):
    code = changes.get("code", "MSG_SIZE_TOO_LARGE")
    known = {
        "message_id": f"m-{number}", "cluster_id": "c", "producer_id": "p", "topic": "payments", "key": b"k",
        "value": b"{}", "headers": (), "partition": None, "timestamp_ms": None, "verdict": "rejected",
        "verdict_reason": "one transmission", "kind": "permanent", "code": code, "error_text": "too large",
        "fingerprint": fingerprint(code, "too large"), "attempts": (Attempt(NOW, code, "too large"),),
        "accepted_at": NOW - 5, "failed_at": NOW - 5,
    }  # fmt: skip
    return DeadLetter(**{**known, **changes})


def tries(number):
    """So many attempts that failed."""
    return tuple(Attempt(NOW - 9 + place, "_TIMED_OUT", "timed out") for place in range(number))


def settled(store, state, **where):
    """Letters as they are after somebody dealt with them."""
    conditions = " AND ".join(f"{name} = '{value}'" for name, value in where.items()) or "true"
    with store.borrow(write=True) as connection:
        connection.execute(f"UPDATE dead_letters SET state = '{state}' WHERE {conditions}")


def write(store, rows=(), latencies=(), **changes):
    batch = sum(row["last_batch"] + 1 for row in merged(store))
    store.append(Batch("p", batch, tuple(rows), tuple(latencies), (), producer(**changes)))


def merged(store):
    with store.borrow() as connection:
        found = connection.execute("SELECT max(last_batch) FROM merged_batches").fetchone()
    return [] if found[0] is None else [{"last_batch": found[0]}]


def shop(store, **changes):
    """A minute of orders that work and payments of which three are too large."""
    rows = [counts(at, acknowledged=100) for at in range(int(NOW) - 60, int(NOW))]
    rows += [counts(NOW - 5, "payments", acknowledged=97, dead=3)]
    write(store, rows, [LatencyRow(int(NOW) - 30, "c", "p", "orders", bucket_of(0.005), 100)], **changes)
    DeadLetters(store).add([dead_letter(number) for number in range(3)])


# time ranges


def test_an_address_names_a_time_range_in_seconds_and_nonsense_means_none():
    assert queries.chosen("100", "400", NOW) == (100, 400)
    assert queries.chosen("400", "100", NOW) == (100, 400)
    assert queries.chosen("100.7", None, 500.0) == (100, 500)
    assert queries.chosen(None, "7200", NOW) == (3600, 7200)
    assert queries.chosen("100", "100", NOW) == (100, 110)
    for nonsense in ("yesterday", "-5", "1e400", "nan", "", None):
        assert queries.chosen(nonsense, None, NOW) is None


def test_a_range_of_ones_own_is_over_when_its_end_has_passed():
    view = queries.View(wording.CUSTOM, start=1000, end=4600)
    assert (view.seconds, view.since(9e9), view.until(9e9), view.at(9e9)) == (3600, 990, 4600, 4600.0)
    assert view.over(4600.0)
    assert (view.until(2000.0), view.at(2000.0), view.over(2000.0)) == (None, 2000.0, False)


@pytest.mark.parametrize("window", queries.RANGES)
def test_the_same_time_before_ends_where_the_range_begins_and_is_as_long(window):
    view = queries.View(window)
    since, until = view.before(NOW)
    assert until == view.since(NOW)
    assert until - since == int(NOW) - view.since(NOW)


def test_an_address_leaves_out_what_is_as_usual():
    assert queries.View().query == {}
    assert queries.View("1 hour", "payments").query == {"topic": "payments", "range": "1 hour"}
    assert queries.View(wording.CUSTOM, start=5, end=25).query == {"since": "5", "until": "25"}


def test_what_is_over_is_drawn_less_often():
    assert queries.refresh(queries.View("5 min"), NOW) == 1.0
    assert queries.refresh(queries.View("24 hours"), NOW) == 5.0
    assert queries.refresh(queries.View(wording.CUSTOM, start=0, end=60), NOW) == 10.0


# moments


def test_a_moment_is_in_the_zone_of_the_viewer_with_utc_under_the_pointer():
    at = 1_795_274_157.0
    assert wording.stamp(at, "Asia/Kolkata") == ("2026-11-21 20:45:57", "2026-11-21 15:15:57 UTC")
    assert wording.stamp(at, "Asia/Kolkata", at + 60).text == "20:45:57"
    assert wording.stamp(at, "Asia/Kolkata", at + 86_400).text == "2026-11-21 20:45:57"
    assert wording.stamp(at, None).text == wording.stamp(at, "No/Such_Zone").text == "2026-11-21 15:15:57"


def test_a_zone_has_a_name():
    assert [wording.zone_name(name, 1_795_274_157.0) for name in ("Europe/Berlin", "Asia/Dubai", None)] == [
        "CET", "UTC+04:00", "UTC",
    ]  # fmt: skip


def test_a_range_is_a_part_of_a_sentence():
    day = 86_400.0
    assert wording.during("15 min", 0, 900) == "in the last 15 min"
    assert wording.during(wording.CUSTOM, 0, 5400) == "from 00:00 to 01:30 on 1970-01-01"
    assert wording.during(wording.CUSTOM, 0, day + 30) == "from 1970-01-01 00:00:00 to 1970-01-02 00:00:30"
    assert wording.during(wording.CUSTOM, 0, 5400, "Asia/Dubai") == "from 04:00 to 05:30 on 1970-01-01"


# the sentence on top

WELL = queries.Situation(
    acknowledged=12_477, dead=0, window="15 min", connected=2, producers=2, closed=0, silent_for=0.5,
    connection_error=None, pending=0,
)  # fmt: skip
TOO_LARGE = queries.Cause("payments", "The message is larger than the topic allows.", 3, "abc")


def said(**changes):
    found = wording.headline(replace(WELL, **changes))
    return found.tone, found.text


def test_the_sentence_names_the_topic_and_the_reason_and_leads_to_both():
    found = wording.headline(replace(WELL, dead=3, causes=[TOO_LARGE]))
    assert found.tone == "warning"
    assert found.text == (
        "Delivering. 3 of 12,480 messages failed in the last 15 min, all on payments: "
        "the message is larger than the topic allows. See the records"
    )
    assert wording.sentence(replace(WELL, dead=3, causes=[TOO_LARGE]))[1] == found.text.removesuffix(
        " See the records"
    )
    links = {piece.text: (piece.page, dict(piece.query)) for piece in found.pieces if piece.page}
    assert links["payments"] == ("overview", {"topic": "payments"})
    assert links["See the records"] == ("dead-letters", {"topic": "payments", "group": "abc"})


def test_of_several_reasons_the_worst_is_said_with_its_number():
    policy = queries.Cause("payments", "A policy of the broker forbids this.", 1, "def")
    elsewhere = queries.Cause("orders", "It timed out.", 1, "ghi")
    assert "all on payments, most (3): the message is larger" in said(dead=4, causes=[TOO_LARGE, policy])[1]
    assert (
        "most (3) on payments: the message is larger"
        in said(dead=5, causes=[TOO_LARGE, policy, elsewhere])[1]
    )
    assert (
        "1 of 12,478 messages failed in the last 15 min, on payments:" in said(dead=1, causes=[TOO_LARGE])[1]
    )


@pytest.mark.parametrize(
    ("change", "tone", "text"),
    [
        ({}, "good", "Delivering. All 12,477 messages sent in the last 15 min were acknowledged."),
        ({"acknowledged": 1}, "good", "The one message sent in the last 15 min was acknowledged."),
        ({"acknowledged": 0}, "good", "Nothing was sent in the last 15 min."),
        ({"dead": 1, "failing": True}, "bad", "Failing now. 1 of 12,478 messages failed"),
        ({"dead": 5_000, "failing": True, "dying": True}, "bad", "Failing now. 5,000 of 17,477 messages failed in the last 15 min."),
        ({"dead": 3, "dying": True, "causes": [TOO_LARGE]}, "warning", "Delivering, but some fail. 3 of 12,480 messages failed"),
        ({"waiting": 60}, "good", "60 dead letters wait from before."),
        ({"stalled": True, "pending": 7}, "bad", "Not delivering. Nothing was acknowledged or given up for a minute. 7 messages wait."),
        ({"connected": 0, "connection_error": "refused", "pending": 1}, "bad", "No broker is connected: refused. 1 message waits."),
        ({"connected": 1, "connection_error": "refused"}, "warning", "1 of 2 producers reaches no broker: refused."),
        ({"gone": 1, "gone_for": 40.0}, "warning", "1 of 3 producers has not been seen for 40 s."),
        ({"producers": 0, "connected": 0, "gone": 1, "silent_for": 61.0}, "bad", "No producer has been seen for 61 s: it may have died."),
        ({"producers": 0, "connected": 0, "closed": 1, "silent_for": None}, "quiet", "No producer is running."),
        ({"acknowledged": 0, "producers": 0, "connected": 0, "silent_for": None}, "quiet", "No producer has written here yet."),
    ],
)  # fmt: skip
def test_each_trouble_has_its_sentence(change, tone, text):
    assert said(**change)[0] == tone
    assert text in said(**change)[1]


def test_what_was_replayed_since_is_said_as_cured_and_nothing_is_bad_any_more():
    cured = TOO_LARGE._replace(dead=527, waiting=0)
    tone, text = said(dead=527, cured=527, causes=[cured], failed_ago=300.0)
    assert tone == "good"
    assert text == (
        "Delivering. Nothing fails now. 527 of 13,004 messages failed in the last 15 min, all on payments: "
        "the message is larger than the topic allows; all 527 were replayed."
    )
    links = {
        piece.text: dict(piece.query)
        for piece in wording.headline(replace(WELL, dead=527, cured=527, causes=[cured])).pieces
        if piece.page
    }
    assert links["the message is larger than the topic allows"]["state"] == "any"
    assert said(dead=1, cured=1, causes=[cured._replace(dead=1)])[1].endswith("allows; it was replayed.")
    assert said(dead=9, cured=5, aside=4)[1].endswith(
        "failed in the last 15 min; 5 were replayed and 4 put aside."
    )


def test_the_sentence_names_what_waits_and_not_what_was_more_and_is_mended():
    cured = TOO_LARGE._replace(dead=527, waiting=0)
    open_ = queries.Cause("audit-log", "A policy of the broker forbids this.", 12, "def")
    tone, text = said(dead=539, cured=527, causes=[open_, cured], dying=True)
    assert (tone, text) == (
        "warning",
        "Delivering, but some fail. 539 of 13,016 messages failed in the last 15 min; 527 were replayed since, 12 are left, "
        "all on audit-log: a policy of the broker forbids this. See the records",
    )


def test_the_topic_that_fails_now_leads_and_the_largest_count_of_the_range_names_none():
    rejected = queries.Cause("audit-log", "A policy of the broker forbids this.", 12, "def", last=50.0)
    earlier = queries.Cause("audit-log", "It timed out.", 20, "ghi", last=10.0)
    most = TOO_LARGE._replace(dead=166, last=20.0)
    found = wording.headline(
        replace(WELL, dead=198, causes=[most, earlier, rejected], failing=True, dying=True, failing_topics=["audit-log"])
    )  # fmt: skip
    assert found.text == (
        "Failing now on audit-log: a policy of the broker forbids this. "
        "198 of 12,675 messages failed in the last 15 min. See the records"
    )
    records = next(piece for piece in found.pieces if piece.button)
    assert dict(records.query) == {"topic": "audit-log", "group": "def"}

    text = said(dead=178, causes=[most, rejected], dying=True, failing_topics=["audit-log", "clicks"])[1]
    assert text.startswith("Delivering, but some fail on audit-log and 1 other topic: a policy of the broker")

    both = said(dead=178, causes=[most, rejected], failing=True, failing_topics=["audit-log", "payments"])[1]
    assert both.startswith(
        "Failing now on audit-log and 1 other topic: a policy of the broker forbids this. 178 of"
    )

    text = said(dead=178, causes=[most], failing=True, failing_topics=["unlettered"])[1]
    assert text.startswith("Failing now on unlettered. 178 of 12,655 messages failed in the last 15 min.")


def test_a_red_sentence_never_begins_with_delivering():
    for change in ({"failing": True}, {"stalled": True}, {"connected": 0}, {"silent_for": 61.0}):
        tone, text = said(dead=9, causes=[TOO_LARGE], dying=True, **change)
        assert tone == "bad" and not text.startswith("Delivering")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"failed_ago": 36.0, "delivered": 1204, "recovered": True},
         "It is over: the last failure was 36 s ago, and 1,204 messages were delivered on payments since."),
        ({"failed_ago": 36.0, "delivered": 2}, "The last failure was 36 s ago; 2 messages were delivered on payments since."),
        ({"failed_ago": 300.0}, "The last failure was 5 min ago, and nothing was delivered on payments since: it may fail still."),
    ],
)  # fmt: skip
def test_the_end_of_a_fault_is_said_with_what_shows_it(change, text):
    tone, found = said(dead=3, causes=[TOO_LARGE], **change)
    assert tone == "warning" and f"topic allows. {text}" in found
    assert found.startswith("Delivering again. ") == change.get("recovered", False)


def test_an_outage_that_is_over_is_said_with_what_was_delivered_since(store):
    row = ClientRow(0, "c", "p", 1, 0, 0, 1, 0, 0, 0, 0, 0.0, 0, 0.0)
    seconds = range(int(NOW) - 90, int(NOW))
    looks = [row._replace(window_start=at, cut_off=int(-60 < at - NOW <= -35)) for at in seconds]
    store.append(Batch("q", 0, client_statistics=tuple(looks)))
    write(store, [counts(at, acknowledged=10) for at in range(int(NOW) - 30, int(NOW))])
    found = wording.headline(queries.overview(store, "15 min", NOW).situation)
    assert found.tone == "good"
    assert (
        "No broker was connected for 25 s; they came back 34 s ago, and 300 messages were delivered since."
        in found.text
    )
    assert "No broker" not in wording.headline(queries.overview(store, "15 min", NOW + 1200).situation).text


@pytest.mark.parametrize(
    ("change", "page"),
    [
        ({"connected": 0, "connection_error": "refused", "pending": 4}, "latency"),
        ({"stalled": True, "pending": 4}, "latency"),
        ({"silent_for": 61.0, "producers": 0, "connected": 0, "gone": 1}, "fleet"),
        ({}, "dead-letters"),
    ],
)
def test_the_button_leads_to_what_helps_now(change, page):
    pieces = wording.headline(replace(WELL, dead=3, causes=[TOO_LARGE], dying=True, **change)).pieces
    assert [piece.page for piece in pieces if piece.button] == [page]


def test_of_a_range_that_is_over_the_sentence_says_how_it_went():
    past = {"window": wording.CUSTOM, "over": True, "since": 0.0, "until": 3600.0, "connected": 0}
    assert said(**past, dead=3, causes=[TOO_LARGE])[1].startswith(
        "3 of 12,480 messages failed from 00:00 to 01:00 on 1970-01-01, all on payments"
    )
    assert said(**past)[0] == "good"
    assert said(**past, acknowledged=0) == ("quiet", "Nothing was sent from 00:00 to 01:00 on 1970-01-01.")


def test_what_is_read_aloud_changes_only_with_the_sense():
    first, later = (wording.headline(replace(WELL, dead=dead, causes=[TOO_LARGE])) for dead in (3, 4))
    assert first.text != later.text
    assert wording.sense(first) == wording.sense(later)
    assert wording.sense(wording.headline(WELL)) != wording.sense(first)


# against the same time before


def test_a_change_is_an_arrow_with_words_and_honest_where_there_is_no_before():
    better = wording.change(0.01, 0.02, wording.percent, good=-1)
    assert better == ("↓ from 2.00 %", "down from 2.00 %", "better")
    assert wording.change(0.02, 0.01, wording.percent, good=-1).tone == "worse"
    assert wording.change(0.0201, 0.02, wording.percent, good=-1).tone == ""
    assert wording.change(5.0, 9.0, wording.rate).tone == ""
    assert wording.change(0.01, 0.01, wording.percent).text == "as before"
    assert wording.change(0.01, None, wording.percent).text == "no value before"
    assert wording.change(None, None, wording.percent).text == ""
    assert wording.change(None, 0.01, wording.percent).text == "before: 1.00 %"


@pytest.mark.parametrize(("over", "expected"), [(False, 90 / 60), (True, 690 / 600)])
def test_the_throughput_of_the_only_topic_is_that_of_all(store, over, expected):
    """The tile said 346 /s and the only topic's row 949 /s: each had seconds of its own."""
    end = int(NOW) // 600 * 600
    write(store, [counts(end - 30, acknowledged=90), counts(end - 400, acknowledged=600)])
    view = queries.View(wording.CUSTOM, start=end - 600, end=end) if over else queries.View("15 min")

    page = queries.overview(store, view, end + 1.0)

    (row,) = page.topics
    assert (page.sums.throughput, row.throughput) == (pytest.approx(expected), pytest.approx(expected))
    tile = next(one for one in dashboard_charts.tiles(page) if one.label == "Throughput")
    assert ("messages of the range, by its seconds" in tile.more) == over


def test_numbers_are_compared_with_the_same_time_before(store):
    rows = [counts(NOW - 30, acknowledged=90, dead=10), counts(NOW - 330, acknowledged=199, dead=1)]
    slow, quick = bucket_of(0.5), bucket_of(0.005)
    latencies = [
        LatencyRow(int(NOW) - 30, "c", "p", "orders", slow, 90),
        LatencyRow(int(NOW) - 330, "c", "p", "orders", quick, 199),
    ]
    write(store, rows, latencies)
    page = queries.overview(store, "5 min", NOW)
    assert (page.sums.error_rate, page.before.error_rate) == (0.1, 0.005)
    assert page.sums.latency[3] == pytest.approx(0.5, rel=2 * RELATIVE_ERROR)
    assert page.before.latency[3] == pytest.approx(0.005, rel=2 * RELATIVE_ERROR)
    assert page.sums.throughput == pytest.approx(90 / 60)
    assert page.before.throughput == pytest.approx(199 / 60)
    shown = {tile.label: tile for tile in dashboard_charts.tiles(page)}
    assert (shown["Error rate"].value, shown["Error rate"].change.text) == ("10.0 %", "↑ from 0.50 %")
    assert shown["Latency p99.9"].change.tone == "worse"
    assert "The 5 min before: 0.50 %" in shown["Error rate"].more


def test_without_a_before_a_tile_says_so_and_invents_nothing(store):
    shop(store)
    shown = {tile.label: tile for tile in dashboard_charts.tiles(queries.overview(store, "5 min", NOW))}
    assert shown["Throughput"].change.text == "no value before"
    assert shown["Retry success"].value == "–"
    assert "Earlier values are not kept" in shown["Memory"].more
    assert shown["Memory"].note == "50.0 % of 256.0 MiB"


def test_retries_duplicates_and_verdicts_are_counted(store):
    write(
        store,
        [
            counts(
                NOW - 9,
                acknowledged=95,
                accepted=95,
                retried=10,
                retry_successes=8,
                duplicates=5,
                possible_duplicates=2,
            )
        ],
    )
    DeadLetters(store).add(
        [
            dead_letter(1, attempts=tries(3)),
            dead_letter(2, verdict="possibly_persisted", attempts=tries(2)),
            dead_letter(3, verdict="possibly_persisted"),
        ]
    )
    page = queries.overview(store, "5 min", NOW)
    assert (page.sums.retry_success, page.sums.suppressed) == (0.8, 0.05)
    shown = {tile.label: tile for tile in dashboard_charts.tiles(page)}
    assert shown["Dead letters"].note == "2 possibly persisted, 1 rejected"
    assert shown["Duplicates kept out"].note == "2 may be there twice"


def test_a_page_of_a_range_that_is_over_counts_that_range_alone(store):
    write(store, [counts(NOW - 30, acknowledged=1), counts(NOW - 5000, acknowledged=7)])
    page = queries.overview(
        store, queries.View(wording.CUSTOM, start=int(NOW) - 6000, end=int(NOW) - 4000), NOW
    )
    assert page.situation.acknowledged == 7
    assert page.now == int(NOW) - 4000
    assert [point.acknowledged for point in page.series] == [7]
    assert dashboard_charts.throughput(page).layout.xaxis.range[1].timestamp() == int(NOW) - 4000


def test_the_filters_hold_for_everything_that_is_counted(store):
    shop(store)
    DeadLetters(store).add([dead_letter(9, topic="orders", producer_id="other")])
    page = queries.overview(store, queries.View("5 min", topic="orders"), NOW)
    assert page.situation.dead == 1
    assert [row.topic for row in page.topics] == ["orders"]
    assert page.dead_by_topic == {"orders": 1}
    assert queries.overview(store, queries.View("5 min", producer="p"), NOW).dead_by_topic == {"payments": 3}


# trouble


def test_a_producer_that_vanished_in_the_range_is_missed_and_one_of_last_week_is_not(store):
    shop(store)
    store.append(Batch("q", 0, (), (), (), producer(producer_id="q", seen_at=NOW - 50)))
    store.append(Batch("r", 0, (), (), (), producer(producer_id="r", seen_at=NOW - 5000)))
    found = queries.overview(store, "15 min", NOW).situation
    assert (found.producers, found.gone, found.gone_for) == (1, 1, 50.0)
    assert "1 of 2 producers has not been seen for 50 s." in wording.headline(found).text


def test_what_waits_for_a_minute_without_a_settled_message_is_no_delivery(store):
    write(store, [counts(NOW - 90, acknowledged=5)], pending=9)
    assert queries.overview(store, "15 min", NOW).situation.stalled


@pytest.mark.parametrize(
    "changes",
    [{"pending": 0}, {"pending": 9, "waiting_retry": 9}, {"pending": 9, "started_at": 9e9}],
    ids=["nothing waits", "a retry waits", "it just began"],
)
def test_what_waits_for_a_good_reason_is_delivery(store, changes):
    write(store, [counts(NOW - 90, acknowledged=5)], **changes)
    assert not queries.overview(store, "15 min", NOW).situation.stalled


def test_the_first_message_after_a_quiet_time_is_delivery(store):
    write(store, [counts(NOW - 3, accepted=1)], pending=1)
    assert not queries.overview(store, "15 min", NOW).situation.stalled


# topics


def test_topics_are_sorted_by_trouble_and_say_why(store):
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
    assert rows[0].cause.meaning == "A policy of the broker forbids this."
    assert rows[1].cause.fingerprint == dead_letter(0).fingerprint
    assert (rows[1].waiting, rows[3].throughput) == (3, pytest.approx(100, rel=0.15))


def test_a_topic_whose_letters_were_all_replayed_is_fine_again(store):
    write(
        store,
        [counts(NOW - 200, "payments", acknowledged=5, dead=3), counts(NOW - 9, "payments", acknowledged=90)],
    )
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 200) for number in range(3)])
    waits = queries.overview(store, "15 min", NOW)
    assert (waits.topics[0].trouble, waits.situation.failing) == (1, False)
    assert wording.headline(waits.situation).tone == "warning"
    settled(store, "replayed")
    page = queries.overview(store, "15 min", NOW)
    assert (page.topics[0].trouble, page.topics[0].cured, page.situation.cured) == (0, 3, 3)
    assert wording.headline(page.situation).tone == "good"
    assert "all 3 were replayed" in wording.headline(page.situation).text
    assert "replayed since" in text_of(tiles._topic(page.topics[0], page.situation))
    assert "no broker connection" in text_of(
        tiles._topic(page.topics[0], replace(page.situation, connected=0))
    )


def test_a_topic_that_failed_when_it_was_last_written_to_still_fails(store):
    write(store, [counts(NOW - 200, "payments", dead=3), counts(NOW - 9, acknowledged=90)])
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 200) for number in range(3)])
    row = queries.overview(store, "15 min", NOW).topics[0]
    assert (row.topic, row.trouble) == ("payments", 3)


@pytest.mark.parametrize("window", ["5 min", "24 hours"])
def test_what_failed_minutes_ago_does_not_fail_now_however_long_the_range(store, window):
    rows = [counts(at, "payments", acknowledged=9) for at in range(int(NOW) - 200, int(NOW))]
    write(store, [*rows, counts(NOW - 180, "payments", dead=50)])
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 180) for number in range(50)])
    page = queries.overview(store, window, NOW)
    assert (page.topics[0].trouble, page.situation.failing, page.situation.dead) == (1, False, 50)


def test_the_sentence_and_the_table_count_the_same_deaths_while_statistics_are_late(store):
    write(store, [counts(NOW - 3, "payments", acknowledged=97, dead=2)])
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 3 + number) for number in range(3)])
    page = queries.overview(store, "5 min", NOW)
    assert page.situation.dead == page.topics[0].dead == page.causes[0].dead == 3


@pytest.mark.parametrize(("each", "over"), [(1, False), (10, True)])
def test_a_fault_is_over_when_so_many_were_delivered_since_that_it_would_have_shown(store, each, over):
    """Half of the messages failed, so a row of twenty without a failure shows it; eight are too few."""
    rows = [counts(at, "payments", acknowledged=5, dead=5) for at in range(int(NOW) - 60, int(NOW) - 14)]
    rows += [counts(at, "payments", acknowledged=each) for at in range(int(NOW) - 11, int(NOW) - 3)]
    write(store, rows)
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 60 + number / 5) for number in range(230)])
    page = queries.overview(store, "15 min", NOW)
    found, (row,) = page.situation, page.topics
    assert (found.recovered, found.failing, row.recovered) == (over, not over, over)
    assert (found.delivered, row.trouble) == (8 * each, 1 if over else 3)
    assert wording.headline(found).tone == ("warning" if over else "bad")


def test_what_explains_others_stands_before_what_follows_from_it(store):
    shop(store)
    fired = [
        alert("connection_lost", "p", NOW - 90, reason="refused"),
        alert("high_error_rate", "p", NOW - 20, value=0.3, threshold=0.05),
        alert("transactions_failing", "p", NOW - 10, text="a transaction failed"),
        alert("weak_replication", "orders", NOW - 5, text="orders has one replica"),
    ]
    AlertLog(store).record([AlertChange("fired", one) for one in fired])
    rules = [row["rule"] for row in queries.overview(store, "15 min", NOW).alerts]
    assert rules == ["connection_lost", "transactions_failing", "high_error_rate", "weak_replication"]
    everywhere = [item.rule for item in alerts_page(store, queries.View(), NOW).firing]
    assert everywhere == rules


def test_what_two_producers_say_in_the_same_words_is_one_line_and_what_is_over_stands_below(store):
    rows = [counts(at, "payments", acknowledged=5, dead=5) for at in range(int(NOW) - 60, int(NOW) - 14)]
    write(
        store, [*rows, *(counts(at, "payments", acknowledged=9) for at in range(int(NOW) - 11, int(NOW) - 3))]
    )
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 60 + number / 5) for number in range(230)])
    fired = [alert("connection_lost", name, NOW - 9, reason="refused") for name in ("p", "q")]
    fired += [
        alert(
            "error_budget_fast",
            "payments",
            NOW - 40,
            value=0.5,
            threshold=0.01,
            long="1 h",
            factor="9",
            objective="99 %",
        ),
        alert("weak_replication", "orders", NOW - 5, text="orders has one replica"),
    ]
    AlertLog(store).record([AlertChange("fired", one) for one in fired])
    first, second, third = queries.overview(store, "15 min", NOW).alerts
    assert [one["rule"] for one in (first, second, third)] == [
        "connection_lost",
        "weak_replication",
        "error_budget_fast",
    ]
    assert len(first["alert_ids"]) == 2 and "(2 producers say so)" in wording.alert(first, NOW)
    assert wording.alert(third, NOW).endswith(
        "payments delivers again: this looks back, and resolves by itself."
    )


def test_a_rule_of_ones_own_speaks_of_each_topic_although_its_words_do_not_name_it(store):
    """One line for two topics, «2 producers say so»; and it resolved when the built-in rule would have."""
    store.path.with_name("alerts.toml").write_text(
        '[rules.many_dead]\nkind = "threshold"\nmetric = "dead"\nabove = 5\ntext = "many die"\nkeep_firing_for = "1h"\n'
        '[rules.slow_delivery]\nkeep_firing_for = "2h"\n'
    )
    own = rule_set_of(store).rules["many_dead"]
    fired = [alert("many_dead", topic, NOW - 40, words=own) for topic in ("orders", "payments")]
    fired += [alert("slow_delivery", "orders", NOW - 40, says="slow", threshold=1.0)]
    AlertLog(store).record([AlertChange("fired", one) for one in fired])
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE alerts SET since = ?", [NOW - 600])

    found = queries.overview(store, "15 min", NOW).alerts

    assert sorted((one["rule"], one["subject"]) for one in found) == [
        ("many_dead", "orders"), ("many_dead", "payments"), ("slow_delivery", "orders"),
    ]  # fmt: skip
    ends = {one["rule"]: wording.alert(one, NOW) for one in found}
    assert ends["many_dead"].endswith("it resolves in 50 min.")
    assert ends["slow_delivery"].endswith("it resolves in 2 h.")


def test_a_topic_that_begins_to_fail_is_bad_at_once_however_much_it_delivered_before(store):
    rows = [counts(at, acknowledged=100) for at in range(int(NOW) - 600, int(NOW) - 45)]
    write(store, [*rows, *(counts(at, acknowledged=5, dead=5) for at in range(int(NOW) - 45, int(NOW)))])
    page = queries.overview(store, "15 min", NOW)
    assert (page.topics[0].trouble, page.situation.failing) == (3, True)


def test_topics_that_fail_alike_do_not_change_places_with_every_message(store):
    write(
        store,
        [
            counts(NOW - 9, name, acknowledged=1, dead=dead)
            for name, dead in (("b", 51), ("a", 50), ("c", 500))
        ],
    )
    assert [row.topic for row in queries.overview(store, "15 min", NOW).topics] == ["c", "a", "b"]


def test_two_codes_that_mean_the_same_are_one_reason(store):
    shop(store)
    codes = ("SASL_AUTHENTICATION_FAILED", "_AUTHENTICATION")
    DeadLetters(store).add(
        [dead_letter(40 + place, topic="orders", code=code) for place, code in enumerate(codes)]
    )
    causes = queries.overview(store, "15 min", NOW).causes
    assert [(cause.topic, cause.dead) for cause in causes] == [("payments", 3), ("orders", 2)]


@pytest.mark.parametrize("window", queries.RANGES)
def test_a_sparkline_has_a_place_for_each_part_of_the_range(store, window):
    shop(store)
    row = queries.overview(store, window, NOW).topics[0]
    assert len(row.rates) == len(row.failures) <= 51
    assert sum(count or 0 for count in row.failures) == 3


def test_a_sparkline_has_a_gap_where_nothing_was_written_and_a_bar_where_messages_failed():
    drawn = dashboard_charts.spark((1.0, 2.0, None, 3.0), (0, 4, None, 0), "orders")
    assert [child[0] for child in drawn[2]] == ["path", "path", "rect"]
    assert drawn[1]["aria-label"] == "orders"
    assert not dashboard_charts.spark((None, None), (None, None), "idle")[2]
    assert not dashboard_charts.spark((), (), "none")[2]


def test_windows_that_did_not_come_are_a_gap_in_the_curves_and_it_says_why(store):
    for number in (0, 1, 2, 6, 7):
        at = NOW - 100 + 10 * number
        store.append(Batch("p", number, (counts(at, acknowledged=5),), producer=producer(seen_at=at)))
    page = queries.overview(store, "5 min", NOW)
    assert page.missing == (3, 1)
    (line,) = dashboard_charts.throughput(page).data
    drawn = {int(at.timestamp()): value for at, value in zip(line.x, line.y, strict=True)}
    lost = [value for at, value in drawn.items() if NOW - 76 <= at < NOW - 44]
    assert lost and set(lost) == {None} and line.connectgaps is False

    said, why = wording.gaps(*page.missing)
    assert said == " · 3 windows of 1 producer missing" and "telemetry_lost" in why
    assert wording.gaps(0, 0) == ("", "")
    store.append(Batch("p", 5, first=3))  # it came later, joined
    assert queries.overview(store, "5 min", NOW).missing == (0, 0)


def test_a_list_that_is_cut_says_what_it_leaves_out():
    assert wording.topics_left(12, 12, 3) == ""
    assert wording.topics_left(14, 12, 3) == "and 2 more topics, none of them with trouble; choose one above"
    assert "3 of them with trouble" in wording.topics_left(20, 12, 15)


# links


@pytest.fixture
def looked_at(monkeypatch):
    def look(view):
        monkeypatch.setattr(header.st, "session_state", {"view": view})

    return look


def test_a_link_keeps_what_is_looked_at(looked_at):
    looked_at(queries.View("1 hour", "payments"))
    assert header.link("errors") == "errors?topic=payments&range=1+hour"
    assert (
        header.link("dead-letters", group="abc", topic="a&b")
        == "dead-letters?topic=a%26b&range=1+hour&group=abc"
    )
    assert header.link("alerts", alert="x", topic=None, range=None) == "alerts?alert=x"
    assert header.link("errors", since=5.5, until=65) == "errors?topic=payments&since=5&until=65"
    assert header.link(header.FIRST_PAGE, topic="orders") == "./?topic=orders&range=1+hour"


def test_a_link_keeps_a_range_of_ones_own(looked_at):
    looked_at(queries.View(wording.CUSTOM, start=5, end=65))
    assert header.link("errors") == "errors?since=5&until=65"
    assert header.link("errors", range="5 min") == "errors?range=5+min"
    looked_at(queries.View())
    assert header.link("errors") == "errors"
    assert header.link(header.FIRST_PAGE) == "./"


def test_names_from_outside_are_text_in_a_link():
    assert (
        common.link_element("<b>&", 'errors?x="')
        == '<a class="pc-link" href="errors?x=&quot;">&lt;b&gt;&amp;</a>'
    )


# the page


def opened(path, monkeypatch, **query):
    from streamlit.testing.v1 import AppTest

    monkeypatch.setattr("sys.argv", ["app", str(path)])
    app = AppTest.from_string("from producer_core.dashboard.app import main\n\nmain()\n", default_timeout=30)
    for name, value in query.items():
        app.query_params[name] = value
    return app.run()


@pytest.fixture
def drawn(monkeypatch):
    """The trees that the page drew, by their keys."""
    found = {}

    def note(*tree, key):
        found[key] = " | ".join(map(text_of, tree))

    monkeypatch.setattr("producer_core.dashboard.views.overview.live_dom", note)
    monkeypatch.setattr("producer_core.dashboard.views.firing_alerts.live_dom", note)
    return found


def test_a_failing_store_says_which_topic_fails_and_why_and_shows_every_part(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    assert not page.exception
    assert "all on payments: the message, or the batch" in drawn["headline"]
    for part in (
        "Error rate",
        "p99.9",
        "Pending",
        "3 rejected",
        "Duplicates kept out",
        "Memory",
        "some fail",
    ):
        assert part in drawn["figures"]
    assert "connected" in drawn["producers"]


@pytest.mark.parametrize("address", [{"topic": "nope"}, {"producer": "nope"}])
def test_a_link_to_a_name_that_the_store_does_not_know_says_so(path, store, monkeypatch, drawn, address):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch, **address)
    assert not page.exception
    (kind,) = address
    assert any(f"This store has no {kind} nope." in one.proto.body for one in page.get("html"))


def test_an_empty_store_says_how_to_begin(path, store, monkeypatch, drawn):
    page = opened(path, monkeypatch)
    assert not page.exception
    assert "No producer has written here yet" in drawn["headline"]
    assert f"--store {path}" in page.code[0].value
    assert "ReliableKafkaProducer" in page.code[1].value


def test_an_alert_that_fires_is_a_link_and_can_be_acknowledged(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    AlertLog(store).record(
        [AlertChange("fired", alert("high_error_rate", "p", NOW, value=0.3, threshold=0.05))]
    )
    page = opened(path, monkeypatch)
    acknowledge = next(button for button in page.button if button.label == "Acknowledge")
    assert any(key.startswith("alert-") for key in drawn)
    acknowledge.click().run()
    assert not page.exception
    assert "Acknowledge" not in [button.label for button in page.button]


def test_a_panel_that_fails_leaves_the_rest_alive(path, store, monkeypatch, drawn):
    def locked(*_):
        raise StoreLocked

    shop(store, seen_at=time.time() + 60)
    monkeypatch.setattr(overview.firing_alerts, "show", locked)
    page = opened(path, monkeypatch)
    assert not page.exception
    assert "Another process holds the store" in " ".join(element.body for element in page.get("html"))
    assert "payments" in drawn["headline"] and "shop" in drawn["producers"]


def test_a_store_that_goes_away_leaves_what_was_seen(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    drawn.clear()

    def gone(*_):
        raise StoreLocked

    monkeypatch.setattr(overview.reads, "overview", gone)
    page.run()
    assert not page.exception
    assert "payments" in drawn["headline"]
    assert "The store cannot be read now: everything below is as of" in drawn["headline"]


def test_the_address_opens_a_range_and_a_topic(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    opened(path, monkeypatch, range="1 hour", topic="orders")
    assert "in the last hour" in drawn["headline"]
    assert "payments" not in drawn["figures"]


def test_the_address_opens_a_range_of_ones_own_and_another_range_leaves_it(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch, since="86400", until="90000")
    assert not page.exception
    assert "Nothing was sent from 00:00 to 01:00 on 1970-01-02" in drawn["headline"]
    assert "This range is over" in drawn["headline"]
    page.segmented_control(key="range").set_value("5 min").run()
    assert "in the last 5 min" in drawn["headline"]
    assert "since" not in page.query_params


def test_custom_begins_with_what_is_looked_at_and_its_ends_can_be_moved(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    page.segmented_control(key="range").set_value(wording.CUSTOM).run()
    assert not page.exception
    since, until = page.session_state["custom"]
    assert 900 <= until - since <= 1080
    assert str(since) in page.query_params["since"]
    page.datetime_input(key="from").set_value(page.datetime_input(key="to").value).run()
    assert not page.exception
    assert page.session_state["custom"] == (until, 2 * until - since)


def test_a_paused_page_says_as_of_when_it_is(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    page.toggle(key="live").set_value(False).run()
    assert "Paused: everything is as of" in drawn["headline"]


def test_a_paused_page_calls_its_data_live_nowhere(path, store, monkeypatch, drawn):
    """It said «Paused» and «data is live» with a green dot."""
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    assert 'class="pc-data-age">Data is live' in html_of(page)

    page.toggle(key="live").set_value(False).run()

    assert "data is live" not in f"{html_of(page)} {drawn['headline']}".lower()
    assert 'class="pc-data-age pc-old">Paused' in html_of(page)


def html_of(page):
    return " ".join(element.body for element in page.get("html"))


def test_names_from_messages_are_text_and_never_markup(store):
    hostile = '<img src=x onerror="alert(1)">'
    write(store, [counts(NOW - 9, hostile, acknowledged=1, dead=1)])
    DeadLetters(store).add([dead_letter(1, topic=hostile)])
    page = queries.overview(store, "5 min", NOW)
    assert any(text_of(tree).find(hostile[:10]) >= 0 for tree in tiles.topics(page))
    assert "<img" not in dashboard_charts.throughput(page).to_json()


def test_a_producer_is_chosen_by_its_name_while_its_id_stands_in_the_address(path, store, monkeypatch, drawn):
    shop(store)
    page = opened(path, monkeypatch, producer="p")
    box = page.selectbox(key="producer")
    assert (box.value, box.options) == ("p", ["All producers", "shop (process 7 on host)"])
    page = box.set_value("All producers").run()
    assert "producer" not in page.query_params
    page = page.selectbox(key="producer").set_value("p").run()
    assert page.query_params["producer"] in ("p", ["p"])
    assert not page.exception
    unknown = opened(path, monkeypatch, producer="gone").selectbox(key="producer")
    assert (unknown.value, unknown.options[-1]) == ("gone", "gone")


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        ([1.0, 2.0, None, 3.0, 4.0], "lines"),
        ([1.0, None, 3.0, 4.0], "lines+markers"),
        ([None, 1.0, None], "lines+markers"),
        ([1.0], "lines+markers"),
        ([None, None], "lines"),
        ([], "lines"),
    ],
)
def test_a_value_alone_between_gaps_is_a_dot_and_all_others_are_lines(found, seen):
    assert chart.mode(found) == seen


def test_moments_without_a_broker_that_lie_apart_are_no_outage():
    def looks(*seconds):
        return [{"window_start": at, "seconds": 1, "cut_off": 1, "samples": 1} for at in seconds]

    assert outage(looks(0, 1, 300, 301), 400.0) is None
    found = outage(looks(0, 1, 300, 301, 302, 304, 305), 400.0)
    assert (found.seconds, found.until) == (5, 306)
