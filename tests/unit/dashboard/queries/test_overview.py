"""Test the overview: its queries, texts and page, and the header of all pages."""

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


def failed_attempts(number):
    return tuple(Attempt(NOW - 9 + place, "_TIMED_OUT", "timed out") for place in range(number))


def set_state(store, state, **where):
    """Set the state of dead letters directly in the store."""
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
    """Write a minute of acknowledged orders, and payments of which three are too large."""
    rows = [counts(at, acknowledged=100) for at in range(int(NOW) - 60, int(NOW))]
    rows += [counts(NOW - 5, "payments", acknowledged=97, dead=3)]
    write(store, rows, [LatencyRow(int(NOW) - 30, "c", "p", "orders", bucket_of(0.005), 100)], **changes)
    DeadLetters(store).add([dead_letter(number) for number in range(3)])


# time ranges


def test_an_address_carries_a_time_range_in_seconds_and_malformed_values_are_ignored():
    assert queries.chosen("100", "400", NOW) == (100, 400)
    assert queries.chosen("400", "100", NOW) == (100, 400)
    assert queries.chosen("100.7", None, 500.0) == (100, 500)
    assert queries.chosen(None, "7200", NOW) == (3600, 7200)
    assert queries.chosen("100", "100", NOW) == (100, 110)
    for nonsense in ("yesterday", "-5", "1e400", "nan", "", None):
        assert queries.chosen(nonsense, None, NOW) is None


def test_a_custom_range_is_past_once_its_end_has_passed():
    view = queries.View(wording.CUSTOM, start=1000, end=4600)
    assert (view.seconds, view.since(9e9), view.until(9e9), view.at(9e9)) == (3600, 990, 4600, 4600.0)
    assert view.over(4600.0)
    assert (view.until(2000.0), view.at(2000.0), view.over(2000.0)) == (None, 2000.0, False)


@pytest.mark.parametrize("window", queries.RANGES)
def test_the_previous_period_ends_where_the_range_begins_and_has_its_length(window):
    view = queries.View(window)
    since, until = view.before(NOW)
    assert until == view.since(NOW)
    assert until - since == int(NOW) - view.since(NOW)


def test_an_address_omits_default_values():
    assert queries.View().query == {}
    assert queries.View("1 hour", "payments").query == {"topic": "payments", "range": "1 hour"}
    assert queries.View(wording.CUSTOM, start=5, end=25).query == {"since": "5", "until": "25"}


def test_past_ranges_refresh_less_often():
    assert queries.refresh(queries.View("5 min"), NOW) == 1.0
    assert queries.refresh(queries.View("24 hours"), NOW) == 5.0
    assert queries.refresh(queries.View(wording.CUSTOM, start=0, end=60), NOW) == 10.0


# times


def test_times_are_in_the_viewers_zone_with_utc_in_the_tooltip():
    at = 1_795_274_157.0
    assert wording.stamp(at, "Asia/Kolkata") == ("2026-11-21 20:45:57", "2026-11-21 15:15:57 UTC")
    assert wording.stamp(at, "Asia/Kolkata", at + 60).text == "20:45:57"
    assert wording.stamp(at, "Asia/Kolkata", at + 86_400).text == "2026-11-21 20:45:57"
    assert wording.stamp(at, None).text == wording.stamp(at, "No/Such_Zone").text == "2026-11-21 15:15:57"


def test_a_zone_has_an_abbreviation():
    assert [wording.zone_name(name, 1_795_274_157.0) for name in ("Europe/Berlin", "Asia/Dubai", None)] == [
        "CET", "UTC+04:00", "UTC",
    ]  # fmt: skip


def test_a_time_range_reads_as_a_phrase():
    day = 86_400.0
    assert wording.during("15 min", 0, 900) == "in the last 15 min"
    assert wording.during(wording.CUSTOM, 0, 5400) == "from 00:00 to 01:30 on 1970-01-01"
    assert wording.during(wording.CUSTOM, 0, day + 30) == "from 1970-01-01 00:00:00 to 1970-01-02 00:00:30"
    assert wording.during(wording.CUSTOM, 0, 5400, "Asia/Dubai") == "from 04:00 to 05:30 on 1970-01-01"


