"""Test the latency page: its queries on a real store, its charts, and the page in each state."""

from __future__ import annotations

import time

import pytest

from producer_core.dashboard import charts, queries, wording
from producer_core.dlq import DeadLetters
from producer_core.events import Attempt, DeadLetter
from producer_core.kafka.classify import fingerprint
from producer_core.metrics.histogram import RELATIVE_ERROR, bucket_of
from producer_core.store import Batch, BrokerRow, ClientRow, LatencyRow, ProducerRow, StatisticsRow, Store
from tests.fixtures.pages import tiles_of

NOW = 0.0
VIEW = queries.View("5 min")


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


def broker(at, number=1, **changes):
    row = BrokerRow(
        int(at), "c", "p", number, f"kafka{number}:9092", samples=1, up=1, down=0, requests=100, retries=0, timeouts=0,
        disconnects=0, queue_count=1000, queue_sum=6.0, outbuf_count=100, outbuf_sum=0.1, rtt_count=100, rtt_sum=0.4,
        throttle_count=100, throttle_sum=0.0, in_flight_highest=9, queue_highest=0.02, queue_p99=0.01,
        outbuf_highest=0.02, outbuf_p99=0.01, rtt_highest=0.03, rtt_p99=0.02, throttle_highest=0.0,
    )  # fmt: skip
    return row._replace(**changes)


def client(at, **changes):
    row = ClientRow(int(at), "c", "p", 1, 0, 1000, 100_000, 100, 1000, 200_000, 0, 0.02, 3, 0.0)
    return row._replace(**changes)


def messages(at, topic="orders", acknowledged=1000, dead=0):
    total = acknowledged + dead
    return StatisticsRow(
        int(at), "c", "p", topic, total, acknowledged, dead, dead, 0, 0, 0, 0, 10, 0.02 * acknowledged
    )


def dead_letter(number, *, failed_at):
    text = "Broker: Policy violation"
    return DeadLetter(
        message_id=f"m-{number}", cluster_id="c", producer_id="p", topic="payments", key=b"k", value=b"{}", headers=(),
        partition=None, timestamp_ms=None, verdict="rejected", verdict_reason="one transmission", kind="permanent",
        code="POLICY_VIOLATION", error_text=text, fingerprint=fingerprint("POLICY_VIOLATION", text),
        attempts=(Attempt(failed_at, "POLICY_VIOLATION", text),), accepted_at=failed_at - 1, failed_at=failed_at,
    )  # fmt: skip


def fill(store, *, seconds=120, topic="orders", brokers=(1, 2), client_rows=True, change=None, **changes):
    """Write `seconds` of load until now; `changes` apply to broker 2, `change` to the client."""
    ats = range(int(NOW) - seconds, int(NOW))
    quick, slow = bucket_of(0.005), bucket_of(0.5)
    row = ProducerRow(
        "p", "c", "shop", "host", 7, "0.1", NOW - 60, NOW + 60, None, True, None, 3, 1, 4, 100_000, 2**27, None, True,
        "at_least_once", "{}",
    )  # fmt: skip
    store.append(
        Batch(
            "p",
            0,
            tuple(messages(at, topic) for at in ats),
            tuple(
                LatencyRow(at, "c", "p", topic, bucket, count)
                for at in ats
                for bucket, count in ((quick, 990), (slow, 10))
            ),
            producer=row,
            client_statistics=tuple(client(at, **(change or {})) for at in ats) if client_rows else (),
            broker_statistics=tuple(
                broker(at, number, **(changes if number == 2 else {})) for at in ats for number in brokers
            )
            if client_rows
            else (),
        )
    )


def opened(path, monkeypatch, **address):
    from streamlit.testing.v1 import AppTest

    monkeypatch.setattr("sys.argv", ["app", str(path)])
    page = f"from pathlib import Path\nfrom producer_core.dashboard.views import latency\n\nlatency.show(Path({str(path)!r}))\n"
    app = AppTest.from_string(page, default_timeout=30)
    for name, value in address.items():
        app.query_params[name] = value
    return app.run()


def text_of(page):
    return " ".join(element.body for element in page.get("html"))


# data


