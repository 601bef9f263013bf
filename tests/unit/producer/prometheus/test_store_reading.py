"""The metrics of a store: totals that no clean-up lowers, and the present state of its producers."""

from __future__ import annotations

import os

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from producer_core.alerts import AlertChange, AlertLog, alert
from producer_core.alerts.alert_state import resolved
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import ConfigError, StoreCorrupt, StoreUnavailable
from producer_core.metrics.batch import KINDS
from producer_core.producer.prometheus import StoreCollector
from producer_core.producer.prometheus.store_reading import read
from producer_core.store import Batch, BrokerRow, ClientRow, ErrorRow, LatencyRow, StatisticsRow, Store
from tests.fixtures.dead_letters import dead_letter
from tests.fixtures.pages import producer
from tests.unit.store.test_retention import DAY, HOUR, NOW, fill

AGES = [*range(0, 3 * HOUR, 97), *range(3 * DAY, 5 * DAY, 1801), *range(88 * DAY, 95 * DAY, 3 * HOUR)]


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")


def client_rows(at):
    return {
        "client_statistics": (ClientRow(at, "c", "p", 1, 0, 2, 100, 3, 30, 300, 1, 0.1, 0, 0.0),),
        "broker_statistics": (
            BrokerRow(at, "c", "p", 1, "b:1", 1, 1, 0, 5, 2, 1, 1, *[4, 0.25] * 4, 1, *[0.5] * 7),
        ),
    }


def totals(store, now=NOW):
    found = read(store, now)
    return found.topics, found.failed_attempts, found.client, found.brokers


def test_rollup_pruning_and_compaction_lower_no_total(store):
    fill(store, AGES)
    for number, age in enumerate((10, 3 * HOUR, 4 * DAY, 91 * DAY), 1):
        store.append(Batch("p", number, **client_rows(NOW - age)))
    before = totals(store)
    assert before[0]["orders"].acknowledged > 1000
    assert before[2].batches == 12
    assert before[3][1].rtt_sum == 1.0

    for step in (
        lambda: store.rollup(NOW),
        lambda: store.prune(NOW),
        store.compact,
        lambda: store.prune(NOW + 60 * DAY),
    ):
        step()
        assert totals(store) == before
    store.prune(NOW + 400 * DAY)

    assert totals(store) == before
    with store.borrow() as connection:
        for table in KINDS:
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_pruning_again_and_again_keeps_one_row_of_totals_for_each_key(store):
    for number in range(5):
        at = NOW - (100 - number) * DAY
        store.append(Batch(f"p{number}", 0, (StatisticsRow(at, "c", f"p{number}", "t", *[1] * 10),)))
        store.prune(NOW)

    with store.borrow() as connection:
        rows = connection.execute(
            "SELECT first_window, topic, acknowledged FROM expired_statistics"
        ).fetchall()
    assert rows == [(NOW - 100 * DAY, "t", 5)]


def test_a_late_batch_older_than_the_retention_is_counted_once(store):
    late = Batch("p", 0, (StatisticsRow(NOW - 91 * DAY, "c", "p", "t", *[1] * 10),))
    store.append(late)
    store.prune(NOW)
    store.append(late)
    store.prune(NOW)

    assert read(store, NOW).topics["t"].acknowledged == 1


def test_the_totals_of_an_ended_and_forgotten_producer_remain(store):
    store.append(
        Batch(
            "p",
            0,
            (StatisticsRow(NOW - 91 * DAY, "c", "p", "t", *[3] * 10),),
            producer=producer("p", NOW, seen_at=NOW - 91 * DAY, closed_at=NOW - 91 * DAY),
        )
    )
    store.prune(NOW)

    found = read(store, NOW)
    assert found.topics["t"].acknowledged == 3
    assert found.producers.running == 0


def test_topics_are_in_the_order_in_which_the_store_learned_of_them(store):
    for number, (topic, age) in enumerate((("new", 1), ("old", 91 * DAY), ("middle", DAY))):
        store.append(Batch("p", number, (StatisticsRow(NOW - age, "c", "p", topic, *[1] * 10),)))
    store.rollup(NOW)
    store.prune(NOW)

    assert list(read(store, NOW).topics) == ["old", "middle", "new"]


def test_the_same_topic_of_two_clusters_and_producers_is_one_series(store):
    for number, cluster in enumerate("ab"):
        where = (NOW, cluster, f"p{number}", "t")
        store.append(
            Batch(
                f"p{number}", 0, (StatisticsRow(*where, *[2] * 10),), (LatencyRow(*where, 7, 2),),
                (ErrorRow(*where, "X", "local", 1),),
            )
        )  # fmt: skip

    found = read(store, NOW)
    assert found.topics["t"].acknowledged == 4
    assert found.topics["t"].buckets == {7: 4}
    assert list(found.failed_attempts.values()) == [2]