# the headline

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
        ({"dead": 3, "degraded": True, "causes": [TOO_LARGE]}, "warning", "Delivering, but some messages fail. 3 of 12,480 messages failed"),
        ({"waiting": 60}, "good", "60 dead letters pending from earlier."),
        ({"stalled": True, "pending": 7}, "bad", "Not delivering. No message settled for a minute. 7 messages pending."),
        ({"connected": 0, "connection_error": "refused", "pending": 1}, "bad", "No broker connection: refused. 1 message pending."),
        ({"connected": 1, "connection_error": "refused"}, "warning", "1 of 2 producers without a broker connection: refused."),
        ({"gone": 1, "gone_for": 40.0}, "warning", "1 of 3 producers not seen for 40 s."),
        ({"producers": 0, "connected": 0, "gone": 1, "silent_for": 61.0}, "bad", "No heartbeat from any producer for 61 s; the process may have crashed."),
        ({"producers": 0, "connected": 0, "closed": 1, "silent_for": None}, "quiet", "No producers running."),
        ({"acknowledged": 0, "producers": 0, "connected": 0, "silent_for": None}, "quiet", "No producer has written to this store yet."),
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
        "Delivering, but some messages fail. 539 of 13,016 messages failed in the last 15 min; 527 replayed since, 12 left, "
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
        "Delivering, but some messages fail on audit-log and 1 other topic: a broker policy"
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
         "Recovered: last failure 36 s ago, 1,204 messages delivered on payments since."),
        ({"failed_ago": 36.0, "delivered": 2}, "Last failure 36 s ago; 2 messages delivered on payments since."),
        ({"failed_ago": 300.0}, "Last failure 5 min ago; nothing delivered on payments since, so it may still be failing."),
    ],
)  # fmt: skip
def test_the_end_of_a_fault_is_reported_with_its_evidence(change, text):
    tone, found = headline_of(dead=3, causes=[TOO_LARGE], **change)
    assert tone == "warning" and f"topic allows. {text}" in found
    assert found.startswith("Delivering again. ") == change.get("recovered", False)


def test_a_past_outage_is_reported_with_the_messages_delivered_since(store):
    row = ClientRow(0, "c", "p", 1, 0, 0, 1, 0, 0, 0, 0, 0.0, 0, 0.0)
    seconds = range(int(NOW) - 90, int(NOW))
    samples = [row._replace(window_start=at, cut_off=int(-60 < at - NOW <= -35)) for at in seconds]
    store.append(Batch("q", 0, client_statistics=tuple(samples)))
    write(store, [counts(at, acknowledged=10) for at in range(int(NOW) - 30, int(NOW))])
    found = wording.headline(queries.overview(store, "15 min", NOW).situation)
    assert found.tone == "good"
    assert "No broker connection for 25 s, until 34 s ago; 300 messages delivered since." in found.text
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


# comparison with the previous period


def test_a_change_has_an_arrow_and_a_text_alternative_even_without_a_previous_value():
    better = wording.change(0.01, 0.02, wording.percent, good=-1)
    assert better == ("↓ from 2.00 %", "down from 2.00 %", "better")
    assert wording.change(0.02, 0.01, wording.percent, good=-1).tone == "worse"
    assert wording.change(0.0201, 0.02, wording.percent, good=-1).tone == ""
    assert wording.change(5.0, 9.0, wording.rate).tone == ""
    assert wording.change(0.01, 0.01, wording.percent).text == "unchanged"
    assert wording.change(0.01, None, wording.percent).text == "no previous value"
    assert wording.change(None, None, wording.percent).text == ""
    assert wording.change(None, 0.01, wording.percent).text == "before: 1.00 %"