def test_percentiles_of_merged_histograms_are_within_the_stated_error(store):
    fill(store)
    page = queries.latency(store, VIEW, NOW)
    p50, p95, p99, p999 = page.found
    assert p50 == p95 == p99 == pytest.approx(0.005, rel=2 * RELATIVE_ERROR)
    assert p999 == pytest.approx(0.5, rel=2 * RELATIVE_ERROR)
    assert {one.found for one in page.percentiles} == {page.found}


def test_the_parts_of_the_latency_are_weighted_means_that_add_up(store):
    fill(store, rtt_count=300, rtt_sum=3.6)
    page = queries.latency(store, VIEW, NOW)
    whole = page.spent[len(page.spent) // 2]
    assert whole.queue == pytest.approx(0.006)
    assert whole.rtt == pytest.approx(4.0 / 400)  # not (4 ms + 12 ms) / 2
    assert whole.queue + whole.outbuf + whole.rtt + whole.rest == pytest.approx(0.02)


def test_the_heatmap_counts_every_acknowledgement_once(store):
    fill(store)
    page = queries.latency(store, VIEW, NOW)
    assert sum(cell.count for cell in page.heat) == 120 * 1000
    for cell in page.heat:
        assert cell.low < (0.005 if cell.share > 0.5 else 0.5) <= cell.high * (1 + RELATIVE_ERROR)


def test_a_topic_filters_messages_but_not_client_statistics(store):
    fill(store)
    page = queries.latency(store, queries.View("5 min", topic="another"), NOW)
    assert page.topics == () and page.found == (None,) * 4
    assert page.whole.samples == 120 and len(page.brokers) == 2


def test_the_slowest_topic_comes_first(store):
    fill(store)
    rows = (LatencyRow(int(NOW) - 5, "c", "q", "refunds", bucket_of(2.0), 7),)
    store.append(Batch("q", 0, (messages(NOW - 5, "refunds", 7),), rows))
    assert [line.topic for line in queries.latency(store, VIEW, NOW).topics] == ["refunds", "orders"]


@pytest.mark.parametrize("window", queries.RANGES)
def test_every_range_is_diagnosed_and_drawn(store, window):
    fill(store)
    store.rollup(NOW + 3 * 3600)
    page = queries.latency(store, queries.View(window), NOW)
    assert [one.key for one in page.findings] == ["well"]
    assert charts.time_spent(page).data


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"rtt_sum": 40.0}, "Broker 2 (kafka2:9092) is slower than the others."),
        ({"up": 0, "down": 1, "rtt_count": 0}, "Broker 2 (kafka2:9092) is down or cannot be reached."),
        ({"throttle_sum": 9.0, "throttle_highest": 0.9}, "The brokers throttle this producer: its quota is used up."),
        ({"retries": 40}, "Retries use up capacity."),
        ({"change": {"fill_highest": 0.99}}, "The producer's queue is full."),
        ({"change": {"late_highest": 8.0}}, "Delivery reports are not polled in time."),
    ],
)  # fmt: skip
def test_the_diagnosis_names_the_cause(store, changes, title):
    fill(store, **changes)
    first = queries.latency(store, VIEW, NOW).findings[0]
    assert (first.title, first.ongoing) == (title, True)


def test_failures_are_diagnosed_by_their_most_frequent_cause_in_the_range(store):
    fill(store)
    store.append(Batch("q", 0, (messages(NOW - 50, "payments", 0, 20), messages(NOW - 9, "payments", 0, 10))))
    DeadLetters(store).add(
        [dead_letter(number, failed_at=NOW - (50.5 if number < 20 else 9.5)) for number in range(30)]
    )
    first = queries.latency(store, VIEW, NOW).findings[0]
    assert first.title.startswith("30 of 120,030 messages became dead letters on payments: ")
    assert first.evidence.startswith("30 of them with POLICY_VIOLATION")


# charts


def test_charts_of_an_empty_store_show_a_message_and_no_line(store):
    page = queries.latency(store, VIEW, NOW)
    for figure in (charts.percentiles, charts.heat, charts.time_spent, charts.rtt_by_broker):
        drawn = figure(page)
        assert not drawn.data
        assert drawn.layout.annotations[0].text.endswith("in this range.")


def test_throttling_is_drawn_as_a_line_over_the_parts(store):
    fill(store, throttle_sum=9.0)
    drawn = charts.time_spent(queries.latency(store, VIEW, NOW))
    assert [trace.type for trace in drawn.data] == ["bar"] * 4 + ["scatter"]


