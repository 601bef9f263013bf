"""Test the data of the overview on a real store."""

from __future__ import annotations

import pytest

from producer_core.dashboard import charts, queries, wording
from producer_core.dashboard import charts as dashboard_charts
from producer_core.dlq import DeadLetters
from producer_core.events import Attempt
from producer_core.metrics.histogram import RELATIVE_ERROR, bucket_of
from producer_core.store import Batch, LatencyRow
from tests.fixtures.dead_letter_pages import dead_letter as rejected
from tests.fixtures.overview import counts, dead_letter, fill, producer, shop, write

NOW = 0.0


def failed_attempts(number):
    return tuple(Attempt(NOW - 9 + place, "_TIMED_OUT", "timed out") for place in range(number))


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
    assert (shown["Error rate"].value, shown["Error rate"].change.text) == ("10.0%", "↑ from 0.50%")
    assert shown["Latency p99.9"].change.tone == "worse"
    assert "Previous 5 min: 0.50%" in shown["Error rate"].more


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


@pytest.mark.slow
def test_filters_apply_to_every_count(store):
    shop(store)
    DeadLetters(store).add([dead_letter(9, topic="orders", producer_id="other")])
    page = queries.overview(store, queries.View("5 min", topic="orders"), NOW)
    assert page.situation.dead == 1
    assert [row.topic for row in page.topics] == ["orders"]
    assert page.dead_by_topic == {"orders": 1}
    assert queries.overview(store, queries.View("5 min", producer="p"), NOW).dead_by_topic == {"payments": 3}


def test_headline_and_table_agree_while_statistics_are_late(store):
    write(store, [counts(NOW - 3, "payments", acknowledged=97, dead=2)])
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 3 + number) for number in range(3)])
    page = queries.overview(store, "5 min", NOW)
    assert page.situation.dead == page.topics[0].dead == page.causes[0].dead == 3


def test_codes_with_the_same_meaning_are_one_cause(store):
    shop(store)
    codes = ("SASL_AUTHENTICATION_FAILED", "_AUTHENTICATION")
    DeadLetters(store).add(
        [dead_letter(40 + place, topic="orders", code=code) for place, code in enumerate(codes)]
    )
    causes = queries.overview(store, "15 min", NOW).causes
    assert [(cause.topic, cause.dead) for cause in causes] == [("payments", 3), ("orders", 2)]


@pytest.mark.slow
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
    assert note == " · 3 windows from 1 producer missing" and "telemetry_lost" in tooltip
    assert wording.gaps(0, 0) == ("", "")
    store.append(Batch("p", 5, first=3))  # the missing windows arrive later in one batch
    assert queries.overview(store, "5 min", NOW).missing == (0, 0)


def test_the_overview_shows_the_totals_of_the_store(store):
    fill(store)
    page = queries.overview(store, "15 min", NOW)
    assert page.error_rate == pytest.approx(0.01)
    assert page.throughput == pytest.approx(99.0, rel=0.2)
    assert (page.pending, page.waiting, page.seen_at) == (3, 1, NOW)


def test_percentiles_come_from_merged_histograms(store):
    fill(store)
    p50, p95, p99 = queries.overview(store, "5 min", NOW).latency
    assert p50 == pytest.approx(0.005, rel=2 * RELATIVE_ERROR)
    assert p95 == p99 == pytest.approx(0.5, rel=2 * RELATIVE_ERROR)


def test_the_headline_names_the_topic_with_dead_letters_not_the_one_with_retries(store):
    fill(store)
    DeadLetters(store).add([rejected(number, failed_at=NOW - 5) for number in range(60)])
    tone, text = wording.sentence(queries.overview(store, "15 min", NOW).situation)
    assert tone == "bad"
    assert text.startswith(
        "Failing now on payments: a broker policy forbids the request. 60 of 6,000 messages failed in the last 15 min."
    )


@pytest.mark.parametrize("window", queries.RANGES)
def test_every_range_has_about_a_hundred_chart_points(store, window):
    fill(store)
    page = queries.overview(store, window, NOW)
    assert queries.RANGES[window] / page.step <= queries.POINTS
    assert charts.throughput(page).data[0].name == "orders"