@pytest.mark.parametrize(("over", "expected"), [(False, 90 / 60), (True, 690 / 600)])
def test_the_total_throughput_equals_that_of_a_single_topic(store, over, expected):
    """Once the tile showed 346 /s and the only topic's row 949 /s, because each used other seconds."""
    end = int(NOW) // 600 * 600
    write(store, [counts(end - 30, acknowledged=90), counts(end - 400, acknowledged=600)])
    view = queries.View(wording.CUSTOM, start=end - 600, end=end) if over else queries.View("15 min")

    page = queries.overview(store, view, end + 1.0)

    (row,) = page.topics
    assert (page.sums.throughput, row.throughput) == (pytest.approx(expected), pytest.approx(expected))
    tile = next(one for one in dashboard_charts.tiles(page) if one.label == "Throughput")
    assert ("over the range" in tile.more) == over


def test_numbers_are_compared_with_the_previous_period(store):
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
    assert "Previous 5 min: 0.50 %" in shown["Error rate"].more


def test_a_tile_without_a_previous_period_has_no_comparison(store):
    shop(store)
    shown = {tile.label: tile for tile in dashboard_charts.tiles(queries.overview(store, "5 min", NOW))}
    assert shown["Throughput"].change.text == "no previous value"
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
            dead_letter(1, attempts=failed_attempts(3)),
            dead_letter(2, verdict="possibly_persisted", attempts=failed_attempts(2)),
            dead_letter(3, verdict="possibly_persisted"),
        ]
    )
    page = queries.overview(store, "5 min", NOW)
    assert (page.sums.retry_success, page.sums.suppressed) == (0.8, 0.05)
    shown = {tile.label: tile for tile in dashboard_charts.tiles(page)}
    assert shown["Dead letters"].note == "2 possibly persisted, 1 rejected"
    assert shown["Suppressed duplicates"].note == "2 possible duplicates"


def test_a_past_range_counts_only_its_own_messages(store):
    write(store, [counts(NOW - 30, acknowledged=1), counts(NOW - 5000, acknowledged=7)])
    page = queries.overview(
        store, queries.View(wording.CUSTOM, start=int(NOW) - 6000, end=int(NOW) - 4000), NOW
    )
    assert page.situation.acknowledged == 7
    assert page.now == int(NOW) - 4000
    assert [point.acknowledged for point in page.series] == [7]
    assert dashboard_charts.throughput(page).layout.xaxis.range[1].timestamp() == int(NOW) - 4000


def test_filters_apply_to_every_count(store):
    shop(store)
    DeadLetters(store).add([dead_letter(9, topic="orders", producer_id="other")])
    page = queries.overview(store, queries.View("5 min", topic="orders"), NOW)
    assert page.situation.dead == 1
    assert [row.topic for row in page.topics] == ["orders"]
    assert page.dead_by_topic == {"orders": 1}
    assert queries.overview(store, queries.View("5 min", producer="p"), NOW).dead_by_topic == {"payments": 3}


# problems


def test_a_producer_lost_within_the_range_is_reported_and_an_older_one_is_not(store):
    shop(store)
    store.append(Batch("q", 0, (), (), (), producer(producer_id="q", seen_at=NOW - 50)))
    store.append(Batch("r", 0, (), (), (), producer(producer_id="r", seen_at=NOW - 5000)))
    found = queries.overview(store, "15 min", NOW).situation
    assert (found.producers, found.gone, found.gone_for) == (1, 1, 50.0)
    assert "1 of 2 producers not seen for 50 s." in wording.headline(found).text


def test_delivery_stalls_when_pending_messages_do_not_settle_for_a_minute(store):
    write(store, [counts(NOW - 90, acknowledged=5)], pending=9)
    assert queries.overview(store, "15 min", NOW).situation.stalled


@pytest.mark.parametrize(
    "changes",
    [{"pending": 0}, {"pending": 9, "waiting_retry": 9}, {"pending": 9, "started_at": 9e9}],
    ids=["without pending messages", "while only retries are pending", "right after its start"],
)
def test_delivery_has_not_stalled(store, changes):
    write(store, [counts(NOW - 90, acknowledged=5)], **changes)
    assert not queries.overview(store, "15 min", NOW).situation.stalled


def test_the_first_message_after_an_idle_period_is_no_stall(store):
    write(store, [counts(NOW - 3, accepted=1)], pending=1)
    assert not queries.overview(store, "15 min", NOW).situation.stalled


# topics


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