def test_only_running_producers_count_as_present_state(store):
    rows = [
        producer("a", NOW, pending=5, connected=True, application="checkout"),
        producer("b", NOW, pending=7, connected=False),
        producer("silent", NOW, pending=11, seen_at=NOW - 60),
        producer("closed", NOW, pending=13, closed_at=NOW),
        producer("dashboard", NOW, pending=17, client_id="producer-core-dashboard"),
    ]
    for row in rows:
        store.append(Batch(row.producer_id, 0, producer=row))

    found = read(store, NOW)
    assert (found.producers.running, found.producers.connected, found.producers.pending) == (2, 1, 12)
    assert found.applications == {"": 1, "checkout": 1}
    assert found.store.heartbeat_at == NOW


def test_dead_letters_are_counted_by_code_and_verdict_until_they_are_settled(store):
    dead_letters = DeadLetters(store)
    dead_letters.add([dead_letter(1), dead_letter(2)])
    dead_letters.archive(DeadLetterFilter(message_id="m-1"), who="ada", origin="cli")

    found = read(store, NOW).dead_letters

    assert {key.state: count for key, count in found.items()} == {"dead": 1, "archived": 1}
    assert {(key.code, key.verdict) for key in found} == {(dead_letter(1).code, dead_letter(1).verdict)}


def test_the_oldest_dead_letter_is_one_that_is_pending(store):
    dead_letters = DeadLetters(store)
    dead_letters.add([dead_letter(1, failed_at=NOW - 300), dead_letter(2, failed_at=NOW - 200.5)])
    dead_letters.archive(DeadLetterFilter(message_id="m-1"), who="ada", origin="cli")

    assert read(store, NOW).oldest_dead_letters == {dead_letter(2).topic: NOW - 200.5}


def test_firing_alerts_are_counted_by_rule_while_they_fire(store):
    first, second = (alert("fenced", f"p-{number}", NOW, text="x") for number in (1, 2))
    log = AlertLog(store)
    log.record([AlertChange("fired", item) for item in (first, second)])
    assert read(store, NOW).firing_alerts == {("fenced", "critical"): 2}

    log.record([AlertChange("resolved", resolved(first, NOW + 1))])
    assert read(store, NOW).firing_alerts == {("fenced", "critical"): 1}


def test_the_evaluation_of_alerts_runs_while_a_process_holds_its_lease(store):
    assert not read(store, NOW).store.alert_evaluation

    store.take_lease("alerts", "me", 15.0, NOW)
    assert read(store, NOW).store.alert_evaluation
    assert not read(store, NOW + 20).store.alert_evaluation


def test_a_scrape_does_not_make_producers_write_every_second(store):
    os.utime(store.path.with_name("store.duckdb.gate"), (0, 0))  # not read since long ago

    read(store, NOW)
    assert not store.recently_read()

    store.rows("totals")
    assert store.recently_read()


def test_an_empty_store_can_be_scraped(store):
    registry = CollectorRegistry()
    registry.register(StoreCollector(store, clock=lambda: NOW))

    text = generate_latest(registry).decode()

    assert "producer_core_producers 0.0" in text
    assert "heartbeat_timestamp" not in text


def test_registering_a_collector_reads_nothing(store):
    store.path.unlink()
    CollectorRegistry().register(StoreCollector(store))


def test_a_missing_or_damaged_store_raises_during_the_scrape(store):
    collector = StoreCollector(Store.open(store.path, create=False))
    store.path.write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreCorrupt):
        list(collector.collect())

    store.path.unlink()
    with pytest.raises(StoreUnavailable):
        list(collector.collect())


@pytest.mark.parametrize("kind", [str, lambda path: path], ids=["str", "path"])
def test_a_collector_opens_the_store_at_a_path(store, kind):
    assert b"\nproducer_core_producers 0.0\n" in StoreCollector(kind(store.path)).render()


def test_a_path_without_a_store_is_an_error_at_once_and_creates_nothing(tmp_path):
    with pytest.raises(StoreUnavailable, match="There is no store"):
        StoreCollector(tmp_path / "absent.duckdb")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [None, "", 5, Store], ids=repr)
def test_anything_but_a_store_is_an_error_with_a_fix(given):
    with pytest.raises(ConfigError, match="is not a store") as raised:
        StoreCollector(given)

    assert raised.value.fix.startswith("Pass the path of a store: ")
