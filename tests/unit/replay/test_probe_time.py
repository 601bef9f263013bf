"""How long a topic keeps the record that a probe looks for."""

from __future__ import annotations

import pytest

from producer_core.dlq.objectives import TopicDecisions
from producer_core.kafka.topic_retention import TopicRetention
from producer_core.replay.broker_check import BrokerCheck, TopicCheck
from producer_core.replay.probe_time import checked_retentions, probe_time
from producer_core.store import Store
from tests.unit.replay.test_wording import CHECK

DAY, NOW = 86400.0, 1_800_000_000.0
WEEK_MS = 7 * 86_400_000
DOUBTFUL = TopicDecisions("orders", None, pending=1, doubtful_at=NOW - 2 * DAY, clusters=("c",))


@pytest.mark.parametrize(
    ("retention", "left", "text"),
    [
        (TopicRetention("delete", WEEK_MS), 5 * DAY, "5 d left"),
        (TopicRetention("delete", WEEK_MS // 7), -DAY, "over for 1 d"),
        (TopicRetention("delete", -1), None, "no limit"),
        (TopicRetention("compact", WEEK_MS), None, "compaction can remove it at any time"),
        (TopicRetention("compact,delete", WEEK_MS), None, "compaction can remove it at any time"),
        (TopicRetention("delete", None), None, "unknown: the broker does not report it"),
        (TopicRetention(reason="no broker responded"), None, "unknown: no broker responded"),
        (None, None, "unknown: the cluster was not asked"),
    ],
)
def test_the_time_comes_from_the_retention_of_the_topic(retention, left, text):
    known = (
        {}
        if retention is None
        else {("c", "orders"): retention, ("d", "orders"): TopicRetention("delete", 1)}
    )

    found = probe_time(DOUBTFUL, known, NOW)

    assert (found.left, found.text) == (left, text)


def test_nothing_is_needed_without_a_record_that_may_be_on_the_topic():
    assert probe_time(TopicDecisions("orders", None, pending=3), {}, NOW).text == "not needed"


@pytest.mark.parametrize("clusters", [("c", "d"), ("",)])
def test_several_or_unknown_clusters_give_no_time(clusters):
    one = TopicDecisions("orders", None, pending=1, doubtful_at=NOW, clusters=clusters)

    assert probe_time(one, {("c", "orders"): TopicRetention("delete", 1)}, NOW).text.startswith("unknown: ")


def test_the_latest_dry_run_of_a_cluster_counts(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    with store.borrow(write=True) as connection:
        for number, (cluster, limit) in enumerate([("c", 1), ("c", 2), ("d", 3)]):
            topic = TopicCheck(
                **{**CHECK, "topic": "orders", "cleanup_policy": "delete", "retention_ms": limit}
            )
            connection.execute(
                "INSERT INTO operations BY NAME SELECT ? AS operation_id, ? AS cluster_id, '{}' AS selection, "
                "'ready' AS state, 'ada' AS who, 'cli' AS origin, 0 AS created_at, 0 AS total, 0 AS acknowledged, "
                "0 AS landed, 0 AS failed_again, 0 AS skipped, ? AS checked, ? AS checked_at",
                [f"o{number}", cluster, BrokerCheck((topic,), NOW).to_json(), NOW + number],
            )

    found = checked_retentions(store)

    assert {key: one.retention_ms for key, one in found.items()} == {("c", "orders"): 2, ("d", "orders"): 3}