def test_a_topic_whose_latest_messages_failed_is_still_failing(store):
    write(store, [counts(NOW - 200, "payments", dead=3), counts(NOW - 9, acknowledged=90)])
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 200) for number in range(3)])
    row = queries.overview(store, "15 min", NOW).topics[0]
    assert (row.topic, row.trouble) == ("payments", 3)


@pytest.mark.parametrize("window", ["5 min", "24 hours"])
def test_failures_minutes_ago_do_not_count_as_current_in_any_range(store, window):
    rows = [counts(at, "payments", acknowledged=9) for at in range(int(NOW) - 200, int(NOW))]
    write(store, [*rows, counts(NOW - 180, "payments", dead=50)])
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 180) for number in range(50)])
    page = queries.overview(store, window, NOW)
    assert (page.topics[0].trouble, page.situation.failing, page.situation.dead) == (1, False, 50)


def test_headline_and_table_agree_while_statistics_are_late(store):
    write(store, [counts(NOW - 3, "payments", acknowledged=97, dead=2)])
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 3 + number) for number in range(3)])
    page = queries.overview(store, "5 min", NOW)
    assert page.situation.dead == page.topics[0].dead == page.causes[0].dead == 3


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


def test_an_alert_precedes_the_alerts_that_follow_from_it(store):
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


def test_equal_alerts_are_merged_and_recovered_ones_come_last(store):
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
    assert len(first["alert_ids"]) == 2 and "(reported by 2 producers)" in wording.alert(first, NOW)
    assert wording.alert(third, NOW).endswith(
        "payments is delivering again; the alert resolves automatically."
    )


def test_a_custom_rule_lists_each_topic_even_if_its_text_does_not_name_it(store):
    """Once two topics shared one line, "reported by 2 producers", with the resolve time of the built-in rule."""
    store.path.with_name("alerts.toml").write_text(
        '[rules.many_dead]\nkind = "threshold"\nmetric = "dead"\nabove = 5\ntext = "many die"\nkeep_firing_for = "1h"\n'
        '[rules.slow_delivery]\nkeep_firing_for = "2h"\n'
    )
    own = rule_set_of(store).rules["many_dead"]
    fired = [alert("many_dead", topic, NOW - 40, definition=own) for topic in ("orders", "payments")]
    fired += [alert("slow_delivery", "orders", NOW - 40, says="slow", threshold=1.0)]
    AlertLog(store).record([AlertChange("fired", one) for one in fired])
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE alerts SET since = ?", [NOW - 600])

    found = queries.overview(store, "15 min", NOW).alerts

    assert sorted((one["rule"], one["subject"]) for one in found) == [
        ("many_dead", "orders"), ("many_dead", "payments"), ("slow_delivery", "orders"),
    ]  # fmt: skip
    ends = {one["rule"]: wording.alert(one, NOW) for one in found}
    assert ends["many_dead"].endswith("resolves in 50 min.")
    assert ends["slow_delivery"].endswith("resolves in 2 h.")


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


def test_codes_with_the_same_meaning_are_one_cause(store):
    shop(store)
    codes = ("SASL_AUTHENTICATION_FAILED", "_AUTHENTICATION")
    DeadLetters(store).add(
        [dead_letter(40 + place, topic="orders", code=code) for place, code in enumerate(codes)]
    )
    causes = queries.overview(store, "15 min", NOW).causes
    assert [(cause.topic, cause.dead) for cause in causes] == [("payments", 3), ("orders", 2)]


@pytest.mark.parametrize("window", queries.RANGES)
def test_a_sparkline_covers_the_whole_range(store, window):
    shop(store)
    row = queries.overview(store, window, NOW).topics[0]
    assert len(row.rates) == len(row.failures) <= 51
    assert sum(count or 0 for count in row.failures) == 3


def test_a_sparkline_has_gaps_for_missing_data_and_bars_for_failures():
    drawn = dashboard_charts.spark((1.0, 2.0, None, 3.0), (0, 4, None, 0), "orders")
    assert [child[0] for child in drawn[2]] == ["path", "path", "rect"]
    assert drawn[1]["aria-label"] == "orders"
    assert not dashboard_charts.spark((None, None), (None, None), "idle")[2]
    assert not dashboard_charts.spark((), (), "none")[2]


