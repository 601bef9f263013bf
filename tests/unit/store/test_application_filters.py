"""A query for one application or cluster returns what a store of that application alone returns."""

from __future__ import annotations

import pytest

from producer_core.alerts.rules import RULES
from producer_core.dlq import DeadLetters
from producer_core.metrics.batch import KINDS
from producer_core.store import Batch, Store
from producer_core.store.compression_samples import CompressionRow, save_compression
from producer_core.store.queries import queries
from tests.fixtures.replays import dead_letter
from tests.fixtures.store_batches import heartbeat

NOW = 1_000
APPLICATIONS = {"checkout": ("p-1", "c-1"), "billing": ("p-2", "c-2")}
FILTERED = sorted(name for name, query in queries().items() if "application" in query.parameters)
GIVEN = {
    "since": 0, "bucket": 1, "bucket_seconds": 1, "now": NOW, "before": 0, "recent": 0, "limit": 10,
    "topics": ["orders"], "lasts": [0.0],
}  # fmt: skip


def rows_of(name, producer, cluster):
    """Return a row of a kind for each topic, with 1 for every number. The dead letters of refunds are elsewhere."""
    known = {"window_start": NOW, "cluster_id": cluster, "producer_id": producer}
    known |= {"code": "X", "kind": "permanent", "address": "host:9092"}
    columns = KINDS[name].columns
    topics = ("orders", "refunds") if "topic" in columns else ("",)
    return tuple(
        KINDS[name].row(
            **{column: topic if column == "topic" else known.get(column, 1) for column in columns}
        )
        for topic in topics
    )


def add(store, application, number):
    producer, cluster = APPLICATIONS[application]
    row = heartbeat(producer, NOW, application=application, cluster_id=cluster, connected=True).producer
    store.append(
        Batch(producer, 0, producer=row, **{name: rows_of(name, producer, cluster) for name in KINDS})
    )
    store.append(Batch(producer, 5, producer=row))  # with a gap, so that windows are missing
    DeadLetters(store).add(
        [dead_letter(number, cluster_id=cluster, producer_id=producer, application=application)]
    )
    save_compression(
        store, [CompressionRow(producer, cluster, "orders", NOW, "lz4", 1.0, 9, 9, 99, 9, 9, 1.0, 1.0)]
    )
    store.execute(
        "alerts_fire", alert_id=f"a-{producer}", rule="producer_down", severity="critical", subject=producer, value=1,
        threshold=0, text="down", advice="", started_at=NOW, told_by=producer,
    )  # fmt: skip


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    both, alone = Store.open(folder / "both.duckdb"), Store.open(folder / "alone.duckdb")
    add(both, "billing", 2)
    add(both, "checkout", 1)
    add(alone, "checkout", 1)
    return both, alone


def found(store, name, **filters):
    given = {key: value for key, value in GIVEN.items() if key in queries()[name].parameters}
    if name == "codes_known_before":
        given["since"] = NOW + 1
    rows = store.rows(name, **given, **filters)
    return [{column: value for column, value in row.items() if column != "state_at"} for row in rows]


@pytest.mark.parametrize("filters", [{"application": "checkout"}, {"cluster": "c-1"}], ids=str)
@pytest.mark.parametrize("name", FILTERED)
def test_a_filtered_query_returns_what_a_store_of_that_application_alone_returns(stores, name, filters):
    both, alone = stores

    assert found(both, name, **filters) == found(alone, name)
    assert found(alone, name)


ALERT_QUERIES = ("alerts_firing", "alerts_history", "alerts_list", "alerts_shown")


@pytest.mark.parametrize("name", sorted({*FILTERED} - {*ALERT_QUERIES}))
def test_an_unknown_application_has_no_data(stores, name):
    both, _ = stores
    nothing = found(both, name, application="unknown")

    assert all(value in (0, None, "") for row in nothing for value in row.values())


def test_every_query_for_an_application_is_also_one_for_a_cluster():
    assert [name for name in FILTERED if "cluster" not in queries()[name].parameters] == []


def test_the_filter_offers_all_applications_and_clusters(stores):
    both, _ = stores
    heartless = Batch("p-3", 0, producer=heartbeat("p-3", NOW, cluster_id="").producer)
    both.append(heartless)

    assert [row["application"] for row in both.rows("applications")] == ["", "billing", "checkout"]
    assert [row["cluster_id"] for row in both.rows("clusters")] == ["c-1", "c-2"]


def fire(store, name, rule, subject, told_by):
    store.execute(
        "alerts_fire", alert_id=name, rule=rule, severity="critical", subject=subject, value=1, threshold=0, text="x",
        advice="", started_at=NOW, told_by=told_by,
    )  # fmt: skip


@pytest.fixture(scope="module")
def alerting(tmp_path_factory):
    """Return a store with alerts about a producer of billing, one of an unknown cluster, topics and the whole store."""
    store = Store.open(tmp_path_factory.mktemp("alerting") / "s.duckdb")
    known = {
        "p-2": ("billing", "c-2"),
        "p-1": ("checkout", "c-1"),
        "new": ("checkout", ""),
        "plain": ("", "c-1"),
    }
    for number, (producer, (application, cluster)) in enumerate(known.items()):
        row = heartbeat(producer, NOW, application=application, cluster_id=cluster).producer
        store.append(Batch(producer, 0, producer=row))
        fire(store, f"of {producer}", "connection_lost", producer, producer)
        fire(store, f"sum of {producer}", "high_dlq_size", producer, producer)
    fire(store, "of a topic", "circuit_opened", "orders", "p-2")
    fire(store, "of a rule", "error_budget_fast", "orders", None)
    return store


@pytest.mark.parametrize("name", ALERT_QUERIES)
def test_an_application_hides_only_the_alerts_about_producers_of_other_applications(alerting, name):
    given = {key: value for key, value in GIVEN.items() if key in queries()[name].parameters}
    every = {(row["rule"], row["subject"]) for row in alerting.rows(name, **given)}
    shown = {(row["rule"], row["subject"]) for row in alerting.rows(name, **given, application="checkout")}
    assert every - shown == {
        ("connection_lost", "p-2"),
        ("high_dlq_size", "p-2"),
        ("connection_lost", "plain"),
    }


@pytest.mark.parametrize("name", ALERT_QUERIES)
def test_a_cluster_hides_only_the_alerts_about_producers_of_other_known_clusters(alerting, name):
    given = {key: value for key, value in GIVEN.items() if key in queries()[name].parameters}
    every = {(row["rule"], row["subject"]) for row in alerting.rows(name, **given)}
    shown = {(row["rule"], row["subject"]) for row in alerting.rows(name, **given, cluster="c-1")}
    assert every - shown == {("connection_lost", "p-2"), ("high_dlq_size", "p-2")}


def test_the_queries_know_the_rules_that_every_producer_reports_about_its_store():
    shared = {name for name, rule in RULES.items() if rule.shared}
    assert {
        name for name in ALERT_QUERIES if not all(rule in queries()[name].sql for rule in shared)
    } == set()
