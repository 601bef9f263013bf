"""Test the data and the diagnosis of the latency page on a real store."""

from __future__ import annotations

import pytest

from producer_core.dashboard import charts, queries
from producer_core.dlq import DeadLetters
from producer_core.events import Attempt, DeadLetter
from producer_core.kafka.classify import fingerprint
from producer_core.metrics.histogram import RELATIVE_ERROR, bucket_of
from producer_core.store import Batch, LatencyRow
from tests.fixtures.latency import broker, client, fill, messages
from tests.fixtures.pages import VIEW

NOW = 0.0


def dead_letter(number, *, failed_at, code="POLICY_VIOLATION"):
    text = "Broker: Policy violation"
    return DeadLetter(
        message_id=f"m-{number}", cluster_id="c", producer_id="p", topic="payments", key=b"k", value=b"{}", headers=(),
        partition=None, timestamp_ms=None, verdict="rejected", verdict_reason="one transmission", kind="permanent",
        code=code, error_text=text, fingerprint=fingerprint(code, text), attempts=(Attempt(failed_at, code, text),),
        accepted_at=failed_at - 1, failed_at=failed_at,
    )  # fmt: skip


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


def test_the_topic_filter_applies_to_messages_but_not_to_client_statistics(store):
    fill(store)
    page = queries.latency(store, queries.View("5 min", topic="another"), NOW)
    assert page.topics == () and page.found == (None,) * 4
    assert page.whole.samples == 120 and len(page.brokers) == 2


def test_the_slowest_topic_comes_first(store):
    fill(store)
    rows = (LatencyRow(int(NOW) - 5, "c", "q", "refunds", bucket_of(2.0), 7),)
    store.append(Batch("q", 0, (messages(NOW - 5, "refunds", 7),), rows))
    assert [line.topic for line in queries.latency(store, VIEW, NOW).topics] == ["refunds", "orders"]


@pytest.mark.slow
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
        ({"throttle_sum": 9.0, "throttle_highest": 0.9}, "The brokers are throttling this producer: quota exceeded."),
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


def test_an_earlier_outage_is_not_a_current_finding(store):
    fill(store)
    outage = [client(at, cut_off=1) for at in range(int(NOW) - 300, int(NOW) - 200)]
    store.append(Batch("q", 0, client_statistics=tuple(outage)))
    for window in ("15 min", "24 hours"):
        first, second = queries.latency(store, queries.View(window), NOW).findings
        assert first.title.startswith("No problems now: ")
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


def failing(store):
    (found,) = [one for one in queries.latency(store, VIEW, NOW).findings if one.key == "failing"]
    return found


def with_deaths(store, *deaths):
    """Store dead letters with these codes and times."""
    fill(store)
    DeadLetters(store).add(
        [dead_letter(number, failed_at=at, code=code) for number, (code, at) in enumerate(deaths)]
    )
    store.append(Batch("q", 0, tuple(messages(at, "payments", dead=1) for _, at in deaths)))


def test_mixed_failures_are_ongoing_since_the_first_of_the_cause_that_is_named(store):
    named = [("POLICY_VIOLATION", NOW - at) for at in (40, 30, 20, 5)]
    with_deaths(store, ("MSG_SIZE_TOO_LARGE", NOW - 280), *named)

    found = failing(store)

    assert found.evidence.startswith("4 of them with POLICY_VIOLATION")
    assert (round(found.since), found.ongoing) == (round(NOW - 40), True)


def test_mixed_failures_whose_named_cause_is_over_are_ongoing_since_the_first_failure(store):
    named = [("POLICY_VIOLATION", NOW - at) for at in (280, 270, 260)]
    with_deaths(store, ("MSG_SIZE_TOO_LARGE", NOW - 290), *named, ("MSG_SIZE_TOO_LARGE", NOW - 5))

    found = failing(store)

    assert found.evidence.startswith("3 of them with POLICY_VIOLATION")
    assert (round(found.since), found.ongoing) == (round(NOW - 290), True)


def test_brokers_of_different_clusters_are_separate_and_a_cluster_can_be_selected(store):
    fill(store)
    row = broker(NOW - 5, 1)._replace(cluster_id="d", producer_id="q", rtt_sum=9.0)
    store.append(Batch("q", 0, broker_statistics=(row,)))

    both = queries.latency(store, VIEW, NOW)
    assert [(one.cluster_id, one.broker_id) for one in both.brokers] == [("c", 1), ("c", 2), ("d", 1)]
    assert sorted(both.rtt_by_broker) == [
        "broker 1 (kafka1:9092), cluster c", "broker 1 (kafka1:9092), cluster d", "broker 2 (kafka2:9092), cluster c",
    ]  # fmt: skip
    (only,) = queries.latency(store, queries.View("5 min", cluster="d"), NOW).brokers
    assert only.rtt == 9.0 / row.rtt_count


def outage(store, *, rows=lambda at: ()):
    """Write a minute of two brokers, and then six seconds in which the client has none; `rows` are those of brokers."""
    before, during = range(int(NOW) - 60, int(NOW) - 6), range(int(NOW) - 6, int(NOW))
    clients = [*(client(at) for at in before), *(client(at, cut_off=1) for at in during)]
    brokers = [broker(at, number) for at in before for number in (1, 2)] + [
        row for at in during for row in rows(at)
    ]
    store.append(Batch("p", 0, client_statistics=tuple(clients), broker_statistics=tuple(brokers)))


@pytest.mark.parametrize(
    "rows",
    [lambda at: (), lambda at: tuple(broker(at, number, up=0, down=1) for number in (1, 2))],
    ids=["brokers that the client no longer lists", "brokers that are down"],
)
def test_the_table_of_brokers_agrees_with_the_finding_that_none_can_be_reached(store, rows):
    outage(store, rows=rows)
    page = queries.latency(store, VIEW, NOW)
    assert page.findings[0].title == "No broker can be reached." and page.findings[0].ongoing
    assert set(page.connections.values()) == {"not connected"} and len(page.connections) == 2


def test_each_broker_has_the_connection_of_its_latest_samples(store):
    ats = range(int(NOW) - 60, int(NOW))
    down = [broker(at, 2, up=0, down=1) for at in ats]
    store.append(
        Batch(
            "p",
            0,
            client_statistics=tuple(map(client, ats)),
            broker_statistics=tuple(map(broker, ats)) + tuple(down),
        )
    )
    assert queries.latency(store, VIEW, NOW).connections == {"1@c": "connected", "2@c": "not connected"}


def test_a_broker_that_some_producers_reach_is_partly_connected(store):
    ats = range(int(NOW) - 60, int(NOW))
    for producer, state in (("p", {}), ("q", {"up": 0, "down": 1})):
        rows = tuple(broker(at, 1, producer_id=producer, **state) for at in ats)
        store.append(
            Batch(
                producer,
                0,
                client_statistics=tuple(client(at, producer_id=producer) for at in ats),
                broker_statistics=rows,
            )
        )
    assert queries.latency(store, VIEW, NOW).connections == {"1@c": "partly connected"}


def test_the_connection_is_unknown_without_recent_samples(store):
    ats = range(int(NOW) - 90, int(NOW) - 60)
    store.append(
        Batch("p", 0, client_statistics=tuple(map(client, ats)), broker_statistics=tuple(map(broker, ats)))
    )
    assert queries.latency(store, VIEW, NOW).connections == {"1@c": "no data"}