def test_a_second_without_statistics_is_a_gap(store):
    fill(store, seconds=60)
    page = queries.latency(store, VIEW, NOW)
    first = charts.percentiles(page).data[0]
    assert first.y[0] is None and first.y[-1] is not None


# the page


def test_the_page_of_an_empty_store_has_no_numbers(path, store, monkeypatch):
    page = opened(path, monkeypatch)
    assert not page.exception
    assert "no diagnosis is available" in text_of(page)
    assert [value for _, value in tiles_of(page)] == ["–"] * 8


def test_the_page_of_an_older_producer_has_percentiles_but_no_diagnosis(path, store, monkeypatch):
    fill(store, client_rows=False)
    page = opened(path, monkeypatch)
    assert not page.exception
    assert "no diagnosis is available" in text_of(page)
    assert tiles_of(page)[0] == ("p50", "5.0 ms")


def test_the_page_starts_with_the_diagnosis_its_evidence_and_setting(path, store, monkeypatch):
    fill(store, change={"fill_highest": 0.99})
    page = opened(path, monkeypatch)
    assert not page.exception
    text = text_of(page)
    assert text.index("The producer&#x27;s queue is full.") < text.index("By broker")
    assert "It was up to 99% full" in text and "<code>buffer_memory" in text
    assert [label for label, _ in tiles_of(page)[:4]] == ["p50", "p95", "p99", "p99.9"]
    assert "broker 2 (kafka2:9092)" in text


def test_a_past_finding_is_marked_as_earlier(path, store, monkeypatch):
    fill(store, seconds=30)
    start = int(NOW) // 10 * 10 - 200
    ats = range(start, start + 10)
    store.append(Batch("q", 0, client_statistics=tuple(client(at, cut_off=1) for at in ats)))
    text = text_of(opened(path, monkeypatch, range="5 min"))
    assert "Earlier: No broker could be reached." in text
    assert "no connection to any broker, so nothing was sent. Ended " in text
    assert (
        f"from {wording.stamp(start, None, time.time()).text} to {wording.stamp(start + 10, None, time.time()).text} UTC, for 10 s."
        in text
    )


def test_an_earlier_outage_is_no_current_finding(store):
    fill(store)
    outage = [client(at, cut_off=1) for at in range(int(NOW) - 300, int(NOW) - 200)]
    store.append(Batch("q", 0, client_statistics=tuple(outage)))
    for window in ("15 min", "24 hours"):
        first, second = queries.latency(store, queries.View(window), NOW).findings
        assert first.title.startswith("All is well now: ")
        assert (second.title, second.ongoing) == ("No broker could be reached.", False)


def test_an_old_single_sample_does_not_start_an_outage(store):
    fill(store)
    start = int(NOW) - 30
    samples = [client(at, cut_off=1) for at in (int(NOW) - 14 * 60, *range(start, int(NOW)))]
    store.append(Batch("q", 0, client_statistics=tuple(samples)))
    (found, *_) = [
        one for one in queries.latency(store, queries.View("15 min"), NOW).findings if one.key == "cut-off"
    ]
    assert found.ongoing and found.since >= start - 10


def test_a_topic_in_the_address_filters_the_page(path, store, monkeypatch):
    fill(store)
    page = opened(path, monkeypatch, topic="orders", range="5 min")
    assert not page.exception
    assert "cover all topics" in text_of(page)


def test_names_are_never_markup(path, store, monkeypatch):
    hostile = "<img src=x onerror=alert(1)>"
    fill(store, topic=hostile, rtt_sum=40.0, address=hostile)
    text = text_of(opened(path, monkeypatch))
    assert "onerror" in text and hostile not in text


@pytest.mark.parametrize("window", ["15 min", "24 hours", "7 days"])
def test_failures_have_the_same_times_in_every_range(store, window):
    fill(store)
    died = [NOW - 500.0, NOW - 300.0]
    DeadLetters(store).add([dead_letter(number, failed_at=at) for number, at in enumerate(died)])
    store.append(Batch("q", 0, tuple(messages(at, "payments", dead=1) for at in died)))
    (found,) = [
        one for one in queries.latency(store, queries.View(window), NOW).findings if one.key == "failing"
    ]
    assert (round(found.since), round(found.until), found.ongoing) == (round(died[0]), round(died[1]), False)