def test_missing_windows_are_gaps_with_an_explanation(store):
    for number in (0, 1, 2, 6, 7):
        at = NOW - 100 + 10 * number
        store.append(Batch("p", number, (counts(at, acknowledged=5),), producer=producer(seen_at=at)))
    page = queries.overview(store, "5 min", NOW)
    assert page.missing == (3, 1)
    (line,) = dashboard_charts.throughput(page).data
    drawn = {int(at.timestamp()): value for at, value in zip(line.x, line.y, strict=True)}
    lost = [value for at, value in drawn.items() if NOW - 76 <= at < NOW - 44]
    assert lost and set(lost) == {None} and line.connectgaps is False

    note, tooltip = wording.gaps(*page.missing)
    assert note == " · 3 windows of 1 producer missing" and "telemetry_lost" in tooltip
    assert wording.gaps(0, 0) == ("", "")
    store.append(Batch("p", 5, first=3))  # the missing windows arrive later in one batch
    assert queries.overview(store, "5 min", NOW).missing == (0, 0)


def test_a_shortened_list_counts_the_topics_left_out():
    assert wording.topics_left(12, 12, 3) == ""
    assert wording.topics_left(14, 12, 3) == "and 2 more topics, none with problems; choose one above"
    assert "3 with problems" in wording.topics_left(20, 12, 15)


# links


@pytest.fixture
def current_view(monkeypatch):
    def set_view(view):
        monkeypatch.setattr(header.st, "session_state", {"view": view})

    return set_view


def test_a_link_keeps_the_current_view(current_view):
    current_view(queries.View("1 hour", "payments"))
    assert header.link("errors") == "errors?topic=payments&range=1+hour"
    assert (
        header.link("dead-letters", group="abc", topic="a&b")
        == "dead-letters?topic=a%26b&range=1+hour&group=abc"
    )
    assert header.link("alerts", alert="x", topic=None, range=None) == "alerts?alert=x"
    assert header.link("errors", since=5.5, until=65) == "errors?topic=payments&since=5&until=65"
    assert header.link(header.FIRST_PAGE, topic="orders") == "./?topic=orders&range=1+hour"


def test_a_link_keeps_a_custom_range(current_view):
    current_view(queries.View(wording.CUSTOM, start=5, end=65))
    assert header.link("errors") == "errors?since=5&until=65"
    assert header.link("errors", range="5 min") == "errors?range=5+min"
    current_view(queries.View())
    assert header.link("errors") == "errors"
    assert header.link(header.FIRST_PAGE) == "./"


def test_names_are_escaped_in_links():
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
    """Record the trees that the page renders, by key."""
    found = {}

    def note(*tree, key):
        found[key] = " | ".join(map(text_of, tree))

    monkeypatch.setattr("producer_core.dashboard.views.overview.live_dom", note)
    monkeypatch.setattr("producer_core.dashboard.views.firing_alerts.live_dom", note)
    return found


def test_the_page_shows_the_failing_topic_and_every_section(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    assert not page.exception
    assert "all on payments: the message, or the batch" in drawn["headline"]
    for part in (
        "Error rate",
        "p99.9",
        "Pending",
        "3 rejected",
        "Suppressed duplicates",
        "Memory",
        "some fail",
    ):
        assert part in drawn["figures"]
    assert "connected" in drawn["producers"]


@pytest.mark.parametrize("address", [{"topic": "nope"}, {"producer": "nope"}])
def test_an_unknown_name_in_the_address_shows_a_warning(path, store, monkeypatch, drawn, address):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch, **address)
    assert not page.exception
    (kind,) = address
    assert any(f"This store has no {kind} nope." in one.proto.body for one in page.get("html"))


def test_an_empty_store_shows_the_first_steps(path, store, monkeypatch, drawn):
    page = opened(path, monkeypatch)
    assert not page.exception
    assert "No producer has written to this store yet" in drawn["headline"]
    assert f"--store {path}" in page.code[0].value
    assert "ReliableKafkaProducer" in page.code[1].value


def test_a_firing_alert_is_a_link_and_can_be_acknowledged(path, store, monkeypatch, drawn):
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


def test_a_failed_panel_does_not_affect_the_others(path, store, monkeypatch, drawn):
    def locked(*_):
        raise StoreLocked

    shop(store, seen_at=time.time() + 60)
    monkeypatch.setattr(overview.firing_alerts, "show", locked)
    page = opened(path, monkeypatch)
    assert not page.exception
    assert "Another process holds the store" in " ".join(element.body for element in page.get("html"))
    assert "payments" in drawn["headline"] and "shop" in drawn["producers"]


def test_the_page_keeps_its_data_while_the_store_is_unavailable(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    drawn.clear()

    def unavailable(*_):
        raise StoreLocked

    monkeypatch.setattr(overview.reads, "overview", unavailable)
    page.run()
    assert not page.exception
    assert "payments" in drawn["headline"]
    assert "Store unavailable; showing data as of" in drawn["headline"]


def test_the_address_opens_a_range_and_a_topic(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    opened(path, monkeypatch, range="1 hour", topic="orders")
    assert "in the last hour" in drawn["headline"]
    assert "payments" not in drawn["figures"]


def test_the_address_opens_a_custom_range_until_another_range_is_chosen(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch, since="86400", until="90000")
    assert not page.exception
    assert "No messages sent from 00:00 to 01:00 on 1970-01-02" in drawn["headline"]
    assert "Past range" in drawn["headline"]
    page.segmented_control(key="range").set_value("5 min").run()
    assert "in the last 5 min" in drawn["headline"]
    assert "since" not in page.query_params


def test_a_custom_range_starts_from_the_current_range_and_its_ends_can_be_moved(
    path, store, monkeypatch, drawn
):
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


def test_a_paused_page_shows_the_time_of_its_data(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    page.toggle(key="live").set_value(False).run()
    assert "Paused; data as of" in drawn["headline"]


def test_a_paused_page_never_calls_its_data_live(path, store, monkeypatch, drawn):
    """Once the page showed "Paused" and "data is live" with a green dot."""
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    assert 'class="pc-data-age">Data is live' in html_of(page)

    page.toggle(key="live").set_value(False).run()

    assert "data is live" not in f"{html_of(page)} {drawn['headline']}".lower()
    assert 'class="pc-data-age pc-old">Paused' in html_of(page)


def html_of(page):
    return " ".join(element.body for element in page.get("html"))


def test_names_from_messages_are_never_markup(store):
    hostile = '<img src=x onerror="alert(1)">'
    write(store, [counts(NOW - 9, hostile, acknowledged=1, dead=1)])
    DeadLetters(store).add([dead_letter(1, topic=hostile)])
    page = queries.overview(store, "5 min", NOW)
    assert any(text_of(tree).find(hostile[:10]) >= 0 for tree in tiles.topics(page))
    assert "<img" not in dashboard_charts.throughput(page).to_json()


def test_a_producer_is_chosen_by_name_while_the_address_has_its_id(path, store, monkeypatch, drawn):
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
def test_only_a_value_between_gaps_is_drawn_as_a_marker(found, seen):
    assert chart.mode(found) == seen


def test_separate_moments_without_a_broker_are_no_outage():
    def samples(*seconds):
        return [{"window_start": at, "seconds": 1, "cut_off": 1, "samples": 1} for at in seconds]

    assert outage(samples(0, 1, 300, 301), 400.0) is None
    found = outage(samples(0, 1, 300, 301, 302, 304, 305), 400.0)
    assert (found.seconds, found.until) == (5, 306)


def test_the_largest_group_is_most_only_above_half():
    policy = queries.Cause("orders", "A broker policy forbids the request.", 3, "def")
    text = headline_of(dead=9, causes=[TOO_LARGE, policy])[1]
    assert "the largest group (3) on payments" in text and "most" not in text


def test_the_announcement_of_several_causes_is_a_sentence():
    policy = queries.Cause("payments", "A broker policy forbids the request.", 1, "def")
    text = wording.announcement(wording.headline(replace(HEALTHY, dead=4, causes=[TOO_LARGE, policy])))
    assert " ," not in text and not text.startswith(",")
